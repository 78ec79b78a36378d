"""RMSNorm of the rows of a matrix, in tiles of columns, or of rows that stay in registers: compile
it, check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import torch

import tilelang
import tilelang.language as T

EPSILON = 1e-6


@tilelang.jit(out_idx=[-1])
def rms_norm(M, N, dtype=T.float16, block_M=4, block_N=512, threads=128):
    """A row that is not wider than a tile is read once, else each tile a second time."""
    tiles = -(-N // block_N)

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), W: T.Tensor((N,), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            tile = T.alloc_fragment((block_M, block_N), dtype)
            weight = T.alloc_fragment((block_N,), dtype)
            square = T.alloc_fragment((block_M, block_N), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)
            scale = T.alloc_fragment((block_M,), T.float32)

            T.clear(total)
            for k in T.serial(tiles):
                T.copy(A[bx * block_M, k * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    square[i, j] = T.cast(tile[i, j], T.float32) * T.cast(tile[i, j], T.float32)
                T.reduce_sum(square, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(total[i] / N + EPSILON)
            for k in T.serial(tiles):
                if tiles > 1:
                    T.copy(A[bx * block_M, k * block_N], tile)
                T.copy(W[k * block_N], weight)
                for i, j in T.Parallel(block_M, block_N):
                    square[i, j] = tile[i, j] * scale[i] * weight[j]
                T.copy(square, B[bx * block_M, k * block_N])

    return main


def error(M, N, dtype, device, **tile):
    """Largest difference from float64, in units of the dtype's rounding of the largest value."""
    torch.manual_seed(0)
    a = torch.randn(M, N, device=device).to(dtype.as_torch())
    w = torch.randn(N, device=device).to(dtype.as_torch())
    x = a.double()
    wanted = x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + EPSILON) * w.double()
    found = rms_norm(M, N, dtype, **tile)(a, w).double()
    return float((found - wanted).abs().max() / wanted.abs().max() / torch.finfo(a.dtype).eps)


if __name__ == "__main__":
    device, rows = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 256)
    for M, N, dtype in [
        (rows, 1024, T.float16),
        (rows - 1, 1000, T.bfloat16),
        (33, 129, T.float32),
    ]:
        found = error(M, N, dtype, device)
        assert found < 8, f"{M} x {N} of {dtype}: {found:.1f} roundings off, wanted under 8"
        print(f"{M} x {N} of {dtype} on {device}: {found:.2f} roundings off")
