"""Fences between what threads do and what engines do."""

import re

import pytest
import tvm
from tvm.script import tirx as T

OFFSET = "tl.shared_offset"
FENCE = "T.tl.fence_proxy_async()"


def intrinsic(name, *args):
    args = [T.int32(a) if isinstance(a, int) else a for a in args]
    return T.evaluate(tvm.ir.Call(tvm.ir.Op.get("tl." + name), args))


def address(buffer, *indices):
    return T.address_of(buffer[indices])


def ring(before_arrival, arrive="mbarrier_arrive_warp"):
    """Threads read what an engine fills, or products of wgmma do, then `before_arrival`, then they
    arrive at an mbarrier."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 128)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((128,), "float32", scope="shared.dyn")
            full = T.sblock_alloc_buffer((1,), "uint64", scope="shared.barrier")
            for k in range(4):
                intrinsic("bulk_load", "", address(S, 0), address(A, 0), 512, address(full, 0))
                intrinsic("mbarrier_wait", address(full, 0), k % 2)
                before_arrival(S, B, tx)
                intrinsic(arrive, *([address(full, 0)] if arrive.startswith("mbarrier") else []))

    return func


def read(S, B, tx):
    T.buffer_store(B, S[tx], [tx])


def read_and_fence(S, B, tx):
    read(S, B, tx)
    intrinsic("fence_proxy_async")


def nothing(S, B, tx):
    T.evaluate(0)


@pytest.mark.parametrize(("before", "fences"), [(read, 1), (read_and_fence, 1), (nothing, 0)])
@pytest.mark.parametrize(
    "arrive", ["mbarrier_arrive_warp", "mbarrier_arrive", "cluster_arrive", "cluster_sync"]
)
@pytest.mark.parametrize("config", [{}, {"tl.disable_thread_storage_sync": True}])
def test_reads_of_what_an_engine_fills_pass_a_fence_before_an_arrival(
    statements, before, fences, arrive, config
):
    text = statements("ThreadSync", ring(before, arrive), config, arch="sm_90a")
    lines = [line.strip() for line in text.splitlines()]
    assert lines.count(FENCE) == fences
    if fences:
        place = next(i for i, line in enumerate(lines) if f"tl.{arrive}(" in line)
        assert lines[place - 1] == FENCE


def read_and_wait(S, B, tx):
    read(S, B, tx)
    intrinsic("warpgroup_wait", 0)


def wait_twice(S, B, tx):
    read(S, B, tx)
    intrinsic("warpgroup_wait", 1)
    intrinsic("warpgroup_wait", 0)


def wait_and_read(S, B, tx):
    intrinsic("warpgroup_wait", 0)
    read(S, B, tx)


def wait_for_stores(S, B, tx):
    read(S, B, tx)
    intrinsic("tma_store_wait", 0, T.bool(True))


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (read_and_wait, "warpgroup_wait(0)"),
        (wait_twice, "warpgroup_wait(1)"),
        (wait_and_read, "mbarrier_arrive_warp"),
        (wait_for_stores, "mbarrier_arrive_warp"),
    ],
)
def test_a_fence_stands_in_front_of_waits_for_products(statements, before, behind):
    """Then a thread waits for its reads while the tensor cores work."""
    text = statements("ThreadSync", ring(before), {}, arch="sm_90a")
    lines = [line.strip() for line in text.splitlines()]
    assert lines.count(FENCE) == 1
    assert lines[lines.index(FENCE) + 1].startswith(f"T.tl.{behind}")


def one_lane_arrives(before):
    """Lanes read what an engine fills; behind `before`, one of each warp arrives at an mbarrier."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 128)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((128,), "float32", scope="shared.dyn")
            full = T.sblock_alloc_buffer((1,), "uint64", scope="shared.barrier")
            for k in range(4):
                intrinsic("bulk_load", "", address(S, 0), address(A, 0), 512, address(full, 0))
                intrinsic("mbarrier_wait", address(full, 0), k % 2)
                read(S, B, tx)
                before(k)
                if tx % 32 == 0:
                    intrinsic("mbarrier_arrive", address(full, 0))

    return func


