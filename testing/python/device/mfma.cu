// Products of each type; PRODUCTS are those of the architecture.
template <int M, int K, typename T, typename C>
__device__ void product(const unsigned char* bytes, unsigned char* out) {
  using Memory = tl::mma_memory<T>;
  constexpr int kOperand = M * K / 64, kResult = M * M / 64;
  alignas(16) Memory a[kOperand], b[kOperand];
  alignas(16) C c[kResult] = {};
  for (int i = 0; i < kOperand; ++i) a[i] = ((const Memory*)bytes)[i * 64 + threadIdx.x];
  for (int i = 0; i < kOperand; ++i) b[i] = ((const Memory*)bytes)[4096 + i * 64 + threadIdx.x];
  tl::mfma<M, M, K, T, C>(c, a, b);
  for (int i = 0; i < kResult; ++i) ((C*)out)[i * 64 + threadIdx.x] += c[i];
}
extern "C" __global__ void __launch_bounds__(64) products_kernel(
    const unsigned char* __restrict__ x, unsigned char* __restrict__ out) {
  PRODUCTS
}
