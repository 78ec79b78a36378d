/*! Matrix products of a warp group with A from registers and B from shared memory. */
#pragma once

#include <tl/wgmma.h>
#include <tl/wgmma_registers.h>

namespace tl {
namespace detail {

// The products of 16-bit types also have the order of their shared operands: 0 is K-major.
template <bool a, bool b, bool b_major>
struct WgmmaSignsRegisters {
  static constexpr char text[] = {',', a ? '-' : ' ',       '1', ',', b ? '-' : ' ', '1',
                                  ',', b_major ? '0' : '1', 0};
};

#define TL_WGMMA_RS(T, kind, n, a0, a1, a2, a3, b, s, columns, types, rest)                     \
  template <int N, typename Types, typename Rest>                                               \
  static TL_DEVICE void run(T* d, const uint32_t* a, uint64_t b_shared, int sum) {              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #s                                        \
                 ", 0;\n"                                                                       \
                 "wgmma.mma_async.sync.aligned.m64n%" #columns "%" #types " {" TL_NAMES_##n     \
                 "}, "                                                                          \
                 "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p%" #rest ";\n}"           \
                 : TL_OPERANDS_##n(kind)                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_shared), "r"(sum), "n"(N), \
                   "C"(Types::text), "C"(Rest::text));                                          \
  }
#define TL_WGMMA_FLOATS(n, i1, i2, i3, i4, i5, i6, i7, i8)                      \
  template <>                                                                   \
  struct WgmmaRegisters<n> {                                                    \
    TL_WGMMA_RS(float, TL_FLOAT_REGISTER, n, n, i1, i2, i3, i4, i5, i6, i7, i8) \
  };
#define TL_WGMMA_WORDS(n, i1, i2, i3, i4, i5, i6, i7, i8)                         \
  template <>                                                                     \
  struct WgmmaRegisters<n> {                                                      \
    TL_WGMMA_RS(uint32_t, TL_WORD_REGISTER, n, n, i1, i2, i3, i4, i5, i6, i7, i8) \
  };
#define TL_WGMMA_BOTH(n, i1, i2, i3, i4, i5, i6, i7, i8)                          \
  template <>                                                                     \
  struct WgmmaRegisters<n> {                                                      \
    TL_WGMMA_RS(float, TL_FLOAT_REGISTER, n, n, i1, i2, i3, i4, i5, i6, i7, i8)   \
    TL_WGMMA_RS(uint32_t, TL_WORD_REGISTER, n, n, i1, i2, i3, i4, i5, i6, i7, i8) \
  };
TL_WGMMA_SIZES(TL_WGMMA_FLOATS, TL_WGMMA_WORDS, TL_WGMMA_BOTH)
#undef TL_WGMMA_RS
#undef TL_WGMMA_FLOATS
#undef TL_WGMMA_WORDS
#undef TL_WGMMA_BOTH

}  // namespace detail

/*!
 * wgmma_ss with a from registers: each warp holds its 16 rows as for mma_sync. Nobody writes them
 * before warpgroup_wait. PTX ISA, wgmma.mma_async.
 */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool b_k_major = true,
          bool negate_a = false, bool negate_b = false>
TL_DEVICE void wgmma_rs(TC* d, const mma_memory<TA>* a, uint64_t b, bool sum) {
  TL_ASSERT_WGMMA_EXISTS(M, N, K, TA, TB, TC, b_k_major);
  using Types = detail::WgmmaTypes<TA, TB, TC>;
  uint32_t registers[4];
  memcpy(registers, a, sizeof(registers));
  const uint32_t* from = registers;
  if constexpr (is_same<TC, int>) {
    detail::wgmma<detail::WgmmaRegisters, N, Types, detail::WgmmaNoRest>(d, from, b, sum);
  } else if constexpr (is_half<TA>) {
    using Rest = detail::WgmmaSignsRegisters<negate_a, negate_b, b_k_major>;
    detail::wgmma<detail::WgmmaRegisters, N, Types, Rest>(d, from, b, sum);
  } else {
    detail::wgmma<detail::WgmmaRegisters, N, Types, detail::WgmmaSigns<negate_a, negate_b>>(d, from,
                                                                                            b, sum);
  }
}

}  // namespace tl
