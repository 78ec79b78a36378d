"""Accesses that nothing orders: each defect is found where it is, its correct twin is silent."""

import pytest

S = "auto s = tl::shared<float, 64>(buf_dyn_shmem + 0);\n"
CP_ASYNC = (
    S
    + """tl::cp_async_gs<4>(s + tx, y + tx);  // before
tl::cp_async_commit();
tl::cp_async_wait<0>();
__syncthreads();
x[tx] = s[63 - tx];  // now"""
)
STAGES = """auto s = tl::shared<float, 128>(buf_dyn_shmem + 0);
tl::cp_async_gs<4>(s + tx, y + tx);
tl::cp_async_commit();
for (int i = 0; i < 3; ++i) {
  tl::cp_async_gs<4>(s + (i + 1) % 2 * 64 + tx, y + 64 * i + tx);  // issue
  tl::cp_async_commit();
  tl::cp_async_wait<1>();
  __syncthreads();
  x[tx] += s[i % 2 * 64 + (tx ^ 33)];  // use
  __syncthreads();
}"""
FLAG = """int* flag = (int*)(buf_dyn_shmem + 512);
auto s = tl::shared<float, 64>(buf_dyn_shmem + 0);
if (tx == 0) *flag = 0;
__syncthreads();
if (tx < 32) s[tx] = y[tx];  // before
tl::sync_warp(0xffffffffu);
if (tx == 0) tl::atomic_store<tl::release>(flag, 1);
while (tx >= 32 && tl::atomic_load<tl::acquire>(flag) == 0) {}
if (tx >= 32) x[tx] = s[tx - 32];  // now"""
MATRIX = """auto s = tl::shared<half_t, 64>(buf_dyn_shmem + 0);
tl::local<uint32_t, 1> r;
r[0] = tx;
tl::ptx_stmatrix_x1(s + tx % 8 * 8, r);  // before
tl::sync_warp(0xffffffffu);
tl::ptx_ldmatrix_x1(s + (7 - tx % 8) * 8, r);  // now
x[tx] = float(r[0]);"""
# The thread that comes last to a barrier goes on first: the others come to their waits late.
LATE = """uint64_t* full = (uint64_t*)(buf_dyn_shmem + 512);
auto s = tl::shared<float, 64>(buf_dyn_shmem + 0);
if (tx == 0) tl::mbarrier_init(full, 1);
__syncthreads();
for (int k = 0; tx == 63 && k < 1; ++k) {
  tl::mbarrier_arrive_expect_tx(full, 256);
  tl::bulk_load(s, y + 64 * k, 256, full);  // before
  tl::mbarrier_wait(full, k & 1);
}
tl::mbarrier_wait(full, 0);
x[tx] = s[tx];  // now"""
# A late wait that could pass with the first phase or the third one, but for what `other` tells.
KNOWN = """uint64_t* full = (uint64_t*)(buf_dyn_shmem + 512);
uint64_t* other = full + 1;
auto s = tl::shared<float, 64>(buf_dyn_shmem + 0);
if (tx == 0) tl::mbarrier_init(full, 1), tl::mbarrier_init(other, 1);
__syncthreads();
if (tx == 63) {
  tl::mbarrier_arrive(full);  // first
  {second}
  s[0] = 1;  // before
  tl::mbarrier_arrive(full);
} else if (tx == 0) {
  tl::mbarrier_wait(other, 0);
  tl::mbarrier_wait(full, 0);
  x[0] = s[0];  // now
}"""
ARRIVAL = "tl::mbarrier_arrive(full);\n  tl::mbarrier_arrive(other);"
COPY = """tl::mbarrier_arrive_expect_tx(full, 16);
  tl::bulk_load(s + 32, y, 16, full);
  tl::mbarrier_wait(full, 1);
  tl::mbarrier_arrive(other);"""

