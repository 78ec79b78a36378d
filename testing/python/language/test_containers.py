"""Containers that have scalars of the program among their members."""

import dataclasses
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T


@dataclasses.dataclass
class Point:
    x: object
    y: object = 0


class Pair(NamedTuple):
    x: object
    y: object


class Length:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

    __hash__ = None


class Number:
    """A number that is compared with numbers."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other

    __hash__ = None


PAIRS = [(1, 1), (1, 2), (2, 1), (0, 3), (1, 3), (3, 0)]


def compared(a, b):
    return [
        a == Number(2),
        Number(2) != b,
        a == None or b != "b",  # noqa: E711
        [a, 1] == [b, 1],
        (a, (b,)) != (1, (2,)),
        (a, b) < (1, 2),
        [a, b] >= [1],
        (a, b) > (1,),
        (a, 5, b) > (a, 5, 1),
        Point(a) == Point(b),
        Point(a, b) != Point(1, 2),
        Pair(a, b) == (1, 2),
        Length(a) != Length(b),
        [a] == (a,) or [a] == [b, b],
    ]


def test_members_are_compared_by_their_values(device):
    """TVM's scalars are equal if they are one object, and so were lists of them."""
    traced = T.macro(compared)

    @T.prim_func
    def main(A: T.Tensor((6, 2), "int32"), C: T.Tensor((14, 6), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.serial(6):
                for k, value in enumerate(traced(A[i, 0], A[i, 1])):
                    C[k, i] = value

    found = torch.zeros(14, 6, dtype=torch.int32, device=device)
    tilelang.compile(main)(torch.tensor(PAIRS, dtype=torch.int32, device=device), found)
    assert found.T.tolist() == [[int(c) for c in compared(*pair)] for pair in PAIRS]


def test_shapes_are_compared(traced):
    text = traced("A[0, 0] = A.shape == (8, 16)\nA[0, 1] = B.shape != A.shape")
    assert text == "A[0, 0] = T.float32(1.0)\nA[0, 1] = T.float32(0.0)\n"


@pytest.mark.parametrize(
    "asks", ["[tx, n].count(3)", "3 in [tx, n]", "{1: n} == {1: tx}", "{1: n} == {1: 3}"]
)
def test_what_python_alone_compares_is_refused(trace, asks):
    with pytest.raises(TypeError, match="compares while tracing, and found the expression"):
        trace(f"A[0, 0] = {asks}")


def test_lists_are_indexed_by_what_python_takes_for_a_number(traced, trace):
    """A number of numpy was refused, and a loop's variable without a word on lists."""
    a = [5, 6, 7]
    text = traced("a[k] += 1\nA[0, 0] = a[k]\nA[0, 1] = a[T.int32(2)]", a=a, k=np.int64(1))
    assert text == "A[0, 0] = T.float32(7.0)\nA[0, 1] = T.float32(7.0)\n"
    with pytest.raises(TypeError, match="index the expression i of a list has no value while"):
        trace("for i in T.serial(3):\n    A[0, i] = a[i]", a=a)


@pytest.mark.parametrize("other", [torch.tensor(3), np.array([3, 4]), Fraction(3)])
def test_numbers_of_other_libraries_are_not_unequal(trace, other):
    with pytest.raises(TypeError, match=r"`==` found .*, wanted a"):
        trace("A[0, 0] = n == other", other=other)


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


@pytest.mark.parametrize("asks", ["(tx > 0) is True", "tx is not 3", "0 < tx is True"])
def test_the_object_of_a_value_of_the_run_is_not_asked_for(trace, asks):
    """The object of an expression is never True: the other branch was taken, whatever tx is."""
    with pytest.raises(TypeError, match="`is` asks which object it is while tracing, and found"):
        trace(f"if {asks}:\n    A[0, 0] = 1.0")


def test_sets_of_what_python_knows(traced):
    sets = "len({k % 2 for k in range(3)}) + len(set([1, 1])) + len({*range(3), 2})"
    assert traced(f"A[0, 0] = {sets}") == "A[0, 0] = T.float32(6.0)\n"
