"""Branches and loops, and the jumps in them."""

import pytest


def test_branches(traced):
    assert traced("""
        if tx == 0:
            A[0, 0] = 1
        elif n:
            A[0, 1] = 2
        else:
            A[0, 2] = 3
    """) == (
        "if tx == 0:\n    A[0, 0] = T.float32(1.0)\nelse:\n    if n != 0:\n"
        "        A[0, 1] = T.float32(2.0)\n    else:\n        A[0, 2] = T.float32(3.0)\n"
    )


def test_while_break_continue(traced, trace, round_trip):
    statements = """
        while n > 3:
            if n == 4:
                continue
            if n == 5:
                break
            A[0, 0] = 1
    """
    text = traced(statements)
    assert text.startswith("while n > 3:\n    if n == 4:\n        T.continue_loop()\n")
    assert "    if n == 5:\n        T.break_loop()\n" in text
    round_trip(trace(statements))


def test_break_of_a_python_loop(traced):
    assert traced("for u in (0, 1, 2):\n    if u == 1:\n        break\n    A[0, u] = 0") == (
        "A[0, 0] = T.float32(0.0)\n"
    )


def test_break_of_a_python_loop_under_a_runtime_condition(trace):
    with pytest.raises(NotImplementedError, match=r"iterate over T\.serial"):
        trace("for u in (0, 1):\n    if n == u:\n        break")


def test_break_of_a_parallel_loop(trace):
    with pytest.raises(NotImplementedError, match="`break` in the parallel loop at line 5"):
        trace("for i in T.Parallel(4):\n    break")


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("while True:\n    pass", RuntimeError, "Infinite while loop"),
        ("for i in A:\n    pass", TypeError, "cannot iterate over the buffer A"),
        ("for i, j in T.Parallel(4):\n    pass", ValueError, "wanted 2"),
    ],
)
def test_errors_name_the_place(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> <kernel \d+>:\d+:\d+\n   \|"):
        trace(statement)
