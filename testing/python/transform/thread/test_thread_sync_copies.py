"""Barriers behind waits for copies by cp.async."""

import pytest
import tvm
from tvm.script import tirx as T


def intrinsic(name, *args):
    args = [T.int32(a) if isinstance(a, int) else a for a in args]
    return T.evaluate(tvm.ir.Call(tvm.ir.Op.get("tl." + name), args))


def address(buffer, *indices):
    return T.address_of(buffer[indices])


@T.prim_func(s_tir=True)
def pipelined_gemm(A: T.Buffer((1024, 1024), "float16"), B: T.Buffer((1024, 1024), "float16")):
    tx = T.launch_thread("threadIdx.x", 128)
    with T.sblock("tilelang_root"):
        S = T.sblock_alloc_buffer((3, 128, 32), "float16", scope="shared.dyn")
        R = T.sblock_alloc_buffer((3, 128, 32), "float16", scope="shared.dyn")
        L = T.sblock_alloc_buffer((64,), "float16", scope="local")
        for s in T.serial(2):
            for i in T.unroll(4):
                intrinsic(
                    "cp_async_gs",
                    16,
                    address(S, s, i * 32 + tx // 4, tx % 4 * 8),
                    address(A, i * 32 + tx // 4, s * 32 + tx % 4 * 8),
                )
            intrinsic("cp_async_commit")
        for k in T.serial(32):
            intrinsic("cp_async_wait", 1)
            if k < 30:
                for i in T.unroll(4):
                    intrinsic(
                        "cp_async_gs",
                        16,
                        address(S, (k + 2) % 3, i * 32 + tx // 4, tx % 4 * 8),
                        address(A, i * 32 + tx // 4, k * 32 + 64 + tx % 4 * 8),
                    )
                for i in T.unroll(4):
                    intrinsic(
                        "cp_async_gs_conditional",
                        16,
                        address(R, (k + 2) % 3, i * 32 + tx // 4, tx % 4 * 8),
                        address(B, i * 32 + tx // 4, k * 32 + 64 + tx % 4 * 8),
                        tx < 100,
                    )
            intrinsic("cp_async_commit")
            for i in T.unroll(4):
                intrinsic("ptx_ldmatrix_x4", address(S, k % 3, i * 32 + tx % 32, 8), address(L, 0))
                intrinsic("ptx_ldmatrix_x4", address(R, k % 3, i * 32 + tx % 32, 8), address(L, 8))


def test_pipeline_has_one_barrier_right_after_the_wait(sync):
    lines = [line.strip() for line in sync(pipelined_gemm).splitlines()]
    assert lines.count("BARRIER") == 1
    assert lines[lines.index("BARRIER") - 1] == "T.tl.cp_async_wait(1)"


@pytest.mark.parametrize("reader", ["tx", "63 - tx"])
def test_a_thread_sees_its_own_copies_behind_its_wait(sync, reader):
    """Copies of one loop that another one reads: a barrier where other threads read them."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((4, 64), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((4, 64), "float32", scope="shared.dyn")
            for k in range(4):
                intrinsic("cp_async_gs", 4, address(S, k, tx), address(A, k, tx))
                intrinsic("cp_async_commit")
            intrinsic("cp_async_wait", 0)
            for n in range(4):
                A[n, tx] = S[n, 63 - tx] if reader != "tx" else S[n, tx]

    assert sync(func).count("BARRIER") == (reader != "tx")


def test_wait_publishes_the_copies(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            intrinsic("cp_async_gs", 4, address(S, tx), address(A, tx))
            intrinsic("cp_async_commit")
            T.tvm_storage_sync("shared")
            intrinsic("cp_async_wait", 0)
            A[tx] = S[63 - tx]
            intrinsic("cp_async_wait", 0)
            A[tx] = S[tx]

    # The barrier before the wait orders nothing, and the second wait has nothing to wait for.
    assert sync(func).splitlines()[3:] == [
        "T.tl.cp_async_wait(0)",
        "BARRIER",
        "A[tx] = S[63 - tx]",
        "T.tl.cp_async_wait(0)",
        "A[tx] = S[tx]",
    ]


def test_a_wait_completes_groups_older_than_those_it_leaves(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            intrinsic("cp_async_gs", 4, address(S, tx), address(A, tx))
            intrinsic("cp_async_commit")
            intrinsic("cp_async_commit")
            intrinsic("cp_async_wait", 1)
            A[tx] = S[63 - tx]
            intrinsic("cp_async_wait", 0)
            A[tx] = S[62 - tx]

    assert sync(func).splitlines()[3:] == [
        "T.tl.cp_async_wait(1)",
        "BARRIER",
        "A[tx] = S[63 - tx]",
        "T.tl.cp_async_wait(0)",
        "A[tx] = S[62 - tx]",
    ]


def test_groups_on_the_shorter_way_count(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            intrinsic("cp_async_gs", 4, address(S, tx), address(A, tx))
            intrinsic("cp_async_commit")
            if n > 3:
                intrinsic("cp_async_commit")
            intrinsic("cp_async_wait", 1)
            A[tx] = S[63 - tx]
            intrinsic("cp_async_wait", 0)
            A[tx] = S[62 - tx]

    # With one group only the second wait is sure to end the copy.
    assert sync(func).splitlines()[-4:] == [
        "A[tx] = S[63 - tx]",
        "T.tl.cp_async_wait(0)",
        "BARRIER",
        "A[tx] = S[62 - tx]",
    ]
