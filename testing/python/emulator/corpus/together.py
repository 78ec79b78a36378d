"""What threads have to do together, and what orders them: aligned barriers, lanes that take part,
order inside of a block, what an mbarrier announces, scopes, fences, functions of the user's."""

import numpy as np

from .kit import Base, Defect, Launch


def warps() -> Launch:
    a = np.arange(64, dtype=np.int32)
    b = np.zeros(128, np.int32)
    neighbours = a.reshape(32, 2)[:, ::-1].ravel() + 1
    return Launch([a, b], [(b, np.concatenate([np.full(64, a.sum() + 2), neighbours]))])


def few_lanes() -> Launch:
    a, b = np.arange(1, 49, dtype=np.int32), np.zeros(48, np.int32)
    groups = a.reshape(3, 16)
    per_group = groups.max(1, keepdims=True) + groups[:, :1]
    up = np.concatenate([groups[:, :1], groups[:, :-1]], 1)
    wanted = (a.sum() + per_group + up + 1).ravel()
    return Launch([a, b], [(b[:47], wanted[:47])])


def in_order() -> Launch:
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    b, c = np.zeros(64, np.float32), np.ones(65, np.float32)
    wanted = (a[::-1] + 1).reshape(32, 2)[:, ::-1].ravel() + 8
    return Launch([a, b, c], [(c, np.concatenate([[4], wanted]))])


def announced() -> Launch:
    a = np.random.default_rng(0).standard_normal((2, 128)).astype(np.float32)
    b = np.zeros(64, np.float32)
    rows = a[:, np.arange(64) ^ 33] + a[:, :63:-1]
    return Launch([a, b], [(b, rows.sum(0))])


def helper() -> Launch:
    a, b = np.arange(128, dtype=np.float32), np.zeros(64, np.float32)
    return Launch([a, b], [(b, 4 * a[8:16].sum() + 2 * a[:63:-1])])


def signals() -> Launch:
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    row, ready, b = np.zeros(64, np.float32), np.zeros(1, np.int32), np.zeros(64, np.float32)
    return Launch([a, row, ready, b], [(b, a[::-1])])


def remote_ring() -> Launch:
    a = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    b = np.zeros_like(a)
    return Launch([a, b], [(b, a[:, ::-1])])


BASES = {
    "warps": Base.of_file("warps", warps),
    "few lanes": Base.of_file("few_lanes", few_lanes, block=48),
    "in order": Base.of_file("in_order", in_order),
    "announced": Base.of_file("announced", announced),
    "helper": Base.of_file("helper", helper),
    "signals": Base.of_file("signals", signals, grid=2),
    "remote ring": Base.of_file("remote_ring", remote_ring, grid=2, cluster=2),
}

FULL = "0xffffffffu"
SUMS = "__syncthreads();  // the sums are there"
SECOND = (
    "    tl::cp_async_gs<4>(A_shared + k * 128 + 64 + tx, A + k * 128 + 64 + tx);  // second half\n"
)
FIRST = "    tl::cp_async_gs<4>(A_shared + k * 128 + tx, A + k * 128 + tx);  // first half\n"
ANNOUNCE = "    tl::cp_async_mbarrier_arrive_noinc(full + k);  // announce\n"
DIVERGE = "the lanes of a warp diverge"

