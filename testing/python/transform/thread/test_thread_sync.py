"""Barriers: where one is needed, where one is not, and where none can be."""

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

OFFSET = "tl.shared_offset"


def intrinsic(name, *args):
    args = [T.int32(a) if isinstance(a, int) else a for a in args]
    return T.evaluate(tvm.ir.Call(tvm.ir.Op.get("tl." + name), args))


def address(buffer, *indices):
    return T.address_of(buffer[indices])


@T.prim_func(s_tir=True)
def neighbour(A: T.Buffer((64,), "float32")):
    tx = T.launch_thread("threadIdx.x", 64)
    with T.sblock("tilelang_root"):
        S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
        S[tx] = A[tx]
        A[tx] = S[63 - tx]


def test_read_after_write(sync):
    assert sync(neighbour) == "S[tx] = A[tx]\nBARRIER\nA[tx] = S[63 - tx]"


def test_pass_config_turns_it_off(sync):
    assert "BARRIER" not in sync(neighbour, config={"tl.disable_thread_storage_sync": True})


def test_own_elements_need_no_barrier(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((8, 8), "float32", scope="shared.dyn")
            S[tx // 8, tx % 8] = A[tx]
            S[tx // 8, tx % 8] = S[tx // 8, tx % 8] + T.float32(1)
            A[tx] = S[tx // 8, tx - tx // 8 * 8]

    assert "BARRIER" not in sync(func)


def test_equal_indices_of_several_threads_need_one(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            S[tx // 2] = A[tx]
            A[tx] = S[tx // 2]

    assert sync(func).count("BARRIER") == 1


def test_write_after_read_and_write_after_write(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            A[tx] = S[tx]
            S[63 - tx] = T.float32(0)
            S[tx] = T.float32(1)

    assert sync(func).splitlines()[1::2] == ["BARRIER", "BARRIER"]


@pytest.mark.parametrize("columns", [1, 2])
def test_lanes_may_run_on_into_the_next_row(sync, columns):
    """Lanes of 2 or 4 were taken for elements of the first row alone: thread 31 writes the last
    element, and thread 0 wrote it again without a barrier."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64, columns), "float32", scope="shared.dyn")
            S[tx * 2, T.Ramp(0, 1, 2 * columns)] = T.Broadcast(T.float32(0), 2 * columns)
            if tx < 1:
                S[63, columns - 1] = T.float32(1)
            A[tx * 2] = S[tx * 2, 0]

    lines = [line.strip() for line in sync(func).splitlines()]
    assert lines[1] == "BARRIER"
    assert lines.count("BARRIER") == 1


def test_reads_need_none(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            A[tx] = S[tx] + S[63 - tx] + S[0]

    assert "BARRIER" not in sync(func)


def test_one_barrier_orders_several_buffers(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            R = T.sblock_alloc_buffer((64,), "float32", scope="shared")
            S[tx] = A[tx]
            R[tx] = A[tx]
            A[tx] = R[0]
            A[tx] = S[0]

    assert sync(func).splitlines()[2] == "BARRIER"
    assert sync(func).count("BARRIER") == 1


def test_disjoint_parts_need_none(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            R = T.sblock_alloc_buffer((4, 32), "float32", scope="shared.dyn")
            S[tx] = A[tx]
            R[n % 4, tx] = A[tx]
            A[tx] = S[63 - tx] + R[(n + 3) % 4, 31 - tx]

    assert "BARRIER" not in sync(func)


def test_two_threads_in_a_divergent_region_are_refused(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            if tx < 2:
                S[tx] = A[tx]
                A[tx] = S[1 - tx]

    with pytest.raises(ValueError, match="shared buffer S"):
        sync(func)


def test_one_thread_alone_needs_none(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            if tx == 0:
                S[0] = A[0]
                S[1] = S[0]
            else:
                if tx == 1:
                    S[3] = A[1]
            A[tx] = T.if_then_else(tx == 1, S[3], A[tx])

    assert "BARRIER" not in sync(func)


def test_vectors_of_neighbours_do_not_meet(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((512,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((512,), "float32", scope="shared.dyn")
            for i in T.unroll(4):
                S[i * 128 + tx * 4 : i * 128 + tx * 4 + 4] = A[T.Ramp(i * 128 + tx * 4, 1, 4)]
            for i in T.unroll(4):
                A[i * 128 + tx * 4] = S[i * 128 + tx * 4 + 3]
            for i in T.unroll(4):
                A[i * 128 + tx] = S[i * 128 + tx]

    assert sync(func).splitlines()[4] == "BARRIER"
    assert sync(func).count("BARRIER") == 1


def test_barrier_is_outside_of_the_loop_that_only_reads(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            S[tx] = A[tx]
            for i in T.serial(64):
                A[tx] = A[tx] + S[i]

    assert sync(func) == ("S[tx] = A[tx]\nBARRIER\nfor i in range(64):\n    A[tx] = A[tx] + S[i]")


def test_single_buffer_in_a_loop_needs_two(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            for _k in T.serial(n):
                S[tx] = A[tx]
                A[tx] = S[63 - tx]

    body = [line.strip() for line in sync(func).splitlines()[1:]]
    assert body == ["BARRIER", "S[tx] = A[tx]", "BARRIER", "A[tx] = S[63 - tx]"]


def versions(count, write, read):
    """A loop that writes version `k + write` and reads version `k + read` of `count`."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((count, 64), "float32", scope="shared.dyn")
            for k in T.serial(n):
                S[(k + write) % count, tx] = A[tx]
                A[tx] = S[(k + read) % count, 63 - tx]

    return func


@pytest.mark.parametrize(
    ("count", "write", "read", "barriers"),
    [(2, 0, 0, 1), (2, 1, 0, 1), (3, 2, 0, 1), (3, 0, 0, 1), (4, 2, 0, 1), (1, 0, 0, 2)],
)
def test_versions_of_a_buffer(sync, count, write, read, barriers):
    assert sync(versions(count, write, read)).count("BARRIER") == barriers


def test_hazard_two_iterations_apart(sync):
    # Neighbouring iterations never meet in versions k and k + 2 of 5.
    assert "BARRIER" in sync(versions(5, 0, 2))


def test_barrier_at_the_loop_end_counts_for_the_next_iteration(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            for _k in T.serial(8):
                A[tx] = S[63 - tx]
                T.tvm_storage_sync("shared")
                S[tx] = A[tx]
                T.evaluate(T.tvm_storage_sync("shared"))

    assert sync(func).count("tvm_storage_sync") + sync(func).count("BARRIER") == 2


def test_loop_that_may_not_run_orders_nothing(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            R = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            S[tx] = A[tx]
            for _k in T.serial(n):
                R[tx] = A[tx]
                A[tx] = R[63 - tx]
            A[tx] = S[63 - tx]

    assert sync(func).splitlines()[-2:] == ["BARRIER", "A[tx] = S[63 - tx]"]


def test_uniform_branches(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            if n > 3:
                S[tx] = A[tx]
                A[tx] = S[63 - tx]
            else:
                S[tx] = A[0]

    assert sync(func).splitlines()[1:4] == [
        "    S[tx] = A[tx]",
        "    BARRIER",
        "    A[tx] = S[63 - tx]",
    ]
    assert sync(func).count("BARRIER") == 1


def test_barrier_is_hoisted_out_of_a_divergent_region(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            S[tx] = A[tx]
            if tx < 32:
                for i in T.serial(tx):
                    A[tx] = A[tx] + S[i]

    assert sync(func).startswith("S[tx] = A[tx]\nBARRIER\nif tx < 32:\n")


def test_hazard_over_the_loop_around_a_divergent_region(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            for _k in T.serial(8):
                if tx < 32:
                    S[tx] = S[tx + 1]

    assert sync(func).splitlines()[1:3] == ["    BARRIER", "    if tx < 32:"]


def span(line):
    return tvm.ir.Span(tvm.ir.SourceName("kernel.py"), line, line, 1, 2)


def test_conflict_inside_a_divergent_region_names_both_lines(after):
    S = tvm.tirx.decl_buffer((64,), "float32", name="S", scope="shared")
    tx = tvm.tirx.Var("tx", "int32")
    axis = tvm.tirx.IterVar(tvm.ir.Range(0, 64), tx, 1, "threadIdx.x")
    write = tvm.tirx.BufferStore(S, T.float32(0), [tx], span=span(5))
    again = tvm.tirx.BufferStore(S, T.float32(1), [30 - tx], span=span(6))
    body = tvm.tirx.IfThenElse(tx < 31, tvm.tirx.SeqStmt([write, again]), None, span=span(4))
    func = tvm.tirx.PrimFunc([S], tvm.tirx.AttrStmt(axis, "thread_extent", 64, body))
    with pytest.raises(
        ValueError, match=r"kernel.py:6: .* buffer S .*kernel.py:5.*kernel.py:4.*; move"
    ):
        after("ThreadSync", func)


def test_barrier_in_a_divergent_region_is_refused(sync):
    @T.prim_func(s_tir=True)
    def func():
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            if tx < 32:
                T.tvm_storage_sync("shared")

    with pytest.raises(ValueError, match="found a barrier in a region"):
        sync(func)


def test_barrier_after_a_divergent_break_is_refused(sync):
    @T.prim_func(s_tir=True)
    def func():
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            for k in T.serial(8):
                if tx < k:
                    T.evaluate(T.break_loop())
                T.tvm_storage_sync("shared")

    with pytest.raises(ValueError, match="found a barrier in a region"):
        sync(func)


def data_dependent(make_condition):
    """A conflict under a condition on tensors, shared memory or registers."""

    @T.prim_func(s_tir=True)
    def func(F: T.Buffer((64,), "int32"), A: T.Buffer((64,), "int32")):
        bx = T.launch_thread("blockIdx.x", 8)
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "int32", scope="shared.dyn")
            R = T.sblock_alloc_buffer((64,), "int32", scope="shared.dyn")
            u = T.sblock_alloc_buffer((1,), "int32", scope="local.var")
            w = T.sblock_alloc_buffer((1,), "int32", scope="local.var")
            u[0] = F[bx]
            w[0] = F[tx]
            if make_condition(F, A, R, u, w, bx, tx):
                S[tx] = A[tx]
                A[tx] = S[63 - tx]

    return func


@pytest.mark.parametrize(
    ("condition", "uniform"),
    [
        (lambda F, A, R, u, w, bx, tx: F[bx] > 0, True),
        (lambda F, A, R, u, w, bx, tx: F[tx] > 0, False),
        (lambda F, A, R, u, w, bx, tx: A[bx] > 0, False),
        (lambda F, A, R, u, w, bx, tx: R[bx] > 0, True),
        (lambda F, A, R, u, w, bx, tx: R[tx] > 0, False),
        (lambda F, A, R, u, w, bx, tx: u[0] > 0, True),
        (lambda F, A, R, u, w, bx, tx: w[0] > 0, False),
        (lambda F, A, R, u, w, bx, tx: F[u[0]] > 0, True),
    ],
)
def test_conditions_on_data(sync, condition, uniform):
    if uniform:
        assert "    BARRIER\n    A[tx] = S[63 - tx]" in sync(data_dependent(condition))
    else:
        with pytest.raises(ValueError, match="same for all threads"):
            sync(data_dependent(condition))


@pytest.mark.parametrize("scope", ["local.var", "shared"])
def test_while_loops(sync, scope):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            n = T.sblock_alloc_buffer((1,), "int32", scope=scope)
            while n[0] < 8:
                S[tx] = A[tx]
                A[tx] = S[63 - tx]
                n[0] = n[0] + 1

    assert sync(func).count("BARRIER") == 2


def test_index_read_from_memory_may_be_any(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((2, 64), "int32", scope="shared.dyn")
            at = T.bind(A[tx])
            S[0, at] = 1
            A[tx] = S[0, at]
            A[tx] = S[1, at]

    assert sync(func).splitlines()[2] == "BARRIER"
    assert sync(func).count("BARRIER") == 1


@pytest.mark.parametrize(("element", "barriers"), [("tx", 0), ("63 - tx", 2)])
def test_a_slot_that_memory_tells_has_the_threads_of_any_slot(sync, element, barriers):
    source = f"""
@T.prim_func(s_tir=True)
def func(A: T.Buffer((64,), "float32")):
    tx = T.launch_thread("threadIdx.x", 64)
    with T.sblock("tilelang_root"):
        S = T.sblock_alloc_buffer((2, 64), "float32", scope="shared.dyn")
        n = T.sblock_alloc_buffer((1,), "int32", scope="local.var")
        n[0] = 0
        for k in range(4):
            S[n[0] % 2, tx] = A[tx]
            A[{element}] = S[n[0] % 2, {element}]
            n[0] = n[0] + 3
"""
    func = tvm.script.from_source(source, extra_vars={"T": T})
    assert sync(func).count("BARRIER") == barriers


def test_unknown_function_may_touch_the_whole_buffer(sync):
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "int32", scope="shared.dyn")
            S[0] = 1
            T.evaluate(T.call_extern("void", "f", T.address_of(S[32])))

    assert sync(func).splitlines()[1] == "BARRIER"


def test_other_threads_may_be_iterations_ahead_of_a_shorter_inner_loop(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "int32", scope="shared.dyn")
            for k in T.serial(8):
                if tx == k:
                    S[k] = 1
                for i in T.serial(k):
                    A[tx] = S[i]

    # S[i], i < k, was written in an earlier iteration, by another thread.
    assert sync(func).count("BARRIER") == 1


def subset(make_condition, threads=128):
    """A conflict between the threads for which a condition holds."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", threads)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((threads,), "float32", scope="shared.dyn")
            if make_condition(tx):
                S[tx] = A[tx]
                A[tx] = S[(tx + 2) % threads]

    return func


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        (lambda tx: tx < 64, 64),
        (lambda tx: tx >= 64, 64),
        (lambda tx: tx // 32 % 2 == 1, 64),
        (lambda tx: T.Not(tx < 96), 32),
        (lambda tx: T.And(tx >= 32, tx < 128), 96),
    ],
)
def test_whole_warps_meet_at_a_barrier_of_their_own(sync, condition, count):
    assert f"    T.tl.sync_threads_partial(3, {count})\n    A[tx] = " in sync(subset(condition))


@pytest.mark.parametrize(
    ("condition", "threads"),
    [(lambda tx: tx < 48, 128), (lambda tx: tx >= 32, 48), (lambda tx: tx % 2 == 0, 128)],
)
def test_parts_of_warps_cannot_meet(sync, condition, threads):
    with pytest.raises(ValueError, match="neither all threads of the block nor whole warps"):
        sync(subset(condition, threads))


def test_sets_of_threads_and_their_barriers(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 128)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((128,), "float32", scope="shared.dyn")
            intrinsic("sync_threads_partial", 4, 128)
            if tx < 64:
                for _k in T.serial(8):
                    S[tx] = A[tx]
                    A[tx] = S[63 - tx]
                if tx < 32:
                    A[tx] = S[63 - tx] + S[31 - tx]
                    S[tx] = A[tx]
                    A[tx] = S[31 - tx]
            else:
                S[tx] = A[tx]
                A[tx] = S[191 - tx]
            A[tx] = S[127 - tx]

    lines = [line.strip() for line in sync(func).splitlines()]
    meetings = [line for line in lines if line == "BARRIER" or "sync_threads_partial" in line]
    assert meetings == [
        "T.tl.sync_threads_partial(4, 128)",  # the program's own
        "T.tl.sync_threads_partial(3, 64)",
        "T.tl.sync_threads_partial(3, 64)",
        "T.tl.sync_threads_partial(3, 64)",  # the last iteration's reads and the writes of 32
        "T.tl.sync_threads_partial(5, 32)",
        "T.tl.sync_threads_partial(5, 32)",
        "T.tl.sync_threads_partial(6, 64)",
        "BARRIER",
    ]


def test_a_named_barrier_of_the_program_counts(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 128)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            if tx < 64:
                S[tx] = A[tx]
                intrinsic("sync_threads_partial", 7, 64)
                A[tx] = S[63 - tx]
            A[tx % 64] = S[tx % 64]

    lines = sync(func).splitlines()
    assert [line.strip() for line in lines if "sync_threads_partial" in line] == [
        "T.tl.sync_threads_partial(7, 64)"
    ]
    assert lines[-2] == "BARRIER"


def test_a_barrier_of_other_threads_does_not_count(sync):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 128)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            if tx < 64:
                S[tx] = A[tx]
                intrinsic("sync_threads_partial", 7, 128)
                A[tx] = S[63 - tx]
            else:
                intrinsic("sync_threads_partial", 7, 128)

    assert "T.tl.sync_threads_partial(3, 64)" in sync(func)


def test_more_sets_of_threads_than_barriers(after):
    S = tvm.tirx.decl_buffer((1024,), "float32", name="S", scope="shared")
    tx = tvm.tirx.Var("tx", "int32")
    axis = tvm.tirx.IterVar(tvm.ir.Range(0, 1024), tx, 1, "threadIdx.x")

    def region(k):
        write = tvm.tirx.BufferStore(S, T.float32(0), [tx], span=span(5))
        again = tvm.tirx.BufferStore(S, T.float32(1), [k * 32 - 1 - tx], span=span(6))
        return tvm.tirx.IfThenElse(tx < k * 32, tvm.tirx.SeqStmt([write, again]), None)

    def planned(count):
        body = tvm.tirx.SeqStmt([region(k) for k in range(1, count + 1)])
        func = tvm.tirx.PrimFunc([S], tvm.tirx.AttrStmt(axis, "thread_extent", 1024, body))
        mod = after("ThreadSync", func)
        return mod["main"].script()

    assert "T.tl.sync_threads_partial(15, 416)" in planned(13)
    with pytest.raises(ValueError, match=r"kernel.py:6: .*more sets of threads .* the 13 that"):
        planned(14)


def test_buffers_that_share_bytes_are_ordered(after):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        S = T.alloc_buffer((64,), "float32", scope="shared.dyn", annotations={OFFSET: 0})
        Q = T.alloc_buffer((64,), "float32", scope="shared.dyn", annotations={OFFSET: 256})
        P = T.alloc_buffer((64,), "float32", scope="shared.dyn", annotations={OFFSET: 128})
        S[tx] = A[tx]
        Q[tx] = S[tx]
        P[tx] = Q[tx]
        A[tx] = P[tx]

    mod = after("ThreadSync", func)
    lines = [line.strip() for line in mod["main"].script().splitlines()]
    assert lines[-5:] == [
        "S[tx] = A[tx]",
        "Q[tx] = S[tx]",
        'T.tvm_storage_sync("shared")',
        "P[tx] = Q[tx]",
        "A[tx] = P[tx]",
    ]


def test_kernels_have_nothing_to_do_with_each_other(sync, after):
    """Their buffers may have the same place, and a barrier between them is in neither."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        with T.launch_thread("threadIdx.x", 64) as tx:
            S = T.alloc_buffer((64,), "float32", scope="shared.dyn", annotations={OFFSET: 0})
            S[tx] = A[tx]
        with T.launch_thread("threadIdx.x", 32) as tx:
            Q = T.alloc_buffer((64,), "float32", scope="shared.dyn", annotations={OFFSET: 0})
            Q[tx] = A[tx]
            A[tx] = Q[31 - tx]

    mod = after("ThreadSync", func)
    text = mod["main"].script()
    assert text.count("tvm_storage_sync") == 1
    assert text.index("Q[tx] =") < text.index("tvm_storage_sync") < text.index("Q[31 - tx]")


@pytest.mark.parametrize(
    ("second", "barriers"), [("atomic_add", 0), ("fetch_add", 0), ("atomic_max", 1)]
)
def test_atomic_operations_that_do_not_commute_come_in_order(sync, second, barriers):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            intrinsic("atomic_add", "tl::relaxed", address(A, tx), 1)
            intrinsic(second, "tl::relaxed", address(A, 63 - tx), 5)

    assert sync(func).count("BARRIER") == barriers


@pytest.mark.parametrize("independent", [False, True])
def test_iterations_of_a_parallel_nest_are_independent(sync, independent):
    """Whichever elements they write; what follows the loop waits for all of them."""
    note = {"tl.independent_iterations": True} if independent else {}

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((256,), "int32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((256,), "int32", scope="shared.dyn")
            for k in T.unroll(4, annotations=note):
                S[A[k * 64 + tx]] = k
            A[tx] = S[tx]

    found = sync(func).split("BARRIER")
    assert len(found) == (2 if independent else 3)
    assert found[-1].strip() == "A[tx] = S[tx]"


@pytest.mark.parametrize("proved", [False, True])
@pytest.mark.parametrize("condition", ["data", "all"])
def test_a_nest_of_independent_iterations_asks_for_no_barrier_it_cannot_have(
    sync, proved, condition
):
    """Where threads meet there is one, unless the compiler knows; the loop around has its own."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "int32", scope="shared.dyn")
            for k in T.serial(4):
                with T.attr(0, "tl.independent_nest", 2 if proved else 1):
                    if (A[tx] > 0) if condition == "data" else (k < 3):
                        S[A[tx]] = k
                        S[A[tx + k]] = 0

    found = sync(func)
    assert "independent_nest" not in found
    assert found.count("BARRIER") == (1 if proved or condition == "data" else 2)
    assert found.splitlines()[1].strip() == "BARRIER"


@pytest.mark.parametrize("jump", ["break", "continue"])
def test_a_jump_outside_of_loops_is_refused(after, jump):
    call = tirx.break_loop if jump == "break" else tirx.continue_loop

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
            S[tx] = A[tx]
            if n == 1:
                T.evaluate(call())
            A[tx] = S[63 - tx]

    with pytest.raises(ValueError, match=f"found a {jump} outside of loops, wanted it in the loop"):
        after("ThreadSync", func)
