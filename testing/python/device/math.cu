#include <tl/exponential.h>
#include <tl/floor.h>
#include <tl/number_bits.h>
#include <tl/trigonometric.h>

template <typename T>
__device__ void functions(T* p) {
  const auto x = tl::load<T, 2>(p), y = tl::load<T, 2>(p + 2);
  auto z = tl::exp(x) + tl::exp2(x) * tl::exp10(x) - tl::log(x) / tl::log2(x) + tl::log10(x);
  z = z + tl::sqrt(x) + tl::rsqrt(x) + tl::sin(x) + tl::cos(x) + tl::tan(x) + tl::tanh(x);
  z = z + tl::sinh(x) + tl::cosh(x) + tl::atan(x) + tl::erf(x) + tl::abs(x) + tl::floor(x);
  z = z + tl::ceil(x) + tl::round(x) + tl::trunc(x) + tl::pow(x, y) + tl::fmod(x, y);
  z = z + tl::sigmoid(x) + tl::max(x, y) + tl::min(x, y) + tl::cast<T>(tl::isnan(x));
  z = z + tl::asin(x) + tl::acos(x) + tl::asinh(x) + tl::acosh(x) + tl::atanh(x) + tl::log1p(x);
  z = z + tl::atan2(x, y) + tl::hypot(x, y) + tl::copysign(x, y) + tl::nextafter(x, y);
  z = z + tl::ldexp(x, tl::ramp<int, 2>(-1, 1));
  z = z + tl::cast<T>(tl::isinf(x)) + tl::cast<T>(tl::isfinite(x));
  tl::store(p, tl::select(x < y, z, tl::ramp<T, 2>(T(0), T(1)) + tl::broadcast<T, 2>(T(2))));
}
extern "C" __global__ void functions_kernel(float* f, double* d, half_t* h, bfloat16_t* b) {
  functions(f);
  functions(d);
  functions(h);
  functions(b);
  tl::store(b, tl::cast<bfloat16_t>(tl::load<float, 8>(f)));
  tl::store(h, tl::cast<half_t>(tl::load<int, 8>(f)));
  const auto n = tl::cast<int64_t>(tl::load<double, 2>(d));
  tl::store(f, tl::cast<float>(tl::popcount(n) + tl::clz(n)));
  tl::store(f + 4, tl::cast<uint8_t>(tl::load<half_t, 4>(h)));
  d[4] = tl::floordiv(int(f[0]), int(f[1])) + tl::floormod(int(f[2]), int(f[3]));
  d[5] = tl::cast<uint64_t>(f[0]) + tl::cast<unsigned>(d[0]) + tl::bit_cast<int>(f[0]);
}