DIVERGENT = {
    "lanes at different barriers of the block": Defect(
        "warps",
        SUMS,
        "if (lane < 16) {\n  __syncthreads();  // lower half\n  } else {\n"
        "  __syncthreads();  // upper half\n  }",
        "failure",
        ("// lower half", "// upper half"),
        DIVERGE,
    ),
    "odd lanes at a barrier of their own": Defect(
        "warps",
        SUMS,
        "if (tx % 2) __syncthreads();  // odd\n  else\n  __syncthreads();  // even",
        "failure",
        ("// odd", "// even"),
        DIVERGE,
    ),
    "one thread at another barrier": Defect(
        "warps",
        SUMS,
        "if (tx == 0) {\n  sums[0] += 1;\n  __syncthreads();  // thread 0\n  } else {\n"
        "  __syncthreads();  // others\n  }",
        "failure",
        ("// thread 0", "// others"),
        DIVERGE,
    ),
    "lanes at a barrier in a loop and behind it": Defect(
        "warps",
        SUMS,
        "for (int i = 0; i < lane % 2; ++i)\n    __syncthreads();  // in the loop\n"
        "  __syncthreads();  // behind the loop",
        "failure",
        ("// in the loop", "// behind the loop"),
        DIVERGE,
    ),
    "lanes at barriers of different numbers": Defect(
        "warps",
        "tl::sync_threads_partial(1, 32);  // first warp",
        "tl::sync_threads_partial(lane < 16 ? 1 : 3, 32);  // first warp",
        "failure",
        ("// first warp",),
        DIVERGE,
    ),
    "half of two warps at a named barrier": Defect(
        "warps",
        SUMS,
        "if (lane < 16) tl::sync_threads_partial(3, 32);  // half\n  __syncthreads();",
        "failure",
        ("// half",),
        "at barrier 3",
        also=("race",),
    ),
    "half of a warp at its barrier": Defect(
        "warps",
        "tl::sync_threads_partial(1, 32);  // first warp",
        "if (lane < 16) tl::sync_threads_partial(1, 32);  // first warp",
        "failure",
        ("// first warp",),
        DIVERGE,
        also=("race", "uninitialized"),
    ),
    "arrival of one lane": Defect(
        "warps",
        "tl::sync_threads_partial(1, 32);  // first warp",
        "if (lane == 0) tl::named_barrier_arrive(1, 64);  // first warp",
        "failure",
        ("// first warp",),
        "named_barrier_arrive",
        also=("race", "uninitialized"),
    ),
    "arrivals of lanes at different places": Defect(
        "warps",
        "tl::sync_threads_partial(1, 32);  // first warp",
        "if (lane < 16) {\n    tl::named_barrier_arrive(1, 64);  // lower arrive\n    } else {\n"
        "    tl::named_barrier_arrive(1, 64);  // upper arrive\n    }",
        "failure",
        ("// lower arrive", "// upper arrive"),
        DIVERGE,
        also=("race", "uninitialized"),
    ),
    "barrier that some threads do not reach": Defect(
        "warps",
        SUMS,
        "if (A[tx] < 40) __syncthreads();  // the sums are there",
        "race",
        ("sums[warp] = sum", "// use"),
        "sums + ",
        also=("failure",),
    ),
}

LANES = {
    "sum over lanes that do not exist": Defect(
        "few lanes",
        "int step = 8; step > 0; step /= 2) {\n"
        "    sum += tl::shfl_xor_sync(0xffffffffu, sum, step, 16)",
        "int step = 16; step > 0; step /= 2) {\n"
        "    sum += tl::shfl_xor_sync(0xffffffffu, sum, step, 32)",
        "failure",
        ("// exchange",),
        "which does not exist: the block has 48 threads",
    ),
    "reduction over lanes that do not exist": Defect(
        "few lanes",
        "tl::MaxOp, 16, 1",
        "tl::MaxOp, 32, 1",
        "failure",
        ("// largest",),
        "does not exist",
    ),
    "broadcast of a lane that does not exist": Defect(
        "few lanes",
        "lane / 16 * 16, 32);  // first",
        "31, 32);  // first",
        "failure",
        ("// first",),
        "reads lane 31",
    ),
    "value of the lane above the last": Defect(
        "few lanes",
        "tl::shfl_up_sync(0xffffffffu, A[tx], 1, 16);  // next",
        "tl::shfl_down_sync(0xffffffffu, A[tx], 1, 32);  // next",
        "failure",
        ("// next",),
        "reads lane 16",
    ),
    "value of a lane that has exited": Defect(
        "few lanes",
        "const int votes = tl::all_sync(0xffffffffu, sum != 0);  // vote",
        "const int votes = tl::shfl_sync(0xffffffffu, sum, 15, 16);  // vote",
        "failure",
        ("// vote",),
        "which has exited",
    ),
    "vote of a lane outside of its mask": Defect(
        "few lanes",
        "tl::all_sync(0xffffffffu",
        "tl::all_sync(0x0000fffeu",
        "failure",
        ("// vote",),
        "which it is not one of",
    ),
    "sum over lanes that the mask lacks": Defect(
        "warps",
        "sum += tl::shfl_down_sync(0xffffffffu, sum, step, 32);  // sum",
        "if (lane < 16) sum += tl::shfl_down_sync(0x0000ffffu, sum, step, 32);  // sum",
        "failure",
        ("// sum",),
        "do not contain",
    ),
    "broadcast of a lane that the mask lacks": Defect(
        "warps",
        "sum = tl::shfl_sync(0xffffffffu, sum, 0, 32);  // broadcast",
        "if (lane > 0) sum = tl::shfl_sync(0xfffffffeu, sum, 0, 32);  // broadcast",
        "failure",
        ("// broadcast",),
        "reads lane 0",
    ),
    "broadcast in half of the lanes": Defect(
        "warps",
        "  sum = tl::shfl_sync(0xffffffffu, sum, 0, 32);",
        "  if (lane < 16) sum = tl::shfl_sync(0xffffffffu, sum, 0, 32);",
        "failure",
        ("// broadcast", "// vote"),
        "while others of its lanes",
    ),
    "vote of some lanes": Defect(
        "warps",
        "  if (tl::any_sync",
        "  if (lane < 30 && tl::any_sync",
        "failure",
        ("// vote", "// match"),
        "while others of its lanes",
    ),
    "vote of different masks": Defect(
        "warps",
        "tl::any_sync(0xffffffffu",
        "tl::any_sync(lane % 2 ? 0xffffffffu : 0x55555555u",
        "failure",
        ("// vote",),
        "55555555",
    ),
    "match of lanes that take different ways": Defect(
        "warps",
        "const int same = tl::match_any_sync(0xffffffffu, lane % 4);  // match",
        "const int same = lane < 8 ? tl::match_any_sync(0xffffffffu, lane % 4)  // match\n"
        "      : tl::any_sync(0xffffffffu, lane % 4);",
        "failure",
        ("// match",),
        "match_sync",
    ),
    "match whose mask lacks its lane": Defect(
        "warps",
        "tl::match_any_sync(0xffffffffu",
        "tl::match_any_sync(0x7fffffffu",
        "failure",
        ("// match",),
        "7fffffff",
    ),
}