def sync_warp(k):
    intrinsic("sync_warp", T.uint32(0xFFFFFFFF))


def sync_warp_in_some_iterations(k):
    with T.If(k < 2), T.Then():
        sync_warp(k)


def sync_warp_behind_a_barrier(k):
    T.evaluate(T.tvm_storage_sync("shared"))
    sync_warp(k)


@pytest.mark.parametrize(
    ("before", "behind_fences"),
    [
        (sync_warp, ["sync_warp"]),
        (sync_warp_in_some_iterations, ["sync_warp", "mbarrier_arrive"]),
        (sync_warp_behind_a_barrier, ["tvm_storage_sync"]),
    ],
)
def test_each_lane_passes_a_fence_before_one_arrives_for_all(statements, before, behind_fences):
    text = statements("ThreadSync", one_lane_arrives(before), {}, arch="sm_90a")
    lines = [line.strip() for line in text.splitlines()]
    places = [i for i, line in enumerate(lines) if line == FENCE]
    assert [re.match(r"T\.(?:tl\.)?(\w+)", lines[i + 1])[1] for i in places] == behind_fences


def test_reads_of_bytes_that_an_engine_fills_under_another_name(after):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 128)
        R = T.alloc_buffer((128,), "float32", scope="shared.dyn", annotations={OFFSET: 0})
        S = T.alloc_buffer((128,), "float32", scope="shared.dyn", annotations={OFFSET: 0})
        full = T.alloc_buffer((1,), "uint64", scope="shared.barrier", annotations={OFFSET: 512})
        R[tx] = A[tx]
        B[tx] = R[tx]
        if tx == 0:
            intrinsic("bulk_load", "", address(S, 0), address(A, 0), 512, address(full, 0))
        intrinsic("mbarrier_wait", address(full, 0), 0)
        B[tx] = S[tx]

    mod = after("ThreadSync", func)
    lines = [line.strip() for line in mod["main"].script().splitlines()]
    place = lines.index(FENCE)
    assert lines.count(FENCE) == 1
    # T.alloc_buffer and the data it points to have names of their own.
    assert lines[place - 1].startswith("B[tx] = R")
    assert lines[place + 1] == 'T.tvm_storage_sync("shared")'


def told(order, fences_itself):
    """64 threads write S and arrive; the engine reads it for the other 64, behind their wait."""

    def write(S, full, tx):
        T.buffer_store(S, T.float32(1), [tx])
        if fences_itself:
            intrinsic("fence_proxy_async")
        intrinsic("mbarrier_arrive", address(full, 0))

    def send(S, full, A):
        intrinsic("mbarrier_wait", address(full, 0), 0)
        intrinsic("bulk_store", "", address(A, 0), address(S, 64), 256)

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 128)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((128,), "float32", scope="shared.dyn")
            full = T.sblock_alloc_buffer((1,), "uint64", scope="shared.barrier")
            with T.If(tx < 64):
                with T.Then():
                    if order == "write first":
                        write(S, full, tx + 64)
                    else:
                        send(S, full, A)
                with T.Else():
                    if order == "write first":
                        send(S, full, A)
                    else:
                        write(S, full, tx)

    return func


@pytest.mark.parametrize("order", ["write first", "send first"])
@pytest.mark.parametrize("fences_itself", [False, True])
def test_a_write_that_another_branch_is_told_of_passes_a_fence(statements, order, fences_itself):
    text = statements("ThreadSync", told(order, fences_itself), {}, arch="sm_90a")
    lines = [line.strip() for line in text.splitlines()]
    assert lines.count(FENCE) == 1
    behind = "mbarrier_arrive" if fences_itself else "bulk_store"
    assert f"tl.{behind}(" in lines[lines.index(FENCE) + 1]
