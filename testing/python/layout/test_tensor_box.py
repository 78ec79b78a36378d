"""Layouts of tensors, shown by digits to be permutations: against their tables, where these are
small."""

import math
import random

import pytest
import tvm
import tvm_ffi
from tvm import s_tir

import tilelang
import tilelang.language as T
from tilelang import transform
from tilelang.layout import Layout


def box_of(shape, forward):
    """The box that the compiler finds for a tensor's layout, None if it refuses the layout."""

    @T.prim_func
    def main(A: T.Tensor(shape, "float32")):
        with T.Kernel(1, threads=32):
            T.annotate_layout({A: forward})

    mod = tvm.IRModule({"main": main})
    try:
        with transform.PassContext():
            mod = transform.CheckTensorLayouts()(transform.MaterializeKernelLaunch()(mod))
    except ValueError as error:
        if "T.annotate_layout: found" not in str(error):
            raise
        return None
    boxes = []

    def collect(block):
        boxes.extend(dict(block.annotations.get("tensor_boxes", {})).values())

    tvm_ffi.structural_walk(mod["main"], [(s_tir.SBlock, collect)])
    return [int(extent) for extent in boxes[0]]


def box_by_table(shape, forward):
    places = Layout(shape, forward).table()
    box = [max(coordinate) + 1 for coordinate in zip(*places, strict=True)]
    is_whole = min(min(place) for place in places) >= 0 and math.prod(box) == len(places)
    return box if is_whole and len(set(places)) == len(places) else None


def random_layout(rng):
    """Digits of the indices, dealt to coordinates; one in three has a mistake."""
    shape = [rng.choice([1, 2, 6, 8, 12, 16]) for _ in range(rng.randint(1, 3))]
    digits = []
    for dim, extent in enumerate(shape):
        divisor = 1
        while divisor < extent:
            step = rng.choice([2, 3, 4, extent])
            is_last = divisor * step >= extent
            digits.append((dim, divisor, None if is_last else step, -(-extent // divisor)))
            divisor *= step
    rng.shuffle(digits)
    mistake = rng.choice(["drop", "stride", "twice"]) if digits and rng.random() < 1 / 3 else ""
    if mistake == "drop":
        digits.pop()
    if mistake == "twice":
        digits.append(digits[0])
    coordinates = [[] for _ in range(rng.randint(1, 3))]
    for digit in digits:
        rng.choice(coordinates).append(digit)

    def forward(*indices):
        out = []
        for terms in coordinates:
            value, stride = 0, 1
            for dim, divisor, step, rest in terms:
                digit = indices[dim] // divisor
                value = value + (digit if step is None else digit % step) * stride
                stride *= step or rest
                stride *= 2 if mistake == "stride" else 1
            out.append(value)
        return out

    return shape, forward


@pytest.mark.parametrize("seed", range(8))
def test_digits_and_tables_agree(seed):
    rng = random.Random(seed)
    found = [
        (box_of(*layout), box_by_table(*layout))
        for layout in (random_layout(rng) for _ in range(25))
    ]
    assert all(by_digits == by_table for by_digits, by_table in found)
    assert {box is None for box, _ in found} == {True, False}


@pytest.mark.parametrize(
    ("forward", "box"),
    [
        (lambda i, j: [i // 64, j // 64, i % 64, j % 64], [1 << 14, 1 << 10, 64, 64]),
        (lambda i, j: [j, i % 1024 * 1024 + i // 1024], [1 << 16, 1 << 20]),
        (lambda i, j: [(i * 65536 + j) // 32, j % 32], [1 << 31, 32]),
        (lambda i, j: [i + j % 2, j // 2], None),
        (lambda i, j: [i, j ^ i % 8], None),
    ],
)
def test_billions_of_elements(forward, box):
    assert box_of((1 << 20, 1 << 16), forward) == box


def test_what_is_assumed_of_a_symbol_counts():
    n = T.dynamic("n")

    def kernel(assumed):
        @T.prim_func
        def main(A: T.Tensor((n, 4), "float32")):
            with T.Kernel(1, threads=32):
                T.assume(n % assumed == 0)
                T.annotate_layout({A: lambda i, j: [i // 8, j, i % 8]})
                T.fill(A[0:8, 0:4], 0)

        return main

    tilelang.lower(kernel(24))
    with pytest.raises(ValueError, match=r"\.py:\d+: .*wanted a multiple of 8"):
        tilelang.lower(kernel(12))