ORDER = {
    "tensor read back without a barrier": Defect(
        "in order",
        "__syncthreads();  // the row is written",
        "",
        "race",
        ("// write", "// read back"),
        "argument 1[",
        "a barrier for both threads",
    ),
    "tensor written while it is read": Defect(
        "in order",
        "__syncthreads();  // the row is read",
        "",
        "race",
        ("// read back", "// write again"),
        "argument 1[",
        "a barrier for both threads",
    ),
    "tensor read back behind a barrier of the warp": Defect(
        "in order",
        "__syncthreads();  // the row is written",
        "tl::sync_warp(0xffffffffu);",
        "race",
        ("// write", "// read back"),
        "argument 1[",
        "a barrier for both threads",
    ),
    "tensor used before it is changed": Defect(
        "in order",
        "__syncthreads();  // all is changed",
        "",
        "race",
        ("// write again", "// use"),
        "argument 1[",
        "a barrier",
        also=("race",),
    ),
    "statement of a tensor that all threads run": Defect(
        "in order",
        "if (tx == 0) C[0]",
        "C[0]",
        "race",
        ("// count", "// count"),
        "argument 2[0]",
        "a barrier",
    ),
    "statement of shared memory that all threads run": Defect(
        "in order",
        "if (tx == 0) state[0] = state[0]",
        "state[0] = state[0]",
        "race",
        ("// change", "// change"),
        "state + 0",
        "a barrier",
    ),
    "statement of shared memory that a warp runs": Defect(
        "in order",
        "if (tx == 0) state[0] = state[0]",
        "if (tx < 32) state[0] = state[0]",
        "race",
        ("// change", "// change"),
        "state + 0",
        "a barrier of the warp",
    ),
    "statement of a tensor that a warp runs": Defect(
        "in order",
        "if (tx == 0) C[0]",
        "if (tx < 32) C[0]",
        "race",
        ("// count", "// count"),
        "argument 2[0]",
        "a barrier",
    ),
    "state that another thread begins": Defect(
        "in order",
        "if (tx == 0) state[0] = 1.0f;  // begin\n  B[tx] = A[tx];  // write\n"
        "  __syncthreads();  // the row is written\n"
        "  const float other = B[63 - tx];  // read back\n"
        "  __syncthreads();  // the row is read",
        "const float other = A[63 - tx];\n  if (tx == 63) state[0] = 1.0f;  // begin",
        "race",
        ("// begin", "// change"),
        "state + 0",
        "a barrier for both threads",
    ),
}

