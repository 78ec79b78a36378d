/*! Matrix products of a warp group with A from registers and B from shared memory. */
#pragma once

#include <tl/wgmma.h>

namespace tl {
namespace detail {

// The products of 16-bit types also have the order of their shared operands: 0 is K-major.
template <bool a, bool b, bool b_major>
struct WgmmaSignsRegisters {
  static constexpr char text[] = {',', a ? '-' : ' ',       '1', ',', b ? '-' : ' ', '1',
                                  ',', b_major ? '0' : '1', 0};
};

#define TL_WGMMA_RS_STEP(names, sum, a0, a1, a2, a3, b)                                         \
  "wgmma.mma_async.sync.aligned.m64n%129%130 {" names "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 \
  "}, %" #b ", " sum "%131;\n"
#define TL_WGMMA_RS_INPUT(k)                                                         \
  "r"(a[4 * (first + k)]), "r"(a[4 * (first + k) + 1]), "r"(a[4 * (first + k) + 2]), \
      "r"(a[4 * (first + k) + 3]), "l"(wgmma_step(b, first + k))
#define TL_WGMMA_RS_STEPS_1(names) TL_WGMMA_RS_STEP(names, "p", 132, 133, 134, 135, 136)
#define TL_WGMMA_RS_STEPS_2(names) \
  TL_WGMMA_RS_STEPS_1(names) TL_WGMMA_RS_STEP(names, "q", 137, 138, 139, 140, 141)
#define TL_WGMMA_RS_STEPS_3(names) \
  TL_WGMMA_RS_STEPS_2(names) TL_WGMMA_RS_STEP(names, "q", 142, 143, 144, 145, 146)
#define TL_WGMMA_RS_STEPS_4(names) \
  TL_WGMMA_RS_STEPS_3(names) TL_WGMMA_RS_STEP(names, "q", 147, 148, 149, 150, 151)
#define TL_WGMMA_RS_STEPS_5(names) \
  TL_WGMMA_RS_STEPS_4(names) TL_WGMMA_RS_STEP(names, "q", 152, 153, 154, 155, 156)
#define TL_WGMMA_RS_STEPS_6(names) \
  TL_WGMMA_RS_STEPS_5(names) TL_WGMMA_RS_STEP(names, "q", 157, 158, 159, 160, 161)
#define TL_WGMMA_RS_STEPS_7(names) \
  TL_WGMMA_RS_STEPS_6(names) TL_WGMMA_RS_STEP(names, "q", 162, 163, 164, 165, 166)
#define TL_WGMMA_RS_STEPS_8(names) \
  TL_WGMMA_RS_STEPS_7(names) TL_WGMMA_RS_STEP(names, "q", 167, 168, 169, 170, 171)
#define TL_WGMMA_RS_INPUTS_1 TL_WGMMA_RS_INPUT(0)
#define TL_WGMMA_RS_INPUTS_2 TL_WGMMA_RS_INPUTS_1, TL_WGMMA_RS_INPUT(1)
#define TL_WGMMA_RS_INPUTS_3 TL_WGMMA_RS_INPUTS_2, TL_WGMMA_RS_INPUT(2)
#define TL_WGMMA_RS_INPUTS_4 TL_WGMMA_RS_INPUTS_3, TL_WGMMA_RS_INPUT(3)
#define TL_WGMMA_RS_INPUTS_5 TL_WGMMA_RS_INPUTS_4, TL_WGMMA_RS_INPUT(4)
#define TL_WGMMA_RS_INPUTS_6 TL_WGMMA_RS_INPUTS_5, TL_WGMMA_RS_INPUT(5)
#define TL_WGMMA_RS_INPUTS_7 TL_WGMMA_RS_INPUTS_6, TL_WGMMA_RS_INPUT(6)
#define TL_WGMMA_RS_INPUTS_8 TL_WGMMA_RS_INPUTS_7, TL_WGMMA_RS_INPUT(7)

#define TL_WGMMA_RS(T, n, steps)                                           \
  template <>                                                              \
  struct WgmmaRegisters<T, n, steps> {                                     \
    template <int N, typename Types, typename Rest, int first, typename B> \
    static TL_DEVICE void run(T* d, const uint32_t* a, B b, int sum) {     \
      TL_WGMMA_ASSEMBLY(T, n, TL_WGMMA_RS_STEPS_##steps(TL_NAMES_##n),     \
                        TL_WGMMA_RS_INPUTS_##steps);                       \
    }                                                                      \
  };
TL_WGMMA_PRODUCTS(TL_WGMMA_NONE, TL_WGMMA_RS, TL_WGMMA_NONE)
#undef TL_WGMMA_RS

}  // namespace detail

/*!
 * wgmma_ss with a from registers: each warp holds its 16 rows as for mma_sync, step by step. Nobody
 * writes them before warpgroup_wait. PTX ISA, wgmma.mma_async.
 */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool b_k_major = true,
          bool negate_a = false, bool negate_b = false, typename B>
TL_DEVICE void wgmma_rs(TC* d, const mma_memory<TA>* a, B b, bool sum) {
  TL_ASSERT_WGMMA_EXISTS(M, N, K, TA, TB, TC, b_k_major);
  using Types = detail::WgmmaTypes<TA, TB, TC>;
  uint32_t registers[4 * detail::kWgmmaSteps<B>];
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
