#include <tl/exponential.h>

extern "C" __global__ void float8_kernel(const float* x, fp8_e4_t* e4, fp8_e5_t* e5, half_t* h) {
  tl::store(e4, tl::cast<fp8_e4_t>(tl::load<float, 8>(x)));
  tl::store(e5, tl::cast<fp8_e5_t>(tl::load<fp8_e4_t, 8>(e4 + 8)));
  tl::store(h, tl::cast<half_t>(tl::load<fp8_e5_t, 8>(e5 + 8)));
  h[8] = half_t(e4[0] * e4[1] - e4[2]);
  auto v = tl::exp(tl::load<fp8_e4_t, 4>(e4 + 16));
  v = v + tl::rsqrt(tl::load<fp8_e4_t, 4>(e4 + 20));
  tl::store(e4 + 16, tl::max(v, tl::min(tl::pow(v, v), tl::sigmoid(v))));
}
