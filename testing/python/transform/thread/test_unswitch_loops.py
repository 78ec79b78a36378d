"""Conditions that stay the same leave loops; equal neighbours become one."""

import time

import pytest
import torch
import tvm
from tvm import tirx
from tvm.script import tirx as T

import tilelang
import tilelang.language as TL
from tilelang import transform


@pytest.fixture
def unswitch(statements):
    return lambda func, **config: statements("UnswitchLoops", func, config)


def test_the_conjuncts_that_stay_the_same_leave_all_loops(unswitch):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64, 64), "float32"), n: T.int32, m: T.int32):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for i in T.unroll(4):
                for j in T.serial(4):
                    if tx < n and i < m and n + j < m:
                        A[i, j] = T.float32(0)

    assert unswitch(func) == (
        "if tx < n:\n"
        "    for i in T.unroll(4):\n"
        "        if i < m:\n"
        "            for j in range(4):\n"
        "                if n + j < m:\n"
        "                    A[i, j] = T.float32(0.0)"
    )
    assert unswitch(func, **{"tl.disable_loop_unswitching": True}).startswith("for i")


def test_a_condition_that_loads_stays(unswitch):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for i in T.serial(4):
                if A[0] < 3:
                    A[i] = 5

    assert unswitch(func).startswith("for i in range(4):\n    if A[0] < 3:")


def test_many_neighbours_are_merged_in_time():
    """All at once: one by one, what was merged was copied and searched again with each."""
    count = 6000
    n, tx = tirx.Var("n", "int32"), tirx.Var("tx", "int32")
    A = tirx.decl_buffer((count,), "int32")
    ifs = [tirx.IfThenElse(tx < n, tirx.BufferStore(A, tx, [k]), None) for k in range(count)]
    func = tirx.PrimFunc([n, tx], tirx.SeqStmt(ifs))
    begin = time.process_time()
    merged = transform.UnswitchLoops()(tvm.IRModule({"main": func}))["main"].body
    assert time.process_time() - begin < 2
    assert isinstance(merged, tirx.IfThenElse)
    assert len(merged.then_case.seq) == count


def test_neighbours_with_one_condition_are_merged(unswitch):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            if tx < n:
                A[tx] = 1
            if tx < n:
                A[tx + 32] = 2
            if A[0] < 3:
                A[0] = 3
            if A[0] < 3:
                A[1] = 4

    assert unswitch(func) == (
        "if tx < n:\n    A[tx] = 1\n    A[tx + 32] = 2\n"
        "if A[0] < 3:\n    A[0] = 3\nif A[0] < 3:\n    A[1] = 4"
    )


def test_two_branches_are_two_loops_if_allowed(unswitch):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for i in T.serial(4):
                A[i] = 0
                if tx < n:
                    A[i + 4] = 1
                else:
                    A[i + 4] = 2

    assert unswitch(func).startswith("for i in range(4):")
    assert unswitch(func, **{"tl.loop_unswitching_allow_non_trivial_else": True}) == (
        "if tx < n:\n    for i in range(4):\n        A[i] = 0\n        A[i + 4] = 1\n"
        "else:\n    for i in range(4):\n        A[i] = 0\n        A[i + 4] = 2"
    )


def test_a_condition_on_what_the_loop_binds_stays(unswitch):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for i in T.serial(4):
                at = T.bind(A[i])
                if at < n:
                    A[i] = 0
                else:
                    A[i] = 1

    kept = unswitch(func, **{"tl.loop_unswitching_allow_non_trivial_else": True})
    assert kept.startswith("for i in range(4):")


def test_a_loop_with_a_barrier_is_not_written_twice(unswitch):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for i in T.serial(4):
                if tx < n:
                    A[i] = 1
                else:
                    A[i] = 2
                T.evaluate(T.tvm_storage_sync("shared"))

    kept = unswitch(func, **{"tl.loop_unswitching_allow_non_trivial_else": True})
    assert kept.startswith("for i in range(4):")


