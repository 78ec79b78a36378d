"""Softmax of the rows of a matrix, a row kept in registers: compile it, check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504


# Fast math leaves out what exp2 does for subnormal weights.
@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def softmax(M, N, dtype=T.float32, block_M=4, threads=128):
    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            row = T.alloc_fragment((block_M, N), dtype)
            weight = T.alloc_fragment((block_M, N), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)

            T.copy(A[bx * block_M, 0], row)
            T.reduce_max(row, row_max, dim=1)
            # exp(x - max) with one multiply-add, and one division a row.
            for i in T.Parallel(block_M):
                row_max[i] = row_max[i] * LOG2_E
            for i, j in T.Parallel(block_M, N):
                weight[i, j] = T.exp2(row[i, j] * LOG2_E - row_max[i])
            T.reduce_sum(weight, row_sum, dim=1)
            for i in T.Parallel(block_M):
                row_sum[i] = 1 / row_sum[i]
            for i, j in T.Parallel(block_M, N):
                weight[i, j] = weight[i, j] * row_sum[i]
            T.copy(weight, B[bx * block_M, 0])

    return main


def error(M, N, dtype, device, **tile):
    """Largest difference from float64, in units of the dtype's rounding of the largest weight."""
    torch.manual_seed(0)
    a = torch.randn(M, N, device=device).to(dtype.as_torch())
    wanted = a.double().softmax(dim=1)
    found = softmax(M, N, dtype, **tile)(a).double()
    return float((found - wanted).abs().max() / wanted.max() / torch.finfo(a.dtype).eps)


if __name__ == "__main__":
    device, rows = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 256)
    for M, N, dtype in [
        (rows, 1024, T.float32),
        (rows - 1, 1024, T.float16),
        (127, 1000, T.bfloat16),
        (33, 129, T.float32),
    ]:
        found = error(M, N, dtype, device)
        assert found < 8, f"{M} x {N} of {dtype}: {found:.1f} roundings off, wanted under 8"
        print(f"{M} x {N} of {dtype} on {device}: {found:.2f} roundings off")
