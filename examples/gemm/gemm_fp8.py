"""A @ B^T in 8-bit floats, plain or with a scale for each 128 x 128 block: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from gemm import inputs, relative_error

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def scaled_matmul(
    M,
    N,
    K,
    rows_of_B=False,
    block_M=128,
    num_stages=3,
    threads=256,
    group=128,
    out_dtype=T.bfloat16,
):
    """C (M, N) of A (M, K) with a scale for each `group` of a row, (K / group, M) of them, and B
    (N, K) with one for each square of `group`, (N / group, K / group), or with `rows_of_B` as A has
    them, (K / group, N); the scales are applied to float32 sums of `group` products."""
    groups = -(-K // group)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float8_e4m3fn),
        B: T.Tensor((N, K), T.float8_e4m3fn),
        scale_A: T.Tensor((groups, M), T.float32),
        scale_B: T.Tensor((groups, N) if rows_of_B else (-(-N // group), groups), T.float32),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, group), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, group), T.float8_e4m3fn)
            B_shared = T.alloc_shared((group, group), T.float8_e4m3fn)
            scale = T.alloc_shared((block_M,), T.float32)
            scale_of_B = T.alloc_shared((group,), T.float32) if rows_of_B else None
            product = T.alloc_fragment((block_M, group), T.float32)
            C_local = T.alloc_fragment((block_M, group), T.float32)

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, group), num_stages=num_stages):
                T.copy(A[by * block_M, k * group], A_shared)
                T.copy(B[bx * group, k * group], B_shared)
                T.copy(scale_A[k, by * block_M], scale)
                if rows_of_B:
                    T.copy(scale_B[k, bx * group], scale_of_B)
                T.gemm(A_shared, B_shared, product, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, group):
                    of_B = scale_of_B[j] if rows_of_B else scale_B[bx, k]
                    C_local[i, j] += product[i, j] * (scale[i] * of_B)
            T.copy(C_local, C[by * block_M, bx * group])

    return main


def scaled_relative_error(M, N, K, device="cpu", group=128, **tile):
    """||ours - reference|| / ||reference|| of the product with scales."""
    torch.manual_seed(0)
    a, b = inputs(M, N, K, T.float8_e4m3fn, True, device)
    blocks = -(-K // group)
    scale_a = torch.rand(blocks, M, device=device) + 0.5
    scale_b = torch.rand(-(-N // group), blocks, device=device) + 0.5
    found = scaled_matmul(M, N, K, group=group, **tile)(a, b, scale_a, scale_b).double()
    x = a.double() * scale_a.double().T.repeat_interleave(group, 1)[:, :K]
    y = scale_b.double().repeat_interleave(group, 0)[:N].repeat_interleave(group, 1)[:, :K]
    wanted = x @ (y * b.double()).T
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
