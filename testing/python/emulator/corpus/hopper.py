"""A warp-specialised GEMM with TMA, mbarriers and wgmma."""

import numpy as np

from .kit import Base, Defect, Launch
from .maps import tensor_map


def gemm() -> Launch:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 384)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float16)
    maps = [tensor_map(x, (64, 64), swizzle=128) for x in (a, b)]
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    return Launch([*maps, tensor_map(c, (64, 64))], [(c, wanted.astype(np.float16))])


BASES = {"gemm": Base.of_file("gemm", gemm, block=256, shared=40960, arch="sm_90a")}

RELEASE = "      tl::mbarrier_arrive(empty + k % 2);  // it is empty\n"
WAIT_FULL = "tl::mbarrier_wait(full + k % 2, k / 2 & 1);"
WAIT_EMPTY = "tl::mbarrier_wait(empty + k % 2, (k / 2 & 1) ^ 1);"
DONE = "      tl::warpgroup_commit_batch();\n      tl::warpgroup_wait<0>();\n"
MULTIPLY = "        tl::wgmma_ss"

DEFECTS = {
    "stage released before wgmma has read it": Defect(
        "gemm",
        DONE + RELEASE,
        RELEASE + DONE,
        "race",
        ("// multiply", "// load"),
        "_shared + ",
    ),
    "stage that is never released": Defect(
        "gemm",
        RELEASE,
        "",
        "failure",
        ("// wait until it is empty",),
        "0 of 128 arrivals",
    ),
    "stage released by half of the warp group": Defect(
        "gemm",
        "      tl::mbarrier_arrive(empty",
        "      if (lane < 16) tl::mbarrier_arrive(empty",
        "failure",
        ("// wait until it is empty",),
        "64 of 128 arrivals",
    ),
    "empty mbarrier that counts too few": Defect(
        "gemm",
        "empty + i, 128",
        "empty + i, 96",
        "race",
        ("// multiply", "// load"),
        "_shared + ",
        also=("failure",),
    ),
    "empty mbarrier that counts too many": Defect(
        "gemm",
        "empty + i, 128",
        "empty + i, 256",
        "failure",
        ("// wait until it is empty",),
        "128 of 256 arrivals",
    ),
    "parity of an empty ring": Defect(
        "gemm",
        WAIT_EMPTY,
        "tl::mbarrier_wait(empty + k % 2, k / 2 & 1);",
        "failure",
        ("// wait until it is empty",),
        "0 of 128 arrivals",
    ),
    "producer that does not count rounds": Defect(
        "gemm",
        WAIT_EMPTY,
        "tl::mbarrier_wait(empty + k % 2, 1);",
        "failure",
        ("// expect",),
        "arrivals at an mbarrier",
        also=("race",),
    ),
    "consumer that does not count rounds": Defect(
        "gemm",
        WAIT_FULL,
        "tl::mbarrier_wait(full + k % 2, 0);",
        "race",
        ("// multiply", "// load"),
        "_shared + ",
        also=("failure",),
    ),
    "no wait for a full stage": Defect(
        "gemm",
        WAIT_FULL,
        "",
        "race",
        ("// multiply", "// load"),
        "_shared + ",
        also=("uninitialized", "failure"),
    ),
    "bytes of one of two operands": Defect(
        "gemm",
        "16384);  // expect",
        "8192);  // expect",
        "failure",
        ("// full mbarrier",),
        "bytes",
        also=("race",),
    ),
    "one tile too few": Defect(
        "gemm",
        "k < 6; ++k) {\n        tl::mbarrier_wait(empty",
        "k < 5; ++k) {\n        tl::mbarrier_wait(empty",
        "failure",
        ("// wait until it is full",),
        "0 of 1 arrivals",
    ),
    "accumulators read before the wait": Defect(
        "gemm",
        "      tl::warpgroup_wait<0>();\n",
        "",
        "race",
        ("// multiply", "// result"),
        "C_local",
        also=("failure",),
    ),
    "accumulators read one group too early": Defect(
        "gemm",
        "tl::warpgroup_wait<0>()",
        "tl::warpgroup_wait<1>()",
        "race",
        ("// multiply", "// result"),
        "C_local",
        also=("failure",),
    ),
    "accumulators touched while wgmma works": Defect(
        "gemm",
        DONE,
        "      C_local[0] += 1.0f;  // touch\n" + DONE,
        "race",
        ("// multiply", "// touch"),
        "C_local",
    ),
    "wgmma without a fence": Defect(
        "gemm",
        "      tl::warpgroup_arrive();\n",
        "",
        "failure",
        ("// multiply",),
        "warpgroup_arrive",
    ),
    "wgmma that is not committed": Defect(
        "gemm",
        "      tl::warpgroup_commit_batch();\n",
        "",
        "race",
        ("// multiply", "// result"),
        "C_local",
        also=("failure",),
    ),
    "accumulators that nobody set": Defect(
        "gemm",
        "(k | i) != 0);",
        "true);",
        "uninitialized",
        ("// multiply",),
        "C_local",
    ),
    "wgmma in some lanes": Defect(
        "gemm",
        MULTIPLY,
        "        if (lane != 7) tl::wgmma_ss",
        "failure",
        ("// multiply",),
        "wgmma",
    ),
    "wgmma in three warps": Defect(
        "gemm",
        MULTIPLY,
        "        if (warp != 2) tl::wgmma_ss",
        "failure",
        ("// multiply",),
        "wgmma",
        also=("uninitialized",),
    ),
    "descriptor of the next stage": Defect(
        "gemm",
        "A_shared + k % 2 * 4096, 16, 1024",
        "A_shared + (k + 1) % 2 * 4096, 16, 1024",
        "race",
        ("// multiply", "// load A"),
        "A_shared + ",
        also=("uninitialized",),
    ),
    "descriptor behind the operand": Defect(
        "gemm",
        "A_shared + k % 2 * 4096, 16, 1024",
        "A_shared + (k % 2 + 1) * 4096, 16, 1024",
        "out-of-bounds",
        ("// describe A",),
        "A_shared + 8192",
        also=("race", "uninitialized"),
    ),
    "stride that leaves the operand": Defect(
        "gemm",
        "A_shared + k % 2 * 4096, 16, 1024",
        "A_shared + k % 2 * 4096, 16, 2048",
        "race",
        ("// multiply", "// load"),
        "_shared + ",
        also=("race", "uninitialized"),
    ),
    "registers given back by one lane": Defect(
        "gemm",
        "    tl::warpgroup_reg_dealloc<24>();\n    if (tx == 0) {\n",
        "    if (tx == 0) {\n      tl::warpgroup_reg_dealloc<24>();  // give back\n",
        "failure",
        ("// give back",),
        "warpgroup_reg_dealloc",
    ),
    "result stored without a fence": Defect(
        "gemm",
        "    tl::fence_proxy_async();\n",
        "",
        "race",
        ("// result", "// store"),
        "C_shared + ",
        "fence",
    ),
    "result stored before others have written it": Defect(
        "gemm",
        "tl::sync_threads_partial(1, 128);  // the result is there",
        "",
        "race",
        ("// result", "// store"),
        "C_shared + ",
    ),
    "result over a stage in use": Defect(
        "gemm",
        "buf_dyn_shmem + 32768",
        "buf_dyn_shmem + 16384",
        "race",
        ("// result", "// multiply"),
        "C_shared + ",
    ),
    "no barrier behind the making of mbarriers": Defect(
        "gemm",
        "__syncthreads();  // the mbarriers are there",
        "",
        "race",
        ("mbarrier", "wait until it is full"),
        "full + ",
        also=("failure",),
    ),
}
