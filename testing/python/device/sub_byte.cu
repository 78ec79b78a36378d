template <typename T>
__device__ void both(const uint8_t* x, uint8_t* y, float* f) {
  const auto v = tl::load<T, 8>(x + threadIdx.x * 4);
  tl::store(f + threadIdx.x * 8, tl::cast<float>(v) + tl::cast<float>(tl::cast<half_t>(v)));
  tl::store(y + threadIdx.x * 4, tl::cast<T>(tl::load<float, 8>(f)));
  tl::store(y + 256, tl::select(tl::load<float, 2>(f) < tl::load<float, 2>(f + 2),
                                tl::broadcast<T, 2>(T(1)), tl::load<T, 2>(x)));
  uint8_t own[4];
  tl::set_sub_byte(own, 3, tl::cast<T>(f[0]));
  f[1] = float(tl::get_sub_byte<T>(own, 3));
}
extern "C" __global__ void sub_byte_kernel(const uint8_t* x, uint8_t* y, float* f) {
  both<int4b_t>(x, y, f);
  both<uint4b_t>(x, y, f);
  both<fp4_e2_t>(x, y, f);
}
