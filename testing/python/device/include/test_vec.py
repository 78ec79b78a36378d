"""tl::vec and tl::cast."""

import ml_dtypes
import numpy as np
import pytest

ADD = """#include <tl/common.h>
extern "C" __global__ void add(const half_t* __restrict__ a, const half_t* b, half_t* c, int n) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (i < n) tl::store(c + i, tl::load<half_t, 8>(a + i) + tl::load<half_t, 8>(b + i));
}
"""
OPERATORS = """#include <tl/common.h>
#include <tl/floor.h>
using V = tl::vec<int, 4>;
extern "C" __global__ void operators(const int* a, const int* b, int* out) {
  const V x = tl::load<int, 4>(a), y = tl::load<int, 4>(b);
  int row = 0;
  auto put = [&](const V& v) { tl::store(out + 4 * row++, v); };
  put(x + y); put(x - y); put(x * y); put(x / y); put(x % y);
  put(x & y); put(x | y); put(x ^ y); put(x << V{1, 2, 3, 4}); put(x >> V{1, 2, 3, 4});
  put(-x); put(~x); put(tl::max(x, y)); put(tl::min(x, y));
  put(tl::cast<int>(x < y)); put(tl::cast<int>(x <= y)); put(tl::cast<int>(x == y));
  put(tl::cast<int>(x != y)); put(tl::cast<int>(x > y || !(x >= y) && x != y));
  put(tl::select(x > y, x, y)); put(tl::ramp<int, 4>(7, -2)); put(tl::broadcast<int, 4>(5));
  put(tl::floordiv(x, y)); put(tl::floormod(x, y)); put(tl::abs(x));
}
static_assert(alignof(tl::vec<half_t, 8>) == 16 && alignof(tl::vec<half_t, 2>) == 4, "");
static_assert(sizeof(tl::vec<float, 3>) == 12 && sizeof(tl::vec<double, 4>) == 32, "");
"""
CASTS = """#include <tl/common.h>
template <typename To, typename From>
__device__ void cast(const From* x, To* out) {
  tl::store(out + threadIdx.x * 4, tl::cast<To>(tl::load<From, 4>(x + threadIdx.x * 4)));
}
"""
C_TYPES = {
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "int16_t": np.int16,
    "int": np.int32,
    "uint32_t": np.uint32,
    "int64_t": np.int64,
    "uint64_t": np.uint64,
    "float": np.float32,
    "half_t": np.float16,
    "bfloat16_t": ml_dtypes.bfloat16,
}
CASTS += "".join(
    f'extern "C" __global__ void {f}_to_{t}(const {f}* x, {t}* out) {{ cast(x, out); }}\n'
    for f in ("float", "double")
    for t in C_TYPES
)


CONVERT = """#include <tl/common.h>
template <typename T>
__device__ void convert(const float* x, T* out) {
  alignas(16) tl::local<float, 4> from;
  alignas(8) tl::local<T, 8> to;
  tl::store(from, tl::load<float, 4>(x + threadIdx.x * 4));
  for (int i = 0; i < 4; ++i) to[i] = T(0.0f);
  tl::convert<T, 4>(to + 4, from);
  for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = to[i];
}
""" + "".join(
    f'extern "C" __global__ void to_{t}(const float* x, {t}* out) {{ convert(x, out); }}\n'
    for t in ("half_t", "bfloat16_t")
)


@pytest.mark.parametrize("name", ["half_t", "bfloat16_t"])
def test_registers_are_converted(run, aligned, name):
    edges = [1e30, -1e30, 65519, 65520, 6e-8, 2.9e-8, -0.0, np.inf, np.nan, 1.0009765, 1 + 2**-8]
    x = aligned(np.resize(np.array(edges, np.float32), (32, 4)))
    out = np.full((32, 8), 7, C_TYPES[name])
    run(CONVERT, f"to_{name}", [x, out], block=32)
    with np.errstate(over="ignore"):
        rounded = x.astype(C_TYPES[name]).astype(np.float32)
    np.testing.assert_array_equal(out[:, 4:].astype(np.float32), rounded)
    assert not out[:, :4].any()


def test_add_of_eight_halves(run):
    a, b = np.random.default_rng(0).standard_normal((2, 4096)).astype(np.float16)
    c = np.zeros_like(a)
    run(ADD, "add", [a, b, c, 4096], grid=5, block=128)
    np.testing.assert_array_equal(c, a + b)


def test_operators(run):
    x, y = np.array([7, -7, 9, -100], np.int32), np.array([2, 2, -9, 7], np.int32)
    out = np.zeros((25, 4), np.int32)
    run(OPERATORS, "operators", [x, y, out], block=1)
    quotient = np.trunc(x / y).astype(np.int32)
    shift = np.arange(1, 5)
    rows = [x + y, x - y, x * y, quotient, x - quotient * y, x & y, x | y, x ^ y]
    rows += [x << shift, x >> shift, -x, ~x, np.maximum(x, y), np.minimum(x, y)]
    rows += [x < y, x <= y, x == y, x != y, x != y, np.maximum(x, y)]
    rows += [[7, 5, 3, 1], [5] * 4, x // y, x % y, np.abs(x)]
    np.testing.assert_array_equal(out, rows)


@pytest.mark.parametrize("target", C_TYPES)
@pytest.mark.parametrize("source", ["float", "double"])
def test_casts_saturate(run, source, target):
    values = [0.0, -0.5, 1.5, 2.5, -1.5, 127.9, 128.0, -129.0, 3e9, -3e9, 1e19, -1e30, 2.0**31]
    values += [np.inf, -np.inf, np.nan]
    x = np.array(values, np.float32 if source == "float" else np.float64)
    out = np.zeros(16, C_TYPES[target])
    run(CASTS, f"{source}_to_{target}", [x, out], block=4)
    if np.issubdtype(out.dtype, np.integer):
        info = np.iinfo(out.dtype)
        expected = [min(max(int(v), info.min), info.max) for v in x[:13].tolist()]
        # PTX ISA, cvt: NaN becomes 0, or the top bit alone where a type has 64 bits.
        top_bit = np.iinfo(out.dtype).bits == 64 or (source == "double" and info.bits == 32)
        nan = (info.min if info.min < 0 else 1 << (info.bits - 1)) if top_bit else 0
        assert out.tolist() == [*expected, info.max, info.min, nan]
    else:
        with np.errstate(over="ignore"):
            expected = x.astype(out.dtype).astype(np.float64)
        np.testing.assert_array_equal(out.astype(np.float64), expected)
