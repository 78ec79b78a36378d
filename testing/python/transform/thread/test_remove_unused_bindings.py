"""Names that nobody reads are not printed."""

from tvm.script import tirx as T

import tilelang
import tilelang.language as TL


def test_names_that_nobody_reads_are_gone(statements):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            last = T.bind(n - 1)
            T.bind(tx < last)
            T.bind(A[tx])
            T.bind(T.exp(T.float32(n)))
            for i in T.serial(4):
                step = T.bind(i * 4)
                T.bind(step * 2)
                A[tx] = tx + step

    assert statements("RemoveUnusedBindings", func) == (
        "v: T.let[T.int32] = A[tx]\n"
        'v_1: T.let[T.float32] = T.exp(T.Cast("float32", n))\n'
        "for i in range(4):\n"
        "    step: T.let[T.int32] = i * 4\n"
        "    A[tx] = tx + step"
    )


def test_what_a_condition_or_a_bound_reads_stays(statements):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            count = T.bind(n // 2)
            first = T.bind(n % 2)
            index = T.bind(n + 7)
            for _ in T.serial(count):
                if first == 1:
                    A[index] = 5

    text = statements("RemoveUnusedBindings", func)
    assert [line.split(":")[0] for line in text.splitlines()[:3]] == ["count", "first", "index"]


def test_assumptions_are_gone_with_what_they_read(statements):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            last = T.bind(n - 1)
            T.assume(last < 64)
            A[tx] = tx

    assert statements("RemoveUnusedBindings", func) == "A[tx] = tx"


def test_a_place_that_only_its_search_reads_is_not_searched(statements):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            unread = T.sblock_alloc_buffer((1,), "int32", scope="local.var")
            found = T.sblock_alloc_buffer((1,), "int32", scope="local.var")
            for i in T.serial(n):
                unread[0] = unread[0] + 1
                while A[unread[0]] == 0:
                    unread[0] = unread[0] + 1
                while A[found[0]] == 0:
                    found[0] = found[0] + 1
                A[found[0]] = i

    text = statements("RemoveUnusedBindings", func)
    assert "unread[" not in text
    assert "while A[found[0]] == 0:" in text


def test_the_source_has_no_name_that_it_does_not_use():
    @TL.prim_func
    def main(A: TL.Tensor((256, 64), "float32")):
        with TL.Kernel(4, threads=64) as bx:
            first = bx * 64
            for i, j in TL.Parallel(64, 64):
                A[first + i, j] = A[first + i, j] + 1.0

    source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    assert "bx" in source
    assert "first" not in source
