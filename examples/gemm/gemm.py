"""A @ B, or A @ B^T, in float16 or bfloat16: compile it, check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


def processors():
    """Multiprocessors of the GPU; a few blocks where there is none."""
    if not torch.cuda.is_available():
        return 4
    return torch.cuda.get_device_properties().multi_processor_count


@tilelang.jit(out_idx=[-1])
def matmul(
    M,
    N,
    K,
    dtype=T.float16,
    transpose_B=False,
    block_M=128,
    block_N=128,
    block_K=64,
    num_stages=3,
    threads=256,
    group=(4, 8),
    parts=1,
    out_dtype=None,
    accum_dtype=T.float32,
    cluster=1,
):
    """C (M, N) of A (M, K) and B, (K, N) or transposed (N, K); C is of `dtype` too, or `out_dtype`;
    sums are of `accum_dtype`.

    A block for each multiprocessor works on one tile of C after the other, so that the operands of
    the next one are loaded while this one is stored, in `parts`, which take less shared memory. The
    blocks of a cluster work on neighbours in M, so that each loads a part of B's tile for all.

    Tiles are taken in groups of `group` rows and columns, down the columns of a group: blocks that
    follow each other, which run near each other on the chip, have most operands in common.
    """
    if block_N % parts:
        raise ValueError(f"parts is {parts}, wanted a divisor of block_N, {block_N}")
    clusters, width, out_dtype = processors() // cluster, block_N // parts, out_dtype or dtype
    accum_dtype = T.int32 if str(dtype) == "int8" else T.float32
    rows, columns = -(-M // (block_M * cluster)), -(-N // block_N)
    down, across = min(group[0], rows), min(group[1], columns)
    whole = rows % down == 0 and columns % across == 0

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K) if transpose_B else (K, N), dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(clusters * cluster, threads=threads, cluster_dims=cluster) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared(
                (block_N, block_K) if transpose_B else (block_K, block_N), dtype
            )
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            # Two, so that one is filled while the other one is stored.
            C_shared = [T.alloc_shared((block_M, width), out_dtype) for _ in range(min(parts, 2))]

            tiles = [T.ceildiv(columns, across), T.ceildiv(rows, down), across, down]
            for right, below, x, y in T.Persistent(tiles, clusters, block // cluster):
                row, bx = below * down + y, right * across + x
                by = row * cluster + block % cluster
                if whole or (row < rows and bx < columns):
                    T.clear(C_local)
                    for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                        T.copy(A[by * block_M, k * block_K], A_shared)
                        if transpose_B:
                            T.copy(B[bx * block_N, k * block_K], B_shared)
                        else:
                            T.copy(B[k * block_K, bx * block_N], B_shared)
                        T.gemm(
                            A_shared,
                            B_shared,
                            C_local,
                            transpose_B=transpose_B,
                            policy=T.GemmWarpPolicy.FullRow,
                        )
                    for part in T.unroll(parts, explicit=True):
                        T.copy(C_local[:, part * width : (part + 1) * width], C_shared[part % 2])
                        T.copy(C_shared[part % 2], C[by * block_M, bx * block_N + part * width])

    return main


def inputs(M, N, K, dtype=T.float16, transpose_B=False, device="cpu"):
    """A and B, normally distributed."""
    shapes = (M, K), (N, K) if transpose_B else (K, N)
    return [torch.randn(shape, device=device).to(dtype.as_torch()) for shape in shapes]


def reference(a, b, transpose_B=False):
    """The same in float64."""
    return a.double() @ (b.double().T if transpose_B else b.double())


def relative_error(M, N, K, dtype=T.float16, transpose_B=False, device="cpu", **tile):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    a, b = inputs(M, N, K, dtype, transpose_B, device)
    found = matmul(M, N, K, dtype, transpose_B, **tile)(a, b).double()
    wanted = reference(a, b, transpose_B)
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    for dtype in (T.float16, T.bfloat16):
        for transpose_B in (False, True):
            error = relative_error(M, N, K, dtype, transpose_B, "cuda" if gpu else "cpu")
            bound = torch.finfo(dtype.as_torch()).eps
            assert error < bound, f"relative error {error:.1e}, wanted under {bound:.1e}"
            form = f"{dtype} {'NT' if transpose_B else 'NN'}"
            print(f"{M} x {N} x {K} {form}: relative error {error:.1e}")
