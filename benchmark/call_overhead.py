"""What a call costs beside the kernel: its arguments, checks, outputs and the launch.

``python benchmark/call_overhead.py`` prints microseconds of a call of a function in eager style, of
its kernel, and of Python's own call of a function with as many arguments. The tensors have no rows,
so that nothing runs; on a GPU the launch of an empty grid is left out too.
"""

from __future__ import annotations

import argparse
import timeit

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
def scaled_add(A, B, factor: T.float32, block: int = 128):
    """C = A + factor * B."""
    M = T.dynamic("M")
    N, K = T.const("N, K")
    A: T.Tensor[[M, N, K], T.float16]
    B: T.Tensor[[M, N, K], T.float16]
    C = T.empty((M, N, K), T.float16)
    with T.Kernel(M, threads=block) as bx:
        for i, j in T.Parallel(N, K):
            C[bx, i, j] = A[bx, i, j] + factor * B[bx, i, j]
    return C


def microseconds(function, repeat: int) -> float:
    """The best of five means over `repeat` calls."""
    return min(timeit.repeat(function, number=repeat, repeat=5)) / repeat * 1e6


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=20000, help="calls of one measurement")
    repeat = parser.parse_args().repeat
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.zeros(0, 4, 32, dtype=torch.float16, device=device)
    kernel = scaled_add.compile(a, a)

    def empty(A, B, factor, block=128):
        return torch.empty((0, 4, 32), dtype=torch.float16, device=device)

    print(f"eager call      {microseconds(lambda: scaled_add(a, a, 2.0), repeat):6.2f} us")
    keywords = microseconds(lambda: scaled_add(a, B=a, factor=2.0, block=128), repeat)
    print(f"with keywords   {keywords:6.2f} us")
    print(f"kernel          {microseconds(lambda: kernel(a, a, 2.0), repeat):6.2f} us")
    print(f"torch.empty     {microseconds(lambda: empty(a, a, 2.0), repeat):6.2f} us")


if __name__ == "__main__":
    main()
