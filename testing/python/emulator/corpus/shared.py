"""Shared memory and arrays of one block: barriers, warps, indices, vectors."""

import numpy as np

from .kit import Base, Defect, Launch


def row_sums() -> Launch:
    a, b = np.random.default_rng(0).standard_normal((3, 128)).astype(np.float32), np.zeros(3, "f")
    return Launch([a, b], [(b, a.sum(1))])


def vectors() -> Launch:
    a = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    b = np.zeros_like(a)
    return Launch([a, b], [(b, a * a.sum(1, keepdims=True))])


def handoff() -> Launch:
    a = np.arange(6 * 32, dtype=np.float32).reshape(6, 32)
    b = np.zeros_like(a)
    return Launch([a, b], [(b, a[:, ::-1])])


def reuse() -> Launch:
    a = np.random.default_rng(0).standard_normal((2, 256)).astype(np.float32)
    b = np.zeros_like(a)
    return Launch([a, b], [(b, a * a[:, :2].sum(1, keepdims=True))])


BASES = {
    "row sums": Base.of_file("row_sums", row_sums, block=128, shared=528),
    "vectors": Base.of_file("vectors", vectors),
    "handoff": Base.of_file("handoff", handoff),
    "ping-pong": Base.of_file("ping_pong", handoff),
    "reuse": Base.of_file("reuse", reuse),
}

BARRIER = "a barrier"
ROW, SUMS = "__syncthreads();  // the row is there", "__syncthreads();  // the sums are there"
FULL = "tl::named_barrier_arrive(1 + i % 2, 64);  // it is full"
WAIT_FULL = "tl::sync_threads_partial(1 + i % 2, 64);  // wait until it is full"
EMPTY = "tl::named_barrier_arrive(3 + i % 2, 64);  // it is empty"
READ = "B[(i * 2 + group) * 32 + lane] = scratch[31 - lane];  // use"
TURN = "tl::named_barrier_arrive(2 - group, 64);  // give the turn"

