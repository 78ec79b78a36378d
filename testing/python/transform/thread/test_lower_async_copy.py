"""Asynchronous copies: which stores have a cp.async, and that the others stay."""

import pytest
import tvm
from tvm.script import tirx as T


@pytest.fixture
def lower(statements):
    return lambda func, **kw: statements("LowerAsyncCopy", func, **kw)


@T.prim_func(s_tir=True)
def plain(A: T.Buffer((64, 64), "float16")):
    tx = T.launch_thread("threadIdx.x", 8)
    with T.sblock("tilelang_root"):
        S = T.sblock_alloc_buffer((8, 64), "float16", scope="shared.dyn")
        with T.attr(0, "async_copy", 1):
            S[tx, 8:16] = A[tx, T.Ramp(16, 1, 8)]


def test_plain_copy(lower):
    assert lower(plain) == ("T.tl.cp_async_gs(16, T.address_of(S[tx, 8]), T.address_of(A[tx, 16]))")


def test_before_sm_80_every_store_is_plain(lower):
    assert lower(plain, arch="sm_75") == "S[tx, 8:16] = A[tx, T.Ramp(16, 1, 8)]"


def test_predicates_are_joined(lower):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64, 64), "float16"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 8)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((8, 64), "float16", scope="shared.dyn")
            with T.attr(0, "async_copy", 1):
                S[tx, 0:4] = T.if_then_else(
                    n < 3,
                    T.if_then_else(tx < n, A[tx, T.Ramp(0, 1, 4)], T.Broadcast(T.float16(0), 4)),
                    T.Broadcast(T.float16(0), 4),
                )

    assert lower(func) == (
        "T.tl.cp_async_gs_conditional(8, T.address_of(S[tx, 0]), T.address_of(A[tx, 0]), "
        "n < 3 and tx < n)"
    )


def test_nothing_is_left_of_a_copy_that_no_iteration_wants(lower):
    """Behind the last iteration of a loop of one, whose tile was loaded twice."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64, 64), "float16")):
        tx = T.launch_thread("threadIdx.x", 8)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((8, 64), "float16", scope="shared.dyn")
            with T.attr(0, "async_copy", T.bool(False)):
                S[tx, 8:16] = A[tx, T.Ramp(16, 1, 8)]
            S[tx, 0] = A[tx, 0]

    assert lower(func) == "S[tx, 0] = A[tx, 0]"


def test_condition_around_the_store_stays(lower):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            with T.attr(0, "async_copy", 1):
                if tx < n:
                    S[tx] = A[tx]

    assert lower(func) == (
        "if tx < n:\n    T.tl.cp_async_gs(4, T.address_of(S[tx]), T.address_of(A[tx]))"
    )


def test_stores_without_an_asynchronous_form_stay(lower):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float16"), F: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float16", scope="shared.dyn")
            K = T.sblock_alloc_buffer((64,), "int32", scope="shared.dyn")
            L = T.sblock_alloc_buffer((64,), "float16", scope="local")
            with T.attr(0, "async_copy", 1):
                S[tx] = A[tx]  # two bytes
                S[0:8] = L[T.Ramp(0, 1, 8)]  # not from global memory
                L[0:8] = A[T.Ramp(0, 1, 8)]  # not to shared memory
                S[0:2] = T.Cast("float16x2", F[T.Ramp(0, 1, 2)])  # a conversion
                S[0:4] = T.Broadcast(A[tx], 4)
                S[0:4] = A[T.Ramp(0, 2, 4)]
                K[tx] = T.if_then_else(tx < 3, T.Cast("int32", F[tx]), 0)
                S[0:2] = T.if_then_else(tx < 3, A[T.Ramp(0, 1, 2)], T.Broadcast(T.float16(1), 2))

    text = lower(func)
    assert "cp_async" not in text
    assert "attr" not in text
    assert len(text.splitlines()) == 8


def test_stores_outside_of_the_attribute_stay(lower):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            S[tx] = A[tx]

    assert lower(func) == "S[tx] = A[tx]"


def test_tail_of_a_symbolic_tensor_through_all_passes(statements):
    @T.prim_func(s_tir=True)
    def func(a: T.handle):
        m, n = T.int32(), T.int32()
        A = T.match_buffer(a, (m, n * 8), "float16")
        bx = T.launch_thread("blockIdx.x", 8)
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((32, 8), "float16", scope="shared.dyn")
            with T.attr(0, "async_copy", 1):
                for e in T.vectorized(8):
                    S[tx, e] = A[tx, bx * 8 + e]

    passes = "LegalizeSafeMemoryAccess VectorizeLoop LowerAsyncCopy"
    assert statements(passes, func) == (
        "T.tl.cp_async_gs_conditional(16, T.address_of(S[tx, 0]), T.address_of(A[tx, bx * 8]), "
        "tx < m and bx * 8 < n * 8)"
    )


def committed(type):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), type), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 8)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((8,), type, scope="shared.dyn")
            with T.attr(0, "async_copy", 1):
                S[tx] = A[tx]
            T.evaluate(tvm.ir.Call(tvm.ir.Op.get("tl.cp_async_commit"), []))
            if n > 0:
                T.evaluate(tvm.ir.Call(tvm.ir.Op.get("tl.cp_async_wait"), [T.int32(0)]))
            A[tx] = S[tx]

    return func


def test_commits_and_waits_go_where_nothing_is_asynchronous(lower):
    kept = lower(committed("float32"))
    assert "T.tl.cp_async_commit()" in kept
    assert "T.tl.cp_async_wait(0)" in kept
    dropped = lower(committed("float16"))
    assert "cp_async" not in dropped
    assert dropped.splitlines()[0] == "S[tx] = A[tx]"
    assert dropped.splitlines()[-1] == "A[tx] = S[tx]"
