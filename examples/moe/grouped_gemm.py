"""A product for each group of rows, with a matrix of its own, in one launch: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def grouped_matmul(
    rows, groups, N, K, block_M=64, block_N=128, block_K=64, num_stages=3, threads=128
):
    """C (rows, N) of A (rows, K) and B (groups, K, N): row i is multiplied by the matrix of its
    group g, ends[g - 1] <= i < ends[g]."""
    # Each group may end in a tile that is not full.
    tiles = -(-rows // block_M) + groups

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), T.float16),
        B: T.Tensor((groups, K, N), T.float16),
        ends: T.Tensor((groups,), T.int32),
        C: T.Tensor((rows, N), T.float16),
    ):
        with T.Kernel(T.ceildiv(N, block_N), tiles, threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), T.float16)
            B_shared = T.alloc_shared((block_K, block_N), T.float16)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            group = T.alloc_var(T.int32, init=0)
            first = T.alloc_var(T.int32, init=0)
            end = T.alloc_var(T.int32, init=0)
            start = T.alloc_var(T.int32, init=0)
            tile = T.alloc_var(T.int32, init=0)

            # Which rows of which group are tile `by`: the groups' tiles are counted one by one.
            for g in T.serial(groups):
                count = T.ceildiv(ends[g] - start, block_M)
                if by >= tile and by < tile + count:
                    group = g
                    first = start + (by - tile) * block_M
                    end = ends[g]
                tile += count
                start = ends[g]

            T.clear(C_local)
            if first < end:
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                    T.copy(A[first, k * block_K], A_shared)
                    T.copy(B[group, k * block_K : (k + 1) * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                if first + i < end:
                    C[first + i, bx * block_N + j] = C_local[i, j]

    return main


def relative_error(sizes, N, K, device="cpu", **tile):
    """||ours - float64|| / ||float64||; `sizes` are the groups' counts of rows."""
    torch.manual_seed(0)
    ends = torch.tensor(sizes, dtype=torch.int32, device=device).cumsum(0, dtype=torch.int32)
    a = torch.randn(sum(sizes), K, device=device, dtype=torch.float16)
    b = torch.randn(len(sizes), K, N, device=device, dtype=torch.float16)
    found = grouped_matmul(sum(sizes), len(sizes), N, K, **tile)(a, b, ends).double()
    parts = a.double().split(sizes)
    wanted = torch.cat([x @ y for x, y in zip(parts, b.double(), strict=True)])
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", help="rows of each group")
    parser.add_argument("--size", type=int, nargs=2, default=[4096 if gpu else 128] * 2)
    arguments = parser.parse_args()
    sizes = arguments.rows or ([1000, 0, 4096, 1, 700, 2048] if gpu else [100, 0, 64, 1])
    N, K = arguments.size
    error = relative_error(sizes, N, K, "cuda" if gpu else "cpu")
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    print(f"{sizes} rows, {N} x {K}: relative error {error:.1e}")
