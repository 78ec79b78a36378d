"""T.copy_cluster, and loads of a cluster's blocks that they share, against torch."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_padded_layout

SM90 = {"kind": "cuda", "arch": "sm_90a"}


def build(func):
    return tilelang.compile(func, target=SM90, execution_backend="emulate")


def random(shape):
    return torch.randn(shape, dtype=torch.float64).half()


@pytest.mark.parametrize("blocks", [2, 4])
def test_a_load_goes_to_all_blocks_of_a_cluster(blocks):
    """Each block loads its part of a tile for all of them."""
    rows = 64 // blocks

    @T.prim_func
    def main(A: T.Tensor((3, 64, 64), "float16"), B: T.Tensor((blocks, 3, 64, 64), "float16")):
        with T.Kernel(blocks, threads=128, cluster_dims=blocks) as b:
            S = T.alloc_shared((64, 64), "float16")
            full, free = T.alloc_barrier(1), T.alloc_cluster_barrier(blocks)
            rank = T.block_rank_in_cluster()
            for k in T.serial(3):
                T.mbarrier_wait_parity(free, (k + 1) % 2)
                if T.get_thread_binding() == 0:
                    T.mbarrier_expect_tx(full, (64 - rows) * 128)
                T.tma_copy(
                    A[k, rank * rows : (rank + 1) * rows, :],
                    S[rank * rows : (rank + 1) * rows, :],
                    barrier=full,
                    cluster_mask=(1 << blocks) - 1,
                )
                if T.get_thread_binding() == 0:
                    T.mbarrier_arrive(full)
                T.mbarrier_wait_parity(full, k % 2)
                for i, j in T.Parallel(64, 64):
                    B[b, k, i, j] = S[i, j]
                T.sync_threads()
                if T.get_thread_binding() < blocks:
                    T.mbarrier_arrive(free, T.get_thread_binding())

    kernel = build(main)
    source = kernel.get_kernel_source()
    assert "tl::tma_load_multicast<tl::evict_normal>" in source
    assert "tl::mbarrier_wait(full" in source
    assert source.rindex("tl::cluster_sync()") > source.index("tl::tma_load_multicast")
    a, b = random((3, 64, 64)), torch.zeros((blocks, 3, 64, 64), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(b, a.expand(blocks, 3, 64, 64))


@pytest.mark.parametrize("blocks", [2, 4])
def test_a_tile_goes_to_another_block_of_the_cluster(blocks):
    @T.prim_func
    def main(A: T.Tensor((blocks, 32, 64), "float16"), B: T.Tensor((blocks, 32, 64), "float16")):
        with T.Kernel(blocks, threads=128, cluster_dims=blocks) as b:
            S = T.alloc_shared((32, 64), "float16")
            U = T.alloc_shared((2, 32, 64), "float16")
            arrived = T.alloc_barrier(1)
            T.copy(A[b, :, :], S)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive_expect_tx(arrived, 32 * 64 * 2)
            rank = T.block_rank_in_cluster()
            T.copy_cluster(S, U[1, :, :], dst_block=(rank + 1) % blocks, remote_barrier=arrived)
            T.mbarrier_wait_parity(arrived, 0)
            for i, j in T.Parallel(32, 64):
                B[b, i, j] = U[1, i, j]

    kernel = build(main)
    source = kernel.get_kernel_source()
    assert "tl::bulk_copy_remote(U + 2048, S, 4096, arrived," in source
    assert source.rindex("tl::cluster_sync()") > source.index("tl::bulk_copy_remote")
    a, b = random((blocks, 32, 64)), torch.zeros((blocks, 32, 64), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(b, a.roll(1, 0))


def test_tiles_of_a_copy_between_blocks_have_one_layout():
    @T.prim_func
    def main(A: T.Tensor((2, 32, 64), "float16"), B: T.Tensor((2, 32, 64), "float16")):
        with T.Kernel(2, threads=128, cluster_dims=2) as b:
            S = T.alloc_shared((32, 64), "float16")
            U = T.alloc_shared((32, 64), "float16")
            arrived = T.alloc_barrier(1)
            for i, j in T.Parallel(32, 64):
                S[i, j] = A[b, i, j] + 1
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive_expect_tx(arrived, 32 * 64 * 2)
            T.copy_cluster(S, U, dst_block=1 - b, remote_barrier=arrived)
            T.mbarrier_wait_parity(arrived, 0)
            T.copy(U, B[b, :, :])

    kernel = build(main)
    (descriptor,) = kernel.artifact.launch_plan.descriptors
    assert descriptor.swizzle == 128
    assert "tl::bulk_copy_remote(U, S, 4096, arrived, 1 - bx)" in kernel.get_kernel_source()
    a, b = random((2, 32, 64)), torch.zeros((2, 32, 64), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(b, a.flip(0) + 1)


def test_a_multicast_by_copy_cluster():
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float16"), B: T.Tensor((2, 32, 64), "float16")):
        with T.Kernel(2, threads=128, cluster_dims=2) as b:
            S = T.alloc_shared((32, 64), "float16")
            full = T.alloc_barrier(1)
            if T.block_rank_in_cluster() == 0:
                T.copy_cluster(A, S, cluster_mask=3, remote_barrier=full)
            elif T.get_thread_binding() == 0:
                T.mbarrier_expect_tx(full, 32 * 64 * 2)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            for i, j in T.Parallel(32, 64):
                B[b, i, j] = S[i, j]

    kernel = build(main)
    a, b = random((32, 64)), torch.zeros((2, 32, 64), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(b, a.expand(2, 32, 64))


def test_a_mask_of_more_blocks_than_there_are_is_refused():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(2, threads=128, cluster_dims=2):
            S = T.alloc_shared((64, 64), "float16")
            T.tma_copy(A[0:32, :], S[0:32, :], barrier=T.alloc_barrier(1), cluster_mask=7)

    with pytest.raises(ValueError, match=r"test_copy_cluster.py:.*found 7 in a cluster of 2"):
        build(main)


def test_copies_between_blocks_that_cannot_be_are_refused():
    def kernel(**keywords):
        @T.prim_func
        def main(A: T.Tensor((32, 64), "float16")):
            with T.Kernel(2, threads=128, cluster_dims=2):
                S = T.alloc_shared((32, 64), "float16")
                U = T.alloc_shared((32, 64), "float16")
                bar = T.alloc_barrier(1)
                T.annotate_layout({U: make_padded_layout(U)})
                if keywords.pop("barrier", True):
                    keywords["remote_barrier"] = bar
                T.copy_cluster(S, U, **keywords)

        return main

    for keywords, found in (
        ({}, "dst_block=None, cluster_mask=None"),
        ({"dst_block": 1, "cluster_mask": 3}, "dst_block=1, cluster_mask=3"),
        ({"dst_block": 1, "barrier": False}, "dst_block=1, cluster_mask=None and remote_"),
        ({"dst_block": 1, "eviction_policy": "evict_last"}, "eviction_policy='evict_last'"),
    ):
        with pytest.raises(ValueError, match=f"T.copy_cluster found {found}"):
            kernel(**keywords)
    with pytest.raises(
        ValueError, match=r"T.copy_cluster: found a tile that lies in several pieces"
    ):
        build(kernel(dst_block=1))
