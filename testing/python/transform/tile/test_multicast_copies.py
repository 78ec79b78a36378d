"""Tiles that the blocks of a cluster load alike: each block loads a part for all of them."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
pytestmark = pytest.mark.usefixtures("on_sm_90a")
PER_BLOCK = "by each block of a cluster for itself: "


def compiled(program, **options):
    return tilelang.compile(program, target=HOPPER, **options)


def gemm(M, N, K, cluster, transpose_B=True, panel=0):
    """Blocks of a cluster are neighbours in the first dimension of the grid, that of M."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float16),
        B: T.Tensor((N, K) if transpose_B else (K, N), T.float16),
        C: T.Tensor((M, N), T.float32),
    ):
        grid = T.ceildiv(M, 64), T.ceildiv(N, 64)
        with T.Kernel(*grid, threads=128, cluster_dims=cluster) as (by, bx):
            T.use_swizzle(max(1, panel), enable=panel > 0)
            A_shared = T.alloc_shared((64, 64), T.float16)
            B_shared = T.alloc_shared((64, 64), T.float16)
            C_local = T.alloc_fragment((64, 64), T.float32)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
                T.copy(A[by * 64, k * 64], A_shared)
                if transpose_B:
                    T.copy(B[bx * 64, k * 64], B_shared)
                else:
                    T.copy(B[k * 64, bx * 64], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=transpose_B)
            T.copy(C_local, C[by * 64, bx * 64])

    return main


def check(kernel, M, N, K, transpose_B=True):
    a, b = torch.randn(M, K).half(), torch.randn(*((N, K) if transpose_B else (K, N))).half()
    c = torch.full((M, N), float("nan"))
    kernel(a, b, c)
    wanted = a.double() @ (b.double().T if transpose_B else b.double())
    assert (c.double() - wanted).norm() < 1e-5 * wanted.norm()


def loads(kernel):
    return [line.strip() for line in kernel.get_kernel_source().splitlines() if "tma_load" in line]


@pytest.mark.parametrize("transpose_B", [True, False])
@pytest.mark.parametrize("cluster", [2, 4, (2, 1, 1), (1, 2)])
def test_each_block_loads_a_part_of_what_all_need(cluster, transpose_B):
    M, N, K = 240, 200, 136
    kernel = compiled(gemm(M, N, K, cluster, transpose_B))
    source = kernel.get_kernel_source()
    blocks = 4 if cluster == 4 else 2
    shared, own = ("A_desc", "B_desc") if cluster == (1, 2) else ("B_desc", "A_desc")
    (multicast,) = [line for line in loads(kernel) if "multicast" in line]
    assert f"({shared}, " in multicast
    assert f", {2**blocks - 1}, " in multicast
    assert any(f"tl::tma_load<tl::evict_normal>({own}, " in line for line in loads(kernel))
    # Room for the tile is in all blocks: warps of all of them arrive.
    arrival = rf"tl::mbarrier_arrive_warp_cluster\(A_shared_empty \+ \(k \+ \d\) % \d, {blocks}\)"
    assert re.search(arrival, source)
    assert re.search(rf"tl::mbarrier_init\(A_shared_empty( \+ i)?, {4 * blocks}\)", source)
    # No block may leave while others still signal to it.
    assert source.rindex("tl::cluster_sync()") > source.rindex("mbarrier_arrive_warp_cluster")
    assert f"a part by each of the {blocks} blocks of a cluster" in str(kernel.explain())
    assert PER_BLOCK + "its place depends on the block" in str(kernel.explain())
    check(kernel, M, N, K, transpose_B)


def test_what_depends_on_both_axes_of_a_cluster_is_loaded_by_each():
    kernel = compiled(gemm(128, 128, 128, (2, 2)))
    assert not any("multicast" in line for line in loads(kernel))
    assert "mbarrier_arrive_warp_cluster" not in kernel.get_kernel_source()
    check(kernel, 128, 128, 128)


def test_blocks_in_another_order_than_the_grids_load_for_themselves():
    kernel = compiled(gemm(256, 256, 128, 2, panel=2))
    assert not any("multicast" in line for line in loads(kernel))
    assert PER_BLOCK + "T.use_swizzle" in str(kernel.explain())
    check(kernel, 256, 256, 128)


def test_a_slot_of_each_block_is_filled_by_it():
    @T.prim_func
    def main(A: T.Tensor((4, 64, 64), T.float16), C: T.Tensor((4, 2, 64, 64), T.float16)):
        with T.Kernel(4, threads=128, cluster_dims=2) as block:
            S = T.alloc_shared((2, 64, 64), T.float16)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, :, :], S[block % 2, :, :])
                for i, j in T.Parallel(64, 64):
                    C[k, block % 2, i, j] = S[block % 2, i, j]

    kernel = compiled(main)
    assert not any("multicast" in line for line in loads(kernel))
    a, c = torch.randn(4, 64, 64).half(), torch.zeros(4, 2, 64, 64).half()
    kernel(a, c)
    assert torch.equal(c, a[:, None].expand(4, 2, 64, 64))


def batched(loop_of, rows=64):
    """Blocks of a cluster share the rows of B; how many depends on `loop_of`."""

    @T.prim_func
    def main(
        B: T.Tensor((4, 512, 64), T.float16),
        counts: T.Tensor((8,), T.int32),
        C: T.Tensor((8, rows, 64), T.float32),
    ):
        with T.Kernel(8, threads=128, cluster_dims=2) as block:
            B_shared = T.alloc_shared((rows, 64), T.float16)
            total = T.alloc_fragment((rows, 64), T.float32)
            T.clear(total)
            pair = block // 2
            steps = T.alloc_var(T.int32)
            steps = counts[loop_of(block)]
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(B[pair, k * rows : (k + 1) * rows, :], B_shared)
                for i, j in T.Parallel(rows, 64):
                    total[i, j] += B_shared[i, j] * (block % 2 + 1)
            T.copy(total, C[block, :, :])

    return main


