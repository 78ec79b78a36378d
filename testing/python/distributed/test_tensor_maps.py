"""Tensors of other ranks by TMA: one map for each rank, in an array that the host makes."""

import gc
import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang import distributed
from tilelang.emulator import EmulationError, schedule

M, N, TILE = 64, 128, 64


def compiled(program):
    return tilelang.compile(
        program, target="cuda -arch=sm_90a", execution_backend="emulate", verbose=False
    )


def pushes(rows=M):
    """Each rank stores its tensor to the next one."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, N), "float16"),
        Out: T.SymmetricTensor((rows, N), "float16"),
        counts: T.SymmetricTensor((N // TILE, 8), "uint32"),
    ):
        with T.Kernel(N // TILE, threads=128) as bx:
            tile = T.alloc_shared((64, TILE), "float16")
            T.sync_ranks(counts, bx)
            Next = T.peer(Out, (T.rank() + 1) % T.num_ranks())
            for i in T.serial(T.ceildiv(rows, 64)):
                T.copy(X[i * 64, bx * TILE], tile)
                T.copy(tile, Next[i * 64, bx * TILE])
            T.sync_ranks(counts, bx)

    return main


def pulls(how):
    """Each rank adds up what all ranks have."""

    @T.prim_func
    def main(
        X: T.SymmetricTensor((M, N), "float16"),
        counts: T.SymmetricTensor((N // TILE, 8), "uint32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // TILE, threads=128) as bx:
            tile = T.alloc_shared((M, TILE), "float16")
            bar = T.alloc_barrier([1])
            acc = T.alloc_fragment((M, TILE), "float32")
            T.clear(acc)
            T.sync_ranks(counts, bx)
            for r in T.serial(T.num_ranks()):
                Theirs = T.peer(X, r)
                if how == "tma_copy":
                    T.tma_copy(Theirs[0, bx * TILE], tile, barrier=bar[0])
                    if T.get_thread_binding() == 0:
                        T.mbarrier_arrive(bar[0])
                    T.mbarrier_wait_parity(bar[0], r % 2)
                else:
                    T.copy(Theirs[0, bx * TILE], tile, prefer_instruction="tma")
                for i, j in T.Parallel(M, TILE):
                    acc[i, j] += T.cast(tile[i, j], "float32")
                T.sync_threads()
            T.sync_ranks(counts, bx)
            T.copy(acc, Y[0, bx * TILE])

    return main


def tensor(rank, rows=M):
    return (torch.arange(rows * N).reshape(rows, N) % 101 + 100 * rank).half()


def pushed(kernel, ranks, rows=M, steps=1):
    def program(rank):
        out = distributed.empty((rows, N), torch.float16)
        counts = distributed.zeros((N // TILE, 8), torch.uint32)
        for _ in range(steps):
            kernel(tensor(rank, rows), out, counts)
        return out

    for rank, out in enumerate(distributed.emulate(ranks, program)):
        assert torch.equal(out, tensor((rank - 1) % ranks, rows)), rank


@pytest.fixture(scope="module")
def push():
    return compiled(pushes())


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_tile_is_stored_to_another_rank(push, ranks):
    source = push.get_kernel_source()
    assert "const CUtensorMap* Out_peers_maps" in source
    assert "tl::tma_store<tl::evict_normal>(tl::tensor_map_at(Out_peer_map), tile" in source
    # The store is complete before the other rank hears of it.
    store = source.index("tl::tma_store<")
    wait = source.index("tl::tma_store_wait<0, false>();", store)
    assert wait < source.index("tl::sync_ranks_arrive(", store)
    pushed(push, ranks, steps=2)


@pytest.mark.parametrize("how", ["tma_copy", "copy"])
def test_a_tile_is_loaded_from_another_rank(how):
    kernel = compiled(pulls(how))
    assert "tl::tensor_map_at(X_peer_map)" in kernel.get_kernel_source()

    def program(rank):
        x, y = distributed.empty((M, N), torch.float16), torch.empty(M, N)
        counts = distributed.zeros((N // TILE, 8), torch.uint32)
        x.copy_(tensor(rank))
        kernel(x, counts, y)
        return y

    wanted = sum(tensor(r).float() for r in range(4))
    with schedule(seed=3):
        assert all(torch.equal(y, wanted) for y in distributed.emulate(4, program))


def test_maps_are_those_of_this_call():
    """Neither those of a tensor that is gone nor those of another variant or another view."""
    rows = T.dynamic("rows")
    kernel = compiled(pushes(rows))
    assert "tl::tensor_map_at(Out_peer_map)" in kernel.get_kernel_source()
    for count in (64, 128, 192, 128):
        pushed(kernel, 2, count)
        gc.collect()

    def program(rank):
        whole = distributed.zeros((256, N), torch.float16)
        counts = distributed.zeros((N // TILE, 8), torch.uint32)
        for first in (0, 128):
            kernel(tensor(rank, 128) + first, whole[first : first + 128], counts)
        return whole

    for rank, whole in enumerate(distributed.emulate(2, program)):
        assert torch.equal(whole[:128], tensor(1 - rank, 128))
        assert torch.equal(whole[128:], tensor(1 - rank, 128) + 128)


def test_the_plan_has_one_array_for_all_peers_of_a_tensor():
    @T.prim_func
    def main(
        Out: T.SymmetricTensor((M, N), "float16"), Small: T.SymmetricTensor((M, N), "float16")
    ):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((M, TILE), "float16")
            T.fill(tile, T.cast(T.rank(), "float16"))
            for r in T.serial(T.num_ranks()):
                T.copy(tile, T.peer(Out, r)[0, 0])
            T.copy(tile, T.peer(Out, 0)[0, TILE])
            T.copy(tile[0:8, :], T.peer(Small, 0)[0, 0])
            T.copy(tile[0:16, :], T.peer(Small, 0)[16, 0])

    plan = tilelang.lower(main, target="cuda -arch=sm_90a").launch_plan
    found = [(d.name, d.param, d.box, d.peers) for d in plan.descriptors]
    assert found == [
        ("Out_peers_maps", "Out_peers", (64, 64), True),
        ("Small_peers_maps", "Small_peers", (64, 8), True),
        ("Small_peers_maps_1", "Small_peers", (64, 16), True),
    ]
    assert type(plan).from_json(plan.to_json()) == plan
    assert "Out_peers_maps = tensor_maps(Out_peers, float16" in plan.script()


def test_two_stores_of_one_rank_keep_their_order():
    """Peers may be one rank: the second store waits for the first, which may be to its tile."""

    @T.prim_func
    def main(Out: T.SymmetricTensor((M, TILE), "float16"), first: T.int32, second: T.int32):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((M, TILE), "float16")
            b = T.alloc_shared((M, TILE), "float16")
            T.fill(a, 1)
            T.fill(b, 2)
            T.copy(a, T.peer(Out, first))
            T.copy(b, T.peer(Out, second))

    source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    stores = [m.start() for m in re.finditer("tl::tma_store<", source)]
    assert len(stores) == 2
    assert "tl::tma_store_wait<0, false>();" in source[stores[0] : stores[1]]


def test_a_tensor_that_the_kernel_also_reads_is_stored_by_threads():
    @T.prim_func
    def main(Out: T.SymmetricTensor((M, TILE), "float16"), Y: T.Tensor((M, TILE), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((M, TILE), "float16")
            T.fill(tile, 1)
            T.copy(tile, T.peer(Out, 0))
            for i, j in T.Parallel(M, TILE):
                Y[i, j] = Out[i, j]

    assert "tl::tma_store<" not in tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source


def test_rows_that_tma_does_not_take_are_refused_by_name():
    def program(width):
        @T.prim_func
        def main(Out: T.SymmetricTensor((M, width), "float16")):
            with T.Kernel(1, threads=128):
                tile = T.alloc_shared((M, TILE), "float16")
                T.fill(tile, 1)
                T.tma_copy(tile, T.peer(Out, 0)[0, 0])
                T.tma_store_arrive()
                T.tma_store_wait()

        return main

    with pytest.raises(ValueError, match="a stride of 140 bytes in Out_peer"):
        tilelang.lower(program(70), target="cuda -arch=sm_90a")
    # Sizes of the call: the adapter refuses, with the tensor's name.
    kernel = compiled(program(T.dynamic("width")))
    with pytest.raises(ValueError, match="tensor map of `Out`: found strides of 140 bytes"):
        distributed.emulate(2, lambda rank: kernel(distributed.empty((M, 70), torch.float16)))


def test_a_rank_that_there_is_not():
    @T.prim_func
    def main(Out: T.SymmetricTensor((M, TILE), "float16"), rank: T.int32):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((M, TILE), "float16")
            T.fill(tile, 1)
            T.copy(tile, T.peer(Out, rank))

    kernel = compiled(main)
    with pytest.raises(EmulationError, match="the tensor of rank 2 of 2 ranks"):
        distributed.emulate(2, lambda rank: kernel(distributed.empty((M, TILE), torch.float16), 2))


def test_nvrtc_takes_the_maps():
    """The fence, and copies whose map is in global memory."""
    from tilelang.cuda.nvrtc import compile_cubin

    for program in (pushes(), pulls("tma_copy")):
        source = tilelang.lower(program, target="cuda -arch=sm_90a").kernel_source
        cubin = compile_cubin(source, "sm_90a", ["main_kernel"]).cubin
        assert cubin.startswith(b"\x7fELF")