DEFECTS = {
    "no barrier between write and read": Defect(
        "row sums", ROW, "", "race", ("// fill", "// use"), "A_shared + ", BARRIER
    ),
    "no barrier between read and write": Defect(
        "row sums", SUMS, "", "race", ("// use", "// fill"), "A_shared + ", BARRIER
    ),
    "no barrier before the sums are read": Defect(
        "row sums", SUMS, "", "race", ("// partial sum", "// whole sum"), "sums + ", BARRIER
    ),
    "all warps write one sum": Defect(
        "row sums",
        "sums[warp] =",
        "sums[0] =",
        "race",
        ("// partial sum", "// partial sum"),
        "sums + 0",
        BARRIER,
    ),
    "barrier before the write": Defect(
        "row sums",
        "    A_shared[tx] = A[row * 128 + tx];  // fill\n    __syncthreads();",
        "    __syncthreads();\n    A_shared[tx] = A[row * 128 + tx];  // fill",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        BARRIER,
    ),
    "barrier for half of the threads": Defect(
        "row sums",
        ROW,
        "if (tx < 64) __syncthreads();",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        BARRIER,
        also=("failure",),
    ),
    "named barrier that counts half of the threads": Defect(
        "row sums",
        ROW,
        "tl::sync_threads_partial(1, 64);",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        BARRIER,
    ),
    "named barrier that counts too many threads": Defect(
        "row sums",
        ROW,
        "tl::sync_threads_partial(1, 160);  // the row is there",
        "failure",
        ("// the row is there",),
        "barrier 1",
    ),
    "a barrier for each half": Defect(
        "row sums",
        ROW,
        "tl::sync_threads_partial(1 + tx / 64, 64);",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        BARRIER,
    ),
    "shared index one too far": Defect(
        "row sums",
        "A_shared[127 - tx]",
        "A_shared[128 - tx]",
        "out-of-bounds",
        ("// use",),
        "A_shared + 128",
        also=("uninitialized", "race"),
    ),
    "negative shared index": Defect(
        "row sums",
        "A_shared[127 - tx]",
        "A_shared[126 - tx]",
        "out-of-bounds",
        ("// use",),
        "A_shared - 1",
        also=("uninitialized", "race"),
    ),
    "global index one too far": Defect(
        "row sums",
        "A[row * 128 + tx]",
        "A[row * 128 + tx + 1]",
        "out-of-bounds",
        ("// fill",),
        "argument 0[3, 0]",
    ),
    "negative global index": Defect(
        "row sums",
        "A[row * 128 + tx]",
        "A[row * 128 + tx - 1]",
        "out-of-bounds",
        ("// fill",),
        "argument 0[-1, 127]",
    ),
    "overlapping buffers": Defect(
        "row sums",
        "buf_dyn_shmem + 512",
        "buf_dyn_shmem + 508",
        "race",
        ("// fill", "// whole sum"),
        "sums + 0",
        BARRIER,
    ),
    "shared memory that nobody wrote": Defect(
        "row sums",
        "    A_shared[tx] = A",
        "    if (tx != 77) A_shared[tx] = A",
        "uninitialized",
        ("// use",),
        "A_shared + 77",
    ),
    "register that nobody wrote": Defect(
        "row sums",
        "total[0] = A_shared",
        "total[1] = A_shared",
        "uninitialized",
        ("// shuffle",),
        "total + 0",
    ),
    "shuffle in half of the lanes": Defect(
        "row sums",
        "      total[0] += tl::shfl",
        "      if (lane < 16) total[0] += tl::shfl",
        "failure",
        ("// shuffle",),
        "shfl_xor_sync",
    ),
    "shuffle whose mask lacks its lane": Defect(
        "row sums", "0xffffffffu", "0x0000ffffu", "failure", ("// shuffle",), "0000ffff"
    ),
    "shuffles of different masks": Defect(
        "row sums",
        "0xffffffffu",
        "(lane < 16 ? 0x0000ffffu : 0xffffffffu)",
        "failure",
        ("// shuffle",),
        "0000ffff",
    ),
    "thread that leaves before the others shuffle": Defect(
        "row sums",
        "    total[0] = A_shared",
        "    if (tx == 9) return;\n    total[0] = A_shared",
        "failure",
        ("// shuffle",),
        "reads lane 9 of its warp, which has exited",
    ),
    "misaligned vector": Defect(
        "vectors",
        "tl::load<float, 4>(A + tx * 8 + i * 4)",
        "tl::load<float, 4>(A + tx * 8 + i * 4 + 1)",
        "failure",
        ("// load",),
        "16",
    ),
    "vector behind the end": Defect(
        "vectors",
        "tl::store(B + tx * 8 + i * 4",
        "tl::store(B + tx * 8 + i * 8",
        "out-of-bounds",
        ("// store",),
        "argument 1[64, 0]",
        also=("race",),
    ),
    "local index one too far": Defect(
        "vectors",
        "i < 8; ++i) {\n    sum[0]",
        "i <= 8; ++i) {\n    sum[0]",
        "out-of-bounds",
        ("// add",),
        "row + 8",
        also=("uninitialized",),
    ),
    "negative local index": Defect(
        "vectors",
        "row[i] = row[i] *",
        "row[i - 1] = row[i] *",
        "out-of-bounds",
        ("// scale",),
        "row - 1",
    ),
    "vector of registers that nobody wrote": Defect(
        "vectors",
        "tl::store(row + i * 4, tl::load",
        "tl::store(row + 0, tl::load",
        "uninitialized",
        ("// add",),
        "row + 4",
    ),
    "sum without its beginning": Defect(
        "vectors", "  sum[0] = 0.0f;\n", "", "uninitialized", ("// add",), "sum + 0"
    ),
    "buffer filled before it is empty": Defect(
        "handoff",
        "if (i >= 2) tl::sync_threads_partial(3 + i % 2, 64);",
        "",
        "race",
        ("// fill", "// use"),
        "buffers + ",
        BARRIER,
        also=("failure",),
    ),
    "buffer used before it is full": Defect(
        "handoff", WAIT_FULL, "", "race", ("// fill", "// use"), "buffers + ", also=("failure",)
    ),
    "full before the buffer is filled": Defect(
        "handoff",
        f"buffers[i % 2 * 32 + lane] = A[i * 32 + lane];  // fill\n      {FULL}",
        f"{FULL}\n      buffers[i % 2 * 32 + lane] = A[i * 32 + lane];  // fill",
        "race",
        ("// fill", "// use"),
        "buffers + ",
        BARRIER,
    ),
    "empty before the buffer is used": Defect(
        "handoff",
        f"B[i * 32 + lane] = buffers[i % 2 * 32 + 31 - lane];  // use\n      if (i < 4) {EMPTY}",
        f"if (i < 4) {EMPTY}\n      B[i * 32 + lane] = buffers[i % 2 * 32 + 31 - lane];  // use",
        "race",
        ("// fill", "// use"),
        "buffers + ",
        BARRIER,
    ),
    "arrival at another named barrier": Defect(
        "handoff",
        "arrive(1 + i % 2, 64)",
        "arrive(1, 64)",
        "failure",
        ("until it is full",),
        ": 32 of 64",
    ),
    "lost arrival at a named barrier": Defect(
        "handoff", "if (i < 4) tl::", "if (i < 3) tl::", "failure", ("until it is empty",), "of 64"
    ),
    "named barrier with two counts": Defect(
        "handoff", "arrive(1 + i % 2, 64)", "arrive(1 + i % 2, 96)", "failure", ("full",), "96"
    ),
    "named barrier that does not exist": Defect(
        "handoff",
        "3 + i % 2, 64);  // wait",
        "16 + i % 2, 64);  // wait",
        "failure",
        ("until it is empty",),
        "16",
    ),
    "no wait for the turn": Defect(
        "ping-pong",
        "tl::sync_threads_partial(1 + group, 64);",
        "{}",
        "race",
        ("// fill", "// use"),
        "scratch + ",
    ),
    "turn given before the buffer is used": Defect(
        "ping-pong",
        f"{READ}\n    if (i < 2 || group == 0) {TURN}",
        f"if (i < 2 || group == 0) {TURN}\n    {READ}",
        "race",
        ("// fill", "// use"),
        "scratch + ",
        BARRIER,
    ),
    "turn given to oneself": Defect(
        "ping-pong",
        "arrive(2 - group, 64)",
        "arrive(1 + group, 64)",
        "failure",
        ("// wait for the turn",),
        "of 64",
    ),
    "shared memory used again without a barrier": Defect(
        "reuse",
        "__syncthreads();  // the firsts are read",
        "",
        "race",
        ("// first use", "// fill"),
        "+ 0",
        BARRIER,
    ),
    "shared memory written again while it is read": Defect(
        "reuse",
        "__syncthreads();  // the rows are read",
        "",
        "race",
        ("// first fill", "// use"),
        "rows + ",
        BARRIER,
    ),
    "vector that leaves its buffer": Defect(
        "reuse",
        "tl::store(rows + tx * 4",
        "tl::store(rows + tx * 4 + (tx == 63 ? 4 : 0)",
        "out-of-bounds",
        ("// fill",),
        "rows + 256",
    ),
    "lanes of a warp without a barrier": Defect(
        "ping-pong",
        "    tl::sync_warp(0xffffffffu);\n",
        "",
        "race",
        ("// fill", "// use"),
        "scratch + ",
    ),
    "barrier of half of a warp": Defect(
        "ping-pong",
        "tl::sync_warp(0xffffffffu)",
        "tl::sync_warp(lane < 16 ? 0x0000ffffu : 0xffff0000u)",
        "race",
        ("// fill", "// use"),
        "scratch + ",
        also=("failure",),
    ),
}
