"""Syntax that has no meaning in a kernel is refused with its place and a repair."""

import pytest


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("try:\n    pass\nfinally:\n    pass", "try"),
        ("class C: pass", "class"),
        ("global g", "global"),
        ("x = n\ndel x", "del"),
        ("match n:\n    case _: pass", "match"),
        ("yield n", "yield"),
        ("yield from n", "yield from"),
        ("x = n > 0 and (k := 1)", ":="),
        ("x = [(k := i) for i in range(2)]", ":="),
        ("while (k := n) > 1: pass", ":="),
        ("v = T.alloc_var('int32', 0)\nx = v + (v := 1)", ":="),
        ("async def f(): pass", "async def"),
    ],
)
def test_unsupported_statements(trace, statement, name):
    with pytest.raises(NotImplementedError, match=rf"`{name}` is not supported[\s\S]*; ") as raised:
        trace(statement)
    assert "--> <kernel " in str(raised.value)


def test_the_place_is_line_and_column(trace):
    with pytest.raises(NotImplementedError, match=r"--> <kernel \d+>:6:24\n   \|.*k := 1"):
        trace("x = 1\nx = n > 0 and (k := 1)")


@pytest.mark.parametrize("loop", ["for i in range(2)", "while n > 2"])
def test_else_of_a_loop(trace, loop):
    with pytest.raises(NotImplementedError, match="`else` of a loop"):
        trace(f"{loop}:\n    pass\nelse:\n    pass")


def test_a_target_that_is_not_a_name(trace):
    with pytest.raises(NotImplementedError, match=r"`A\[0, 0\]` cannot be bound here"):
        trace("for A[0, 0] in range(2):\n    pass")


def test_imports_lambdas_comprehensions_and_fstrings_are_python(traced):
    text = traced("""
        import math
        double = lambda x: 2 * x
        A[0, double(math.floor(1.5))] = len(f"{n}") + sum(k for k in range(4) if k % 2)
    """)
    assert text == "A[0, 2] = T.float32(5.0)\n"


def test_a_lambda_parameter_hides_a_variable(traced):
    assert traced("x = n + 1\nf = lambda x: x\nA[0, f(3)] = x") == (
        "x: T.let[T.int32] = n + 1\nA[0, 3] = T.Cast('float32', x)\n".replace("'", '"')
    )


def test_statements_after_a_break_are_ignored_with_a_warning(traced):
    with pytest.warns(UserWarning, match="never reached"):
        text = traced("for i in range(4):\n    A[0, i] = 0\n    break\n    A[1, i] = 0")
    assert "A[1, i]" not in text
    assert "T.break_loop()" in text


def test_an_assignment_in_an_expression_binds(traced):
    assert traced("if (k := n * 2) > 3: A[0, k] = k") == traced("k = n * 2\nif k > 3: A[0, k] = k")
    assert traced("A[0, (k := 1)] = 2") == "A[0, 1] = T.float32(2.0)\n"
