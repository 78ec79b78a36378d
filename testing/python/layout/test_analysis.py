"""Counting transactions: of one access, and of whole generated programs."""

import pytest
import tvm

import tilelang
import tilelang.language as T
from tilelang import transform
from tilelang.engine.phase import LowerAndLegalize
from tilelang.layout import global_sectors, memory_accesses, shared_wavefronts


@pytest.mark.parametrize(
    ("addresses", "width", "found", "least"),
    [
        ([4 * lane for lane in range(32)], 4, 1, 1),
        ([8 * lane for lane in range(32)], 4, 2, 1),  # stride 2: two lanes a bank
        ([4 * 33 * lane for lane in range(32)], 4, 1, 1),
        ([128 * lane for lane in range(32)], 4, 32, 1),
        ([0] * 32, 4, 1, 1),  # one word for all
        ([2 * lane for lane in range(32)], 2, 1, 1),
        ([8 * lane for lane in range(32)], 8, 2, 2),  # half-warps
        ([16 * lane for lane in range(32)], 16, 4, 4),  # quarters
        ([128 * lane for lane in range(8)], 16, 8, 1),
        ([4 * lane for lane in range(5)], 4, 1, 1),
    ],
)
def test_wavefronts_of_shared_memory(addresses, width, found, least):
    assert shared_wavefronts(addresses, width) == (found, least)


@pytest.mark.parametrize(
    ("addresses", "width", "found", "least"),
    [
        ([4 * lane for lane in range(32)], 4, 4, 4),
        ([4 * lane + 4 for lane in range(32)], 4, 5, 4),
        ([64 * lane for lane in range(32)], 4, 32, 4),
        ([16 * lane for lane in range(32)], 16, 16, 16),
    ],
)
def test_sectors_of_global_memory(addresses, width, found, least):
    assert global_sectors(addresses, width) == (found, least)


def test_impossible_accesses():
    with pytest.raises(ValueError, match="not a multiple of 8"):
        shared_wavefronts([4], 8)
    with pytest.raises(ValueError, match="33 lanes"):
        shared_wavefronts([0] * 33, 4)
    with pytest.raises(ValueError, match="of 3 bytes"):
        shared_wavefronts([0], 3)


READ_GROUPS = [
    *([0, 1, 2, 3, 20, 21, 22, 23], [4, 5, 6, 7, 16, 17, 18, 19]),
    *([8, 9, 10, 11, 28, 29, 30, 31], [12, 13, 14, 15, 24, 25, 26, 27]),
]