def rows_of_a_fragment(threshold, target, value=None, loop=None):
    """Elements r of a fragment whose rows are r % 2."""
    loop = loop or (lambda: T.unroll(16))
    value = value or (lambda S, F, r: F[T.Ramp(r * 2, 1, 2)] * T.Broadcast(S[r % 2], 2))

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((2,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            F = T.sblock_alloc_buffer((32,), "float32", scope="local")
            S = T.sblock_alloc_buffer((2,), "float32", scope="local")
            for r in loop():
                if threshold(S, A, F, r):
                    F[T.Ramp(target(r), 1, 2)] = value(S, F, r)

    return func


def test_a_row_is_asked_once(unswitch):
    func = rows_of_a_fragment(lambda S, A, F, r: S[r % 2] < T.float32(1), lambda r: r * 2)
    assert unswitch(func) == (
        "for row in T.unroll(2):\n"
        "    if S[row] < T.float32(1.0):\n"
        "        for r in T.unroll(8):\n"
        "            F[(r * 2 + row) * 2:(r * 2 + row) * 2 + 2] = "
        "F[T.Ramp((r * 2 + row) * 2, 1, 2)] * T.Broadcast(S[(r * 2 + row) % 2], 2)"
    ).replace("S[row]", "S[row % 2]")


@pytest.mark.parametrize(
    ("condition", "target"),
    [
        # Memory that others write, registers that the loop writes, no rows, too short ones.
        (lambda S, A, F, r: A[r % 2] < T.float32(1), lambda r: r * 2),
        (lambda S, A, F, r: F[r % 2] < T.float32(1), lambda r: r * 2),
        (lambda S, A, F, r: S[r // 8] < T.float32(1), lambda r: r * 2),
        (lambda S, A, F, r: S[r % 4 // 2] < T.float32(1), lambda r: r * 2),
        # Another element than is read, one that two iterations write.
        (lambda S, A, F, r: S[r % 2] < T.float32(1), lambda r: 30 - r * 2),
        (lambda S, A, F, r: S[r % 2] < T.float32(1), lambda r: r),
    ],
)
def test_what_is_not_rows_stays(unswitch, condition, target):
    assert unswitch(rows_of_a_fragment(condition, target)).startswith("for r in T.unroll(16):")


def of_row(S, A, F, r):
    return S[r % 2] < T.float32(1)


@pytest.mark.parametrize(
    ("condition", "target", "value", "loop"),
    [
        # Rows of two kinds, a condition that calls, elements of two iterations, a call in front of
        # others, loops that begin elsewhere or are no loops over registers.
        (lambda S, A, F, r: S[r % 4 // 2] < S[r % 2], None, None, None),
        (lambda S, A, F, r: T.exp(S[r % 2]) < T.float32(1), None, None, None),
        (of_row, lambda r: r, lambda S, F, r: F[T.Ramp(r, 1, 2)], None),
        (of_row, None, lambda S, F, r: T.Broadcast(T.call_extern("float32", "next"), 2), None),
        (of_row, None, None, lambda: T.unroll(16, 32)),
        (of_row, None, None, lambda: T.serial(16)),
    ],
)
def test_what_is_not_a_fragment_by_rows_stays(unswitch, condition, target, value, loop):
    func = rows_of_a_fragment(condition, target or (lambda r: r * 2), value, loop)
    assert unswitch(func).startswith("for r in ")


@pytest.mark.parametrize("other_name", [False, True])
def test_rows_that_decide_about_themselves(other_name):
    """The first elements change before the others ask for them, by whatever name."""

    @TL.prim_func
    def main(A: TL.Tensor((32,), "float32"), C: TL.Tensor((32,), "float32")):
        with TL.Kernel(1, threads=1):
            F = TL.alloc_local((32,), "float32")
            G = TL.view(F, (32,)) if other_name else F
            for i in TL.unroll(32):
                F[i] = A[i]
            for i in TL.unroll(32):
                if G[i % 2] < 2:
                    F[i] = F[i] * 2
            for i in TL.unroll(32):
                C[i] = F[i]

    kernel = tilelang.compile(main, execution_backend="emulate")
    a = torch.arange(32).float() + 1
    c = torch.zeros(32)
    kernel(a, c)
    wanted = a.clone()
    for i in range(32):
        wanted[i] *= 2 if wanted[i % 2] < 2 else 1
    assert torch.equal(c, wanted)
