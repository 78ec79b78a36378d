"""Reads of LDS that transpose, in the emulator, against the documented tables.

CDNA4 ISA, DS_READ_B64_TR_B16: sixteen lanes read a matrix of K x 16 elements, K of them to 64 bits,
row after row: the first row is the first lanes'. A lane then has a column. The table of the 16-bit
form is also in Triton's AMD backend (MemoryOpToLLVM.cpp, lowerDsReadTr): lane 0 gets what lanes 0,
4, 8 and 12 have loaded first, lane 1 their second elements, lane 4 the first of lanes 1, 5, 9, 13.
"""

import numpy as np
import pytest

HEADERS = "#include <tl/common.h>\n#include <tl/ds_read_tr.h>\n"
BITS = [16, 8, 4]
KERNELS = "".join(
    f"""
extern "C" __global__ void read{bits}(const uint64_t* x, const int* place, uint64_t* y) {{
  auto rows = tl::shared<uint64_t, 128>(tl::dynamic_shared());
  const int t = threadIdx.x;
  rows[t] = x[t];
  rows[64 + t] = x[64 + t];
  __syncthreads();
  tl::local<uint64_t, 1> registers;
  tl::ds_read_tr{bits}(rows + place[t], registers + 0);
  y[t] = registers[0];
}}
"""
    for bits in BITS
)
# (lane, number of the element) of each row's sixteen elements, written out.
ROWS = {
    16: [
        "0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3 2.0 2.1 2.2 2.3 3.0 3.1 3.2 3.3",
        "4.0 4.1 4.2 4.3 5.0 5.1 5.2 5.3 6.0 6.1 6.2 6.3 7.0 7.1 7.2 7.3",
        "8.0 8.1 8.2 8.3 9.0 9.1 9.2 9.3 10.0 10.1 10.2 10.3 11.0 11.1 11.2 11.3",
        "12.0 12.1 12.2 12.3 13.0 13.1 13.2 13.3 14.0 14.1 14.2 14.3 15.0 15.1 15.2 15.3",
    ],
    8: [
        " ".join(f"{lane}.{e}" for lane in pair for e in range(8))
        for pair in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15))
    ],
    4: [" ".join(f"{lane}.{e}" for e in range(16)) for lane in range(16)],
}


def elements(words: np.ndarray, bits: int) -> np.ndarray:
    """Those of each eight bytes."""
    if bits == 16:
        return words.view(np.uint16).reshape(-1, 4)
    each = words.view(np.uint8).reshape(-1, 8)
    return each if bits == 8 else np.stack([each & 15, each >> 4], -1).reshape(-1, 16)


def run64(run, bits, place, **how):
    x = np.random.default_rng(bits).integers(0, 2**63, 128, np.uint64)
    y = np.zeros(64, np.uint64)
    args = [x, np.asarray(place, np.int32), y]
    run(HEADERS + KERNELS, f"read{bits}", args, block=64, shared=1024, warp_threads=64, **how)
    return elements(x[place], bits), elements(y, bits)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("order", ["rows", "anywhere"])
def test_table(run, bits, order):
    place = np.arange(64)
    if order == "anywhere":  # also twice
        place = np.random.default_rng(7).integers(0, 128, 64)
    loaded, received = run64(run, bits, place)
    assert len(ROWS[bits]) == 64 // bits
    for row, text in enumerate(ROWS[bits]):
        for i, cell in enumerate(text.split()):
            lane, number = map(int, cell.split("."))
            for group in range(0, 64, 16):
                assert received[group + i, row] == loaded[group + lane, number]


FAULTS = """
extern "C" __global__ void divergent(uint64_t* y) {
  auto rows = tl::shared<uint64_t, 64>(tl::dynamic_shared());
  rows[threadIdx.x] = 0;
  __syncthreads();
  tl::local<uint64_t, 1> registers;
#line 7 "user.py"
  if (threadIdx.x < 16) tl::ds_read_tr16(rows + threadIdx.x, registers + 0);
}
extern "C" __global__ void misaligned(uint64_t* y) {
  auto rows = tl::shared<half_t, 512>(tl::dynamic_shared());
  for (int i = 0; i < 8; ++i) rows[threadIdx.x * 8 + i] = half_t(0.0f);
  __syncthreads();
  tl::local<half_t, 4> registers;
#line 7 "user.py"
  tl::ds_read_tr16(rows + threadIdx.x * 4 + 2, registers + 0);
}
extern "C" __global__ void undefined(uint64_t* y) {
  auto rows = tl::shared<half_t, 512>(tl::dynamic_shared());
  if (threadIdx.x < 63) for (int i = 0; i < 4; ++i) rows[threadIdx.x * 4 + i] = half_t(0.0f);
  __syncthreads();
  tl::local<half_t, 4> registers;
#line 7 "user.py"
  tl::ds_read_tr16(rows + threadIdx.x * 4, registers + 0);
}
extern "C" __global__ void outside(uint64_t* y) {
  auto rows = tl::shared<half_t, 254>(tl::dynamic_shared());
  for (int i = threadIdx.x; i < 254; i += 64) rows[i] = half_t(0.0f);
  __syncthreads();
  tl::local<half_t, 4> registers;
#line 7 "user.py"
  tl::ds_read_tr16(rows + threadIdx.x * 4, registers + 0);
}
extern "C" __global__ void racing(uint64_t* y) {
  auto rows = tl::shared<half_t, 256>(tl::dynamic_shared());
  for (int i = 0; i < 4; ++i) rows[threadIdx.x * 4 + i] = half_t(0.0f);
  __syncthreads();
  tl::local<half_t, 4> registers;
#line 7 "user.py"
  tl::ds_read_tr16(rows + threadIdx.x * 4, registers + 0);
  rows[(threadIdx.x ^ 1) * 4] = registers[0];
}
"""


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("divergent", "user.py:7 for ds_read_tr16: 16 of 64 lanes"),
        (
            "misaligned",
            "misaligned address of a ds_read_tr: byte .* is 4 bytes past a multiple of 8",
        ),
        ("undefined", "uninitialized: 8 bytes at byte 504 .* reads it at user.py:7"),
        (
            "outside",
            "out-of-bounds: 8 bytes at byte 504 .* at user.py:7, which is outside of its 508",
        ),
        ("racing", "race on 2 bytes .* writes it at user.py:8, and thread .* read it at user.py:7"),
    ],
)
def test_faults(run, kernel, message):
    with pytest.raises(RuntimeError, match=message):
        run(
            HEADERS + FAULTS, kernel, [np.zeros(1, np.uint64)], block=64, shared=1024,
            warp_threads=64, checks=True,
        )  # fmt: skip
