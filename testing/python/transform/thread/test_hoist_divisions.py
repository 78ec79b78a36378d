"""Divisions that stay the same leave loops, where they cannot trap."""

import pytest
from tvm.script import tirx as T

import tilelang
import tilelang.language as TL


@pytest.fixture
def hoist(statements):
    return lambda func: statements("HoistDivisions", func, {})


def test_a_division_that_stays_the_same_leaves_all_loops(hoist):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((1 << 20,), "int32"), n: T.int32):
        bx = T.launch_thread("blockIdx.x", 64)
        with T.sblock("tilelang_root"):
            for i in T.serial(4):
                for j in T.serial(4):
                    A[bx // T.min(8, 99 - bx) + j] = i % T.min(8, 99 - bx) + bx // 8

    assert hoist(func) == (
        "quotient: T.let[T.int32] = bx // T.min(8, 99 - bx)\n"
        "for i in range(4):\n"
        "    remainder: T.let[T.int32] = i % T.min(8, 99 - bx)\n"
        "    for j in range(4):\n"
        "        A[quotient + j] = remainder + bx // 8"
    )


def test_one_in_another_is_part_of_it_and_has_a_name_elsewhere(hoist):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((1 << 20,), "int32")):
        bx = T.launch_thread("blockIdx.x", 64)
        with T.sblock("tilelang_root"):
            for i in T.serial(4):
                A[bx // (bx + 1) % (bx + 2) + i] = bx // (bx + 1)

    found = hoist(func)
    assert found.count("bx // (bx + 1)") <= 2
    assert "A[remainder + i] = quotient" in found


def test_what_may_be_negative_stays(hoist):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32, m: T.int32):
        bx = T.launch_thread("blockIdx.x", 64)
        with T.sblock("tilelang_root"):
            for i in T.serial(4):
                if n != 0:
                    A[i] = bx // n
            if m > 0:
                for i in T.serial(4):
                    A[i] = bx // m

    assert hoist(func) == (
        "for i in range(4):\n"
        "    if n != 0:\n"
        "        A[i] = bx // n\n"
        "if m > 0:\n"
        "    quotient: T.let[T.int32] = bx // m\n"
        "    for i in range(4):\n"
        "        A[i] = quotient"
    )


def test_what_may_be_0_divides_by_1_in_front_of_the_loop(hoist):
    """Chunks of a tensor that may have no row, by which a loop in it divides."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32):
        bx = T.launch_thread("blockIdx.x", 64)
        with T.sblock("tilelang_root"):
            T.evaluate(T.assume(n > -1))
            for i in T.serial(4):
                if n != 0:
                    A[i] = bx // n + bx % (bx // n + 1)

    assert hoist(func).endswith(
        "quotient: T.let[T.int32] = bx // T.max(n, 1)\n"
        "remainder: T.let[T.int32] = bx % (bx // T.max(n, 1) + 1)\n"
        "for i in range(4):\n"
        "    if n != 0:\n"
        "        A[i] = quotient + remainder"
    )


def test_a_divisor_that_is_loaded_or_computed_in_the_loop_stays(hoist):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32")):
        bx = T.launch_thread("blockIdx.x", 64)
        with T.sblock("tilelang_root"):
            for i in T.serial(4):
                A[i] = bx // T.max(A[0], 1) + bx // (i + 1)

    assert hoist(func).startswith("for i in range(4):\n    A[i]")


def test_a_producer_divides_once_a_tile():
    """The tiles of a panel that may be lower than others."""

    @TL.prim_func
    def main(A: TL.Tensor((1152, 256), TL.float16), C: TL.Tensor((1152, 128), TL.float16)):
        with TL.Kernel(4, threads=128) as block:
            A_shared = TL.alloc_shared((128, 64), TL.float16)
            local = TL.alloc_fragment((128, 64), TL.float32)
            for tile in TL.Persistent([18], 4, block):
                above = tile // 8 * 4
                height = TL.min(4, 9 - above)
                row, column = above + tile % 8 % height, tile % 8 // height
                TL.clear(local)
                for k in TL.Pipelined(4, num_stages=2):
                    TL.copy(A[row * 128, k * 64], A_shared)
                    TL.gemm(A_shared, A_shared[:64, :], local, transpose_B=True)
                TL.copy(local, C[row * 128, column * 64])

    source = tilelang.compile(main, target="cuda -arch=sm_90a").get_kernel_source()
    step = source[source.index("for (int k") : source.index("tl::tma_load")]
    assert "min" not in step
    assert "const int remainder" in source[: source.index("for (int k")]
