"""Fragments of mma.sync against PTX ISA, "Matrix Fragments for mma.m*": each operand written down
as there, as (row, column) of element i of a lane, from the lane's group g = lane / 4 and its number
t = lane % 4 in the group."""

from typing import NamedTuple

import numpy as np
import pytest

import tilelang.language as T
from tilelang.layout import make_fully_replicated_layout_fragment, make_gemm_fragment


class Shape(NamedTuple):
    dtype: str
    mnk: tuple[int, int, int]
    a_elements: int
    a: object  # (g, t, i) -> (row of A, k)
    b_elements: int
    b: object  # (g, t, i) -> (k, column of B)


def upper(i, low, period):
    """Rows g + 8 for the elements i whose number modulo `period` is not below `low`."""
    return 8 * (i % period >= low)


SHAPES = [
    Shape("float16", (16, 8, 16), 8,
          lambda g, t, i: (g if i in (0, 1, 4, 5) else g + 8, t * 2 + (i & 1) + 8 * (i >= 4)), 4,
          lambda g, t, i: (t * 2 + (i & 1) + 8 * (i >= 2), g)),
    Shape("bfloat16", (16, 8, 8), 4,
          lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)), 2,
          lambda g, t, i: (t * 2 + i, g)),
    Shape("float32", (16, 8, 8), 4,
          lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4), 2,
          lambda g, t, i: (t if i == 0 else t + 4, g)),
    Shape("float32", (16, 8, 4), 2, lambda g, t, i: (g + 8 * i, t), 1, lambda g, t, i: (t, g)),
    Shape("int8", (16, 8, 32), 16,
          lambda g, t, i: (g + upper(i, 4, 8), t * 4 + (i & 3) + 16 * (i >= 8)), 8,
          lambda g, t, i: (t * 4 + (i & 3) + 16 * (i >= 4), g)),
    Shape("float8_e4m3fn", (16, 8, 16), 8,
          lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)), 4,
          lambda g, t, i: (t * 4 + i, g)),
    Shape("int8", (8, 8, 16), 4,
          lambda g, t, i: (g, t * 4 + i), 4, lambda g, t, i: (t * 4 + i, g)),
    Shape("int4", (16, 8, 64), 32,
          lambda g, t, i: (g + upper(i, 8, 16), t * 8 + (i & 7) + 32 * (i >= 16)), 16,
          lambda g, t, i: (t * 8 + (i & 7) + 32 * (i >= 8), g)),
    Shape("int4", (16, 8, 32), 16,
          lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)), 8,
          lambda g, t, i: (t * 8 + i, g)),
    Shape("uint1", (16, 8, 256), 128,
          lambda g, t, i: (g + upper(i, 32, 64), t * 32 + (i & 31) + 128 * (i >= 64)), 64,
          lambda g, t, i: (t * 32 + (i & 31) + 128 * (i >= 32), g)),
    Shape("float64", (8, 8, 4), 1, lambda g, t, i: (g, t), 1, lambda g, t, i: (t, g)),
    Shape("float64", (16, 8, 16), 8,
          lambda g, t, i: (g if i % 2 == 0 else g + 8, t + i // 2 * 4), 4,
          lambda g, t, i: (t + 4 * i, g)),
]  # fmt: skip


def accumulator(shape):
    if shape.mnk[0] == 8:
        return 2, lambda g, t, i: (g, t * 2 + i)
    return 4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))


def places(fragment):
    """{element: (set of threads, register)}"""
    threads = np.array(fragment.thread_table()).reshape(-1, fragment.num_replicas)
    elements = np.ndindex(*fragment.get_input_shape())
    registers = (r[0] for r in fragment.table())
    return {e: (set(t.tolist()), r) for e, t, r in zip(elements, threads, registers, strict=True)}


def ids(shape):
    return f"{shape.dtype}-m{shape.mnk[0]}n{shape.mnk[1]}k{shape.mnk[2]}"


