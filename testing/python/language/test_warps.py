"""Shuffles, votes and matches: kernels against what each lane should see."""

import functools
import math
import operator

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def run(func, *args):
    kernel = tilelang.compile(func, out_idx=-1)
    return kernel(*[a.to(DEVICE) for a in args]).cpu()


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_shuffles(dtype):
    @T.prim_func
    def main(A: T.Tensor((6, 64), dtype)):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding()
            x = T.cast(t, dtype)
            A[0, t] = T.shfl_sync(x, 5)
            A[1, t] = T.shfl_sync(x, t + 1, 8)
            A[2, t] = T.shfl_up(x, 3)
            A[3, t] = T.shfl_down(x, 3, width=16)
            A[4, t] = T.shfl_xor(x, 7)
            A[5, t] = T.shfl_xor(x, 16, width=16)

    t = torch.arange(64)
    warp, lane = t // 32 * 32, t % 32
    wanted = [
        warp + 5,
        t // 8 * 8 + (t + 1) % 8,
        torch.where(lane < 3, t, t - 3),
        torch.where(t % 16 + 3 > 15, t, t + 3),
        t ^ 7,
        torch.where(t % 32 < 16, t, t ^ 16),
    ]
    assert torch.equal(run(main), torch.stack(wanted).to(getattr(torch, dtype)))