def test_lanes_of_a_wavefront_that_read_together():
    """Two words of one bank take a wavefront more if one of AMD's groups wants both."""
    for first in range(32):
        for second in range(first + 1, 32):
            addresses = [16] * 64  # all others want words of other banks
            addresses[first], addresses[second] = 0, 128
            together = any(first in group and second in group for group in READ_GROUPS)
            found = shared_wavefronts(addresses, 16, 64, reads=True).found
            assert found == (9 if together else 8), (first, second)
            written = shared_wavefronts(addresses, 16, 64).found
            assert written == (9 if first // 8 == second // 8 else 8), (first, second)


WIDE_READ_GROUPS = [
    [0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27],
    [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 28, 29, 30, 31],
]


def test_lanes_that_gfx950_serves_together():
    for first in range(0, 32, 3):
        for second in range(first + 1, 32):
            addresses = [16] * 64  # all others want words of other banks
            addresses[first], addresses[second] = 0, 256
            together = any(first in group and second in group for group in WIDE_READ_GROUPS)
            found = shared_wavefronts(addresses, 16, 64, reads=True, banks=64).found
            assert found == (5 if together else 4), (first, second)
    assert shared_wavefronts([8 * lane for lane in range(64)], 8, 64, True, 64) == (2, 2)
    assert shared_wavefronts([256 * (lane % 4) for lane in range(64)], 8, 64, True, 64).found == 8


def accesses_of(func, arch="sm_80"):
    text = f"hip -mcpu={arch}" if arch.startswith("gfx") else f"cuda -arch={arch}"
    target = tilelang.utils.target.determine_target(text, return_object=True)
    with transform.PassContext():
        mod = LowerAndLegalize(tvm.IRModule({"main": func}), target)
        for step in (transform.VectorizeLoop, transform.LowerAsyncCopy, transform.Simplify):
            mod = step()(mod)
    return memory_accesses(mod["main"])


def gemm(block_m, block_n, block_k, threads, trans_a, trans_b, stages, dtype="float16"):
    m, n, k = 2 * block_m, 2 * block_n, 4 * block_k
    a_shape, a_tile = ((k, m), (block_k, block_m)) if trans_a else ((m, k), (block_m, block_k))
    b_shape, b_tile = ((n, k), (block_n, block_k)) if trans_b else ((k, n), (block_k, block_n))

    @T.prim_func
    def main(
        A: T.Tensor(a_shape, dtype),
        B: T.Tensor(b_shape, dtype),
        C: T.Tensor((m, n), "int32" if dtype == "int8" else "float32"),
    ):
        with T.Kernel(2, 2, threads=threads) as (bx, by):
            S = T.alloc_shared(a_tile, dtype)
            W = T.alloc_shared(b_tile, dtype)
            F = T.alloc_fragment((block_m, block_n), "int32" if dtype == "int8" else "float32")
            T.clear(F)
            for ko in T.Pipelined(4, num_stages=stages):
                if trans_a:
                    T.copy(A[ko * block_k, by * block_m], S)
                else:
                    T.copy(A[by * block_m, ko * block_k], S)
                if trans_b:
                    T.copy(B[bx * block_n, ko * block_k], W)
                else:
                    T.copy(B[ko * block_k, bx * block_n], W)
                T.gemm(S, W, F, trans_a, trans_b)
            T.copy(F, C[by * block_m, bx * block_n])

    return main


@pytest.mark.parametrize(
    ("tile", "threads", "trans_a", "trans_b", "stages"),
    [
        ((128, 128, 32), 128, False, False, 3),
        ((128, 128, 64), 256, False, True, 2),
        ((64, 128, 16), 64, True, False, 2),
        ((64, 64, 64), 128, True, True, 0),
    ],
)
def test_gemm_has_no_bank_conflict_and_moves_whole_sectors(tile, threads, trans_a, trans_b, stages):
    accesses = accesses_of(gemm(*tile, threads, trans_a, trans_b, stages))
    shared = [a for a in accesses if a.scope == "shared"]
    assert {a.op.removesuffix("_trans")[:15] for a in shared} >= {"tl.ptx_ldmatrix"}
    for access in accesses:
        assert access.count().conflicts == 0, access
        assert access.width == 16 or access.buffer == "C"


@pytest.mark.parametrize(
    ("tile", "trans_a", "trans_b"),
    [((128, 128, 32), False, True), ((128, 64, 64), False, True), ((64, 256, 32), False, True)],
)
def test_gemm_of_amd_has_no_bank_conflict(tile, trans_a, trans_b):
    shared = [
        a
        for a in accesses_of(gemm(*tile, 256, trans_a, trans_b, 2), "gfx942")
        if a.scope == "shared"
    ]
    assert {(a.op, a.width) for a in shared} == {("load", 16), ("store", 16)}
    for access in shared:
        assert access.count().conflicts == 0, access.buffer


@pytest.mark.parametrize(
    ("dtype", "tile"),
    [
        ("float16", (64, 64, 64)),  # MFMA of 32 x 32 x 16, rows of 128 bytes
        ("float16", (128, 32, 64)),  # rows of 256 and 64
        ("float16", (48, 80, 32)),  # MFMA of 16 x 16 x 32, rows of 96 and 160
        ("float16", (16, 32, 64)),  # rows of 32 and 64
        ("int8", (128, 64, 128)),  # MFMA of 32 x 32 x 32
        ("int8", (16, 48, 64)),  # of 16 x 16 x 64, rows of 16 and 48
        ("int8", (32, 96, 48)),  # rows of 48
        ("float8_e4m3fn", (64, 128, 64)),  # of 32 x 32 x 64
        ("float8_e4m3fn", (16, 128, 128)),  # of 16 x 16 x 128
    ],
)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, True), (True, False)])
def test_gemm_of_gfx950_has_no_bank_conflict(dtype, tile, trans_a, trans_b):
    program = gemm(*tile, 128, trans_a, trans_b, 2, dtype)
    shared = [a for a in accesses_of(program, "gfx950") if a.scope == "shared"]
    op = "load" if trans_b else f"tl.ds_read_tr{16 if dtype == 'float16' else 8}"
    reads = [a for a in shared if a.op == op]
    assert {a.buffer for a in reads} == {"S", "W"}
    for access in reads:
        assert access.count().conflicts == 0, (access.buffer, access.op, access.count())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("columns", "threads"), [(128, 128), (64, 64), (32, 128), (16, 64)])
