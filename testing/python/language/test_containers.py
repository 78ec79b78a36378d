"""Searches in containers that have scalars of the program among their members."""

import numpy as np
import pytest


def test_lists_are_indexed_by_what_python_takes_for_a_number(traced, trace):
    """A number of numpy was refused, and a loop's variable without a word on lists."""
    a = [5, 6, 7]
    text = traced("a[k] += 1\nA[0, 0] = a[k]\nA[0, 1] = a[T.int32(2)]", a=a, k=np.int64(1))
    assert text == "A[0, 0] = T.float32(7.0)\nA[0, 1] = T.float32(7.0)\n"
    with pytest.raises(TypeError, match="index the expression i of a list has no value while"):
        trace("for i in T.serial(3):\n    A[0, i] = a[i]", a=a)


@pytest.mark.parametrize(
    "asks",
    [
        *("{0: 5, 1: 6}.get(tx, 9)", "{0: 5, 1: 6}[tx]", "{tx: 5}.pop(3, 9)", "3 in {tx, n}"),
        *("{(0, 1): 5}.get((tx, 1), 9)", "{3}.add(tx)", "{0: 5}.setdefault(n, 9)"),
        *("len({tx, 2})", "len({tx * k for k in range(3)})", "len(set([tx, 1]))"),
    ],
)
def test_a_key_that_only_the_run_knows_is_refused(trace, asks):
    """It had another hash than the number that it was: `get` gave the default."""
    with pytest.raises(TypeError, match="asked for a key while tracing, and found"):
        trace(f"A[0, 0] = {asks}")


def test_objects_are_keys(traced):
    text = traced(
        "d = {A: 1, tx: 2, 'x': 3}\nd[n] = 4\nA[0, 0] = d[A] + d[tx] + d[n] + d.get(B, 9)"
    )
    assert text == "A[0, 0] = T.float32(16.0)\n"


def test_sets_of_what_python_knows(traced):
    sets = "len({k % 2 for k in range(3)}) + len(set([1, 1])) + len({*range(3), 2})"
    assert traced(f"A[0, 0] = {sets}") == "A[0, 0] = T.float32(6.0)\n"
