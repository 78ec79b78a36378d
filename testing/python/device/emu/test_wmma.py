"""WMMA in the emulator against the layouts that AMD documents.

RDNA3 ISA, "Wave Matrix Multiply Accumulate", and AMD, "How to accelerate AI applications on RDNA 3
using WMMA": lane l has row l % 16 of A, and column l % 16 of B, all 16 elements along K; of C it
has column l % 16, and in register r row 2 r + l // 16.
"""

import ml_dtypes
import numpy as np
import pytest

TYPES = {
    "half_t": (np.float16, np.float32, "float"),
    "bfloat16_t": (ml_dtypes.bfloat16, np.float32, "float"),
    "int8_t": (np.int8, np.int32, "int"),
    "uint8_t": (np.uint8, np.int32, "int"),
}
SOURCE = "#include <tl/common.h>\n#include <tl/wmma.h>\n" + "".join(
    f"""
extern "C" __global__ void wmma_{t}(const {t}* A, const {t}* B, {c}* D) {{
  tl::wmma<16, 16, 16, {t}, {c}>(D + threadIdx.x * 8, A + threadIdx.x * 16, B + threadIdx.x * 16);
}}
"""
    for t, (_, _, c) in TYPES.items()
)
SOURCE += """
extern "C" __global__ void divergent(const half_t* A, const half_t* B, float* D) {
#line 7 "user.py"
  if (threadIdx.x != 3) tl::wmma<16, 16, 16, half_t, float>(D, A, B);
}
"""


def product(seed, t):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-5, 6, (16, 16)).astype(TYPES[t][0]) for _ in range(2))
    return a, b, rng.integers(-9, 9, (16, 16)).astype(TYPES[t][1])


def lanes_of_c(c):
    lane, register = np.indices((32, 8))
    return np.ascontiguousarray(c[2 * register + lane // 16, lane % 16])


@pytest.mark.parametrize("t", TYPES)
def test_layout(run, t):
    a, b, c = product(1, t)
    exact = a.astype(int) @ b.astype(int) + c.astype(int)
    memory = lanes_of_c(c)
    twice = [np.concatenate([x, x]) for x in (a, np.ascontiguousarray(b.T))]
    run(SOURCE, f"wmma_{t}", [*twice, memory], block=32)
    np.testing.assert_array_equal(memory.astype(int), lanes_of_c(exact))


def test_lanes_that_hold_the_same_row_agree(run):
    a, b, c = product(2, "half_t")
    twice = [np.concatenate([x, x]) for x in (a, b)]
    twice[1][16 + 5, 3] += 1
    with pytest.raises(RuntimeError, match="lanes 5 and 21 of a wmma give different elements of B"):
        run(SOURCE, "wmma_half_t", [*twice, lanes_of_c(c)], block=32)


def test_all_lanes_take_part(run):
    unused = np.zeros(512, np.float32)
    with pytest.raises(RuntimeError, match=r"user.py:7 for wmma: 31 of 32 lanes"):
        run(SOURCE, "divergent", [unused, unused, unused], block=32)
