"""Barriers, lanes and warps: the calls, their errors, and kernels that use them."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(
    ("statement", "printed"),
    [
        ("T.sync_threads()", 'T.tvm_storage_sync("shared", T.bool(False), -1)\n'),
        ("T.sync_threads(0)", 'T.tvm_storage_sync("shared", T.bool(False), -1)\n'),
        ("T.sync_threads(3, 64)", "T.tl.sync_threads_partial(3, 64)\n"),
        ("T.sync_threads(barrier_id=15)", "T.tl.sync_threads_partial(15, 128)\n"),
        ("T.sync_warp()", "T.tl.sync_warp(T.uint32(4294967295))\n"),
        ("T.sync_warp(0xF)", "T.tl.sync_warp(T.uint32(15))\n"),
    ],
)
def test_statements(trace, traced, round_trip, statement, printed):
    assert traced(statement) == printed
    round_trip(trace(statement))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("T.sync_threads(16)", "barrier_id of T.sync_threads is 16, wanted an int from 0 to 15"),
        ("T.sync_threads(n)", "wanted an int from 0 to 15"),
        ("T.sync_threads(3, 48)", "arrive_count of T.sync_threads is 48, wanted a multiple of 32"),
        ("T.sync_threads(3, 256)", "at most the 128 threads"),
        ("T.sync_threads(arrive_count=64)", "64 at barrier 0, which is that of all 128 threads"),
        ("T.named_barrier_arrive(0, 64)", "wanted an int from 1 to 15"),
        ("T.named_barrier_arrive(1, 160)", "at most the 128 threads"),
        ("T.sync_warp(0)", "wanted an int from 1 to 0xFFFFFFFF"),
        ("T.shuffle_elect(-1)", "wanted 0 or a positive int"),
        ("T.get_lane_idx(0)", "warp_size is 0, wanted a positive int"),
    ],
)
def test_errors(trace, statement, message):
    with pytest.raises(ValueError, match=rf"{message}[\s\S]*--> "):
        trace(statement)


def run(func):
    return tilelang.compile(func, out_idx=-1)()


@pytest.mark.parametrize("threads", [(96,), (16, 4, 3)])
def test_who_this_thread_is(threads):
    @T.prim_func
    def main(A: T.Tensor((6, 192), "int32")):
        with T.Kernel(1, threads=threads):
            tx, ty, tz = T.get_thread_bindings()
            ex, ey, _ = T.get_thread_extents()
            t = tx + ex * (ty + ey * tz)
            A[0, t] = T.get_lane_idx()
            A[1, t] = T.get_warp_idx()
            A[2, t] = T.get_warp_group_idx(warps_per_group=2)
            A[3, t] = T.cast(T.shuffle_elect(0), "int32")
            A[4, t] = T.cast(T.shuffle_elect(64), "int32")
            A[5, t] = T.get_warp_idx_sync(warp_size=16)

    count = 96 if len(threads) == 1 else 192
    t = torch.arange(count, device=DEVICE)
    wanted = [t % 32, t // 32, t // 64, t == 0, t % 64 == 0, t // 16]
    assert torch.equal(run(main)[:, :count], torch.stack([w.int() for w in wanted]))


def reversed_by(barrier, first, last, threads=128):
    """Threads [first, last) turn their elements around, in shared memory."""

    @T.prim_func
    def main(A: T.Tensor((threads,), "float32")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            S = T.alloc_shared((threads,), "float32")
            A[tx] = 0.0
            if first <= tx < last:
                S[tx] = T.cast(tx, "float32")
                barrier()
                A[tx] = S[first + last - 1 - tx]

    return main


@pytest.mark.parametrize(
    ("barrier", "kept"),
    [(lambda: None, "tl::sync_threads_partial(3, 64)"), (lambda: T.sync_threads(5, 64), "(5, 64)")],
)
def test_a_part_of_the_block_meets(barrier, kept):
    func = reversed_by(barrier, 32, 96)
    kernel = tilelang.compile(func, out_idx=-1)
    source = kernel.get_kernel_source()
    assert source.count("sync_threads") == 1
    assert kept in source
    t = torch.arange(128, device=DEVICE)
    wanted = torch.where((t >= 32) & (t < 96), 127 - t, 0).float()
    assert torch.equal(kernel(), wanted)


def test_two_parts_of_the_block_meet_each_for_itself():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S = T.alloc_shared((128,), "float32")
            total = T.alloc_var("float32", init=0.0)
            for k in T.serial(5):
                if tx < 96:
                    S[tx] = T.cast(tx + k, "float32")
                    total += S[95 - tx]
                else:
                    for m in T.serial(3):
                        S[tx] = T.cast(tx * m, "float32")
                        total += S[96 + (tx + 1) % 32]
            A[tx] = total

    t = torch.arange(128, device=DEVICE)
    low, high = (5 * (95 - t) + 10).float(), (5 * 3 * (96 + (t + 1) % 32)).float()
    assert torch.equal(run(main), torch.where(t < 96, low, high))


def test_a_warp_arrives_and_another_waits():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx < 32:
                A[tx] = tx * 3
                T.named_barrier_arrive(4, 64)
            else:
                T.sync_threads(4, 64)
                B[tx - 32] = A[63 - tx]

    kernel = tilelang.compile(main, out_idx=-1)
    assert "tl::named_barrier_arrive(4, 64);" in kernel.get_kernel_source()
    a = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    assert kernel(a).tolist() == [3 * (31 - t) for t in range(32)]


@pytest.mark.parametrize("threads", [64, 48])
def test_lanes_of_a_warp_meet(warp_threads, threads):
    @T.prim_func
    def main(A: T.Tensor((threads,), "float32")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            S = T.alloc_shared((threads,), "float32")
            S[tx] = T.cast(tx, "float32")
            T.sync_warp()
            if T.get_lane_idx(warp_threads) < 8:
                T.sync_warp(0xFF)
            A[tx] = S[tx]

    assert torch.equal(run(main), torch.arange(threads, device=DEVICE).float())
