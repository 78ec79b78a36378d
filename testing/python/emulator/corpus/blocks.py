"""Blocks of a launch: flags, atomic operations, the grid's barrier, clusters."""

import numpy as np

from .kit import Base, Defect, Launch


def histogram() -> Launch:
    a, b = np.random.default_rng(0).integers(0, 32, 128, np.int32), np.zeros(32, np.int32)
    return Launch([a, b], [(b, np.bincount(31 - a, minlength=32))])


def flag() -> Launch:
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    row, ready, b = np.zeros(64, np.float32), np.zeros(1, np.int32), np.zeros(64, np.float32)
    return Launch([a, row, ready, b], [(b, a[::-1])])


def last_block() -> Launch:
    a = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    partial, done, b = np.zeros_like(a), np.zeros(1, np.int32), np.zeros(64, np.float32)
    return Launch([a, partial, done, b], [(b, 2 * a.sum(0))])


def two_phases() -> Launch:
    a = np.random.default_rng(0).standard_normal(96).astype(np.float32)
    sums, b = np.zeros_like(a), np.zeros_like(a)
    once = a + np.roll(a, -1)
    return Launch([a, sums, b], [(b, once + np.roll(once, -1))])


def cluster_sum() -> Launch:
    a = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    b = np.zeros_like(a)
    return Launch([a, b], [(b, a + a[::-1, ::-1])])


def multicast() -> Launch:
    a = np.random.default_rng(0).standard_normal((4, 128)).astype(np.float32)
    b = np.zeros((2, 4, 64), np.float32)
    return Launch([a, b], [(b, np.stack([a[:, :64] + a[:, :63:-1]] * 2))])


def cluster_mbarriers() -> Launch:
    a = np.random.default_rng(0).standard_normal((4, 128)).astype(np.float32)
    b = np.zeros((2, 64), np.float32)
    sums = a[0, :64] + a[0, :63:-1]
    for row in a[1:]:
        sums = sums + (row[:64] + row[:63:-1])
    return Launch([a, b], [(b, np.stack([sums[::-1]] * 2))])


BASES = {
    "histogram": Base.of_file("histogram", histogram, grid=2),
    "flag": Base.of_file("flag", flag, grid=2),
    "last block": Base.of_file("last_block", last_block, grid=4),
    "two phases": Base.of_file("two_phases", two_phases, grid=3, block=32, cooperative=True),
    "cluster sum": Base.of_file("cluster_sum", cluster_sum, grid=2, cluster=2, arch="sm_90"),
    "multicast": Base.of_file("multicast", multicast, grid=2, cluster=2, arch="sm_90"),
    "cluster mbarriers": Base.of_file(
        "cluster_mbarriers", cluster_mbarriers, grid=2, cluster=2, arch="sm_90"
    ),
}

COUNT = "tl::atomic_add<tl::relaxed>(counts + A[blockIdx.x * 64 + tx], 1);"
ADD = "tl::atomic_add<tl::relaxed>(B + tx, counts[31 - tx]);"
FENCE = "    tl::fence_proxy_async();  // what was read may be overwritten\n"
RELEASE = "tl::mbarrier_arrive_remote(empty, other);  // it is empty"
USE = "B[(rank * 4 + k) * 64 + tx] = A_shared[tx] + A_shared[127 - tx];  // use"

