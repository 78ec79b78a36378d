/*! Matrix products of a wavefront of 32 lanes (RDNA3 ISA, "Wave Matrix Multiply Accumulate"). */
#pragma once

#include <tl/wmma_shapes.h>

namespace tl {

#if __gfx1100__
namespace detail {

template <typename T, int n>
using WmmaRegisters = T __attribute__((ext_vector_type(n)));

template <typename To>
TL_DEVICE To wmma_registers(const void* from) {
  To to;
  memcpy(&to, from, sizeof(To));
  return to;
}

using WmmaSums = WmmaRegisters<float, 8>;
using WmmaIntegers = WmmaRegisters<int, 8>;
using WmmaBytes = WmmaRegisters<int, 4>;

template <typename T>
struct Wmma;
template <>
struct Wmma<half_t> {
  using Operand = WmmaRegisters<_Float16, 16>;
  static TL_DEVICE WmmaSums run(Operand a, Operand b, WmmaSums c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
  }
};
template <>
struct Wmma<bfloat16_t> {
  using Operand = WmmaRegisters<short, 16>;
  static TL_DEVICE WmmaSums run(Operand a, Operand b, WmmaSums c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
  }
};
template <bool has_signs>
struct WmmaOfBytes {
  using Operand = WmmaBytes;
  // Sums wrap around.
  static TL_DEVICE WmmaIntegers run(Operand a, Operand b, WmmaIntegers c) {
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(has_signs, a, has_signs, b, c, false);
  }
};
template <>
struct Wmma<int8_t> : WmmaOfBytes<true> {};
template <>
struct Wmma<uint8_t> : WmmaOfBytes<false> {};

}  // namespace detail

/*!
 * c += a * b on the registers of a wavefront, each pointer being to this lane's elements; sums are
 * formed in C. Register r of A is at row lane % 16, k = r, of B at k = r, column lane % 16: lanes l
 * and l + 16 give the same. Register r of C is in column lane % 16, at row 2 * r + lane / 16.
 */
template <int M, int N, int K, typename T, typename C>
TL_DEVICE void wmma(C* c, const T* a, const T* b) {
  TL_ASSERT_WMMA_EXISTS(M, N, K, T, C);
  using Operand = typename detail::Wmma<T>::Operand;
  using Sums = detail::WmmaRegisters<C, 8>;
  const Sums sums =
      detail::Wmma<T>::run(detail::wmma_registers<Operand>(a), detail::wmma_registers<Operand>(b),
                           detail::wmma_registers<Sums>(c));
  memcpy(c, &sums, sizeof(sums));
}
#endif

}  // namespace tl
