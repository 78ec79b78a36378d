"""A function whose body is the kernel: a call on tensors compiles it and runs it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from typing import no_type_check

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
@no_type_check  # the parameters are declared in the body
def matmul(A, B, block_M: int = 64, block_N: int = 64, block_K: int = 32, dtype=T.float16):
    M, N, K = T.const("M, N, K")  # sizes of the tensors, constant in the kernel
    A: T.Tensor[[M, K], dtype]
    B: T.Tensor[[K, N], dtype]
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), dtype)
        B_shared = T.alloc_shared((block_K, block_N), dtype)
        C_local = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_shared)
            T.copy(B[k * block_K, bx * block_N], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * block_M, bx * block_N])
    return C


def check(found, a, b):
    """Print how far `found` is from the product in float64, in roundings of its largest value."""
    wanted = a.double() @ b.double()
    error = float((found - wanted).abs().max() / wanted.abs().max() / torch.finfo(found.dtype).eps)
    assert error < 16, f"{error:.1f} roundings off, wanted under 16"
    shape = " x ".join(map(str, (*a.shape, b.shape[1])))
    print(f"{shape} on {a.device.type}: {error:.2f} roundings off")


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    for M, K, N in [(256, 256, 256), (100, 72, 40)]:
        a = torch.randn(M, K, dtype=torch.float16, device=device)
        b = torch.randn(K, N, dtype=torch.float16, device=device)
        check(matmul(a, b), a, b)
    # Without tensors: the sizes by name. The kernels are compiled in parallel.
    kernels = matmul.par_compile([{"M": M, "N": N, "K": K, "block_M": m} for m in (32, 128)])
    for kernel in kernels:
        check(kernel(a, b), a, b)
