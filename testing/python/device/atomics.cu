// Each operation on each type that has it, with and without result; the orders by turns.
template <tl::MemoryOrder order, typename T>
__device__ void extrema(T* p) {
  p[1] = tl::fetch_max<order>(p, p[2]);
  p[3] = tl::fetch_min<order>(p, p[4]);
  tl::atomic_max<order>(p, p[5]);
  tl::atomic_min<order>(p, p[6]);
  p[7] = tl::fetch_add<order>(p, p[8]);
  tl::atomic_add<order>(p, p[9]);
  tl::atomic_store<tl::seq_cst>(p, tl::atomic_load<order == tl::relaxed ? order : tl::acquire>(p));
}
template <tl::MemoryOrder order, typename T>
__device__ void integers(T* p) {
  extrema<order>(p);
  p[1] = tl::fetch_or<order>(p, p[2]);
  tl::atomic_or<order>(p, p[3]);
}
template <tl::MemoryOrder order, int N, typename T>
__device__ void vectors(T* p) {
  tl::store(p + 8, tl::fetch_add<order>(p, tl::load<T, N>(p + 16)));
  tl::atomic_add<order>(p, tl::load<T, N>(p + 24));
}
template <tl::MemoryOrder order>
__device__ void floats(float* f, double* d, half_t* h, bfloat16_t* b) {
  extrema<order>(f); extrema<order>(d); extrema<order>(h); extrema<order>(b);
  vectors<order, 2>(f); vectors<order, 2>(h); vectors<order, 2>(b);
  vectors<order, 4>(f); vectors<order, 4>(h); vectors<order, 4>(b);
}
extern "C" __global__ void atomics_kernel(float* f, double* d, half_t* h, bfloat16_t* b, int* i,
                                          uint32_t* u, int64_t* l, uint64_t* m) {
  floats<tl::relaxed>(f, d, h, b);
  floats<tl::acq_rel>(f, d, h, b);
  integers<tl::relaxed>(i);
  integers<tl::release>(u);
  integers<tl::consume>(l);
  integers<tl::seq_cst>(m);
}
