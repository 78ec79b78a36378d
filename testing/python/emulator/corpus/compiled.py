"""What the compiler prints for tile programs, with a line of it changed."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import tilelang
import tilelang.language as T

from .kit import Base, Defect, Launch
from .maps import tensor_map


def gemm_program(depth: int = 128) -> Any:
    """A product through a pipeline of three stages, of `depth` elements a row of A."""

    @T.prim_func
    def main(
        A: T.Tensor((64, depth), "float16"),
        B: T.Tensor((depth, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 32], A_shared)
                T.copy(B[k * 32, 0], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C)

    return main


def gemm(depth: int = 128) -> Launch:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((64, depth), (depth, 64)))
    c = np.zeros((64, 64), np.float32)
    return Launch([a, b, c], [(c, a.astype(np.float32) @ b.astype(np.float32))])


def transpose_program() -> Any:
    """A transposed copy through shared memory."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float32")
            T.copy(A, tile)
            for i, j in T.Parallel(64, 64):
                B[i, j] = tile[j, i]

    return main


def transpose() -> Launch:
    a = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    b = np.zeros_like(a)
    return Launch([a, b], [(b, a.T)])


def softmax_program() -> Any:
    """The softmax of rows, whose maxima and sums are exchanged between warps."""

    @T.prim_func
    def main(A: T.Tensor((2, 512), "float32"), B: T.Tensor((2, 512), "float32")):
        with T.Kernel(2, threads=128) as bx:
            row = T.alloc_fragment((1, 512), "float32")
            peak = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A[bx, 0], row)
            T.reduce_max(row, peak, dim=1)
            for i, j in T.Parallel(1, 512):
                row[i, j] = T.exp(row[i, j] - peak[i])
            T.reduce_sum(row, total, dim=1)
            for i, j in T.Parallel(1, 512):
                row[i, j] = row[i, j] / total[i]
            T.copy(row, B[bx, 0])

    return main


def softmax() -> Launch:
    a = np.random.default_rng(0).standard_normal((2, 512)).astype(np.float32)
    b = np.zeros_like(a)
    e = np.exp(a - a.max(1, keepdims=True))
    return Launch([a, b], [(b, e / e.sum(1, keepdims=True))])


def attention_program() -> Any:
    """Attention of 64 queries to 128 keys, 32 at a time, with two stages."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 32), "float16"),
        K: T.Tensor((128, 32), "float16"),
        V: T.Tensor((128, 32), "float16"),
        O: T.Tensor((64, 32), "float32"),  # noqa: E741
    ):
        with T.Kernel(1, threads=128):
            Q_shared = T.alloc_shared((64, 32), "float16")
            K_shared = T.alloc_shared((32, 32), "float16")
            V_shared = T.alloc_shared((32, 32), "float16")
            scores = T.alloc_fragment((64, 32), "float32")
            weights = T.alloc_fragment((64, 32), "float16")
            sums = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            out = T.alloc_fragment((64, 32), "float32")
            T.copy(Q, Q_shared)
            T.clear(total)
            T.clear(out)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(K[k * 32, 0], K_shared)
                T.copy(V[k * 32, 0], V_shared)
                T.clear(scores)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True)
                for i, j in T.Parallel(64, 32):
                    scores[i, j] = T.exp(scores[i, j])
                T.reduce_sum(scores, sums, dim=1)
                for i in T.Parallel(64):
                    total[i] = total[i] + sums[i]
                T.copy(scores, weights)
                T.gemm(weights, V_shared, out)
            for i, j in T.Parallel(64, 32):
                O[i, j] = out[i, j] / total[i]

    return main


def attention() -> Launch:
    rng = np.random.default_rng(0)
    q, k, v = ((rng.standard_normal((n, 32)) / 4).astype(np.float16) for n in (64, 128, 128))
    o = np.zeros((64, 32), np.float32)
    e = np.exp(q.astype(np.float32) @ k.T.astype(np.float32))
    return Launch([q, k, v, o], [(o, e / e.sum(1, keepdims=True) @ v.astype(np.float32))])


def gather_program() -> Any:
    """Columns of a tile that a tensor names."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float32"),
        columns: T.Tensor((64,), "int32"),
        B: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float32")
            T.copy(A, tile)
            for i in T.Parallel(64):
                B[i] = tile[i, columns[i]]

    return main


def gather() -> Launch:
    a = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    columns, b = np.random.default_rng(0).permutation(64).astype(np.int32), np.zeros(64, np.float32)
    return Launch([a, columns, b], [(b, a[np.arange(64), columns])])


