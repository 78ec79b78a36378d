"""Mathematical functions by type."""

import ml_dtypes
import numpy as np
import pytest

REFERENCES = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: 10**x,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "atan": np.arctan,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "half_t": np.float16,
    "bfloat16_t": ml_dtypes.bfloat16,
}
COUNT = 32
CALLS = "\n".join(f"  out[{i} * {COUNT} + i] = T(tl::{f}(x[i]));" for i, f in enumerate(REFERENCES))
SOURCE = f"""#include <tl/common.h>
#include <tl/exponential.h>
#include <tl/floor.h>
#include <tl/number_bits.h>
#include <tl/trigonometric.h>
template <typename T>
__device__ void functions(const T* x, T* out) {{
  const int i = threadIdx.x;
{CALLS}
}}
template <typename T>
__device__ void pairs(const T* x, const T* y, T* out) {{
  const int i = threadIdx.x * 2;
  const auto a = tl::load<T, 2>(x + i), b = tl::load<T, 2>(y + i);
  tl::store(out + i, tl::pow(a, b));
  tl::store(out + {COUNT} + i, tl::fmod(a, b));
  tl::store(out + {2 * COUNT} + i, tl::max(a, b));
  tl::store(out + {3 * COUNT} + i, tl::min(a, b));
}}
extern "C" __global__ void bits(const int64_t* x, int* out) {{
  const int i = threadIdx.x;
  out[i] = tl::popcount(x[i]);
  out[4 + i] = tl::clz(x[i]);
  out[8 + i] = tl::popcount(int(x[i]));
  out[12 + i] = tl::clz(int(x[i]));
  out[16 + i] = tl::abs(int(x[i]));
}}
extern "C" __global__ void sigmoid(const float* x, float* out) {{
  out[threadIdx.x] = tl::sigmoid(x[threadIdx.x]);
}}
extern "C" __global__ void error_function(const double* x, double* out) {{
  out[0] = tl::erf(x[0]);
  out[1] = tl::erf(float(x[0]));
}}
""" + "".join(
    f"""
extern "C" __global__ void functions_{t}(const {t}* x, {t}* out) {{ functions(x, out); }}
extern "C" __global__ void pairs_{t}(const {t}* x, const {t}* y, {t}* out) {{ pairs(x, y, out); }}
"""
    for t in DTYPES
)


def close(actual, expected, dtype):
    tolerance = 8 * float(ml_dtypes.finfo(dtype).eps)
    with np.errstate(over="ignore"):
        expected = expected.astype(dtype).astype(np.float64)
    np.testing.assert_allclose(actual.astype(np.float64), expected, tolerance, tolerance / 8)


@pytest.mark.parametrize("name", DTYPES)
def test_functions_of_one_argument(run, name):
    dtype = DTYPES[name]
    x = np.linspace(-4.5, 3.25, COUNT).astype(dtype)
    x[:4] = np.array([np.nan, np.inf, -np.inf, 0.5], dtype)
    out = np.zeros((len(REFERENCES), COUNT), dtype)
    run(SOURCE, f"functions_{name}", [x, out], block=COUNT)
    with np.errstate(all="ignore"):
        for row, reference in zip(out, REFERENCES.values(), strict=True):
            close(row, reference(x.astype(np.float64)), dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_functions_of_two_arguments(run, name):
    dtype = DTYPES[name]
    x, y = np.linspace(0.25, 4, COUNT).astype(dtype), np.linspace(3, -2, COUNT).astype(dtype)
    x[0], y[1] = np.nan, np.nan
    out = np.zeros((4, COUNT), dtype)
    run(SOURCE, f"pairs_{name}", [x, y, out], block=COUNT // 2)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    for row, function in zip(out, [np.power, np.fmod, np.fmax, np.fmin], strict=True):
        close(row, function(wide_x, wide_y), dtype)


def test_counts_of_bits(run):
    out = np.zeros((5, 4), np.int32)
    run(SOURCE, "bits", [np.array([0, 1, -1, 255]), out], block=4)
    rows = [[0, 1, 64, 8], [64, 63, 0, 56], [0, 1, 32, 8], [32, 31, 0, 24], [0, 1, 1, 255]]
    assert out.tolist() == rows


def test_erf(run):
    out = np.zeros(2)
    run(SOURCE, "error_function", [np.array([0.5]), out], block=1)
    np.testing.assert_allclose(out, 0.5204998778130465, 1e-6)


def test_sigmoid_of_large_numbers(run):
    """Where the exponential or the result is subnormal, or neither."""
    x = np.array([-200, -103, -100, -88, -87, -20, -1e-30, 17, 88, 200], np.float32)
    out = np.zeros_like(x)
    run(SOURCE, "sigmoid", [x, out], block=len(x))
    np.testing.assert_allclose(out, 1 / (1 + np.exp(-x.astype(np.float64))), 4e-7, 2e-45)