@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_one_instruction_is_the_table_of_the_ptx_manual(shape):
    m, n, k = shape.mnk
    c_elements, c = accumulator(shape)
    for operand, extents, elements, element in [
        ("A", (m, k), shape.a_elements, shape.a),
        ("B", (n, k), shape.b_elements, lambda *lane: shape.b(*lane)[::-1]),
        ("C", (m, n), c_elements, c),
    ]:
        fragment = make_gemm_fragment(operand, extents, (1, 1), shape.dtype, shape.mnk)
        wanted = {
            element(lane // 4, lane % 4, i): ({lane}, i)
            for lane in range(32)
            for i in range(elements)
        }
        assert places(fragment) == wanted
        swapped = make_gemm_fragment(
            operand, extents[::-1], (1, 1), shape.dtype, shape.mnk, transposed=True
        )
        assert places(swapped) == {(j, i): place for (i, j), place in wanted.items()}


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2], SHAPES[4], SHAPES[10]], ids=ids)
@pytest.mark.parametrize("warps", [(2, 2), (1, 4), (3, 1)])
def test_instructions_of_a_block_interleave_its_warps(shape, warps):
    (m, n, k), (mw, nw) = shape.mnk, warps
    c_elements, c = accumulator(shape)
    # Two instructions of each warp along the rows, three along the columns, two along K.
    rows, columns, depth = 2 * m * mw, 3 * n * nw, 2 * k
    a = make_gemm_fragment("A", (rows, depth), warps, shape.dtype, shape.mnk)
    b = make_gemm_fragment("B", (columns, depth), warps, shape.dtype, shape.mnk)
    acc = make_gemm_fragment("C", (rows, columns), warps, shape.dtype, shape.mnk)
    want_a, want_b, want_c = {}, {}, {}
    for rw, cw, g, t in np.ndindex(mw, nw, 8, 4):
        thread = 32 * (rw + mw * cw) + 4 * g + t
        # Instruction number `tile` of the warp, `step` along K.
        for tile, step, i in np.ndindex(2, 2, shape.a_elements):
            row, depth_in = shape.a(g, t, i)
            at = ((tile * mw + rw) * m + row, step * k + depth_in)
            register = (step * 2 + tile) * shape.a_elements + i
            want_a.setdefault(at, (set(), register))[0].add(thread)
        for tile, step, i in np.ndindex(3, 2, shape.b_elements):
            depth_in, column = shape.b(g, t, i)
            at = ((tile * nw + cw) * n + column, step * k + depth_in)
            register = (step * 3 + tile) * shape.b_elements + i
            want_b.setdefault(at, (set(), register))[0].add(thread)
        for tile, across, i in np.ndindex(2, 3, c_elements):
            row, column = c(g, t, i)
            at = ((tile * mw + rw) * m + row, (across * nw + cw) * n + column)
            want_c[at] = ({thread}, (across * 2 + tile) * c_elements + i)
    assert places(a) == want_a
    assert places(b) == want_b
    assert places(acc) == want_c


@pytest.mark.parametrize(
    ("operand", "extents", "instruction", "told"),
    [
        ("A", (24, 16), (16, 8, 16), "24 rows, wanted a positive multiple of 16"),
        ("B", (8, 24), (16, 8, 16), "24 elements along K"),
        ("C", (16, 12), (16, 8, 16), "12 columns"),
        ("A", (16, 16), (16, 8, 4), "4 elements along K of the instruction"),
        ("D", (16, 16), (16, 8, 16), "wanted 'A', 'B' or 'C'"),
    ],
)
def test_tiles_that_instructions_do_not_fill(operand, extents, instruction, told):
    with pytest.raises(ValueError, match=told):
        make_gemm_fragment(operand, extents, (1, 1), "float16", instruction)


def test_fully_replicated():
    fragment = make_fully_replicated_layout_fragment(T.Tensor((3, 5), "int32").as_buffer(), 48)
    assert places(fragment)[2, 1] == (set(range(48)), 11)
