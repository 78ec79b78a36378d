"""Blocks of little work each do the work of several neighbours."""

import pytest
import torch

import tilelang
import tilelang.language as T

ROWS = 16384


def softmax(kind="rows", rows=ROWS, columns=32, threads=128):
    """A row of A a block; of the two-dimensional kind, a row of a matrix of several."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, columns), "float32"),
        B: T.Tensor((rows, columns), "float32"),
        Sums: T.Tensor((rows,), "float32"),
    ):
        grid = {"two axes": [2, rows // 2], "some rows": [rows - 3]}.get(kind, [rows])
        with T.Kernel(*grid, threads=threads) as b:
            row = b if kind != "two axes" else b[1] * 2 + b[0]
            if kind == "assumed":
                T.assume(rows > 7)
            x = T.alloc_fragment((columns,), "float32")
            most, total = T.alloc_fragment((1,), "float32"), T.alloc_fragment((1,), "float32")
            if kind == "shared":
                tile = T.alloc_shared((columns,), "float32")
                T.copy(A[row, :], tile)
                T.copy(tile, x)
            else:
                T.copy(A[row, :], x)
            T.reduce_max(x, most, dim=0)
            T.clear(total)
            for _ in T.serial(2):
                for j in T.Parallel(columns):
                    x[j] = (x[j] - most[0]) * 0.5
            for j in T.Parallel(columns):
                x[j] = T.exp(x[j] + (T.get_thread_binding() if kind == "thread" else 0))
            T.reduce_sum(x, total, dim=0, clear=False)
            if kind == "branch" and row < 7:
                T.clear(total)
            for j in T.Parallel(columns):
                if row * columns + j > 3:
                    B[row, j] = x[j] / total[0]
            Sums[row] = total[0]

    return main


@pytest.mark.parametrize("kind", ["rows", "two axes", "shared"])
def test_a_row_of_a_block_is_one_of_a_part_of_a_warp(kind):
    """16 rows, each of 260 bytes, make 4 KB. A row has 8 lanes, not 128 threads."""
    kernel = tilelang.compile(softmax(kind), target="cuda -arch=sm_90a")
    source = kernel.get_kernel_source()
    assert "AllReduce<tl::MaxOp, 8, 1>" in source
    assert "__syncthreads" not in source
    assert f"grid ({'2, 512' if kind == 'two axes' else 1024}," in kernel.explain()


@pytest.mark.parametrize("kind", ["rows", "assumed"])
def test_a_grid_that_the_call_decides_is_coarsened_to_a_vector_a_thread(kind):
    """32 elements of x for each of 128 threads a vector of 8 would be 32 rows; 16 are the most."""
    source = tilelang.lower(softmax(kind, T.dynamic("M")), target="cuda -arch=sm_90a").kernel_source
    assert "AllReduce<tl::MaxOp, 8, 1>" in source
    assert "bx * 16 + tx / 8 < M" in source


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("thread", ()), ("branch", ()), ("rows", (ROWS // 2,)), ("rows", (ROWS, 1024))],
)
def test_other_kernels_keep_their_blocks(kind, sizes):
    """Of named threads, of branches; of few blocks, of 8 KB each."""
    program = softmax(kind, *sizes)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a")
    assert f"grid ({sizes[0] if sizes else ROWS}," in kernel.explain()


def test_numbers_of_neighbours_are_no_more_than_an_int32_holds():
    """Of 16 neighbours of the last block, one would have the number 2**31."""
    artifact = tilelang.lower(softmax("rows", 2**31 - 1), target="cuda -arch=sm_90a")
    assert artifact.launch_plan.kernels[0].grid == (2**31 - 1, 1, 1)


@pytest.mark.parametrize(("rows", "grid"), [(ROWS, ROWS // 16), (ROWS + 7, ROWS + 7)])
def test_without_masks_no_block_runs_past_the_end(rows, grid):
    """The last block's neighbours would read what is behind the tensor."""
    unmasked = {"tl.disable_safe_memory_legalize": True}
    kernel = tilelang.compile(
        softmax("rows", rows), target="cuda -arch=sm_90a", pass_configs=unmasked
    )
    assert f"grid ({grid}," in kernel.explain()


@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [
        ("rows", ROWS, 5),
        ("rows", ROWS + 7, 32),
        ("two axes", ROWS, 32),
        ("rows", T.dynamic("M"), 32),
    ],
)
def test_results_are_those_of_the_blocks(kind, rows, columns):
    kernel = tilelang.compile(softmax(kind, rows, columns), execution_backend="emulate")
    rows = rows if isinstance(rows, int) else 13
    a, b, sums = torch.randn(rows, columns), torch.zeros(rows, columns), torch.zeros(rows)
    kernel(a, b, sums)
    x = ((a - a.amax(1, keepdim=True)) / 2 - a.amax(1, keepdim=True)) / 2
    x = torch.exp(x)
    total = x.sum(1)
    want = x / total[:, None]
    want[0, :4] = 0
    if kind == "some rows":
        total[-3:] = want[-3:] = 0
    torch.testing.assert_close(sums, total)
    torch.testing.assert_close(b, want)


@pytest.mark.parametrize("place", ["block", "memory"])
@pytest.mark.parametrize("rows", [13, ROWS])
def test_a_place_in_a_tile_may_be_none_of_a_neighbours(place, rows):
    """Behind the end of the grid it may be outside of the tile."""
    M = T.dynamic("M") if rows == 13 else rows

    @T.prim_func
    def main(
        A: T.Tensor((M, 32), "float32"),
        Table: T.Tensor((M,), "int32"),
        B: T.Tensor((M, 32), "float32"),
    ):
        with T.Kernel(M, threads=32) as b:
            s = T.alloc_shared((13,), "float32")
            T.fill(s, 0)
            s[b % 26 // 2 if place == "block" else Table[b] - 1] = A[b, 3]
            for j in T.Parallel(32):
                B[b, j] = A[b, j] + s[j % 13]

    source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    assert ("bx * " in source.split("__global__")[1]) == (rows == ROWS)
