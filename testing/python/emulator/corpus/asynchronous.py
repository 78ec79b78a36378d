"""Copies that engines perform: cp.async, bulk copies with mbarriers and groups, tensor maps."""

import numpy as np

from .kit import Base, Defect, Launch
from .maps import tensor_map


def pipeline() -> Launch:
    a = np.random.default_rng(0).standard_normal((6, 256)).astype(np.float32)
    b = np.zeros(256, np.float32)
    return Launch([a, b], [(b, a.sum(0))])


def bulk() -> Launch:
    a = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    b, c = np.zeros_like(a), np.zeros(64, np.float32)
    wanted = 2 * a[:, np.arange(64) ^ 33]
    return Launch([a, b, c], [(b, wanted), (c, wanted[0, ::-1])])


def ring() -> Launch:
    a = np.random.default_rng(0).standard_normal((6, 32)).astype(np.float32)
    b = np.zeros((6, 2, 32), np.float32)
    return Launch([a, b], [(b, np.repeat(2 * a[:, None, np.arange(32) ^ 17], 2, 1))])


def tiles() -> Launch:
    a = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)
    b = np.zeros_like(a)
    return Launch([tensor_map(a, (16, 8)), tensor_map(b, (16, 8))], [(b, a + 1)])


BASES = {
    "pipeline": Base.of_file("pipeline", pipeline, shared=3072),
    "bulk": Base.of_file("bulk", bulk, arch="sm_90"),
    "ring": Base.of_file("ring", ring, block=96, arch="sm_90"),
    "tiles": Base.of_file("tiles", tiles, block=128, arch="sm_90"),
}

FILLED = "    tl::cp_async_commit();  // filled"
MADE = "__syncthreads();  // the mbarriers are there"
WAIT = "tl::mbarrier_wait(full + k % 2, k / 2 & 1);"
EXPECT = "tl::mbarrier_arrive_expect_tx(full + k % 2, 256);"
FIRST = "tl::mbarrier_arrive_expect_tx(full + k, 256);"
COPY = "a wait for the copy"

