"""T.ClusterKernel and T.Kernel(cluster_dims=..): what reaches the launch."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.engine.launch_plan import LaunchPlan


def clustered(blocks, cluster_dims):
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.ClusterKernel(blocks, cluster_dims=cluster_dims, threads=32) as bx:
            tx = T.get_thread_binding()
            B[bx * 32 + tx] = A[bx * 32 + tx] + T.cast(bx, "float32")

    return main


@pytest.mark.parametrize(("dims", "wanted"), [(2, (2, 1, 1)), ((4, 1), (4, 1, 1)), (1, (1, 1, 1))])
def test_a_cluster_reaches_the_launch_and_runs(dims, wanted):
    kernel = tilelang.compile(
        clustered(8, dims), out_idx=-1, target="cuda -arch=sm_90a", execution_backend="emulate"
    )
    plan = kernel.artifact.launch_plan
    assert plan.kernels[0].cluster == wanted
    assert LaunchPlan.from_json(plan.to_json()) == plan
    assert ("cluster=" in plan.script()) == (wanted != (1, 1, 1))
    a = torch.arange(256, dtype=torch.float32)
    torch.testing.assert_close(kernel(a), a + torch.arange(8).repeat_interleave(32), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("blocks", "dims", "message"),
    [
        (8, 0, "cluster_dims of T.Kernel is 0, wanted a positive int"),
        (8, (1, 1, 1, 1), "wanted a positive int or one to three of them"),
        (32, (8, 4), "which is 32 blocks, wanted at most 16"),
        (6, 4, "T.Kernel has 6 blocks in a dimension where cluster_dims is 4, wanted a multiple"),
    ],
)
def test_clusters_that_do_not_exist(blocks, dims, message):
    with pytest.raises(ValueError, match=message):
        clustered(blocks, dims)


def test_indices_and_extents_of_clusters():
    @T.prim_func
    def main(A: T.Tensor((4, 6, 8), "int32")):
        with T.ClusterKernel(4, 6, cluster_dims=(2, 3), threads=32) as (bx, by):
            cx, cy, cz = T.get_cluster_ids()
            values = [
                *T.get_cluster_dims(),
                T.get_cluster_size(),
                T.get_cluster_id(0) + cz,
                T.get_cluster_id(1) * 10 + cx,
                T.get_cluster_extent(1) * 10 + cy,
                T.get_cluster_extents()[0],
            ]
            if T.get_thread_binding() == 0:
                for i, value in enumerate(values):
                    A[bx, by, i] = value

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    found = torch.zeros(4, 6, 8, dtype=torch.int32)
    kernel(found)
    for x in range(4):
        for y in range(6):
            cx, cy = x // 2, y // 3
            wanted = [2, 3, 1, 6, cx, cy * 10 + cx, 20 + cy, 2]
            assert found[x, y].tolist() == wanted


def test_without_clusters_each_block_is_one(trace):
    trace("assert T.get_cluster_dims() == [1, 1, 1] and T.get_cluster_size() == 1")
    trace("assert T.get_cluster_extents() == [4, 1, 1]")
    with pytest.raises(ValueError, match="dim is 3, wanted 0, 1 or 2"):
        trace("T.get_cluster_id(3)")


def test_chips_without_clusters():
    with pytest.raises(ValueError, match=r"test_cluster_kernel.py:\d+.*found a kernel with cl"):
        tilelang.compile(clustered(8, 2), target="cuda -arch=sm_80", execution_backend="emulate")


def test_a_grid_that_does_not_divide_is_refused_when_it_is_called():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32")):
        with T.ClusterKernel(T.ceildiv(n, 32), cluster_dims=2, threads=32) as bx:
            A[bx * 32 + T.get_thread_binding()] = T.float32(1)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    a = torch.zeros(100)
    with pytest.raises(ValueError, match=r"multiples of the cluster \(2, 1, 1\), got \(3,"):
        kernel(a[:70])
    kernel(a)
    assert a.eq(1).all()


def test_a_kernel_that_waits_for_the_grid_is_launched_cooperatively():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.ClusterKernel(4, cluster_dims=2, threads=16) as bx:
            i = bx * 16 + T.get_thread_binding()
            B[i] = A[i] * 2
            T.call_intrin("handle", "tl.sync_grid")
            A[i] = B[63 - i]
            rank = T.call_intrin("int32", "tl.block_rank_in_cluster")
            S = T.alloc_shared((16,), "int32")
            if rank == 1:
                S[T.get_thread_binding()] = i
                T.sync_threads()
                A[i] = A[i] + S[15 - T.get_thread_binding()]

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    assert kernel.artifact.launch_plan.kernels[0].cooperative
    assert "cooperative" in kernel.get_host_source()
    a, b = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    kernel(a, b)
    i = torch.arange(64, dtype=torch.int32)
    odd = i // 16 % 2 == 1
    assert torch.equal(a, (63 - i) * 2 + odd * (i // 16 * 16 + 15 - i % 16))
