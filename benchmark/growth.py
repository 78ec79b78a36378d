"""How lowering grows with the program: seconds for programs of growing size, and the exponent.

Each row is an axis along which a program grows: its loops, buffers, products and so on. The program
of each size is lowered for sm_90a in this process. The exponent is that of the last two sizes: 1
where twice the program takes twice the time. Needs no GPU. With --passes the exponents of the
slowest passes stand below each row.
"""

import argparse
import json
import logging
import math
import os
import pathlib
import time
from collections.abc import Callable
from typing import NamedTuple

import tilelang
import tilelang.language as T
from tilelang.utils.log import logger

TARGET = "cuda -arch=sm_90a"
PER_MILLE = 1e3


def loops(count):
    """Loops over one fragment."""

    @T.prim_func
    def main(A: T.Tensor((128, 128), "float32"), C: T.Tensor((128, 128), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((128, 128), "float32")
            T.copy(A, F)
            for _ in list(range(count)):
                for i, j in T.Parallel(128, 128):
                    F[i, j] = F[i, j] * 2 + 1
            T.copy(F, C)

    return main


def round_trips(count):
    """Tiles that go through one shared tile and come back."""

    @T.prim_func
    def main(A: T.Tensor((128, 128), "float32"), C: T.Tensor((128, 128), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((128, 128), "float32")
            F = T.alloc_fragment((128, 128), "float32")
            T.copy(A, F)
            for _ in list(range(count)):
                T.copy(F, S)
                T.copy(S, F)
            T.copy(F, C)

    return main


def shared_buffers(count):
    """Shared tiles, each filled and read once."""

    @T.prim_func
    def main(A: T.Tensor((count, 64, 32), "float16"), C: T.Tensor((count, 64, 32), "float16")):
        with T.Kernel(1, threads=128):
            for k in list(range(count)):
                S = T.alloc_shared((64, 32), "float16")
                T.copy(A[k, :, :], S)
                for i, j in T.Parallel(64, 32):
                    C[k, i, j] = S[i, 31 - j]

    return main


def fragments(count):
    """Fragments, each made of the one before."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, F)
            for _ in list(range(count)):
                G = T.alloc_fragment((64, 64), "float32")
                for i, j in T.Parallel(64, 64):
                    G[i, j] = F[i, j] + 1
                F = G
            T.copy(F, C)

    return main


def reductions(count):
    """Reductions of one fragment, each of which the next loop uses."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 64), "float32")
            row = T.alloc_fragment((64,), "float32")
            T.copy(A, F)
            for _ in list(range(count)):
                T.reduce_max(F, row, dim=1)
                for i, j in T.Parallel(64, 64):
                    F[i, j] = F[i, j] - row[i]
            T.copy(F, C)

    return main


def products(count):
    """A chain of products: each takes the result of the one before as its left operand."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            left = T.alloc_shared((64, 64), "float16")
            right = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, left)
            T.copy(B, right)
            for _ in list(range(count)):
                T.gemm(left, right, acc, clear_accum=True)
                T.copy(acc, left)
            T.copy(left, C)

    return main


def accumulated_products(count):
    """Products added to one accumulator, each of tiles of its own loading."""

    @T.prim_func
    def main(
        A: T.Tensor((count, 64, 64), "float16"),
        B: T.Tensor((count, 64, 64), "float16"),
        C: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            left = T.alloc_shared((64, 64), "float16")
            right = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in list(range(count)):
                T.copy(A[k, :, :], left)
                T.copy(B[k, :, :], right)
                T.gemm(left, right, acc)
            T.copy(acc, C)

    return main


def _gemms(count, tile, kernels):
    """`count` pipelined GEMMs one after the other, in a kernel each or in one."""

    @T.prim_func
    def main(
        A: T.Tensor((count, 1024, 1024), "float16"),
        B: T.Tensor((count, 1024, 1024), "float16"),
        C: T.Tensor((count, 1024, 1024), "float16"),
    ):
        for first in list(range(kernels)):
            with T.Kernel(1024 // tile, 1024 // tile, threads=128) as (bx, by):
                left = T.alloc_shared((tile, 32), "float16")
                right = T.alloc_shared((32, tile), "float16")
                acc = T.alloc_fragment((tile, tile), "float32")
                for n in list(range(first, count, kernels)):
                    T.clear(acc)
                    for k in T.Pipelined(32, num_stages=3):
                        T.copy(A[n, by * tile, k * 32], left)
                        T.copy(B[n, k * 32, bx * tile], right)
                        T.gemm(left, right, acc)
                    T.copy(acc, C[n, by * tile, bx * tile])

    return main


def pipelines(count):
    """Pipelined GEMMs in one kernel."""
    return _gemms(count, 64, 1)


def kernels(count):
    """Kernels with a pipelined GEMM each."""
    return _gemms(count, 64, count)


def tile(edge):
    """A GEMM's tile."""
    return _gemms(1, edge, 1)


def nested_loops(depth):
    """Serial loops around a loop over a fragment."""

    @T.macro
    def nest(F, levels):
        if levels:
            for _ in T.serial(2):
                nest(F, levels - 1)
        else:
            for i, j in T.Parallel(64, 64):
                F[i, j] = F[i, j] * 2 + 1

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, F)
            nest(F, depth)
            T.copy(F, C)

    return main


class Axis(NamedTuple):
    """What grows: the program of each size; `wanted` is seconds for the last size."""

    make: Callable
    sizes: tuple[int, ...]
    wanted: float | None = None


AXES = {
    "loops over a fragment": Axis(loops, (32, 128, 512), 1.0),
    "round trips through shared memory": Axis(round_trips, (16, 64, 256), 0.3),
    "shared buffers": Axis(shared_buffers, (16, 64, 256)),
    "fragments": Axis(fragments, (16, 64, 256)),
    "reductions": Axis(reductions, (8, 32, 128)),
    "products, each of the last": Axis(products, (4, 16, 64), 1.0),
    "products into one accumulator": Axis(accumulated_products, (4, 16, 64)),
    "pipelines in a kernel": Axis(pipelines, (2, 8, 32)),
    "kernels": Axis(kernels, (2, 8, 32)),
    "loops around a loop": Axis(nested_loops, (4, 16, 64)),
    "edge of a GEMM's tile": Axis(tile, (64, 128, 256)),
}


class Passes(logging.Handler):
    """Seconds of each pass, which TILELANG_PASS_PROFILE has logged."""

    def __init__(self):
        super().__init__()
        self.seconds = {}

    def emit(self, record):
        if isinstance(record.args, tuple) and str(record.msg).startswith("pass "):
            name, milliseconds = record.args
            self.seconds[name] = self.seconds.get(name, 0.0) + milliseconds / PER_MILLE


def lowering(program, repeat):
    """Least seconds of some lowerings, by the processor's time, and those of its passes."""
    best, passes = math.inf, {}
    for _ in range(repeat):
        listener = Passes()
        logger.addHandler(listener)
        start = time.process_time()
        tilelang.lower(program, target=TARGET)
        seconds = time.process_time() - start
        logger.removeHandler(listener)
        if seconds < best:
            best, passes = seconds, listener.seconds
    return best, passes


def exponent(sizes, seconds):
    """That of size by which the seconds grow in the last step."""
    return math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2])


def measure(axis, repeat):
    """Seconds for each size, and those of each pass."""
    found = [lowering(axis.make(size), repeat) for size in axis.sizes]
    passes = {name: [times.get(name, 0.0) for _, times in found] for name in found[-1][1]}
    return [seconds for seconds, _ in found], passes


def print_passes(sizes, passes, count):
    """The passes that take longest for the last size."""
    for name, seconds in sorted(passes.items(), key=lambda item: -item[1][-1])[:count]:
        grown = f"{exponent(sizes, seconds):>9.2f}" if seconds[-2] else ""
        columns = "".join(f"{one:>10.4f}" for one in seconds)
        print(f"    {name:<48}{columns}{grown}")


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axis", default="", help="only axes whose name has this")
    parser.add_argument("--repeat", type=int, default=2, help="lowerings the least is taken of")
    parser.add_argument("--passes", type=int, default=0, help="how many passes to print")
    parser.add_argument("--output", type=pathlib.Path, help="directory for the details, as JSON")
    arguments = parser.parse_args()
    os.environ["TILELANG_PASS_PROFILE"] = "1"
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers.clear()
    tilelang.lower(loops(1), target=TARGET)  # loads what is loaded once
    details = {}
    print(f"{'growing':<36}{'sizes':>16}{'seconds for each':>30}{'exponent':>9}{'wanted':>8}")
    for name, axis in AXES.items():
        if arguments.axis not in name:
            continue
        seconds, passes = measure(axis, arguments.repeat)
        columns = "".join(f"{one:>10.3f}" for one in seconds)
        sizes = ", ".join(map(str, axis.sizes))
        wanted = "" if axis.wanted is None else f"{axis.wanted:>8.1f}"
        print(f"{name:<36}{sizes:>16}{columns}{exponent(axis.sizes, seconds):>9.2f}{wanted}")
        print_passes(axis.sizes, passes, arguments.passes)
        details[name] = {"sizes": axis.sizes, "seconds": seconds, "passes": passes}
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "growth.json").write_text(json.dumps(details, indent=2))


if __name__ == "__main__":
    main()
