"""A loop over all elements of a tensor goes through it in the order of its memory, where rows begin
between vectors of 16 bytes."""

import math

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def sums(rows=24, columns=63, form="", tile=(4, 32)):
    """The sum of two matrices; `form` says what is different."""
    m, n = tile
    if form == "sizes of the call":
        rows, columns = T.dynamic("rows, columns")
    grid = T.ceildiv(columns, n) - (form == "columns left out"), T.ceildiv(rows, m)

    @T.prim_func
    def main(
        A: T.Tensor((rows, columns), "float16"),
        B: T.Tensor((rows, columns), "float16"),
        C: T.Tensor((rows, columns), "float16"),
    ):
        with T.Kernel(*grid, threads=32) as (bx, by):
            if form == "a keyword":
                for i, j in T.Parallel(m, n, coalesced_width=1):
                    C[by * m + i, bx * n + j] = A[by * m + i, bx * n + j]
            elif form == "another place":
                for i, j in T.Parallel(m, n):
                    C[by * m + i, bx * n + (j + 1) % n] = A[by * m + i, bx * n + j]
            elif form == "a row for all":
                for i, j in T.Parallel(m, n):
                    C[by * m + i, bx * n + j] = A[by * m + i, bx * n + j] + B[0, bx * n + j]
            elif form == "a number of the place":
                for i, j in T.Parallel(m, n):
                    C[by * m + i, bx * n + j] = A[by * m + i, bx * n + j] + j
            elif form == "itself elsewhere":
                for i, j in T.Parallel(m, n):
                    C[by * m + i, bx * n + j] = C[0, 0] + 1
            elif form in ("to the end", "to an end of its own"):
                end = columns - (form == "to an end of its own")
                for i, j in T.Parallel(m, n):
                    row, column = by * m + i, bx * n + j
                    if row < rows and column < end:
                        a = A[row, column]
                        C[row, column] = a * a + B[row, column]
            else:
                for i, j in T.Parallel(m, n):
                    row, column = by * m + i, bx * n + j
                    C[row, column] = A[row, column] + 2 * B[row, column]
            if form == "another statement":
                B[0, 0] = 1

    return main


def test_the_order_of_memory(statements):
    text = statements(sums(), "Simplify", "FlattenLoops")
    assert "for t in T.parallel(128):" in text
    place = "[(by * 2 + bx) * 128 + t]"
    assert f"C_flat{place} = A_flat{place} + T.float16(2.0) * B_flat{place}" in text
    assert "_end" not in text


@pytest.mark.parametrize(
    ("options", "vectors", "end"),
    [
        ({"rows": 23, "form": "to the end"}, "(1448,)", "C_end[1448 + t]"),
        (
            {"form": "sizes of the call"},
            '(T.Cast("int64", rows) * T.Cast("int64", columns) // T.int64(8) * T.int64(8),)',
            "* T.int64(8) + t]",
        ),
    ],
)
def test_an_end_of_less_than_a_vector(statements, options, vectors, end):
    text = statements(sums(**options), "Simplify", "FlattenLoops")
    assert f"C_flat = T.decl_buffer({vectors}" in text
    assert end in text[text.index("if bx == 0 and by == 0:") :]


@pytest.mark.parametrize(
    "options",
    [
        {"columns": 64},
        {"rows": 23, "form": "to an end of its own"},
        {"rows": 1, "columns": 7},  # less than a vector
        {"columns": 9},  # most iterations have no element
        {"form": "columns left out"},
        {"form": "a keyword"},
        {"form": "another place"},
        {"form": "a row for all"},
        {"form": "a number of the place"},
        {"form": "itself elsewhere"},
        {"form": "another statement"},
    ],
)
def test_what_stays(tile_passes, options):
    text = tile_passes(sums(**options), "Simplify", "FlattenLoops")["main"].script()
    assert "_flat" not in text


@pytest.mark.parametrize(
    ("form", "offset", "shape"),
    [("", 0, (10, 68)), ("", 3, (10, 68)), ("sizes of the call", 0, (9, 43))],
)
def test_it_computes_the_same(form, offset, shape):
    """Also of tensors that begin anywhere, in whole and in part tiles and vectors."""
    program = sums(*shape, form)
    kernel = tilelang.compile(program, target=HOPPER, execution_backend="emulate", checks=True)
    memory = torch.randint(-4, 5, (math.prod(shape) + 8,)).half()
    a = memory[offset : offset + math.prod(shape)].view(shape)
    b, c = torch.randint(-4, 5, shape).half(), torch.full(shape, torch.nan).half()
    kernel(a, b, c)
    assert torch.equal(c, a + 2 * b)
