template <typename Op, typename T>
__device__ void warp(T* p) {
  T value = tl::AllReduce<Op, 8, 4>(p[threadIdx.x]);
  value = Op::run(value, tl::warp_scan<Op, 32>(value));
  p[threadIdx.x] = tl::warp_broadcast<31>(value);
}
template <typename T>
__device__ void numbers(T* p) {
  warp<tl::SumOp>(p);
  warp<tl::MaxOp>(p);
  warp<tl::MinOp>(p);
  warp<tl::MaxOpNan>(p);
  warp<tl::MinOpNan>(p);
}
template <typename T>
__device__ void bits(T* p) {
  warp<tl::BitAndOp>(p);
  warp<tl::BitOrOp>(p);
  warp<tl::BitXorOp>(p);
}
extern "C" __global__ void warp_kernel(float* f, double* d, half_t* h, bfloat16_t* b, int8_t* i1,
                                       int* i4, uint64_t* u8, bool* flags) {
  numbers(f);
  numbers(d);
  numbers(h);
  numbers(b);
  numbers(i1);
  numbers(i4);
  numbers(u8);
  bits(i1);
  bits(i4);
  bits(u8);
  bits(flags);
}