def test_halves_of_a_warp_shuffle_each_for_itself():
    @T.prim_func
    def main(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            t = T.get_thread_binding()
            x = T.alloc_var("int32", t)
            if t < 16:
                for _ in T.serial(3):
                    x = T.shfl_xor(x, 1, mask=0xFFFF) + 1
            else:
                for _ in T.serial(2):
                    x = T.shfl_xor(x, 2, mask=0xFFFF0000) * 2
            A[t] = x

    t = torch.arange(32)
    wanted = torch.where(t < 16, (t ^ 1) + 3, t * 4)
    assert torch.equal(run(main), wanted.int())


REDUCTIONS = [
    torch.sum,
    torch.max,
    torch.min,
    *(
        lambda values, f=f: torch.tensor(functools.reduce(f, values.tolist()))
        for f in (operator.and_, operator.or_, operator.xor)
    ),
]


@pytest.mark.parametrize(
    ("threads", "condition", "lanes"),
    [
        (20, lambda t, ty, n: t >= 0, lambda t: t >= 0),
        (48, lambda t, ty, n: t >= 0, lambda t: t >= 0),
        (1, lambda t, ty, n: t >= 0, lambda t: t >= 0),
        (64, lambda t, ty, n: t < 20, lambda t: t < 20),
        (64, lambda t, ty, n: t % 2 == 1, lambda t: t % 2 == 1),
        (96, lambda t, ty, n: t >= 40, lambda t: t >= 40),
        ((10, 5), lambda t, ty, n: ty > 1, lambda t: t >= 20),
        # A number for each warp.
        (64, lambda t, ty, n: t // 32 * 9 < n, lambda t: t >= 0),
    ],
)
def test_reductions_over_the_lanes_that_are_there(warp_threads, threads, condition, lanes):
    count = math.prod(threads) if isinstance(threads, tuple) else threads

    @T.prim_func
    def main(
        X: T.Tensor((count,), "int32"),
        N: T.Tensor((1,), "int32"),
        A: T.Tensor((6, count), "int32"),
    ):
        with T.Kernel(1, threads=threads):
            tx, ty = T.get_thread_binding(), T.get_thread_binding(1)
            t = tx + ty * T.get_thread_extent(0)
            for k in range(6):
                A[k, t] = 0
            if condition(t, ty, N[0]):
                A[0, t] = T.warp_reduce_sum(X[t])
                A[1, t] = T.warp_reduce_max(X[t])
                A[2, t] = T.warp_reduce_min(X[t])
                A[3, t] = T.warp_reduce_bitand(X[t])
                A[4, t] = T.warp_reduce_bitor(X[t])
                A[5, t] = T.warp_reduce_bitxor(X[t])

    x = torch.randint(-1000, 1000, (count,), generator=torch.Generator().manual_seed(1)).int()
    found = run(main, x, torch.tensor([10], dtype=torch.int32))
    t = torch.arange(count)
    wanted = torch.zeros(6, count, dtype=torch.int32)
    for first in range(0, count, warp_threads):
        there = lanes(t) & (t // warp_threads * warp_threads == first)
        if there.any():
            wanted[:, there] = torch.stack([f(x[there]).int() for f in REDUCTIONS])[:, None]
    assert torch.equal(found, wanted)


def test_votes_and_matches():
    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), A: T.Tensor((7, 64), "int64")):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding()
            x = X[t]
            A[0, t] = T.cast(T.any_sync(x > 6), "int64")
            A[1, t] = T.cast(T.all_sync(x), "int64")
            A[2, t] = T.cast(T.ballot_sync(x > 3), "int64")
            A[3, t] = T.cast(T.match_any_sync(x), "int64")
            A[4, t] = T.cast(T.match_all_sync(t // 32), "int64")
            A[5, t] = T.cast(T.match_all_sync(T.cast(x, "float64")), "int64")
            A[6, t] = T.cast(T.ballot(T.activemask() >> T.cast(t % 32, "uint64") & 1 == 1), "int64")

    x = torch.randint(0, 7, (64,), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    x[40], x[:32] = 7, x[:32].clamp(min=1)
    found = run(main, x)
    for warp in range(2):
        values = x[warp * 32 : warp * 32 + 32].tolist()
        rows = found[:, warp * 32 : warp * 32 + 32].tolist()
        bits = {v: sum(1 << i for i, w in enumerate(values) if w == v) for v in values}
        assert rows[0] == [int(7 in values)] * 32
        assert rows[1] == [int(0 not in values)] * 32
        assert rows[2] == [sum(b for v, b in bits.items() if v > 3)] * 32
        assert rows[3] == [bits[v] for v in values]
        assert rows[4] == [2**32 - 1] * 32
        assert rows[5] == [0] * 32
        assert rows[6] == [2**32 - 1] * 32


def test_votes_of_the_block():
    @T.prim_func
    def main(X: T.Tensor((96,), "int32"), A: T.Tensor((2, 3, 96), "int32")):
        with T.Kernel(1, threads=96):
            t = T.get_thread_binding()
            for limit in (0, 5):
                A[limit // 5, 0, t] = T.syncthreads_count(X[t] > limit)
                A[limit // 5, 1, t] = T.syncthreads_and(X[t] > limit)
                A[limit // 5, 2, t] = T.syncthreads_or(X[t] > limit)

    x = torch.arange(96, dtype=torch.int32) % 5 + 1
    found = run(main, x)
    assert found.unique(dim=-1).tolist() == [[[96], [1], [1]], [[0], [0], [0]]]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.shfl_sync(tx, 0, width=24)", ValueError, "24, wanted a power of two up to 64"),
        ("T.shfl_up(tx, 1, mask=0)", ValueError, "wanted an int from 1 to 0xFFFFFFFF"),
        ("T.shfl_xor(A, 1)", TypeError, r"T.shfl_xor found the buffer A .* wanted a scalar"),
        ("T.match_any_sync(T.float16(1))", TypeError, "of dtype float16, wanted one of int32"),
    ],
)
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(f"T.evaluate({statement})")


@pytest.mark.parametrize("threads", [32, 64])
def test_all_threads_of_a_block_of_one_warp_follow_its_vote(device, threads):
    """Behind it they meet at barriers; of a second warp it says nothing."""

    @T.prim_func
    def main(A: T.Tensor((4, threads), "int32"), B: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            S = T.alloc_shared((threads,), "int32")
            total = T.alloc_var("int32", 0)
            for k in T.serial(4):
                if T.any_sync(A[k, tx] < 0) != 0:
                    break
                S[tx] = A[k, tx]
                total += S[threads - 1 - tx]
            B[0] = total

    if threads > 32:
        with pytest.raises(ValueError, match="needs a barrier"):
            tilelang.compile(main, target="cuda -arch=sm_80")
        return
    a, b = torch.ones(4, threads, dtype=torch.int32, device=device), torch.zeros(1, device=device)
    a[3, 7] = -1
    b = b.int()
    tilelang.compile(main)(a, b)
    assert b.item() == 3


@pytest.mark.parametrize(("target", "lanes"), [("cuda -arch=sm_90a", 32), ("hip -mcpu=gfx942", 64)])
@pytest.mark.parametrize("threads", [20, 32, 80])
def test_a_vote_is_of_the_lanes_that_the_block_has(target, lanes, threads):
    """A block of 32 threads was refused where a warp has 64."""

    @T.prim_func
    def main(A: T.Tensor((threads,), T.int32), B: T.Tensor((3, threads), T.int64)):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            B[0, tx] = T.any_sync(A[tx] > 8)
            B[1, tx] = T.all_sync(A[tx] < 3)
            B[2, tx] = T.cast(T.ballot_sync(A[tx] % 3 == 0), T.int64)

    a, b = torch.randint(0, 10, (threads,), dtype=torch.int32), torch.empty(3, threads).long()
    tilelang.compile(main, target=target, execution_backend="emulate")(a, b)
    for warp, votes in zip(a.split(lanes), b.split(lanes, dim=1), strict=True):
        ballot = sum(1 << i for i, x in enumerate(warp.tolist()) if x % 3 == 0)
        ballot -= (ballot >> 63) << 64
        wanted = torch.tensor([int((warp > 8).any()), int((warp < 3).all()), ballot])
        assert torch.equal(votes, wanted[:, None].expand_as(votes))
