"""The 8-bit floats against ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest

DTYPES = {
    "fp8_e4_t": ml_dtypes.float8_e4m3fn,
    "fp8_e5_t": ml_dtypes.float8_e5m2,
    "fp8_e4_fnuz_t": ml_dtypes.float8_e4m3fnuz,
    "fp8_e5_fnuz_t": ml_dtypes.float8_e5m2fnuz,
}
ALL = {**DTYPES, "fp8_e8_t": ml_dtypes.float8_e8m0fnu}
SOURCE = """#include <tl/common.h>
#include <tl/exponential.h>
template <typename T>
__device__ void convert(const T* codes, float* f, const float* x, T* y, T* pairs, int n) {
  for (int i = threadIdx.x; i < 256; i += 32) f[i] = float(codes[i]);
  for (int i = 2 * threadIdx.x; i < n; i += 64) {
    tl::store(pairs + i, tl::cast<T>(tl::load<float, 2>(x + i)));
    y[i] = T(x[i]);
    y[i + 1] = T(double(x[i + 1]));
  }
}
template <typename T>
__device__ void arithmetic(const T* a, const T* b, T* out, int* whole, int n) {
  for (int i = threadIdx.x; i < n; i += 32) {
    out[i] = a[i] + b[i];
    out[n + i] = a[i] - b[i];
    out[2 * n + i] = a[i] * b[i];
    out[3 * n + i] = -a[i];
    out[4 * n + i] = tl::max(a[i], b[i]);
    out[5 * n + i] = tl::exp2(a[i]);
    whole[i] = tl::cast<int>(a[i]);
  }
}
""" + "".join(
    f"""
extern "C" __global__ void convert_{t}(
    const {t}* codes, float* f, const float* x, {t}* y, {t}* pairs, int n) {{
  convert(codes, f, x, y, pairs, n);
}}
extern "C" __global__ void arithmetic_{t}(const {t}* a, const {t}* b, {t}* out, int* w, int n) {{
  arithmetic(a, b, out, w, n);
}}
"""
    for t in ALL
)


def rounded(x, dtype):
    """Nearest even, and the largest number instead of what is beyond it."""
    largest = float(ml_dtypes.finfo(dtype).max)
    return np.clip(x, -largest, largest).astype(dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_conversions(run, name):
    dtype = DTYPES[name]
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    finite = np.unique(codes[np.isfinite(codes.astype(np.float32))].astype(np.float32))
    between = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    x = np.concatenate(
        [
            finite,
            between,
            np.nextafter(between.astype(np.float32), np.float32(np.inf)),
            np.nextafter(between.astype(np.float32), np.float32(-np.inf)),
            [np.inf, -np.inf, 1e30, -1e30, 460, 464, 470, 61439, 61440, 1e-30, -1e-40, -0.0],
        ]
    ).astype(np.float32)
    x = x[: x.size // 2 * 2]
    f = np.zeros(256, np.float32)
    y, pairs = np.zeros(x.size, dtype), np.zeros(x.size, dtype)
    run(SOURCE, f"convert_{name}", [codes, f, x, y, pairs, x.size])
    np.testing.assert_array_equal(f, codes.astype(np.float32))
    wanted = rounded(x, dtype).view(np.uint8)
    np.testing.assert_array_equal(y.view(np.uint8), wanted)
    np.testing.assert_array_equal(pairs.view(np.uint8), wanted)


@pytest.mark.parametrize("name", DTYPES)
def test_nan_stays(run, name):
    x = np.array([np.nan, -np.nan], np.float32)
    y, pairs = np.zeros(2, DTYPES[name]), np.zeros(2, DTYPES[name])
    run(SOURCE, f"convert_{name}", [y.repeat(128), np.zeros(256, np.float32), x, y, pairs, 2])
    assert np.isnan(y.astype(float)).all()
    assert np.isnan(pairs.astype(float)).all()


@pytest.mark.parametrize("name", DTYPES)
def test_arithmetic_rounds_once(run, name):
    dtype = DTYPES[name]
    a, b = np.random.default_rng(0).normal(0, 8, (2, 400)).astype(dtype)
    a[:2], b[1] = 0, 0  # whose negative fnuz formats do not have
    out, whole = np.zeros((6, 400), dtype), np.zeros(400, np.int32)
    run(SOURCE, f"arithmetic_{name}", [a, b, out, whole, 400])
    x, y = a.astype(np.float64), b.astype(np.float64)
    wanted = [x + y, x - y, x * y, -x, np.maximum(x, y), np.exp2(x)]
    for found, exact in zip(out, wanted, strict=True):
        np.testing.assert_array_equal(found.astype(float), rounded(exact, dtype).astype(float))
    np.testing.assert_array_equal(whole, np.trunc(x))


def nearest_power(x):
    """The e8m0 code of a float32: that of the nearest power of two, of two as near that of the
    larger. It is written out, since releases of ml_dtypes differ in what is below 2^-126."""
    if not np.isfinite(x) or x < 0:
        return 0xFF
    exponent = np.frexp(np.float64(x))[1] - 1 if x else -127
    exponent += np.float64(x) >= 1.5 * 2.0**exponent
    return int(np.clip(exponent + 127, 0, 0xFF))


def test_powers_of_two(run):
    """e8m0: all 256 codes, and what is between them. Zero becomes the smallest."""
    dtype = ALL["fp8_e8_t"]
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    powers = codes[:255].astype(np.float32)
    factors = (1, 1.25, 1.4999999, 1.5, 1.5000001, 1.75, -1)
    with np.errstate(over="ignore"):
        x = np.concatenate([powers * np.float32(f) for f in factors])
    x = np.concatenate([x, [np.inf, -np.inf, np.nan, 0, 1e-45, -1e-45, 2e-39]]).astype(np.float32)
    x = x[: x.size // 2 * 2]
    f = np.zeros(256, np.float32)
    y, pairs = np.zeros(x.size, dtype), np.zeros(x.size, dtype)
    run(SOURCE, "convert_fp8_e8_t", [codes, f, x, y, pairs, x.size])
    np.testing.assert_array_equal(f, codes.astype(np.float32))
    wanted = [nearest_power(value) for value in x]
    np.testing.assert_array_equal(y.view(np.uint8), wanted)
    np.testing.assert_array_equal(pairs.view(np.uint8), wanted)


def test_arithmetic_on_powers_of_two(run):
    dtype = ALL["fp8_e8_t"]
    a, b = 2.0 ** np.random.default_rng(0).integers(-6, 7, (2, 64))
    out, whole = np.zeros((6, 64), dtype), np.zeros(64, np.int32)
    run(SOURCE, "arithmetic_fp8_e8_t", [a.astype(dtype), b.astype(dtype), out, whole, 64])
    wanted = [a + b, a - b, a * b, -a, np.maximum(a, b), np.exp2(a)]
    for found, exact in zip(out, wanted, strict=True):
        exact = np.where(exact == 0, 2.0**-127, exact).astype(dtype)
        np.testing.assert_array_equal(found.view(np.uint8), exact.view(np.uint8))
    np.testing.assert_array_equal(whole, np.trunc(a))


def test_zero_becomes_the_smallest_power_of_two(run):
    dtype = ALL["fp8_e8_t"]
    x = np.array([0.0, -0.0], np.float32)
    y, pairs = np.ones(2, dtype), np.ones(2, dtype)
    codes = np.ones(256, dtype)
    run(SOURCE, "convert_fp8_e8_t", [codes, np.zeros(256, np.float32), x, y, pairs, 2])
    assert [*y.view(np.uint8), *pairs.view(np.uint8)] == [0] * 4
