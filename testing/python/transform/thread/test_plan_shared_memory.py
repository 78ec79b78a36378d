"""PlanSharedMemory: offsets, and what a block may have."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from tilelang._ffi import get_function
from tilelang.engine.errors import SharedMemoryError
from tilelang.transform import PassContext


def plan(
    func: tirx.PrimFunc, arch: str = "sm_80", config: dict[str, Any] | None = None
) -> list[tuple[str, int]]:
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    mod = tirx.transform.BindTarget(target)(tvm.IRModule({"main": func}))
    with PassContext(config=config):
        mod = get_function("transform.PlanSharedMemory")()(mod)
    found = []

    def visit(body: tirx.Stmt) -> None:
        for statement in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
            if isinstance(statement, tirx.AttrStmt):
                visit(statement.body)
            elif isinstance(statement, tirx.AllocBuffer):
                offset = statement.annotations.get("tl.shared_offset")
                constant = isinstance(offset, int | tirx.IntImm)
                found.append((statement.buffer.name, int(offset) if constant else offset))

    visit(mod["main"].body)
    return found


NO_REUSE = {"tl.disable_shared_memory_reuse": True}


def test_offsets_are_aligned_and_static_buffers_stay_alone():
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 32)
        A = T.alloc_buffer((3, 5), "float32", scope="shared.dyn")
        B = T.alloc_buffer((7,), "float32", scope="shared")
        C = T.alloc_buffer((130,), "int8", scope="shared.dyn")
        D = T.alloc_buffer((4,), "float64", scope="shared.dyn")
        E = T.alloc_buffer((4,), "float64", scope="local")
        A[0, 0] = B[0]
        D[0] = E[0] + T.Cast("float64", C[0])

    assert plan(func, config=NO_REUSE) == [
        ("A", 0),
        ("B", None),
        ("C", 128),
        ("D", 384),
        ("E", None),
    ]


def test_a_buffer_may_ask_for_more_alignment():
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 32)
        A = T.alloc_buffer((3,), "float32", scope="shared.dyn")
        B = T.alloc_buffer((3,), "float32", scope="shared.dyn", align=1024)
        A[0] = B[0]

    assert plan(func) == [("A", 0), ("B", 1024)]


@T.prim_func(s_tir=True)
def one_after_another(X: T.Buffer((64,), "float32")):
    tx = T.launch_thread("threadIdx.x", 256)
    A = T.alloc_buffer((256,), "float32", scope="shared.dyn")
    B = T.alloc_buffer((512,), "float32", scope="shared.dyn")
    C = T.alloc_buffer((512,), "float32", scope="shared.dyn")
    A[tx] = X[tx]
    B[tx] = A[31 - tx]
    C[tx] = B[31 - tx]
    X[tx] = C[31 - tx]


def test_buffers_share_bytes_after_each_other():
    # B is in the way of both; A and C are not in each other's.
    assert dict(plan(one_after_another)) == {"A": 2048, "B": 0, "C": 2048}
    assert dict(plan(one_after_another, config=NO_REUSE)) == {"A": 0, "B": 1024, "C": 3072}


def test_a_loop_is_one_moment():
    @T.prim_func(s_tir=True)
    def func(X: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 256)
        A = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        B = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        C = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        for _i in range(n):
            A[tx] = X[tx]
            X[tx] = A[31 - tx]
            B[tx] = X[tx]
            X[tx] = B[31 - tx]
        C[tx] = X[tx]
        X[tx] = C[31 - tx]

    assert plan(func) == [("A", 0), ("B", 1024), ("C", 0)]


def branches(condition: Callable[[Any, Any], Any]) -> tirx.PrimFunc:
    @T.prim_func(s_tir=True)
    def func(X: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 512)
        A = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        B = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        if condition(tx, n):
            A[tx] = X[tx]
            X[tx] = A[31 - tx]
        else:
            B[tx] = X[tx]
            X[tx] = B[31 - tx]

    return func


def test_branches_that_exclude_each_other():
    assert plan(branches(lambda tx, n: n > 3)) == [("A", 0), ("B", 0)]


def test_branches_that_different_threads_take_at_a_time():
    assert plan(branches(lambda tx, n: tx < 32)) == [("A", 0), ("B", 1024)]


@pytest.mark.parametrize(("barrier", "wanted"), [(False, [0, 1024, 2048]), (True, [0, 0, 0])])
def test_ranges_of_threads_run_at_the_same_time(barrier, wanted):
    """With what is between them, until all threads meet."""

    @T.prim_func(s_tir=True)
    def func(X: T.Buffer((256,), "float32")):
        tx = T.launch_thread("threadIdx.x", 256)
        A = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        B = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        C = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        if tx < 128:
            with T.attr([0, 128], "tl.thread_range", 1):
                A[tx] = X[tx]
        if barrier:
            T.evaluate(T.tvm_storage_sync("shared"))
        B[tx] = X[tx]
        if barrier:
            T.evaluate(T.tvm_storage_sync("shared"))
        if tx >= 128:
            with T.attr([128, 128], "tl.thread_range", 1):
                C[tx] = X[tx]

    assert [offset for _, offset in plan(func, "sm_90")] == wanted


def copied(groups_left: int) -> tirx.PrimFunc:
    """A is the target of a copy that is waited for, or not, before B is used, and then before C."""
    copy = tvm.ir.Op.get("tl.cp_async_gs")
    wait = tvm.ir.Op.get("tl.cp_async_wait")

    @T.prim_func(s_tir=True)
    def func(X: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 256)
        A = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        B = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        C = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        T.evaluate(tvm.ir.Call(copy, [T.int32(4), T.address_of(A[tx]), T.address_of(X[tx])]))
        T.evaluate(tvm.ir.Call(wait, [T.int32(groups_left)]))
        B[tx] = X[tx]
        X[tx] = B[31 - tx]
        T.evaluate(tvm.ir.Call(wait, [T.int32(0)]))
        C[tx] = X[tx]
        X[tx] = C[31 - tx]

    return func


def test_the_target_of_a_copy_lives_until_all_copies_are_waited_for():
    assert plan(copied(0)) == [("A", 0), ("B", 0), ("C", 0)]
    assert plan(copied(1)) == [("A", 0), ("B", 1024), ("C", 0)]


def test_what_is_copied_to_another_block_keeps_its_bytes():
    """Only that block sees the end of the copy, so that C cannot lie where A is being read."""
    copy = tvm.ir.Op.get("tl.bulk_copy_remote")

    @T.prim_func(s_tir=True)
    def func(X: T.Buffer((256,), "float32")):
        tx = T.launch_thread("threadIdx.x", 256)
        bar = T.alloc_buffer((1,), "uint64", scope="shared.barrier")
        A = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        B = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        C = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        A[tx] = X[tx]
        T.evaluate(
            tvm.ir.Call(
                copy,
                [
                    T.address_of(B[0]),
                    T.address_of(A[0]),
                    T.int32(1024),
                    T.address_of(bar[0]),
                    T.int32(1),
                ],
            )
        )
        C[tx] = X[tx]
        X[tx] = C[31 - tx]

    assert plan(func, "sm_90a") == [("bar", 3072), ("A", 0), ("B", 1024), ("C", 2048)]


def test_the_largest_go_first_where_that_needs_less():
    @T.prim_func(s_tir=True)
    def func(X: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 256)
        A = T.alloc_buffer((256,), "float32", scope="shared.dyn")
        B = T.alloc_buffer((2048,), "float32", scope="shared.dyn")
        C = T.alloc_buffer((2048,), "float32", scope="shared.dyn")
        A[tx] = X[tx]
        B[tx] = A[31 - tx]
        C[tx] = B[31 - tx]
        X[tx] = C[31 - tx]

    assert plan(func) == [("A", 8192), ("B", 0), ("C", 8192)]


def test_the_plan_can_be_logged():
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("tilelang")
    logger.addHandler(handler)
    try:
        plan(one_after_another, config={"tl.debug_merge_shared_memory_allocations": True})
    finally:
        logger.removeHandler(handler)
    text = "".join(record.getMessage() for record in records)
    assert "4096 bytes of dynamic shared memory:" in text
    assert "1024 bytes at 2048: A, float32[256], in the place of C, " in text
    assert "2048 bytes at 0: B, float32[512], " in text


def test_small_buffers_do_not_share_unless_they_must():
    """Sharing would take a barrier; the limit of a block counts for more."""

    def func(rest):
        @T.prim_func(s_tir=True)
        def main(X: T.Buffer((64,), "float32")):
            tx = T.launch_thread("threadIdx.x", 32)
            A = T.alloc_buffer((32,), "float32", scope="shared.dyn")
            B = T.alloc_buffer((32,), "float32", scope="shared.dyn")
            C = T.alloc_buffer((rest,), "float32", scope="shared.dyn")
            A[tx] = X[tx]
            X[tx] = A[31 - tx]
            B[tx] = X[tx]
            X[tx] = B[31 - tx]
            C[tx] = X[tx]
            X[tx] = C[31 - tx]

        return main

    assert plan(func(1024)) == [("A", 0), ("B", 128), ("C", 256)]
    # sm_80 has 163 KiB for a block.
    assert plan(func(163 * 256 - 32)) == [("A", 0), ("B", 0), ("C", 0)]
    merged = plan(func(1024), config={"tl.enable_aggressive_shared_memory_merge": True})
    assert merged == [("A", 0), ("B", 0), ("C", 0)]


def test_each_kernel_has_an_array_of_its_own():
    @T.prim_func(s_tir=True)
    def func():
        with T.launch_thread("threadIdx.x", 32):
            A = T.alloc_buffer((64,), "float32", scope="shared.dyn")
            A[0] = T.float32(0)
        with T.launch_thread("threadIdx.x", 32):
            B = T.alloc_buffer((64,), "float32", scope="shared.dyn")
            B[0] = T.float32(0)

    assert plan(func) == [("A", 0), ("B", 0)]


@T.prim_func(s_tir=True)
def large():
    T.launch_thread("threadIdx.x", 32)
    A = T.alloc_buffer((4, 128, 128), "float16", scope="shared.dyn")
    B = T.alloc_buffer((100,), "float32", scope="shared")
    A[0, 0, 0] = T.Cast("float16", B[0])


def test_too_much_says_who_uses_what():
    with pytest.raises(ValueError, match="wanted at most") as error:
        plan(large, "sm_86")
    text = str(error.value)
    assert "test_plan_shared_memory.py:" in text
    assert "found 131472 bytes of shared memory in one block, wanted at most 101376 (sm_86)" in text
    assert "Make the tiles smaller or num_stages lower" in text
    assert "\n  131072 bytes at 0: A, float16[4, 128, 128]" in text
    assert "\n  400 bytes: B, float32[100]" in text


def test_the_same_fits_on_a_larger_chip():
    assert plan(large, "sm_90a") == [("A", 0), ("B", None)]


def test_too_much_static_memory():
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 32)
        A = T.alloc_buffer((12289,), "float32", scope="shared")
        A[0] = T.float32(0)

    with pytest.raises(
        SharedMemoryError, match=r"found 49156 bytes of static .* at most 49152 .*shared\.dyn"
    ):
        plan(func)


def test_tiles_that_the_launch_sizes_come_last():
    n = tirx.Var("n", "int32")

    @T.prim_func(s_tir=True)
    def func(X: T.Buffer((n,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        A = T.alloc_buffer((n,), "float32", scope="shared.dyn")
        B = T.alloc_buffer((40,), "float32", scope="shared.dyn")
        C = T.alloc_buffer((2, n), "int8", scope="shared.dyn")
        A[0] = X[0]
        B[0] = A[0]
        C[0, 0] = T.Cast("int8", A[0])

    first, second, third = plan(func)
    assert [first, second] == [("A", 256), ("B", 0)]
    assert str(third[1]) == "(T.max(n, 0) * 4 + 383) // 128 * 128"


def test_blocks_have_to_be_gone():
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("root"):
            A = T.sblock_alloc_buffer((8,), "float32", scope="shared.dyn")
            A[0] = T.float32(0)

    with pytest.raises(Exception, match=r"wanted LowerOpaqueBlock before \(a bug in tilelang"):
        plan(func)


def test_mbarriers_fill_gaps_and_share_bytes_with_nothing():
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 32)
        bars = T.alloc_buffer((3,), "uint64", scope="shared.barrier")
        A = T.alloc_buffer((600,), "int8", scope="shared.dyn")
        B = T.alloc_buffer((150,), "float32", scope="shared.dyn")
        bar = T.alloc_buffer((1,), "uint64", scope="shared.cluster_barrier")
        A[0] = T.Cast("int8", bars[0])
        B[0] = T.Cast("float32", bar[0])

    # A and B live one after the other; the barriers are there all the time.
    assert plan(func, "sm_90a") == [("bars", 600), ("A", 0), ("B", 0), ("bar", 624)]
    assert plan(func, "sm_90a", NO_REUSE) == [("bars", 600), ("A", 0), ("B", 640), ("bar", 624)]