CASES = {
    "a read behind a write": {
        "body": S + "s[tx] = y[tx];  // before\n__syncthreads();\nx[tx] = s[63 - tx];  // now",
        "old": "__syncthreads();",
        "new": "",
        "buffer": "s + ",
        "missing": "a barrier for both threads",
    },
    "a write behind a read": {
        "body": S
        + "for (int i = 0; i < 3; ++i) {\n  s[tx] = y[tx] + i;  // now\n  __syncthreads();\n"
        + "  x[tx] = s[63 - tx];  // before\n  __syncthreads(); }",
        "old": "__syncthreads(); }",
        "new": "}",
    },
    "a read behind a wait that a later phase of the same parity lets pass": {
        "body": LATE,
        "old": "k < 1",
        "new": "k < 3",
        "buffer": "s + ",
    },
    "a read behind a late wait, of whose phases another mbarrier announces the arrivals": {
        "body": KNOWN.replace("{second}", ARRIVAL),
        "old": ARRIVAL,
        "new": "\n".join(reversed(ARRIVAL.split("\n"))),
        "buffer": "s + ",
    },
    "a read behind a late wait, of whose phases another mbarrier announces a copy": {
        "body": KNOWN.replace("{second}", COPY),
        "old": "tl::mbarrier_wait(full, 1);\n  tl::mbarrier_arrive(other);",
        "new": "tl::mbarrier_arrive(other);\n  tl::mbarrier_wait(full, 1);",
        "buffer": "s + ",
    },
    "a write behind a write": {
        "body": S + "s[tx] = y[tx];  // before\n__syncthreads();\ns[63 - tx] = x[tx];  // now",
        "old": "__syncthreads();",
        "new": "",
    },
    "another barrier": {
        "body": S
        + "const int id = tx < 32 ? 3 : 3;\ns[tx] = y[tx];  // before\n"
        + "tl::sync_threads_partial(id, tx < 64 ? 64 : 32);\nx[tx] = s[63 - tx];  // now",
        "old": "tl::sync_threads_partial(id, tx < 64 ? 64 : 32)",
        "new": "tl::sync_threads_partial(id + tx / 32, 32)",
    },
    "arrival without a wait": {
        "body": S
        + "if (tx < 32) s[tx] = y[tx];  // before\nif (tx < 32) tl::named_barrier_arrive(1, 64);\n"
        + "else tl::sync_threads_partial(1, 64);\nif (tx >= 32) x[tx] = s[tx - 32];  // now",
        "old": "if (tx < 32) tl::named_barrier_arrive(1, 64);\n"
        "else tl::sync_threads_partial(1, 64);",
        "new": "if (tx >= 32) tl::named_barrier_arrive(1, 64);\n"
        "else tl::sync_threads_partial(1, 64);",
    },
    "lanes of a warp": {
        "body": S
        + "s[tx] = y[tx];  // before\ntl::sync_warp(0xffffffffu);\nx[tx] = s[tx ^ 1];  // now",
        "old": "tl::sync_warp(0xffffffffu)",
        "new": "x[tx] = tl::warp_broadcast<0>(x[tx])",
    },
    "a copy without its wait": {
        "body": CP_ASYNC,
        "old": "tl::cp_async_wait<0>();",
        "new": "",
        "missing": "a wait for the copy in the thread that issued it",
    },
    "a copy whose wait no barrier follows": {
        "body": CP_ASYNC,
        "old": "__syncthreads();",
        "new": "",
        "missing": "a barrier behind it",
    },
    "a copy that is not committed": {"body": CP_ASYNC, "old": "tl::cp_async_commit();", "new": ""},
    "a wait for one group too few": {
        "body": STAGES.replace("// issue", "// before").replace("// use", "// now"),
        "old": "wait<1>",
        "new": "wait<2>",
    },
    "a stage that is filled while it is read": {
        "body": STAGES.replace("// issue", "// now").replace("// use", "// before"),
        "old": "__syncthreads();\n}",
        "new": "}",
        "missing": "a barrier for both threads",
    },
    "two blocks": {
        "body": "__syncthreads();\nx[tx + 64 * bx] = y[tx] + bx;  // now",
        "old": "64 * bx",
        "new": "0",
        "grid": 2,
        "buffer": "argument 0[",
        "missing": "atomic operations",
    },
    "an update that is not atomic": {
        "body": "__syncthreads();\ntl::atomic_add<tl::relaxed>(x, 1.0f);  // now",
        "old": "tl::atomic_add<tl::relaxed>(x, 1.0f);",
        "new": "*x = *x + 1.0f;",
    },
    "a plain read beside atomics": {
        "body": "tl::atomic_add<tl::relaxed>(x, 1.0f);  // before\n__syncthreads();\n"
        "x[tx + 64] = x[0];  // now",
        "old": "__syncthreads();",
        "new": "",
    },
    "a flag without release": {"body": FLAG, "old": "tl::release", "new": "tl::relaxed"},
    "a flag without acquire": {"body": FLAG, "old": "tl::acquire", "new": "tl::relaxed"},
    "matrices of a warp": {
        "body": MATRIX,
        "old": "tl::sync_warp(0xffffffffu);",
        "new": "",
        "block": 32,
    },
    "buffers that overlap": {
        "body": S
        + "auto t = tl::shared<float, 64>(buf_dyn_shmem + 256);\ns[tx] = y[tx];  // before\n"
        + "t[tx] = x[tx];  // now\nx[tx] = s[tx] + t[tx];",
        "old": "buf_dyn_shmem + 256",
        "new": "buf_dyn_shmem + 128",
        "buffer": "s + ",
    },
    "shared memory of a cluster": {
        "body": S
        + "float* other = (float*)tl::map_shared_rank(&s[0], bx ^ 1);\n"
        + "other[tx] = y[tx];  // before\ntl::cluster_sync();\nx[bx * 64 + tx] = s[tx];  // now\n",
        "old": "tl::cluster_sync();",
        "new": "tl::cluster_arrive_relaxed(); tl::cluster_wait();",
        "missing": "a barrier of the cluster",
        "also": ("ended",),  # nothing orders the store before the other block's exit
        "grid": 2,
        "how": {"cluster": (2, 1, 1)},
    },
    "the grid": {
        "body": "x[bx * 64 + tx] = y[tx];  // before\ntl::sync_grid();\n"
        "x[128 + bx * 64 + tx] = x[(1 - bx) * 64 + tx];  // now",
        "old": "tl::sync_grid();",
        "new": "__syncthreads();",
        "grid": 2,
        "how": {"cooperative": True},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_race(name, check):
    check(kind="race", **CASES[name])


def test_writes_that_change_nothing_are_no_race(check):
    check(
        body=S + "s[tx / 2] = y[tx / 2];  // now\n__syncthreads();\nx[tx] = s[tx / 2];",
        old="y[tx / 2]",
        new="y[tx]",
        kind="race",
    )