def registers_program() -> Any:
    """A product by wgmma whose A is in registers."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            B_shared = T.alloc_shared((64, 64), "float16")
            A_local = T.alloc_fragment((64, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            for i, j in T.Parallel(64, 64):
                B_shared[i, j] = B[i, j]
            T.copy(A, A_local)
            T.gemm(A_local, B_shared, C_local, clear_accum=True)
            T.copy(C_local, C)

    return main


def registers() -> Launch:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    return Launch([a, b, c], [(c, a.astype(np.float32) @ b.astype(np.float32))])


def staged_program(stages: int) -> Any:
    """Two tiles of a product in turn, staged in the bytes of the stages: a multiprocessor is to
    have room for three blocks."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128) as block:
            T.annotate_min_blocks_per_sm(3)
            A_shared = T.alloc_shared((64, 64), "float16")
            B_shared = T.alloc_shared((64, 64), "float16")
            C_shared = T.alloc_shared((64, 64), "float32")
            C_local = T.alloc_fragment((64, 64), "float32")
            for by, _ in T.Persistent([2, 1], 1, block):
                T.clear(C_local)
                for k in T.Pipelined(4, num_stages=stages):
                    T.copy(A[by * 64, k * 64], A_shared)
                    T.copy(B[k * 64, 0], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                T.copy(C_local, C_shared)
                T.copy(C_shared, C[by * 64, 0])

    return main


def plainly_staged() -> Launch:
    (a, b, c), results = _staged()
    return Launch([a, b, c], results)


def _staged() -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((128, 256), (256, 64)))
    c = np.zeros((128, 64), np.float32)
    return [a, b, c], [(c, a.astype(np.float32) @ b.astype(np.float32))]


def staged() -> Launch:
    (a, b, c), results = _staged()
    maps = [tensor_map(x, (64, 64), swizzle=128) for x in (a, b)]
    maps.append(tensor_map(c, (32, 64), swizzle=128))
    return Launch(maps, results)


def roles_program() -> Any:
    """Tiles that one role of the program loads and another one stores, in three versions."""

    @T.prim_func
    def main(A: T.Tensor((7, 64, 64), "float16"), B: T.Tensor((7, 64, 64), "float16")):
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier(128)
            empty = T.alloc_barrier(128)
            for k in T.Pipelined(7, num_stages=3):
                with T.ws(0):
                    T.barrier_wait(empty, (k & 1) ^ 1)
                    T.tma_copy(A[k, 0, 0], tile, barrier=full)
                    T.barrier_arrive(full)
                with T.ws(1):
                    T.barrier_wait(full, k & 1)
                    for i, j in T.Parallel(64, 64):
                        B[k, i, j] = tile[i, j]
                    T.barrier_arrive(empty)

    return main


def roles() -> Launch:
    a = np.random.default_rng(0).standard_normal((7, 64, 64)).astype(np.float16)
    b = np.zeros_like(a)
    return Launch([b, tensor_map(a, (64, 64, 1), swizzle=128)], [(b, a)])


def compiled(
    program: Callable[[], Any],
    launch: Callable[[], Launch],
    grid: int = 1,
    arch: str = "sm_80",
    block: int = 128,
    shared: int = 49152,
) -> Base:
    """A base that is compiled when its text is asked for."""
    artifact = functools.cache(lambda: tilelang.lower(program(), target=f"cuda -arch={arch}"))
    return Base(lambda: artifact().kernel_source, launch, grid=grid, block=block, shared=shared)


BASES = {
    "compiled gemm": compiled(gemm_program, gemm),
    "compiled transpose": compiled(transpose_program, transpose),
    "compiled attention": compiled(attention_program, attention),
    "compiled softmax": compiled(softmax_program, softmax, grid=2),
    "compiled gather": compiled(gather_program, gather),
    "compiled product of registers": compiled(registers_program, registers, arch="sm_90a"),
    "compiled tiles in stages": compiled(
        functools.partial(staged_program, 4), staged, arch="sm_90a", block=256, shared=65664
    ),
    "compiled tile in stages of cp.async": compiled(
        functools.partial(staged_program, 3), plainly_staged
    ),
    "compiled roles": compiled(roles_program, roles, arch="sm_90a", block=256, shared=65664),
}

BARRIER = "__syncthreads();"

