"""Calls that are not tile operators."""

import pytest


def test_calls(trace, traced, round_trip):
    statements = """
        T.call_extern("void", "put", T.address_of(A[0, n]), T.address_of(B))
        A[0, 0] = T.call_extern(T.float32, "get", 1)
        T.evaluate(T.call_intrin("int32", "tirx.popcount", n))
    """
    assert traced(statements) == (
        'T.call_extern("void", "put", T.address_of(A[0, n]), T.address_of(B[0, 0]))\n'
        'A[0, 0] = T.call_extern("float32", "get", 1)\n'
        "T.popcount(n)\n"
    )
    round_trip(trace(statements))


@pytest.mark.parametrize(
    ("statement", "message"),
    [("T.evaluate(A)", "wanted a call"), ("T.address_of(n)", "wanted a buffer or an element")],
)
def test_errors(trace, statement, message):
    with pytest.raises(TypeError, match=rf"{message}[\s\S]*--> "):
        trace(statement)