DEFECTS = {
    "copy without a wait": Defect(
        "pipeline",
        "tl::cp_async_wait<1>();",
        "",
        "race",
        ("fill", "// use"),
        "A_shared + ",
        COPY,
        also=("uninitialized",),
    ),
    "wait that leaves one group too many": Defect(
        "pipeline",
        "wait<1>",
        "wait<2>",
        "race",
        ("fill", "// use"),
        "A_shared + ",
        COPY,
        also=("uninitialized",),
    ),
    "wait in one thread only": Defect(
        "pipeline",
        "tl::cp_async_wait<1>();",
        "if (tx == 0) tl::cp_async_wait<1>();",
        "race",
        ("fill", "// use"),
        "A_shared + ",
        COPY,
        also=("uninitialized",),
    ),
    "wait without a barrier": Defect(
        "pipeline",
        "__syncthreads();  // the stage is there",
        "",
        "race",
        ("fill", "// use"),
        "A_shared + ",
        "barrier",
    ),
    "copy into the stage that is in use": Defect(
        "pipeline",
        "(k + 2) % 3",
        "(k + 3) % 3",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        also=("uninitialized",),
    ),
    "two copies in flight to one stage": Defect(
        "pipeline",
        "A_shared + k * 256 + tx * 4, A",
        "A_shared + tx * 4, A",
        "race",
        ("// first fill", "// first fill"),
        "A_shared + ",
        also=("uninitialized",),
    ),
    "group that is not committed": Defect(
        "pipeline",
        FILLED,
        "",
        "race",
        ("fill", "// use"),
        "A_shared + ",
        COPY,
        also=("uninitialized",),
    ),
    "copy of half of the bytes": Defect(
        "pipeline",
        "cp_async_gs<16>(A_shared + k * 256",
        "cp_async_gs<8>(A_shared + k * 256",
        "uninitialized",
        ("// use",),
        "A_shared + ",
    ),
    "misaligned copy": Defect(
        "pipeline",
        "A_shared + k * 256 + tx * 4, A",
        "A_shared + k * 256 + tx * 4 + 2, A",
        "failure",
        ("// first fill",),
        "16",
        also=("out-of-bounds",),
    ),
    "copy from behind the tensor": Defect(
        "pipeline",
        "if (k < 4) tl",
        "if (k < 5) tl",
        "out-of-bounds",
        ("// fill",),
        "argument 0[6, ",
    ),
    "stage released while other lanes of the warp read": Defect(
        "ring",
        "tl::mbarrier_arrive_warp(empty + k % 2)",
        "if (lane == 0) tl::mbarrier_arrive(empty + k % 2)",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        "barrier",
    ),
    "stage announced while other lanes of the warp write": Defect(
        "ring",
        "tl::mbarrier_arrive_warp(full + k % 2)",
        "if (lane == 0) tl::mbarrier_arrive(full + k % 2)",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        "barrier",
        also=("uninitialized",),
    ),
    "warps counted as threads": Defect(
        "ring",
        "empty + i, 2)",
        "empty + i, 64)",
        "failure",
        ("// wait until it is empty",),
        "2 of 64 arrivals",
    ),
    "wrong parity of the first phase": Defect(
        "bulk",
        WAIT,
        "tl::mbarrier_wait(full + k % 2, (k / 2 & 1) ^ 1);",
        "race",
        ("fill", "// use"),
        "A_shared + ",
        also=("uninitialized", "failure"),
    ),
    "wrong parity after the ring's first round": Defect(
        "bulk",
        WAIT,
        "tl::mbarrier_wait(full + k % 2, 0);",
        "race",
        ("// fill", "// use"),
        "A_shared + ",
        also=("failure",),
    ),
    "no wait for the mbarrier": Defect(
        "bulk",
        WAIT,
        "",
        "race",
        ("fill", "// use"),
        "A_shared + ",
        also=("uninitialized", "failure"),
    ),
    "expected bytes without an arrival": Defect(
        "bulk",
        EXPECT,
        EXPECT.replace("arrive_", ""),
        "failure",
        ("// wait until it is full",),
        "0 of 1 arrivals",
    ),
    "too few expected bytes": Defect(
        "bulk",
        EXPECT,
        EXPECT.replace("256", "192"),
        "failure",
        ("// wait until it is full",),
        "64 bytes more than it expects",
    ),
    "too many expected bytes": Defect(
        "bulk",
        EXPECT,
        EXPECT.replace("256", "320"),
        "failure",
        ("// wait until it is full",),
        "64 bytes",
    ),
    "too many arrivals": Defect(
        "bulk",
        FIRST,
        f"tl::mbarrier_arrive(full + k);  // extra\n      {FIRST}",
        "race",
        ("// first fill", "// use"),
        "A_shared + ",
        also=("failure",),
    ),
    "mbarrier that counts too many arrivals": Defect(
        "bulk",
        "init(full + 1, 1)",
        "init(full + 1, 2)",
        "failure",
        ("// wait until it is full",),
        "1 of 2 arrivals",
    ),
    "mbarriers used before others know of them": Defect(
        "bulk",
        MADE,
        "",
        "race",
        ("mbarrier", "// wait until it is full"),
        "full + ",
        also=("failure",),
    ),
    "mbarrier initialised twice": Defect(
        "bulk",
        "if (tx == 0) {\n    tl::mbarrier_init",
        "if (tx < 2) {\n    tl::mbarrier_init",
        "failure",
        ("// first mbarrier",),
        "initialised",
        also=("race",),
    ),
    "mbarrier used again before its phase has ended": Defect(
        "bulk",
        FIRST,
        FIRST.replace("full + k", "full"),
        "failure",
        ("// first expect",),
        "arrival",
        also=("race", "uninitialized"),
    ),
    "mbarrier that is not initialised": Defect(
        "bulk",
        "    tl::mbarrier_init(full + 1, 1);  // second mbarrier\n",
        "",
        "failure",
        ("// first expect",),
        "not initialised",
    ),
    "no fence before a bulk store": Defect(
        "bulk",
        "    tl::fence_proxy_async();\n",
        "",
        "race",
        ("// use", "// store"),
        "B_shared + ",
        "fence",
    ),
    "no barrier before a bulk store": Defect(
        "bulk",
        "__syncthreads();  // the result is there",
        "",
        "race",
        ("// use", "// store"),
        "B_shared + ",
    ),
    "result's stage written while it is stored": Defect(
        "bulk",
        "    if (tx == 0) tl::tma_store_wait<1>();\n",
        "",
        "race",
        ("// use", "// store"),
        "B_shared + ",
    ),
    "wait for one store too few": Defect(
        "bulk",
        "tl::tma_store_wait<1>()",
        "tl::tma_store_wait<2>()",
        "race",
        ("// use", "// store"),
        "B_shared + ",
    ),
    "wait for a store's reads where its writes count": Defect(
        "bulk",
        "tl::tma_store_wait<0, false>()",
        "tl::tma_store_wait<0>()",
        "race",
        ("// read back", "// store"),
        "argument 1[0, ",
    ),
    "store that is not in a group": Defect(
        "bulk",
        "      tl::tma_store_arrive();\n",
        "",
        "race",
        ("// use", "// store"),
        "B_shared + ",
        also=("failure",),
    ),
    "bulk copy over the next buffer": Defect(
        "bulk",
        "tl::bulk_load(A_shared + k * 64, A",
        "tl::bulk_load(A_shared + k * 80, A",
        "out-of-bounds",
        ("// first fill",),
        "A_shared + ",
        also=("race", "uninitialized"),
    ),
    "bulk copy from behind the tensor": Defect(
        "bulk",
        "A + (k + 2) * 64",
        "A + (k + 3) * 64",
        "out-of-bounds",
        ("// fill",),
        "argument 0[6, 0]",
    ),
    "misaligned bulk copy": Defect(
        "bulk",
        "B + k * 64, B_shared",
        "B + k * 64 + 1, B_shared",
        "failure",
        ("// store",),
        "16",
    ),
    "tile stored without a fence": Defect(
        "tiles",
        "    tl::fence_proxy_async();\n",
        "",
        "race",
        ("// change", "// store"),
        "tile + ",
        "fence",
    ),
    "tile loaded while it is stored": Defect(
        "tiles",
        "      tl::tma_store_wait<0>();\n",
        "",
        "race",
        ("// load", "// store"),
        "tile + ",
        also=("failure",),
    ),
    "tile loaded while it is changed": Defect(
        "tiles",
        "__syncthreads();  // the tile is changed",
        "",
        "failure",
        ("// wait until it is loaded",),
        "ended phase 0",
        also=("race",),
    ),
    "wrong parity for a tile": Defect(
        "tiles",
        "tl::mbarrier_wait(full, k & 1);",
        "tl::mbarrier_wait(full, 0);",
        "race",
        ("// load", "// change"),
        "tile + ",
        also=("failure",),
    ),
    "tile in the wrong place of shared memory": Defect(
        "tiles",
        "tl::tma_load(A, full, tile, 0",
        "tl::tma_load(A, full, tile + 32, 0",
        "out-of-bounds",
        ("// load",),
        "tile + ",
        also=("race", "uninitialized"),
    ),
}
