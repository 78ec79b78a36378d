"""Comparisons: of scalars, of containers that have some, and of objects."""

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


@pytest.mark.parametrize("other", [torch.tensor(3), np.array([3, 4]), Fraction(3)])
def test_numbers_of_other_libraries_are_not_unequal(trace, other):
    with pytest.raises(TypeError, match=r"`==` found .*, wanted a"):
        trace("A[0, 0] = n == other", other=other)


class Bound:
    """What has an order with scalars of the program, and no other operator."""

    def __gt__(self, other):
        return other < 7


@pytest.mark.parametrize("order", ["bound > n", "n < bound"])
def test_order_beside_an_object_is_the_objects(traced, order):
    """Python asks the right operand's `>` for `<`; ours asked for `__rlt__`, which no class has."""
    text = traced(f"A[0, 0] = {order}", bound=Bound())
    assert text == 'A[0, 0] = T.Cast("float32", n < 7)\n'


def test_a_tile_has_no_order(trace):
    with pytest.raises(
        TypeError, match=r"`<` found the buffer A of shape .*, wanted a scalar; ind"
    ):
        trace("A[0, 0] = A < 3")


@pytest.mark.parametrize("asks", ["(tx > 0) is True", "tx is not 3", "0 < tx is True"])
def test_the_object_of_a_value_of_the_run_is_not_asked_for(trace, asks):
    """The object of an expression is never True: the other branch was taken, whatever tx is."""
    with pytest.raises(TypeError, match="`is` asks which object it is while tracing, and found"):
        trace(f"if {asks}:\n    A[0, 0] = 1.0")