def check_batched(kernel, counts, loop_of, rows=64):
    b = torch.randn(4, 512, 64).half()
    c = torch.full((8, rows, 64), float("nan"))
    kernel(b, torch.tensor(counts, dtype=torch.int32), c)
    for block in range(8):
        used = b[block // 2, : counts[loop_of(block)] * rows].float().reshape(-1, rows, 64)
        torch.testing.assert_close(c[block], used.sum(0) * (block % 2 + 1))


def test_a_count_that_the_cluster_agrees_on():
    kernel = compiled(batched(lambda block: block // 2))
    assert all("multicast" in line for line in loads(kernel))
    check_batched(kernel, [3, 0, 8, 1, 0, 0, 0, 0], lambda block: block // 2)


def test_a_count_of_each_block_keeps_loads_apart():
    kernel = compiled(batched(lambda block: block))
    assert not any("multicast" in line for line in loads(kernel))
    assert PER_BLOCK + "loops or branches around it depend on the block" in str(kernel.explain())
    check_batched(kernel, [3, 0, 8, 1, 2, 2, 0, 1], lambda block: block)


def test_a_tile_without_parts_is_loaded_whole():
    # 63 rows have no half, and half of a row of 128 bytes is no row of its swizzle.
    kernel = compiled(batched(lambda block: block // 2, rows=63))
    assert not any("multicast" in line for line in loads(kernel))
    wanted = PER_BLOCK + "TMA does not load a part of it for each block"
    assert wanted in str(kernel.explain())
    check_batched(kernel, [3, 0, 8, 1, 0, 0, 0, 0], lambda block: block // 2, rows=63)


def test_persistent_tiles_of_clusters():
    M, N, K, blocks = 250, 200, 136, 4

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float16),
        B: T.Tensor((K, N), T.float16),
        C: T.Tensor((M, N), T.float32),
    ):
        with T.Kernel(blocks, threads=128, cluster_dims=2) as block:
            A_shared = T.alloc_shared((64, 32), T.float16)
            B_shared = T.alloc_shared((32, 64), T.float16)
            C_local = T.alloc_fragment((64, 64), T.float32)
            tiles = [T.ceildiv(M, 128), T.ceildiv(N, 64)]
            for pair, bx in T.Persistent(tiles, blocks // 2, block // 2):
                by = pair * 2 + block % 2
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, 32), num_stages=3):
                    T.copy(A[by * 64, k * 32], A_shared)
                    T.copy(B[k * 32, bx * 64], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                T.copy(C_local, C[by * 64, bx * 64])

    kernel = compiled(main)
    assert sum("multicast" in line for line in loads(kernel)) == 1
    check(kernel, M, N, K, transpose_B=False)


def scheduled(rows, depth):
    """Two blocks of a cluster, `rows` of A apart, whose schedule has two roles that load."""
    plan = T.WSSchedule(
        num_warps=12,
        roles={name: T.WSRole(4 * i, 4 * i + 4) for i, name in enumerate(["a", "b", "mma"])},
        pipelines={name: T.WSPipeline(depth) for name in ("as", "bs")},
        scopes=[
            T.WSScope(
                "loop",
                {"a": ["load_a"], "b": ["load_b"], "mma": ["product"]},
                [T.WSSync("load_a", "product", "as"), T.WSSync("load_b", "product", "bs")],
            ),
            T.WSScope(None, {"mma": ["clear", "store"]}),
        ],
    )

    @T.prim_func
    def main(
        A: T.Tensor((128, 320), T.float16),
        B: T.Tensor((64, 320), T.float16),
        C: T.Tensor((128, 64), T.float32),
    ):
        with T.Kernel(2, threads=32 * plan.num_warps, cluster_dims=2) as block:
            T.annotate_ws_schedule(plan)
            A_shared = T.alloc_shared((64, 64), T.float16)
            B_shared = T.alloc_shared((64, 64), T.float16)
            C_local = T.alloc_fragment((64, 64), T.float32)
            T.fill(C_local, 0, annotations={T.WSID: "clear"})
            for k in T.Pipelined(5, annotations={T.WSID: "loop"}):
                T.copy(A[block * rows, k * 64], A_shared, annotations={T.WSID: "load_a"})
                T.copy(B[0, k * 64], B_shared, annotations={T.WSID: "load_b"})
                with T.ws_op("product"):
                    T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[block * 64, 0], annotations={T.WSID: "store"})

    return main


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("rows", "shared"), [(64, "B"), (0, "AB")])
def test_roles_of_a_schedule_share_tiles(rows, shared, depth):
    kernel = compiled(scheduled(rows, depth))
    assert all(f"({n}_desc" in line for n, line in zip("AB", loads(kernel), strict=True))
    parts = ["multicast" in line for line in loads(kernel)]
    assert parts == [name in shared for name in "AB"]
    a, b = torch.randint(-4, 5, (128, 320)).half(), torch.randint(-4, 5, (64, 320)).half()
    c = torch.full((128, 64), float("nan"))
    kernel(a, b, c)
    rows_of = torch.cat([a[:64], a[rows : rows + 64]])
    assert torch.equal(c, (rows_of.double() @ b.double().T).float())