ANNOUNCED = {
    "copy behind its announcement": Defect(
        "announced",
        SECOND + ANNOUNCE,
        ANNOUNCE + SECOND,
        "race",
        ("// second half", "// use"),
        "A_shared + ",
        "a wait for the copy",
        also=("uninitialized", "failure"),
    ),
    "both copies behind their announcement": Defect(
        "announced",
        FIRST + SECOND + ANNOUNCE,
        ANNOUNCE + FIRST + SECOND,
        "race",
        ("// first half", "// use"),
        "A_shared + ",
        "a wait for the copy",
        also=("uninitialized", "failure"),
    ),
    "committed copy behind its announcement": Defect(
        "announced",
        SECOND + ANNOUNCE,
        "    tl::cp_async_commit();\n" + ANNOUNCE + SECOND + "    tl::cp_async_commit();\n",
        "race",
        ("// second half", "// use"),
        "A_shared + ",
        "a wait for the copy",
        also=("uninitialized", "failure"),
    ),
    "arrival that announces no copies": Defect(
        "announced",
        "tl::cp_async_mbarrier_arrive_noinc(full + k)",
        "tl::mbarrier_arrive(full + k)",
        "race",
        ("half", "// use"),
        "A_shared + ",
        "a wait for the copy",
        also=("uninitialized",),
    ),
    "announcement that raises the count": Defect(
        "announced",
        "tl::cp_async_mbarrier_arrive_noinc(full + k)",
        "tl::cp_async_mbarrier_arrive(full + k)",
        "failure",
        ("// wait until it is full",),
        "let 64 more threads arrive in phase 0",
    ),
    "announcements that are too few": Defect(
        "announced",
        "tl::mbarrier_init(full + tx, 64)",
        "tl::mbarrier_init(full + tx, 96)",
        "failure",
        ("// wait until it is full",),
        "let 32 more threads arrive in phase 0, or initialise it for the 64 arrivals that come",
    ),
}

FUNCTIONS = {
    "function that reads behind its buffer": Defect(
        "helper",
        "sum_of(tl::raw(left + (8)), 8)",
        "sum_of(tl::raw(left + (8)), 57)",
        "out-of-bounds",
        ("// sum",),
        "left + 64",
    ),
    "function that writes behind its buffer": Defect(
        "helper",
        "scale(tl::raw(left + (0)), tx, 2.0f)",
        "scale(tl::raw(left + (0)), 64 - tx, 2.0f)",
        "out-of-bounds",
        ("// scale",),
        "left + 64",
        also=("race",),
    ),
    "function that reads what another thread scales": Defect(
        "helper",
        "__syncthreads();  // it is scaled",
        "",
        "race",
        ("// scale", "// sum"),
        "left + ",
    ),
}

SIGNALS = {
    "no fence before the signal": Defect(
        "signals",
        "__threadfence();  // the block's rows are announced",
        "",
        "race",
        ("// write", "// read"),
        "argument 1[",
        "release order",
    ),
    "no fence behind the poll": Defect(
        "signals",
        "__threadfence();  // what was announced is seen",
        "",
        "race",
        ("// write", "// read"),
        "argument 1[",
        "acquire order",
    ),
    "fence before the block has written": Defect(
        "signals",
        "__syncthreads();  // all have written\n    if (tx == 0) {\n      __threadfence();",
        "if (tx == 0) {\n      __threadfence();",
        "race",
        ("// write", "// read"),
        "argument 1[",
    ),
}

CLUSTERS = {
    "wait of the block for another block's row": Defect(
        "remote ring",
        "tl::mbarrier_wait_cluster(full, k & 1)",
        "tl::mbarrier_wait(full, k & 1)",
        "race",
        ("// fill", "// use"),
        "row + ",
        "cluster scope",
    ),
    "wait of the block for another block's use": Defect(
        "remote ring",
        "tl::mbarrier_wait_cluster(empty, (k - 1) & 1)",
        "tl::mbarrier_wait(empty, (k - 1) & 1)",
        "race",
        ("// fill", "// use"),
        "row + ",
        "cluster scope",
    ),
    "cluster that ends after its last arrival": Defect(
        "remote ring",
        "  tl::cluster_sync();  // all have arrived\n",
        "",
        "failure",
        ("// it is empty",),
        "has ended",
        also=("ended",),
    ),
    "cluster that ends with a barrier of each block": Defect(
        "remote ring",
        "tl::cluster_sync();  // all have arrived",
        "__syncthreads();",
        "ended",
        ("// it is empty",),
        "empty + 0",
        also=("failure",),
    ),
    "cluster that ends with an arrival": Defect(
        "remote ring",
        "tl::cluster_sync();  // all have arrived",
        "tl::cluster_arrive();",
        "ended",
        ("// it is empty",),
        "empty + 0",
        also=("failure",),
    ),
    "cluster that ends with an arrival that orders nothing": Defect(
        "remote ring",
        "tl::cluster_sync();  // all have arrived",
        "tl::cluster_arrive_relaxed(); tl::cluster_wait();",
        "ended",
        ("// it is empty",),
        "empty + 0",
    ),
}

DEFECTS = DIVERGENT | LANES | ORDER | ANNOUNCED | FUNCTIONS | SIGNALS | CLUSTERS
