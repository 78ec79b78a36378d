"""Lowering is linear in the program: eight times the program takes about eight times the time.

The time is this thread's, the least of some lowerings. The bound is three times what is linear; a
quadratic step comes to 64. benchmark/growth.py prints the exponents.
"""

import importlib.util
import pathlib
import sys
import time

import pytest

import tilelang
import tilelang.language as T

GROWTH = pathlib.Path(__file__).resolve().parents[3] / "benchmark" / "growth.py"
TARGET = {"kind": "cuda", "arch": "sm_90a"}


@pytest.fixture(scope="module")
def growth():
    spec = importlib.util.spec_from_file_location("growth", GROWTH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def least_seconds(program):
    least = sys.maxsize
    for _ in range(2):
        start = time.thread_time()
        tilelang.lower(program, target=TARGET)
        least = min(least, time.thread_time() - start)
    return least


@pytest.mark.parametrize(
    ("axis", "size"),
    [
        ("loops", 8),
        ("fragments", 8),
        ("reductions", 4),
        ("round_trips", 8),
        ("nested_loops", 3),
    ],
)
def test_eight_times_the_program_takes_about_eight_times_the_time(growth, axis, size):
    make = getattr(growth, axis)
    assert least_seconds(make(8 * size)) < 3 * 8 * least_seconds(make(size))


def persistent(blocks):
    """A product in 512 tiles by so many blocks, each with two tiles of its result on the chip."""

    @T.prim_func
    def main(
        A: T.Tensor((4096, 512), T.float16),
        B: T.Tensor((4096, 512), T.float16),
        C: T.Tensor((4096, 4096), T.float16),
    ):
        with T.Kernel(blocks, threads=256) as block:
            A_shared = T.alloc_shared((128, 64), T.float16)
            B_shared = T.alloc_shared((256, 64), T.float16)
            C_local = T.alloc_fragment((128, 256), T.float32)
            C_shared = [T.alloc_shared((128, 64), T.float16) for _ in range(2)]
            for right, below, x, y in T.Persistent([2, 8, 8, 4], blocks, block):
                by, bx = below * 4 + y, right * 8 + x
                T.clear(C_local)
                for k in T.Pipelined(8, num_stages=3):
                    T.copy(A[by * 128, k * 64], A_shared)
                    T.copy(B[bx * 256, k * 64], B_shared)
                    T.gemm(A_shared, B_shared, C_local, False, True, T.GemmWarpPolicy.FullRow)
                for part in T.unroll(4, explicit=True):
                    T.copy(C_local[:, part * 64 : (part + 1) * 64], C_shared[part % 2])
                    T.copy(C_shared[part % 2], C[by * 128, bx * 256 + part * 64])

    return main


def test_tiles_that_blocks_do_not_divide_take_no_longer():
    """How many tiles a block has is then an expression. What no index makes use of has to be proved
    nowhere: it took twenty times as long."""
    assert least_seconds(persistent(132)) < 3 * least_seconds(persistent(128))
