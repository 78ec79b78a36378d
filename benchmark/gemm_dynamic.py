"""GEMM whose sizes the compiler does not know: what M, N and K as T.dynamic cost.

``python benchmark/gemm_dynamic.py`` prints a table of TFLOP/s beside torch's: one program, a block
for each tile, with known sizes, with M dynamic, with M and N, and with all three. A call of these
sizes takes the variant for tiles without a rest; ``+ 8`` are sizes with one, whose rows are still
multiples of 16 bytes, ``+ 4`` and ``+ 2`` of 8 and of 4 bytes; of ``+ 1`` and ``+ 3`` nothing is
known. ``--emulate`` checks small sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from common import Row, main, norm_error

import tilelang
import tilelang.language as T


@tilelang.jit
def matmul(M, N, K, dtype, block_M=128, block_N=256, block_K=64, num_stages=3, threads=256):
    """C (M, N) = A (M, K) @ B (K, N); each size is a number or a T.dynamic."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_shared = T.alloc_shared((block_M, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.use_swizzle(10)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, policy=T.GemmWarpPolicy.FullRow)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main


def row(dynamic: str, size: tuple[int, int, int], dtype: Any, wanted: float, emulate: bool) -> Row:
    """A product of `size`, whose sizes named in `dynamic` the compiler does not know."""
    M, N, K = size
    torch_dtype = dtype.as_torch()

    def inputs(device: str) -> list[Any]:
        a, b = torch.randn(M, K, device=device), torch.randn(K, N, device=device)
        c = torch.empty(M, N, device=device, dtype=torch_dtype)
        return [a.to(torch_dtype), b.to(torch_dtype), c]

    def call(kernel: Any, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        kernel(a, b, c)
        return c

    def error(given: list[Any], found: torch.Tensor) -> tuple[float, float]:
        wanted = given[0].double() @ given[1].double()
        return norm_error(found, wanted), torch.finfo(torch_dtype).eps

    named = {
        name: T.dynamic(name) if name in dynamic else value
        for name, value in zip("MNK", size, strict=True)
    }
    tile = {"block_M": 64, "block_N": 64, "block_K": 32, "threads": 128} if emulate else {}
    known = f"{', '.join(dynamic)} dynamic" if dynamic else "all known"
    return Row(
        name=f"{M} x {N} x {K} {dtype}: {known}",
        program=matmul,
        arguments={**named, "dtype": dtype},
        config=tile,
        inputs=inputs,
        error=error,
        work=2.0 * M * N * K,
        baseline=lambda a, b, c: torch.mm(a, b, out=c),
        wanted=wanted,
        call=call,
    )


def rows(emulate: bool) -> list[Row]:
    """The table. What is wanted is the share of torch's speed."""
    size = 128 if emulate else 4096
    found = []
    for dtype in (T.float16, T.bfloat16):
        for dynamic in ("", "M", "MN", "MNK"):
            found.append(row(dynamic, (size,) * 3, dtype, 0.8, emulate))
    for rest, wanted in ((8, 0.75), (4, 1.2), (2, 1.0), (1, 1.0), (3, 1.0)):
        for dynamic in ("", "K", "MNK"):
            found.append(row(dynamic, (size + rest,) * 3, T.float16, wanted, emulate))
    for dynamic in ("", "MNK"):
        found.append(row(dynamic, (size + 1,) * 3, T.bfloat16, 1.0, emulate))
    return found


if __name__ == "__main__":
    main(__doc__.splitlines()[0], rows)
