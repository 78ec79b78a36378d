"""LowerSharedBarrier: what stands in front of a kernel that uses mbarriers or tensor maps, and at
its end."""

import re

import pytest

import tilelang
import tilelang.language as T


def kernel(
    counts, remote=False, clustered=False, allocate=T.alloc_barrier, threads=128, scope=None
):
    @T.prim_func
    def main():
        with T.Kernel(4, threads=threads, cluster_dims=2 if clustered else None):
            bars = allocate(counts)
            if remote:
                T.mbarrier_arrive(bars[0], 0, scope=scope)
            else:
                T.mbarrier_arrive(bars[0])
            T.mbarrier_wait_parity(bars[0], 0)

    return main


def lowered(statements, *args, **kwargs):
    text = statements(kernel(*args, **kwargs), "LowerSharedBarrier", arch="sm_90a")
    return text.replace("T.address_of(bars[0])", "bar").replace("T.tl.", "").splitlines()


def test_counts_that_differ(statements):
    assert lowered(statements, [1, 128, 1]) == [
        "if tx == 0:",
        "    mbarrier_init(bar, 1)",
        "    mbarrier_init(T.address_of(bars[1]), 128)",
        "    mbarrier_init(T.address_of(bars[2]), 1)",
        "    fence_barrier_init()",
        'T.tvm_storage_sync("shared")',
        "mbarrier_arrive(bar)",
        "mbarrier_wait(bar, 0)",
    ]


def test_equal_counts_are_a_loop_and_blocks_may_have_three_dimensions(statements):
    assert lowered(statements, [8] * 4, threads=(8, 4, 2))[:4] == [
        "if (tz * 4 + ty) * 8 + tx == 0:",
        "    for i in T.unroll(4):",
        "        mbarrier_init(T.address_of(bars[i]), 8)",
        "    fence_barrier_init()",
    ]


def test_in_a_cluster_all_blocks_wait_for_the_initialisation(statements):
    assert lowered(statements, 1, clustered=True)[3:] == [
        "cluster_sync()",
        "mbarrier_arrive(bar)",
        "mbarrier_wait(bar, 0)",
    ]


def test_no_block_leaves_while_others_may_arrive(statements):
    wanted = ["mbarrier_wait_cluster(bar, 0)", "cluster_sync()"]
    for how in ({"remote": True}, {"allocate": T.alloc_cluster_barrier}):
        assert lowered(statements, 1, clustered=True, **how)[-2:] == wanted
    assert lowered(statements, 1, allocate=T.alloc_cluster_barrier)[3] == (
        'T.tvm_storage_sync("shared")'
    )


def test_a_wait_acquires_nothing_for_the_cluster_where_no_arrival_releases_for_it(statements):
    text = lowered(statements, 1, clustered=True, remote=True, scope="cta")
    assert text[-2:] == ["mbarrier_wait(bar, 0)", "cluster_sync()"]


def copies(loads, n=256):
    @T.prim_func
    def main(
        A: T.Tensor((n, 64), "float16"), B: T.Tensor((n, 64), "float16"), s: T.Tensor((4,), "int32")
    ):
        with T.Kernel(4, threads=128) as bx:
            S = T.alloc_shared((64, 64), "float16")
            if loads:
                T.copy(A[bx * 64, 0], S, prefer_instruction="tma")
                if s[bx] > 0:
                    T.copy(A[s[bx] * 64, 0], S, prefer_instruction="tma")
            else:
                T.clear(S)
            T.copy(S, B[bx * 64, 0])

    return main


@pytest.mark.parametrize("loads", [True, False])
@pytest.mark.parametrize("n", [256, T.dynamic("n")])
def test_one_thread_prefetches_each_tensor_map(loads, n):
    source = tilelang.lower(copies(loads, n), target="cuda -arch=sm_90a").kernel_source
    maps = re.findall(r"CUtensorMap (\w+)", source)
    assert maps == (["A_desc", "B_desc"] if loads else ["B_desc"])
    by_one, *others = re.split(r"(?m)^  if \(tx == 0\) \{\n", source)[1].split("  }\n")
    prefetches = [f"tl::prefetch_tma_descriptor({name});" for name in maps]
    assert [line.strip() for line in by_one.splitlines()][: len(maps)] == prefetches
    assert ("mbarrier_init" in by_one) == loads
    assert "prefetch" not in "".join(others)
