"""LowerSharedBarrier: what stands in front of a kernel that uses mbarriers, and at its end."""

import tilelang.language as T


def kernel(counts, remote=False, clustered=False, allocate=T.alloc_barrier, threads=128):
    @T.prim_func
    def main():
        with T.Kernel(4, threads=threads, cluster_dims=2 if clustered else None):
            bars = allocate(counts)
            if remote:
                T.mbarrier_arrive(bars[0], 0)
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
