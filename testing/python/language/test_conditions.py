"""Conditions are decided while tracing where they can be."""

import pytest


def test_conditions_in_python_fold(traced):
    assert traced("if 1 < 2 and not None:\n    A[0, 0] = 1\nelse:\n    A[0, 0] = 2") == (
        "A[0, 0] = T.float32(1.0)\n"
    )


def test_a_condition_that_is_another_object_warns(trace):
    with pytest.warns(UserWarning, match="decided while tracing"):
        trace("if [1]:\n    A[0, 0] = 1")


def test_boolean_operators_and_chains(traced):
    text = traced("if 0 <= tx < n and (n > 2 or not n == 1) and True:\n    A[0, tx] = 0")
    assert text.startswith("if tx >= 0 and tx < n and (n > 2 or not n == 1):\n")


def test_boolean_operators_of_python_values_are_pythons(traced):
    assert traced("x = None or 3\ny = x and 2\nA[x, y] = 0") == "A[3, 2] = T.float32(0.0)\n"


def test_ternary(traced):
    assert traced("A[0, 0] = 1 if n > 2 else A[0, 1]\nA[0, 1] = 1 if len('a') else 2") == (
        "A[0, 0] = T.if_then_else(n > 2, T.float32(1.0), A[0, 1])\nA[0, 1] = T.float32(1.0)\n"
    )


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("if A:\n    pass", TypeError, "the condition is the buffer A"),
        ("x = [i for i in (1, 2) if i == n]", TypeError, "condition of a comprehension"),
        ("if n in (1, 2):\n    pass", TypeError, "write x == a or x == b"),
    ],
)
def test_errors_name_the_place(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> <kernel \d+>:\d+:\d+\n   \|"):
        trace(statement)
