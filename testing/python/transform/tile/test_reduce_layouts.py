"""Where the results of reductions are placed, by value."""

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