DEFECTS = {
    "compiled gemm without its barrier": Defect(
        "compiled gemm",
        BARRIER,
        "",
        "race",
        ("tl::cp_async_gs", "tl::ptx_ldmatrix"),
        "_shared + ",
    ),
    "compiled gemm whose wait leaves one group too many": Defect(
        "compiled gemm",
        "cp_async_wait<1>",
        "cp_async_wait<2>",
        "race",
        ("tl::cp_async_gs", "tl::ptx_ldmatrix"),
        "_shared + ",
        "a wait for the copy",
    ),
    "compiled gemm whose first group is not committed": Defect(
        "compiled gemm",
        "  tl::cp_async_commit();\n",
        "",
        "race",
        ("tl::cp_async_gs", "tl::ptx_ldmatrix"),
        "_shared + ",
        "a wait for the copy",
        nth=0,
    ),
    "compiled gemm that copies to the wrong stage": Defect(
        "compiled gemm",
        "(k + 2) % 3",
        "k % 3",
        "race",
        ("tl::cp_async_gs", "tl::ptx_ldmatrix"),
        "_shared + ",
        nth=0,
    ),
    "compiled gemm with overlapping buffers": Defect(
        "compiled gemm",
        "buf_dyn_shmem + 12288",
        "buf_dyn_shmem + 8192",
        "race",
        ("tl::cp_async_gs", "tl::cp_async_gs"),
        "_shared + ",
    ),
    "compiled gemm with ldmatrix in half of the lanes": Defect(
        "compiled gemm",
        "tl::ptx_ldmatrix_x4(",
        "if (tx % 32 < 16) tl::ptx_ldmatrix_x4(",
        "failure",
        ("tl::ptx_ldmatrix_x4(",),
        "ptx_ldmatrix_x4",
    ),
    "compiled gemm with mma in some lanes": Defect(
        "compiled gemm",
        "tl::mma_sync",
        "if (tx != 77) tl::mma_sync",
        "failure",
        ("tl::mma_sync",),
        "mma_sync",
    ),
    "compiled gemm without some zeros": Defect(
        "compiled gemm",
        "for (int r = 0; r < 32",
        "for (int r = 1; r < 32",
        "uninitialized",
        ("tl::mma_sync",),
        "C_local + 0",
        nth=0,
    ),
    "compiled transpose without its barrier": Defect(
        "compiled transpose",
        BARRIER,
        "",
        "race",
        ("tl::store(tile", "= tile["),
        "tile + ",
        "a barrier",
    ),
    "compiled transpose that copies too few rows": Defect(
        "compiled transpose",
        "o < 8;",
        "o < 7;",
        "uninitialized",
        ("= tile[",),
        "tile + ",
    ),
    "compiled transpose that reads a row too far": Defect(
        "compiled transpose",
        "= tile[",
        "= tile[64 + ",
        "out-of-bounds",
        ("= tile[",),
        "tile + 4",
        also=("uninitialized",),
    ),
    "compiled transpose with two threads for an element": Defect(
        "compiled transpose",
        "o * 128 + tx]",
        "o * 128 + tx / 2]",
        "race",
        ("= tile[", "= tile["),
        "argument 1[",
    ),
    "compiled attention whose keys no barrier follows": Defect(
        "compiled attention",
        BARRIER,
        "",
        "race",
        ("tl::cp_async_gs", "tl::ptx_ldmatrix"),
        "_shared + ",
        "barrier",
        nth=0,
    ),
    "compiled attention whose sums no barrier follows": Defect(
        "compiled attention",
        BARRIER,
        "",
        "race",
        ("] = sums_own[", "sums_parts["),
        "sums_parts + ",
        "a barrier",
        nth=1,
    ),
    "compiled attention whose weights no barrier follows": Defect(
        "compiled attention",
        BARRIER,
        "",
        "race",
        ("tl::store(weights_shared", "tl::ptx_ldmatrix_x4(weights_shared"),
        "weights_shared + ",
        "a barrier",
        nth=-1,
    ),
    "compiled attention whose wait leaves a group": Defect(
        "compiled attention",
        "cp_async_wait<0>",
        "cp_async_wait<1>",
        "race",
        ("tl::cp_async_gs", "tl::ptx_ldmatrix"),
        "_shared + ",
        "a wait for the copy",
        nth=0,
    ),
    "compiled attention whose sum has no beginning": Defect(
        "compiled attention",
        "total[r] = 0.0f;",
        "",
        "uninitialized",
        ("total[r] + sums[r]",),
        "total + 0",
    ),
    "compiled softmax without its first barrier": Defect(
        "compiled softmax",
        BARRIER,
        "",
        "race",
        ("] = peak_own;", "peak_parts["),
        "peak_parts + ",
        "a barrier",
        nth=0,
    ),
    "compiled softmax without its last barrier": Defect(
        "compiled softmax",
        BARRIER,
        "",
        "race",
        ("] = total_own;", "total_parts["),
        "total_parts + ",
        "a barrier",
        nth=-1,
    ),
    "compiled softmax whose warps write one maximum": Defect(
        "compiled softmax",
        "peak_parts[tx / 32]",
        "peak_parts[0]",
        "race",
        ("] = peak_own;", "] = peak_own;"),
        "peak_parts + 0",
    ),
    "compiled softmax with a reduction in half of the lanes": Defect(
        "compiled softmax",
        "peak_own = tl::AllReduce",
        "if (tx % 32 < 16) peak_own = tl::AllReduce",
        "failure",
        ("tl::AllReduce<tl::MaxOp",),
        "AllReduce",
    ),
    "compiled gather of a column too far": Defect(
        "compiled gather",
        "tl::in_extent(",
        "tl::in_extent(1 + ",
        "failure",
        ("tl::in_extent(",),
        "index 64 of dimension 1 of tile, which has 64 elements there",
    ),
    "compiled gather of a negative column": Defect(
        "compiled gather",
        "tl::in_extent(",
        "tl::in_extent(-1 + ",
        "failure",
        ("tl::in_extent(",),
        "index -1 of dimension 1 of tile",
    ),
    "operand of a product rewritten": Defect(
        "compiled product of registers",
        "  tl::warpgroup_wait<0>();\n",
        "  A_local[1] = A_local[0] = half_t(0.0f);  // rewrite\n  tl::warpgroup_wait<0>();\n",
        "race",
        ("// rewrite", "tl::wgmma_rs"),
        "A_local + ",
        "wgmma",
    ),
    "operand of a product rewritten one group too early": Defect(
        "compiled product of registers",
        "  tl::warpgroup_wait<0>();\n",
        "  tl::warpgroup_wait<1>();\n  A_local[8] = half_t(0.0f);  // rewrite\n"
        "  tl::warpgroup_wait<0>();\n",
        "race",
        ("// rewrite", "tl::wgmma_rs"),
        "A_local + 8",
        "wgmma",
    ),
    "operand of a product that nobody set": Defect(
        "compiled product of registers",
        "    tl::store(A_local + r * 2, ",
        "    if (r != 15) tl::store(A_local + r * 2, ",
        "uninitialized",
        ("tl::wgmma_rs",),
        "A_local + 30",
    ),
    "compiled roles that do not wait for those who read": Defect(
        "compiled roles",
        "      tl::mbarrier_wait(empty + ",
        "      if (k < 3) tl::mbarrier_wait(empty + ",
        "race",
        ("tl::tma_load<", "tl::load<half_t, 8>(tile"),
        "tile + ",
        also=("failure",),
    ),
    "compiled roles of which one does not arrive": Defect(
        "compiled roles",
        "      tl::mbarrier_arrive(empty + ",
        "      if (tx != 200) tl::mbarrier_arrive(empty + ",
        "failure",
        ("tl::mbarrier_wait(empty + ",),
        "127 of 128 arrivals",
    ),
    "compiled stages filled over a tile": Defect(
        "compiled tiles in stages",
        "tl::mbarrier_wait(reuse0, reuse0_told);",
        "",
        "race",
        ("tl::tma_load<tl::evict_normal>(A_desc", "tl::store(C_shared"),
        "_shared + ",
        "bulk load",
        also=("failure",),
    ),
    "compiled stages filled over a tile that is still stored": Defect(
        "compiled tiles in stages",
        "tl::tma_store_wait<0, true>();",
        "",
        "race",
        ("tl::tma_load", "tl::tma_store<"),
        "_shared + ",
        nth=1,
    ),
    "compiled tile in stages that are still read": Defect(
        "compiled tile in stages of cp.async",
        BARRIER,
        "",
        "race",
        ("tl::ptx_ldmatrix", "tl::store(C_shared"),
        "_shared + ",
        "barrier",
        nth=-2,
    ),
    "compiled softmax that writes a vector too far": Defect(
        "compiled softmax",
        "tl::store(B + ",
        "tl::store(B + 4 + ",
        "out-of-bounds",
        ("tl::store(B",),
        "argument 1[2, 0]",
        also=("race",),
    ),
}
