/*! Matrix products of a warp group with both operands from shared memory. */
#pragma once

#include <tl/wgmma.h>
#include <tl/wgmma_registers.h>

namespace tl {
namespace detail {

// The products of 16-bit types also have the order of their shared operands: 0 is K-major.
template <bool a, bool b, bool a_major, bool b_major>
struct WgmmaSignsShared {
  static constexpr char text[] = {
      ',', a ? '-' : ' ',       '1', ',', b ? '-' : ' ', '1', ',', a_major ? '0' : '1',
      ',', b_major ? '0' : '1', 0};
};

#define TL_WGMMA_SS(T, kind, n, a, b, s, columns, types, rest)                              \
  template <int N, typename Types, typename Rest>                                           \
  static TL_DEVICE void run(T* d, uint64_t a_shared, uint64_t b_shared, int sum) {          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #s                                    \
                 ", 0;\n"                                                                   \
                 "wgmma.mma_async.sync.aligned.m64n%" #columns "%" #types " {" TL_NAMES_##n \
                 "}, "                                                                      \
                 "%" #a ", %" #b ", p%" #rest ";\n}"                                        \
                 : TL_OPERANDS_##n(kind)                                                    \
                 : "l"(a_shared), "l"(b_shared), "r"(sum), "n"(N), "C"(Types::text),        \
                   "C"(Rest::text));                                                        \
  }
#define TL_WGMMA_FLOATS(n, i1, i2, i3, i4, i5, ...)                 \
  template <>                                                       \
  struct WgmmaShared<n> {                                           \
    TL_WGMMA_SS(float, TL_FLOAT_REGISTER, n, n, i1, i2, i3, i4, i5) \
  };
#define TL_WGMMA_WORDS(n, i1, i2, i3, i4, i5, ...)                    \
  template <>                                                         \
  struct WgmmaShared<n> {                                             \
    TL_WGMMA_SS(uint32_t, TL_WORD_REGISTER, n, n, i1, i2, i3, i4, i5) \
  };
#define TL_WGMMA_BOTH(n, i1, i2, i3, i4, i5, ...)                     \
  template <>                                                         \
  struct WgmmaShared<n> {                                             \
    TL_WGMMA_SS(float, TL_FLOAT_REGISTER, n, n, i1, i2, i3, i4, i5)   \
    TL_WGMMA_SS(uint32_t, TL_WORD_REGISTER, n, n, i1, i2, i3, i4, i5) \
  };
TL_WGMMA_SIZES(TL_WGMMA_FLOATS, TL_WGMMA_WORDS, TL_WGMMA_BOTH)
#undef TL_WGMMA_SS
#undef TL_WGMMA_FLOATS
#undef TL_WGMMA_WORDS
#undef TL_WGMMA_BOTH

}  // namespace detail

/*!
 * Issues d = a * b + (sum ? d : 0) of the warp group, a and b from shared memory: a is M x K, b is
 * K x N, `negate_a` and `negate_b` change their signs. Lane l of warp w of the group holds elements
 * (16 * w + l / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (l % 4) + i % 2) of d. All 128 threads call
 * it; nobody touches d or writes the operands before warpgroup_wait. tf32 is the upper 19 bits of a
 * float. PTX ISA, wgmma.mma_async.
 */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool a_k_major = true,
          bool b_k_major = true, bool negate_a = false, bool negate_b = false>
TL_DEVICE void wgmma_ss(TC* d, uint64_t a, uint64_t b, bool sum) {
  TL_ASSERT_WGMMA_EXISTS(M, N, K, TA, TB, TC, a_k_major && b_k_major);
  using Types = detail::WgmmaTypes<TA, TB, TC>;
  if constexpr (is_same<TC, int>) {
    detail::wgmma<detail::WgmmaShared, N, Types, detail::WgmmaNoRest>(d, a, b, sum);
  } else if constexpr (is_half<TA>) {
    using Rest = detail::WgmmaSignsShared<negate_a, negate_b, a_k_major, b_k_major>;
    detail::wgmma<detail::WgmmaShared, N, Types, Rest>(d, a, b, sum);
  } else {
    detail::wgmma<detail::WgmmaShared, N, Types, detail::WgmmaSigns<negate_a, negate_b>>(d, a, b,
                                                                                         sum);
  }
}

}  // namespace tl
