"""What the emulator costs: switches between threads, barriers, launches, a GEMM, compiling it.

Needs no GPU. Prints a table of best times, for one worker and for one on each core.
"""

import ctypes
import functools
import pathlib
import tempfile
import time
from collections.abc import Callable

import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import schedule
from tilelang.emulator.compiler import EmulatedModule, build_emulated

ROUNDS = 2000
SOURCE = """#include <tl/common.h>
extern "C" __global__ void nothing(int rounds) {}
extern "C" __global__ void barriers(int rounds) {
  for (int i = 0; i < rounds; ++i) __syncthreads();
}
"""


def best_microseconds(function: Callable[[], object], repeat: int = 20) -> float:
    """The least time of some calls."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e6


def launches(module: EmulatedModule) -> None:
    """Prints what threads, barriers and blocks cost."""

    def run(kernel: str, grid: int, block: int) -> None:
        module.launch(kernel, (grid, 1, 1), (block, 1, 1), 0, [ctypes.c_int(ROUNDS)])

    for block in (32, 128, 384, 1024):
        launch = best_microseconds(functools.partial(run, "nothing", 1, block))
        print(f"launch of {block} threads: {launch:.0f} us")
    barrier = best_microseconds(lambda: run("barriers", 1, 128)) / ROUNDS
    print(f"__syncthreads of 128 threads: {barrier:.2f} us, {barrier / 128 * 1000:.1f} ns a switch")
    for workers in (1, 0):
        with schedule(workers=workers):
            grid = best_microseconds(lambda: run("nothing", 1000, 128)) / 1000
        print(f"block of 128 threads, {'one worker' if workers else 'all cores'}: {grid:.1f} us")


@tilelang.jit(out_idx=[-1], execution_backend="emulate")
def gemm(size, tile_m=128, tile_n=128, tile_k=32):
    """A GEMM of bfloat16."""

    @T.prim_func
    def main(
        A: T.Tensor((size, size), T.bfloat16),
        B: T.Tensor((size, size), T.bfloat16),
        C: T.Tensor((size, size), T.float32),
    ):
        with T.Kernel(size // tile_n, size // tile_m, threads=128) as (bx, by):
            a = T.alloc_shared((tile_m, tile_k), T.bfloat16)
            b = T.alloc_shared((tile_k, tile_n), T.bfloat16)
            c = T.alloc_fragment((tile_m, tile_n), T.float32)
            T.clear(c)
            for k in T.Pipelined(size // tile_k, num_stages=3):
                T.copy(A[by * tile_m, k * tile_k], a)
                T.copy(B[k * tile_k, bx * tile_n], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * tile_m, bx * tile_n])

    return main


def products() -> None:
    """Prints what a GEMM costs."""
    kernel = gemm(256)
    a, b = (torch.randn(256, 256).bfloat16() for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        build_emulated(kernel.get_kernel_source(), [], pathlib.Path(folder))
        print(f"compiling a GEMM's source: {time.perf_counter() - begin:.2f} s")
    torch.testing.assert_close(kernel(a, b), a.float() @ b.float(), rtol=1e-3, atol=1e-2)
    for workers in (1, 0):
        with schedule(workers=workers):
            product = best_microseconds(lambda: kernel(a, b)) / 1000
        print(f"256-cubed GEMM, {'one worker' if workers else 'all cores'}: {product:.1f} ms")


def main() -> None:
    """Measure and print."""
    launches(build_emulated(SOURCE, ["nothing", "barriers"]))
    products()


if __name__ == "__main__":
    main()
