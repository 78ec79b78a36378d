"""Where the results of reductions are placed, by value."""

import pytest

import tilelang
import tilelang.language as T


def holders(fragment):
    """How many threads hold an element."""
    return len(fragment.thread_table()) // len(fragment.table())


def test_rows_of_a_tensor_cores_accumulator(tile_passes, layouts):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            row = T.alloc_fragment((64,), "float32")
            kept = T.alloc_fragment((1, 64), "float32")
            T.copy(A, tile)
            T.gemm(tile, tile, scores, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            T.reduce_max(scores, row, dim=1)
            T.reduce_max(scores, kept, dim=0)

    placed, _ = layouts(tile_passes(main, "LayoutInference"))
    assert holders(placed["row"]) == 4  # the lanes that have the row
    assert placed["row"].thread_table()[:8] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [t[0] for t in placed["row"].table()[:16]] == [0] * 8 + [1] * 8
    assert holders(placed["kept"]) == 32  # eight lanes of four warps


def test_a_row_is_kept_in_neighbouring_lanes_where_nobody_dictates(tile_passes, layouts):
    @T.prim_func
    def main(A: T.Tensor((64, 60), "float32"), out: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((64, 60), "float32")
            row = T.alloc_fragment((64,), "float32")
            T.copy(A, tile)
            T.reduce_sum(tile, row, dim=1)
            T.copy(row, out)

    placed, _ = layouts(tile_passes(main, "LayoutInference"))
    assert placed["tile"].thread_table()[:61] == [k // 4 for k in range(60)] + [16]
    assert [t[0] for t in placed["tile"].table()[:60]] == [0, 1, 2, 3] * 15
    assert placed["row"].thread_table()[:16] == [*range(15), 16]


def test_a_result_that_is_placed_stays(tile_passes, layouts):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), out: T.Tensor((2, 64), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            row = T.alloc_fragment((64,), "float32")
            T.copy(A, tile)
            T.gemm(tile, tile, scores, clear_accum=True)
            T.reduce_max(scores, row, dim=1)
            T.reduce_max(scores, row, dim=0, clear=False)
            T.copy(row, out[0, 0])

    placed, _ = layouts(tile_passes(main, "LayoutInference"))
    assert holders(placed["row"]) == 8
    tile_passes(main, "LayoutInference", "LowerTileOp")


@pytest.mark.parametrize(
    ("shape", "dtype", "loads", "exchanged"),
    [
        ((4, 72), "float32", "x[r] = X[r * 72 + tx]", False),
        ((4, 72), "float16", "x[r] = X[r * 72 + tx]", False),
        ((8, 512), "float16", "tl::load<half_t, 4>(X + r * 512 + tx * 4)", False),
        ((64, 64), "float16", "tl::load<half_t, 2>(X + r * 256 + tx * 2)", True),
    ],
)
def test_columns_are_read_by_rows(shape, dtype, loads, exchanged):
    """Neighbouring threads have neighbouring columns: a warp reads whole sectors, and a column is
    one thread's where there are enough of them."""
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), S: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((m, n), dtype)
            s = T.alloc_fragment((n,), "float32")
            T.copy(X, x)
            T.reduce_sum(x, s, dim=0)
            T.copy(s, S)

    source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    assert loads in source
    assert ("__syncthreads" in source) == exchanged


def test_sectors_of_memory_count(tile_passes, layouts):
    """The first loop would have elements of a column in neighbouring threads: each in a sector of
    its own."""

    @T.prim_func
    def main(X: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((64, 64), "float32")
            for i, j in T.Parallel(64, 64):
                x[j, i] = X[j, i] * 2
            T.copy(x, C)

    placed, _ = layouts(tile_passes(main, "LayoutInference"))
    assert placed["x"].thread_table()[:8] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_places_that_are_no_sums_are_left_out_of_the_cost(tile_passes, layouts):
    """A divisor that the call knows, a place that memory or arithmetic of floats tells."""
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), at: T.Tensor((64,), "int32"), d: T.int32):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((64,), "float32")
            y = T.alloc_fragment((64,), "float32")
            for i in T.Parallel(64):
                x[i] = X[i // d] + X[at[i]] + X[T.cast(T.cast(i, "float32") * 0.5, "int32")]
            for i in T.Parallel(64):
                y[63 - i] = x[i]
            T.copy(y, X[0:64])

    placed, _ = layouts(tile_passes(main, "LayoutInference"))
    assert {"x", "y"} <= set(placed)