DEFECTS = {
    "count that is not atomic": Defect(
        "histogram",
        COUNT,
        "counts[A[blockIdx.x * 64 + tx]] += 1;",
        "race",
        ("// count", "// count"),
        "counts + ",
    ),
    "sum over blocks that is not atomic": Defect(
        "histogram",
        ADD,
        "B[tx] += counts[31 - tx];",
        "race",
        ("// add", "// add"),
        "argument 1[",
    ),
    "counts before they are zero": Defect(
        "histogram",
        "__syncthreads();  // zeros are there",
        "",
        "race",
        ("// zero", "// count"),
        "counts + ",
        also=("uninitialized",),
    ),
    "counts read before all have counted": Defect(
        "histogram",
        "__syncthreads();  // counts are there",
        "",
        "race",
        ("// count", "// add"),
        "counts + ",
    ),
    "count behind the end": Defect(
        "histogram",
        "counts + A[blockIdx.x * 64 + tx]",
        "counts + A[blockIdx.x * 64 + tx] + 1",
        "out-of-bounds",
        ("// count",),
        "counts + 32",
        also=("uninitialized",),
    ),
    "count that nobody began": Defect(
        "histogram",
        "if (tx < 32) counts",
        "if (tx < 31) counts",
        "uninitialized",
        ("// count",),
        "counts + 31",
    ),
    "flag that does not release": Defect(
        "flag",
        "tl::release",
        "tl::relaxed",
        "race",
        ("// write", "// read"),
        "argument 1[",
    ),
    "flag that does not acquire": Defect(
        "flag",
        "tl::acquire",
        "tl::relaxed",
        "race",
        ("// write", "// read"),
        "argument 1[",
    ),
    "flag before all have written": Defect(
        "flag",
        "__syncthreads();  // all have written",
        "",
        "race",
        ("// write", "// read"),
        "argument 1[",
    ),
    "flag that only one thread waits for": Defect(
        "flag",
        "__syncthreads();  // all may read",
        "",
        "race",
        ("// write", "// read"),
        "argument 1[",
    ),
    "no flag, as if blocks ran in order": Defect(
        "flag",
        "while (tl::atomic_load<tl::acquire>(ready) == 0) {}",
        "",
        "race",
        ("// write", "// read"),
        "argument 1[",
    ),
    "flag that nobody sets": Defect(
        "flag",
        "(ready, 1)",
        "(ready, 0)",
        "failure",
        ("// poll",),
        "",
    ),
    "ticket that does not release": Defect(
        "last block",
        "tl::acq_rel",
        "tl::acquire",
        "race",
        ("// leave", "// sum"),
        "argument 1[",
    ),
    "ticket that does not acquire": Defect(
        "last block",
        "tl::acq_rel",
        "tl::release",
        "race",
        ("// leave", "// sum"),
        "argument 1[",
    ),
    "ticket before the row is left": Defect(
        "last block",
        "__syncthreads();  // the row is left",
        "",
        "race",
        ("// leave", "// sum"),
        "argument 1[",
    ),
    "ticket that is not atomic": Defect(
        "last block",
        "tl::fetch_add<tl::acq_rel>(done, 1)",
        "(*done)++",
        "race",
        ("// take", "// take"),
        "argument 2[",
    ),
    "ticket read before it is there": Defect(
        "last block",
        "__syncthreads();  // the ticket is there",
        "",
        "race",
        ("// take", "// look"),
        "ticket + 0",
        also=("uninitialized",),
    ),
    "phases with a barrier of each block": Defect(
        "two phases",
        "tl::sync_grid()",
        "__syncthreads()",
        "race",
        ("// first", "// second"),
        "argument 1[",
    ),
    "block that leaves before the grid's barrier": Defect(
        "two phases",
        "  tl::sync_grid();",
        "  if (blockIdx.x == 2) return;\n  tl::sync_grid();",
        "failure",
        ("tl::sync_grid",),
        "of 96 threads",
    ),
    "rows read before they are there": Defect(
        "cluster sum",
        "tl::cluster_sync();  // rows are there",
        "__syncthreads();",
        "race",
        ("// fill", "// read the other row"),
        "mine + ",
        also=("uninitialized",),
    ),
    "arrival that orders nothing": Defect(
        "cluster sum",
        "tl::cluster_sync();  // rows are there",
        "tl::cluster_arrive_relaxed(); tl::cluster_wait();",
        "race",
        ("// fill", "// read the other row"),
        "mine + ",
    ),
    "block that ends while others read it": Defect(
        "cluster sum",
        "tl::cluster_sync();  // rows are read",
        "",
        "ended",
        ("// read the other row",),
        "mine + ",
    ),
    "blocks that end behind a barrier of each": Defect(
        "cluster sum",
        "tl::cluster_sync();  // rows are read",
        "__syncthreads();",
        "ended",
        ("// read the other row",),
        "mine + ",
    ),
    "blocks that end behind an arrival": Defect(
        "cluster sum",
        "tl::cluster_sync();  // rows are read",
        "tl::cluster_arrive();",
        "ended",
        ("// read the other row",),
        "mine + ",
    ),
    "blocks that end behind a barrier that orders nothing": Defect(
        "cluster sum",
        "tl::cluster_sync();  // rows are read",
        "tl::cluster_arrive_relaxed(); tl::cluster_wait();",
        "ended",
        ("// read the other row",),
        "mine + ",
    ),
    "block that is not in the cluster": Defect(
        "cluster sum",
        "rank ^ 1",
        "rank + 1",
        "failure",
        ("// read the other row",),
        "block 2",
    ),
    "row behind the other block's buffer": Defect(
        "cluster sum",
        "[63 - tx];  // read",
        "[64 - tx];  // read",
        "out-of-bounds",
        ("// read the other row",),
        "mine + 64",
        also=("uninitialized", "race"),
    ),
    "cluster that knows nothing of mbarriers": Defect(
        "multicast",
        "tl::cluster_sync();  // the mbarriers are there",
        "__syncthreads();",
        "race",
        ("// fill", "tl::mbarrier_init"),
        "full + 0",
        also=("failure",),
    ),
    "block that ends while others arrive there": Defect(
        "multicast",
        "  tl::cluster_sync();  // all have arrived\n",
        "",
        "failure",
        ("// it is empty",),
        "ended",
        also=("race",),
    ),
    "multicast to this block only": Defect(
        "multicast",
        "256, full, 3)",
        "256, full, 1 << rank)",
        "failure",
        ("// wait until it is full",),
        "256 bytes",
    ),
    "multicast to a block that does not expect it": Defect(
        "multicast",
        "tl::mbarrier_arrive_expect_tx(full, 512);",
        "tl::mbarrier_arrive_expect_tx(full, 512 - 256 * rank);",
        "failure",
        ("// wait until it is full",),
        "bytes",
        also=("race",),
    ),
    "multicast over loads that may be on their way": Defect(
        "multicast",
        FENCE,
        "",
        "race",
        ("// fill", "// use"),
        missing="fence.proxy.async",
    ),
    "multicast over what another block reads": Defect(
        "multicast",
        "tl::mbarrier_wait(empty, (k & 1) ^ 1);",
        "",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        also=("failure",),
    ),
    "release of one's own block only": Defect(
        "multicast",
        "other < 2",
        "other < 1",
        "failure",
        ("// wait until it is empty",),
        "of 128 arrivals",
        also=("race",),
    ),
    "release before use": Defect(
        "multicast",
        f"{USE}\n{FENCE}    for (int other = 0; other < 2; ++other) {{\n      {RELEASE}\n    }}",
        f"for (int other = 0; other < 2; ++other) {{\n      {RELEASE}\n    }}\n    {USE}",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
    ),
    "room that nobody tells of": Defect(
        "cluster mbarriers",
        "tl::mbarrier_wait(room, k & 1);",
        "",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        also=("failure",),
    ),
    "room in front of a fence": Defect(
        "cluster mbarriers",
        FENCE,
        "",
        "race",
        ("// fill", "// use"),
        missing="fence.proxy.async",
    ),
    "release of the block's scope for what others read": Defect(
        "cluster mbarriers",
        "tl::mbarrier_arrive_remote(there",
        "tl::mbarrier_arrive_remote_cta(there",
        "race",
        ("// use", "// read the other sums"),
        "sums + ",
    ),
    "halves at the same place": Defect(
        "multicast",
        "A_shared + rank * 64, A",
        "A_shared, A",
        "race",
        ("// fill", "// fill"),
        "A_shared + ",
        also=("uninitialized",),
    ),
}
