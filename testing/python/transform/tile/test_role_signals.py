"""Roles of warps in kernels of several ranks: who waits, and where the program's order is kept."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang import distributed
from tilelang.emulator import schedule

M, N, K = 64, 64, 128
TILE = 64


def gather(between=False, reset=False, signal=False, wait="tile", steps=K // TILE):
    """C = X of all ranks @ B: block 0 sends X, the other one waits for it and multiplies."""

    @T.prim_func
    def main(
        X: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        All: T.SymmetricTensor((2, M, K), "float16"),
        ready: T.SymmetricTensor((2,), "uint32"),
        counts: T.SymmetricTensor((1, 2), "uint32"),
        C: T.Tensor((2, M, N), "float32"),
        given: T.int32,
    ):
        with T.Kernel(2, threads=128) as bx:
            A_shared = T.alloc_shared((M, TILE), "float16")
            B_shared = T.alloc_shared((TILE, N), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            part = T.alloc_fragment((M, K), "float16")
            if bx == 0:
                T.sync_ranks(counts)
                for r in T.serial(2):
                    Theirs = T.peer(All, r)
                    T.copy(X, part)
                    T.copy(part, Theirs[T.rank(), 0, 0])
                    T.signal_add(T.peer(ready, r)[T.rank()], 1)
            else:
                for i in T.serial(2):
                    owner = (T.rank() + i) % 2
                    if reset:
                        T.signal_set(ready[owner], 0)
                    if wait == "tile":
                        T.signal_wait_until(ready[owner], "ge", 1)
                    if between:
                        T.copy(All[owner, 0, 0], C[0, 0, 0:1])
                    T.clear(acc)
                    for k in T.Pipelined(steps or given, num_stages=2):
                        if wait == "loop":
                            T.signal_wait_until(ready[owner], "ge", 1)
                        T.copy(All[owner, 0, k * TILE], A_shared)
                        T.copy(B[k * TILE, 0], B_shared)
                        T.gemm(A_shared, B_shared, acc)
                        if signal:
                            T.signal_add(ready[1 - owner], 0)
                    T.copy(acc, C[owner, 0, 0])

    return main


def pull(cp_async=False):
    """C = sum of X of rank r @ B: loads of another rank's tiles, between barriers of all ranks."""

    @T.prim_func
    def main(
        X: T.SymmetricTensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        counts: T.SymmetricTensor((1, 4), "uint32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((M, TILE), "float16")
            B_shared = T.alloc_shared((TILE, N), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            T.sync_ranks(counts)
            T.clear(acc)
            for i in T.serial(T.num_ranks()):
                Theirs = X.peer((T.rank() + i) % T.num_ranks())
                for k in T.Pipelined(K // TILE, num_stages=2):
                    T.copy(Theirs[0, k * TILE], A_shared)
                    T.copy(B[k * TILE, 0], B_shared, disable_tma=cp_async)
                    T.gemm(A_shared, B_shared, acc)
            T.sync_ranks(counts)
            T.copy(acc, C)

    return main


def compiled(program):
    kernel = tilelang.compile(
        program, target="cuda -arch=sm_90a", execution_backend="emulate", verbose=False
    )
    return kernel, kernel.get_kernel_source(), str(kernel.explain())


def rows(rank, *shape):
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-3, 4, shape, generator=generator).half()


def run_gather(kernel):
    def program(rank):
        everything = distributed.empty((2, M, K), torch.float16)
        ready = distributed.zeros(2, dtype=torch.uint32)
        counts = distributed.zeros((1, 2), torch.uint32)
        c = torch.empty(2, M, N)
        kernel(rows(rank, M, K), rows(9, K, N), everything, ready, counts, c, 0)
        return c

    wanted = torch.stack([rows(r, M, K).double() for r in range(2)]) @ rows(9, K, N).double()
    for c in distributed.emulate(2, program):
        assert torch.equal(c.double(), wanted)


def test_a_wait_of_a_tile_loop_is_the_producers():
    kernel, source, text = compiled(gather())
    assert "producer" in text, text
    wait = source.index("tl::signal_wait_until")
    assert source.count("tl::signal_wait_until") == 1
    # One thread waits, and loads then.
    load = source.index("tl::tma_load", wait)
    assert "__syncthreads" not in source[wait:load]
    assert "tl::sync" not in source[wait:load]
    assert "tl::mbarrier_wait" in source[load:]
    for seed in range(3):
        with schedule(seed=seed):
            run_gather(kernel)


def test_a_wait_in_the_pipelined_loop_is_the_producers():
    kernel, _, text = compiled(gather(wait="loop"))
    assert "producer" in text, text
    with schedule(seed=1):
        run_gather(kernel)


@pytest.mark.parametrize("cp_async", [False, True], ids=["tma", "cp.async"])
def test_peers_are_loaded_by_the_producer(cp_async):
    kernel, source, text = compiled(pull(cp_async))
    assert "producer" in text, text
    assert "tl::tensor_map_at(X_peer_map" in source
    assert source.count("tl::sync_ranks_wait(") == 2

    def program(rank):
        x = distributed.empty((M, K), torch.float16)
        counts = distributed.zeros((1, 4), torch.uint32)
        c = torch.empty(M, N)
        for step in range(2):
            x.copy_(rows(rank + step, M, K))
            kernel(x, rows(9, K, N), counts, c)
        return c

    wanted = sum(rows(r + 1, M, K).double() for r in range(3)) @ rows(9, K, N).double()
    for seed in range(2):
        with schedule(seed=seed):
            assert all(torch.equal(c.double(), wanted) for c in distributed.emulate(3, program))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"between": True}, "it stands between the wait for a rank and the use of a tile"),
        ({"reset": True}, "it changes ready in front of a wait"),
        ({"signal": True}, "it orders ranks in a pipelined loop"),
        ({"steps": 0}, "it stands between the wait for a rank and the use of a tile"),
    ],
)
def test_where_the_order_is_not_kept_the_loop_is_a_plain_pipeline(change, why):
    _, source, text = compiled(gather(**change))
    assert why in text, text
    assert "setmaxnreg" not in source
