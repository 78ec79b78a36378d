// Every function of scalars, pairs and warps that the language names.
template <typename T>
__device__ T rounded(T x, T y) {
  T z = tl::add_rn(x, y) + tl::sub_rz(x, y) + tl::mul_ru(x, y) + tl::div_rd(x, y);
  z += tl::add_rz(x, y) + tl::sub_ru(x, y) + tl::mul_rd(x, y) + tl::div_rn(x, y);
  z += tl::rcp_rn(x) + tl::rcp_rz(x) + tl::sqrt_ru(x) + tl::sqrt_rd(y);
  return z + tl::fma_rn(x, y, z) + tl::fma_rz(x, y, z) + tl::fma_ru(x, y, z) + tl::fma_rd(x, y, z);
}
template <typename T>
__device__ void pairs(T* p) {
  const auto x = tl::load<T, 2>(p), y = tl::load<T, 2>(p + 2), z = tl::load<T, 2>(p + 4);
  const auto products = tl::mul2(tl::add2(x, y), tl::sub2(x, y));
  tl::store(p, tl::fma2(tl::max2(x, y), tl::min2(y, z), tl::abs2(products)));
}
template <typename T>
__device__ T fast(T x) {
  x = tl::fast_exp(x) + tl::fast_exp2(x) + tl::fast_exp10(x) + tl::fast_log(x) + tl::fast_rcp(x);
  x = x + tl::fast_log2(x) + tl::fast_log10(x) + tl::fast_sin(x) + tl::fast_cos(x);
  return x + tl::fast_tan(x) + tl::round_away(x);
}
template <typename T>
__device__ T lanes(T x) {
  x = tl::shfl_sync(~0u, x, 1, 32) + tl::shfl_up_sync(~0u, x, 1, 16);
  return tl::shfl_down_sync(~0u, x, 1, 8) + tl::shfl_xor_sync(~0u, x, 1, 4);
}
template <typename T>
__device__ uint32_t agreed(T x) {
  return tl::match_any_sync(~0u, x) + tl::match_all_sync(~0u, x);
}
extern "C" __global__ void scalars_kernel(float* f, double* d, half_t* h, bfloat16_t* b, int* i) {
  f[0] = tl::power(f[6], 5) + rounded(f[1], f[2]) + tl::rsqrt_rn(f[3]) + fast(f[4]) + lanes(f[5]);
  d[0] = rounded(d[1], d[2]) + lanes(d[3]) + tl::round_away(d[4]);
  h[0] = tl::power(h[5], i[9]) + fast(h[1]) + lanes(h[2]) + tl::load_read_only(h + 3);
  b[0] = fast(b[1]) + lanes(b[2]);
  tl::store(f + 8, fast(tl::load<float, 2>(f + 8)));
  pairs(f + 16);
  pairs(h + 16);
  pairs(b + 16);
  i[0] = tl::find_first_set(i[1]) + tl::find_first_set(uint64_t(i[2])) + agreed(i[3]);
  i[1] = tl::find_nth_set(i[3], i[4], i[5]) + agreed(f[6]) + agreed(d[5]);
  i[2] = tl::any_sync(~0u, i[3]) + tl::all_sync(~0u, i[4]) + tl::ballot_sync(~0u, i[5]);
  i[3] = tl::syncthreads_count(i[1]) + tl::syncthreads_and(i[2]) + tl::syncthreads_or(i[4]);
  i[4] = int(tl::activemask()) + tl::load_read_only(i + 5);
  tl::store_words(i + 8, tl::load_words<4>(f, i[7] != 0));
  tl::store_words(i + 16, tl::load_words<8>(f), i[7] != 0);
  tl::store_words(i + 6, tl::load_words<1>(i + 7));
  tl::dp4a((int8_t*)f, (int8_t*)d, i);
}
