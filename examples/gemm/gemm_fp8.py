"""A @ B^T in 8-bit floats, plain or with a scale for each 128 x 128 block: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch
from gemm import inputs, processors, relative_error

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def scaled_matmul(
    M,
    N,
    K,
    rows_of_B=False,
    block_M=128,
    block_N=128,
    num_stages=4,
    threads=256,
    group=128,
    panel=8,
    parts=1,
    results=1,
    cluster=1,
    out_dtype=T.bfloat16,
):
    """C (M, N) of A (M, K) with a scale for each `group` of a row, (K / group, M) of them, and B
    (N, K) with one for each square of `group`, (N / group, K / group), or with `rows_of_B` as A has
    them, (K / group, N); the scales are applied to float32 sums of `group` products.

    Blocks for all multiprocessors take the tiles in turn, so that the loads of one run during the
    end of another. `panel` tiles of rows go through the columns together. A tile has `parts` times
    `block_N` columns, one product after the other: the wider it is, the fewer bytes come from L2,
    and the sums of all parts, but the product of one, are in registers. They leave through
    `results` tiles in turn. Blocks of a `cluster` work on neighbours in M, and each loads a part of
    B's tile for all.
    """
    groups, clusters = -(-K // group), processors() // cluster
    rows, columns = -(-M // (cluster * block_M)), -(-N // (parts * block_N))
    # Columns that share a scale of B, as those of a tile of 192 do in parts.
    shared = math.gcd(block_N, group)
    squares = parts * block_N // shared

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float8_e4m3fn),
        B: T.Tensor((N, K), T.float8_e4m3fn),
        scale_A: T.Tensor((groups, M), T.float32),
        scale_B: T.Tensor((groups, N) if rows_of_B else (-(-N // group), groups), T.float32),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(clusters * cluster, threads=threads, cluster_dims=cluster) as block:
            A_shared = T.alloc_shared((block_M, group), T.float8_e4m3fn)
            B_shared = T.alloc_shared((parts * block_N, group), T.float8_e4m3fn)
            C_shared = [T.alloc_shared((block_M, block_N), out_dtype) for _ in range(results)]
            scale_of_B = T.alloc_shared((parts * block_N,), T.float32) if rows_of_B else None
            scale = T.alloc_shared((block_M,), T.float32)
            row = T.alloc_fragment((block_M,), T.float32)
            square = T.alloc_local((squares,), T.float32)
            product = T.alloc_fragment((block_M, block_N), T.float32)
            C_local = [T.alloc_fragment((block_M, block_N), T.float32) for _ in range(parts)]

            tiles = [-(-rows // panel), columns, panel]
            for above, bx, y in T.Persistent(tiles, clusters, block // cluster):
                by, left = above * panel + y, bx * parts * block_N
                first = (by * cluster + block % cluster) * block_M
                if by < rows:
                    for sums in C_local:
                        T.clear(sums)
                    for k in T.Pipelined(groups, num_stages=num_stages):
                        T.copy(A[first, k * group], A_shared)
                        T.copy(B[left, k * group], B_shared)
                        T.copy(scale_A[k, first], scale)
                        if rows_of_B:
                            T.copy(scale_B[k, left], scale_of_B)
                        else:
                            # Under way during the product.
                            for p in T.unroll(squares):
                                square[p] = scale_B[(left + p * shared) // group, k]
                        for n, sums in enumerate(C_local):
                            T.gemm(
                                A_shared,
                                B_shared[n * block_N : (n + 1) * block_N, :],
                                product,
                                transpose_B=True,
                                clear_accum=True,
                                policy=T.GemmWarpPolicy.FullRow,
                            )
                            if n == 0:
                                # Beside the product, as the fence for these reads is.
                                T.copy(scale, row)
                            for p in T.unroll(block_N // shared):
                                for i, j in T.Parallel(block_M, shared):
                                    at = p * shared + j
                                    of_B = square[n * (block_N // shared) + p]
                                    if rows_of_B:
                                        of_B = scale_of_B[n * block_N + at]
                                    sums[i, at] += product[i, at] * (row[i] * of_B)
                    for n, sums in enumerate(C_local):
                        T.copy(sums, C_shared[n % results])
                        T.copy(C_shared[n % results], C[first, left + n * block_N])

    return main


def scaled_inputs(M, N, K, device="cpu", group=128):
    """A, B, and scales for each `group` of a row of A and each square of B."""
    torch.manual_seed(0)
    a, b = inputs(M, N, K, T.float8_e4m3fn, True, device)
    blocks = -(-K // group)
    scale_a = torch.rand(blocks, M, device=device) + 0.5
    scale_b = torch.rand(-(-N // group), blocks, device=device) + 0.5
    return a, b, scale_a, scale_b


def scaled_reference(a, b, scale_a, scale_b, group=128):
    """The same product in float64."""
    (N, K) = b.shape
    x = a.double() * scale_a.double().T.repeat_interleave(group, 1)[:, :K]
    y = scale_b.double().repeat_interleave(group, 0)[:N].repeat_interleave(group, 1)[:, :K]
    return x @ (y * b.double()).T


def scaled_relative_error(M, N, K, device="cpu", group=128, **tile):
    """||ours - reference|| / ||reference|| of the product with scales."""
    tensors = scaled_inputs(M, N, K, device, group)
    found = scaled_matmul(M, N, K, group=group, **tile)(*tensors).double()
    wanted = scaled_reference(*tensors, group)
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    device = "cuda" if gpu else "cpu"
    tile = {"block_K": 128, "out_dtype": T.bfloat16}
    for name, error in [
        ("plain e4m3", relative_error(M, N, K, T.float8_e4m3fn, True, device, **tile)),
        ("plain e5m2", relative_error(M, N, K, T.float8_e5m2, True, device, **tile)),
        ("scaled e4m3", scaled_relative_error(M, N, K, device)),
    ]:
        # The tensor cores of some chips keep fewer bits of a sum of 8-bit products than float32.
        assert error < 1e-2, f"{name}: relative error {error:.1e}, wanted under 1e-2"
        print(f"{M} x {N} x {K} {name}: relative error {error:.1e}")
