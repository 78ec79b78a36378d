"""A @ B^T in MXFP4, MXFP6 or MXFP8, whose 32 elements of a row share a scale, on gfx950: check it.

Runs in the emulator, which needs no GPU.
"""

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.utils import float6

GROUP = 32  # elements of a scale
FORMATS = {
    "MXFP4": T.float4_e2m1fn,
    "MXFP6": T.float6_e2m3fn,
    "MXFP6 E3M2": T.float6_e3m2fn,
    "MXFP8": T.float8_e4m3fn,
}


@tilelang.jit(out_idx=[-1], target="hip -mcpu=gfx950", execution_backend="emulate")
def matmul(
    M, N, K, dtype=T.float4_e2m1fn, block_M=128, block_N=128, block_K=256, num_stages=2, threads=256
):
    """C (M, N) of A (M, K) and B (N, K), and a scale for each `GROUP` elements of their rows.

    Elements of 4 bits are passed two to a byte, those of 6 bits as `tilelang.utils.float6` packs
    them: (M, 3 K / 4) bytes.
    """

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        scale_A: T.Tensor((M, K // GROUP), T.float8_e8m0fnu),
        B: T.Tensor((N, K), dtype),
        scale_B: T.Tensor((N, K // GROUP), T.float8_e8m0fnu),
        C: T.Tensor((M, N), T.float32),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            SA_shared = T.alloc_shared((block_M, block_K // GROUP), T.float8_e8m0fnu)
            SB_shared = T.alloc_shared((block_N, block_K // GROUP), T.float8_e8m0fnu)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(scale_A[by * block_M, k * (block_K // GROUP)], SA_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.copy(scale_B[bx * block_N, k * (block_K // GROUP)], SB_shared)
                T.gemm_blockscaled(
                    A_shared, B_shared, C_local, SA_shared, SB_shared, transpose_B=True
                )
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def operand(rows, columns, dtype):
    """Random elements and scales: as the kernel takes them, and their products in float64."""
    scales = torch.randint(120, 134, (rows, columns // GROUP), dtype=torch.uint8)
    if dtype == T.float4_e2m1fn:
        codes = torch.randint(0, 16, (rows, columns))
        values = E2M1[codes]
        # Two in a byte, the first one in its low half.
        stored = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8).view(dtype.as_torch())
    elif dtype in (T.float6_e2m3fn, T.float6_e3m2fn):
        stored = float6.pack(torch.randn(rows, columns), dtype)
        values = float6.unpack(stored, dtype)
    else:
        stored = torch.randn(rows, columns).to(dtype.as_torch())
        values = stored
    powers = (scales.double() - 127).exp2().repeat_interleave(GROUP, 1)
    return stored, scales.view(torch.float8_e8m0fnu), values.double() * powers


def relative_error(M, N, K, dtype, **tile):
    """||ours - reference|| / ||reference||, the reference in float64."""
    torch.manual_seed(0)
    (a, scale_a, x), (b, scale_b, y) = operand(M, K, dtype), operand(N, K, dtype)
    found = matmul(M, N, K, dtype, **tile)(a, scale_a, b, scale_b).double()
    return float((found - x @ y.T).norm() / (x @ y.T).norm())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[256, 256, 512])
    parser.add_argument("--format", choices=FORMATS, action="append")
    options = parser.parse_args()
    M, N, K = options.size
    for name in options.format or FORMATS:
        error = relative_error(M, N, K, FORMATS[name])
        assert error < 1e-6, f"{name}: relative error {error:.1e}, wanted under 1e-6"
        print(f"{M} x {N} x {K} {name}: relative error {error:.1e}")
