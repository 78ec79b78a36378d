"""half_t and bfloat16_t against numpy and ml_dtypes."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

DTYPES = {"half_t": np.dtype(np.float16), "bfloat16_t": np.dtype(ml_dtypes.bfloat16)}
SOURCE = """#include <tl/common.h>
template <typename T>
__device__ void convert(const T* x, float* f, double* d, T* back, int n) {
  for (int i = threadIdx.x; i < n; i += 32) {
    f[i] = float(x[i]);
    d[i] = tl::cast<double>(x[i]);
    back[i] = T(f[i]);
  }
}
template <typename T>
__device__ void arithmetic(const T* a, const T* b, T* out, int n) {
  for (int i = threadIdx.x; i < n; i += 32) {
    out[i] = a[i] + b[i];
    out[n + i] = a[i] - b[i];
    out[2 * n + i] = a[i] * b[i];
    out[3 * n + i] = a[i] / b[i];
    out[4 * n + i] = -a[i];
    out[5 * n + i] = tl::max(a[i], b[i]);
    out[6 * n + i] = tl::min(a[i], b[i]);
    out[7 * n + i] = T(int(a[i] < b[i]) + 2 * (a[i] == b[i]) + 4 * (a[i] >= b[i]));
  }
}
template <typename T>
__device__ void narrow(const double* d, const int64_t* i, T* out, int n) {
  for (int k = threadIdx.x; k < n; k += 32) {
    out[k] = T(d[k]);
    out[n + k] = T(float(d[k]));
    out[2 * n + k] = tl::cast<T>(i[k]);
    out[3 * n + k] = tl::cast<T>(uint64_t(i[k]));
    out[4 * n + k] = tl::cast<T>(int(i[k]));
    out[5 * n + k] = tl::cast<T>(uint32_t(i[k]));
    out[6 * n + k] = tl::cast<T>(tl::vec<int, 2>{7, int(i[k])}).get(1);
    out[7 * n + k] = tl::cast<T>(tl::vec<uint32_t, 2>{uint32_t(i[k]), 7}).get(0);
    out[8 * n + k] = tl::cast<T>(tl::vec<int16_t, 2>{int16_t(i[k]), 7}).get(0);
  }
}
""" + "".join(
    f"""
extern "C" __global__ void convert_{t}(const {t}* x, float* f, double* d, {t}* back, int n) {{
  convert(x, f, d, back, n);
}}
extern "C" __global__ void arithmetic_{t}(const {t}* a, const {t}* b, {t}* out, int n) {{
  arithmetic(a, b, out, n);
}}
extern "C" __global__ void narrow_{t}(const double* d, const int64_t* i, {t}* out, int n) {{
  narrow(d, i, out, n);
}}
"""
    for t in DTYPES
)


def all_values(dtype):
    return np.arange(65536, dtype=np.uint16).view(dtype)


def assert_same(actual, expected):
    """Equal bit for bit, except that one NaN is as good as another."""
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(actual.astype(np.float32)), nan)
    np.testing.assert_array_equal(actual[~nan].view(np.uint16), expected[~nan].view(np.uint16))


def nearest(value, dtype):
    """The exact value rounded once, to nearest even, by its definition."""
    info = ml_dtypes.finfo(dtype)
    exact = Fraction(value)
    logarithm = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    exponent = max(int(info.minexp), logarithm)
    unit = Fraction(2) ** (exponent - info.nmant)
    rounded = round(exact / unit) * unit
    if abs(rounded) > Fraction(float(info.max)):
        return np.array(np.inf if exact > 0 else -np.inf, dtype)
    return np.array(float(rounded), dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_every_value_converts_to_float_and_back(run, name):
    x = all_values(DTYPES[name])
    f, d, back = np.zeros(65536, np.float32), np.zeros(65536), np.zeros_like(x)
    run(SOURCE, f"convert_{name}", [x, f, d, back, 65536])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(f, x.astype(np.float32))
        np.testing.assert_array_equal(d, x.astype(np.float64))
        assert_same(back, x)
    assert (back[np.isnan(f)].view(np.uint16) == 0x7FFF).all()


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("seed", [1, 2])
def test_arithmetic_rounds_once(run, name, seed):
    a = all_values(DTYPES[name])
    b = np.random.default_rng(seed).permutation(a)
    out = np.zeros((8, 65536), a.dtype)
    run(SOURCE, f"arithmetic_{name}", [a, b, out, 65536])
    with np.errstate(all="ignore"):
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        for i, op in enumerate([np.add, np.subtract, np.multiply, np.divide]):
            # float32 is wide enough that rounding its result again is exact.
            assert_same(out[i], op(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype))
        assert_same(out[4], -a)
        assert_same(out[5], np.fmax(wide_a, wide_b).astype(a.dtype))
        assert_same(out[6], np.fmin(wide_a, wide_b).astype(a.dtype))
        relation = (a < b) + 2 * (a == b) + 4 * (a >= b)
    np.testing.assert_array_equal(out[7].astype(int), relation)


@pytest.mark.parametrize("name", DTYPES)
def test_zeros_have_an_order(run, name):
    a = np.array([0.0, -0.0], DTYPES[name])
    out = np.zeros((8, 2), a.dtype)
    run(SOURCE, f"arithmetic_{name}", [a, a[::-1].copy(), out, 2])
    np.testing.assert_array_equal(np.signbit(out[5]), [False, False])
    np.testing.assert_array_equal(np.signbit(out[6]), [True, True])


@pytest.mark.parametrize("name", DTYPES)
def test_wide_values_round_once(run, name):
    dtype = DTYPES[name]
    some = np.abs(all_values(dtype)[:0x7800:97].astype(np.float64))
    middle = (some[:-1] + some[1:]) / 2
    tiny = 1 + 2.0**-45
    d = np.concatenate([some, middle, middle * tiny, middle / tiny, -middle * tiny])
    d = np.concatenate([d, [65519.99, 65520.0, 1e39, -1e300, 2.0**-25, 2.0**-25 * tiny]])
    rng = np.random.default_rng(0)
    i = rng.integers(1, 2**62, len(d)) >> rng.integers(0, 62, len(d))
    i[:4] = [2**40 + 2**32 + 1, -(2**40) - 2**32 - 1, 2**62 + 2**54, -(2**63)]
    i[4:7] = [2**24 + 2**16 + 1, -(2**31), 16777217]
    i[7:10] = [2**24 + 2**16, -(2**24) - 2**16, -(2**24) - 2**16 - 1]
    out = np.zeros((9, len(d)), dtype)
    run(SOURCE, f"narrow_{name}", [d, i, out, len(d)])
    unsigned, narrow, bits = i.view(np.uint64), i.astype(np.int32), i.astype(np.uint32)
    with np.errstate(all="ignore"):
        single = d.astype(np.float32)
    rows = [d, single, i, unsigned, narrow, bits, narrow, bits, i.astype(np.int16)]
    for row, values in enumerate(rows):
        finite = np.isfinite(values)
        expected = np.array([nearest(v.item(), dtype) for v in values[finite]], dtype)
        assert_same(out[row][finite], expected)
