"""Functions of TVM's builder under its names, and threads that leave."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import EmulationError

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def build(func):
    return tilelang.compile(func, target=HOPPER, execution_backend="emulate")


@pytest.mark.parametrize(
    ("statement", "printed"),
    [
        ("T.evaluate(T.tvm_access_ptr(T.type_annotation('float32'), A.data, 18, 4, 1))", "A[1, 2]"),
        ("T.evaluate(T.tvm_access_ptr('float32', A, 16 * n, 4, 3))", "A[n, 0]"),
        ("T.ptx_fence_barrier_init()", "T.tl.fence_barrier_init()"),
        ("T.thread_return()", "T.thread_return()"),
        ("T.sblock_attr({'note': 3})", "T.sblock_attr({'note': 3})"),
        (
            "T.sblock_alloc_buffer((8,), dtype=T.int8, scope='shared')",
            "(8,), 'int8', scope='shared'",
        ),
    ],
)
def test_statements(trace, statement, printed):
    assert printed.replace("'", '"') in trace(statement).script()


def test_what_it_changes_it_says(trace):
    assert str(T.target({"kind": "cuda", "arch": "sm_90a"}).attrs["arch"]) == "sm_90a"
    text = trace(
        "with T.sblock('update'):\n    T.sblock_attr({'note': 'u'})\n    A[0, 0] = 1"
    ).script()
    assert text.index('T.sblock("update")') < text.index('T.sblock_attr({"note": "u"})')


BAR = "bar = T.alloc_buffer((2,), T.uint64, scope='shared.barrier')\nset = T.alloc_barrier([1])\n"


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.tvm_access_ptr('int8', A, 0, 1, 1)", ValueError, "ptype of .* is int8, wanted float32"),
        ("T.tvm_access_ptr('float32', A, 0, 1, 4)", ValueError, "rw_mask of .* is 4, wanted one o"),
        ("T.tvm_access_ptr('float32', 3, 0, 1, 1)", TypeError, "found 3 of type int, wanted a buf"),
        ("T.tvm_access_ptr('float32', T.alloc_fragment((4,), 'float32'), 0, 1, 1)", ValueError, ""),
        ("T.tvm_warp_shuffle(1, n, 0, 32, 64)", ValueError, "warp_size of .* is 64, wanted 32"),
        ("T.tvm_warp_shuffle_up(1, n, 1, 3, 32)", ValueError, "width of T.shfl_up is 3, wanted a "),
        ("T.tvm_warp_shuffle_down(0, n, 1, 32, 32)", ValueError, "mask of T.shfl_down is 0, wante"),
        ("T.ptx_init_barrier_thread_count(set, 3)", ValueError, "found set of T.alloc_barrier, wh"),
        ("T.ptx_init_barrier_thread_count(bar[0], 0)", ValueError, "thread_count of .* is 0, want"),
        ("T.ptx_arrive_barrier(A[0, 0])", TypeError, "wanted a barrier of T.alloc_barrier"),
        ("T.alloc_buffer((1,), scope='shared.barrier')", ValueError, "is float32 in memory 'share"),
        ("T.sblock_attr([1])", TypeError, "found .* wanted a dict from names"),
        ("T.sblock_alloc_buffer((8,), scope='tmem')", ValueError, "is 'tmem', wanted one of"),
    ],
)  # fmt: skip
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(BAR + statement)


def test_an_mbarrier_of_the_programs_own():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "int32")
            bar = T.alloc_buffer((2,), T.uint64, scope="shared.barrier")
            if tx == 0:
                T.ptx_init_barrier_thread_count(bar[1], 32)
                T.ptx_fence_barrier_init()
            T.sync_threads()
            if tx < 32:
                S[tx] = tx
                T.ptx_arrive_barrier(bar[1])
            else:
                T.mbarrier_wait_parity(bar[1], 0)
                x = S[63 - tx]
                A[tx] = x + T.tvm_warp_shuffle(0xFFFFFFFF, x, 3, 32, 32)
                A[tx] += T.tvm_warp_shuffle_up(0xFFFFFFFF, x, 1, 32, 32)
                A[tx] += T.tvm_warp_shuffle_down(0xFFFFFFFF, x, 1, 32, 32)
                A[tx] += T.tvm_warp_shuffle_xor(0xFFFFFFFF, x, 2, 32, 32)

    a = torch.zeros(64, dtype=torch.int32)
    build(main)(a)
    lane = torch.arange(32)
    before, after = (lane - 1).clamp(0), (lane + 1).clamp(max=31)
    wanted = (31 - lane) + 28 + (31 - before) + (31 - after) + (31 - (lane ^ 2))
    assert torch.equal(a[32:].long(), wanted)


def test_other_blocks_arrive_at_an_mbarrier_of_the_programs_own():
    @T.prim_func
    def main(A: T.Tensor((2, 32), "int32")):
        with T.Kernel(2, threads=32, cluster_dims=2) as bx:
            bar = T.alloc_buffer((1,), T.uint64, scope="shared.barrier")
            if T.get_thread_binding() == 0:
                T.ptx_init_barrier_thread_count(bar, 32)
                T.ptx_fence_barrier_init()
            T.cluster_sync()
            T.mbarrier_arrive(bar, 1 - bx)
            T.mbarrier_wait_parity(bar, 0)
            A[bx, T.get_thread_binding()] = 1

    kernel = build(main)
    source = kernel.get_kernel_source()
    assert "tl::mbarrier_wait_cluster(bar, 0);" in source
    assert source.rindex("tl::cluster_sync();") > source.index("A[")
    a = torch.zeros(2, 32, dtype=torch.int32)
    kernel(a)
    assert a.all()


def test_an_mbarrier_that_nobody_initialises_is_reported():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=32):
            bar = T.alloc_buffer((1,), T.uint64, scope="shared.barrier")
            T.ptx_arrive_barrier(bar)
            A[0] = 1

    with pytest.raises(EmulationError, match="barrier"):
        build(main)(torch.zeros(64, dtype=torch.int32))


@T.prim_func
def leaves_alone(A: T.Tensor((4, 64), "float32"), n: T.int32):
    with T.Kernel(4, threads=64) as bx:
        tx = T.get_thread_binding()
        S = T.alloc_shared((64,), "float32")
        if bx >= n:
            T.thread_return()
        S[tx] = tx
        for k in T.serial(2):
            if tx >= 32:
                if k == 1:
                    T.thread_return()
                A[bx, tx] = S[63 - tx]
            if tx < 32:
                S[tx] = S[31 - tx] + 1
        if tx < 8:
            T.thread_return()
        A[bx, tx] = tx + 1


def test_threads_leave():
    with pytest.raises(
        ValueError, match=r"found a barrier.*of its threads may have left by T\.thread"
    ):
        build(leaves_alone)

    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32"), n: T.int32):
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "float32")
            if bx >= n:
                T.thread_return()
            S[tx] = tx
            A[bx, tx] = S[63 - tx]
            T.sync_threads()
            if tx >= 32:
                T.thread_return()
            if tx < 32:
                S[tx] = S[tx + 32] + 1
                A[bx, tx] = S[31 - tx]
            for k in T.serial(4):
                if tx < 8 * k:
                    T.thread_return()
                A[bx, tx] += 100

    kernel = build(main)
    a = torch.zeros(4, 64)
    kernel(a, 2)
    wanted = torch.arange(63, -1, -1).float()
    wanted[:32] += 1 + 100 * (torch.arange(32) // 8 + 1).clamp(max=4)
    assert torch.equal(a[:2], wanted.expand(2, 64))
    assert not a[2:].any()


def test_lanes_that_have_left_miss_at_a_shuffle():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx >= 20:
                T.thread_return()
            A[tx] = T.shfl_xor(tx, 16)

    with pytest.raises(EmulationError, match="lane 4 reads lane 20 of its warp, which has exited"):
        build(main)(torch.zeros(64, dtype=torch.int32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("if tx > 3: T.thread_return()\nT.copy(A, B)", r"found a tile operator after some threads"),
        ("if tx > 3: T.thread_return()\nfor i in T.Parallel(8): A[i, 0] = 1", "found a parallel l"),
        ("for i in T.Parallel(8):\n    if i > 3: T.thread_return()", "found T.thread_return in a "),
        (
            "for k in T.serial(3):\n    T.copy(A, B)\n    if tx > k: T.thread_return()",
            r"found a tile operator after some threads of the block may have left .*:7\)",
        ),
        ("if A[tx % 8, 0] > 0: T.thread_return()\nT.sync_threads()", r"found a barrier, or an acc"),
        ("if tx < 32: T.thread_return()\nif tx < 64: T.sync_threads(4, 64)", r"found a barrier, o"),
        ("if tx < 32: T.thread_return()\nB[0, 0] = T.syncthreads_count(n > 3)", r"found a barrier"),
    ],
)  # fmt: skip
def test_work_for_threads_that_have_left_is_refused(trace, text, message):
    with pytest.raises(ValueError, match=rf"{message}[\s\S]*--> "):
        build(trace(text))


def test_a_block_that_others_arrive_at_is_not_left():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(2, threads=32, cluster_dims=2) as bx:
            bar = T.alloc_cluster_barrier([1])
            if bx == 0:
                T.thread_return()
            T.mbarrier_arrive(bar[0], 0)
            A[bx] = 1

    with pytest.raises(
        ValueError, match="whose blocks arrive at mbarriers of other blocks, wanted all"
    ):
        build(main)