def test_an_epilogue_through_shared_memory_has_no_bank_conflict(columns, threads, dtype):
    """The accumulator of wgmma (128 threads) and of mma.sync."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 16), "float16"),
        B: T.Tensor((16, columns), "float16"),
        C: T.Tensor((128, columns), dtype),
    ):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((128, 16), "float16")
            W = T.alloc_shared((16, columns), "float16")
            F = T.alloc_fragment((128, columns), "float32")
            E = T.alloc_shared((128, columns), dtype)
            T.copy(A, S)
            T.copy(B, W)
            T.gemm(S, W, F, clear_accum=True)
            T.copy(F, E)
            T.copy(E, C)

    (store,) = [a for a in accesses_of(main, "sm_90a") if a.buffer == "E"]
    assert store.op == "tl.ptx_stmatrix_x4"
    assert store.count().conflicts == 0


def test_a_layout_with_conflicts_is_seen():
    """Rows of 128 bytes, unpadded: eight rows of ldmatrix start in one bank group."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.annotate_layout({S: lambda i, j: [i, j]})
            T.copy(A, S)
            T.gemm(S, S, F, transpose_B=True, clear_accum=True)
            T.copy(F, C)

    counts = {a.op: a.count() for a in accesses_of(main) if a.scope == "shared"}
    assert counts["store"].conflicts == 0
    assert counts["tl.ptx_ldmatrix_x4"].found == 8 * counts["tl.ptx_ldmatrix_x4"].least


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_softmax_tile_has_no_conflict_and_moves_sixteen_bytes_at_once(dtype):
    @T.prim_func
    def main(X: T.Tensor((16, 1024), dtype), Y: T.Tensor((16, 1024), dtype)):
        with T.Kernel(4, threads=128) as bx:
            S = T.alloc_shared((4, 1024), dtype)
            F = T.alloc_fragment((4, 1024), "float32")
            T.copy(X[bx * 4, 0], S)
            T.copy(S, F)
            for i, j in T.Parallel(4, 1024):
                F[i, j] = T.exp2(F[i, j])
            T.copy(F, S)
            T.copy(S, Y[bx * 4, 0])

    accesses = accesses_of(main)
    assert [a.op for a in accesses if a.scope == "global"] == ["load", "store"]
    for access in accesses:
        # Beside float32 registers a vector has four elements: 8 bytes of a 16-bit one.
        assert access.width == 16 or access.scope == "shared"
        assert access.count().conflicts == 0


def test_addresses_that_are_not_known_are_refused():
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n, n), "float32"), Y: T.Tensor((n, n), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(n, n):
                Y[i, j] = X[i, j]

    with pytest.raises(ValueError, match="wanted threads and loops of constant extent"):
        accesses_of(main)
