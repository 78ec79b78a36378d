/*! Matrix products of a warp group with both operands from shared memory. */
#pragma once

#include <tl/wgmma.h>

namespace tl {
namespace detail {

// The products of 16-bit types also have the order of their shared operands: 0 is K-major.
template <bool a, bool b, bool a_major, bool b_major>
struct WgmmaSignsShared {
  static constexpr char text[] = {
      ',', a ? '-' : ' ',       '1', ',', b ? '-' : ' ', '1', ',', a_major ? '0' : '1',
      ',', b_major ? '0' : '1', 0};
};

#define TL_WGMMA_SS_STEP(names, sum, a, b) \
  "wgmma.mma_async.sync.aligned.m64n%129%130 {" names "}, %" #a ", %" #b ", " sum "%131;\n"
#define TL_WGMMA_SS_INPUT(k) "l"(wgmma_step(a, first + k)), "l"(wgmma_step(b, first + k))
#define TL_WGMMA_SS_STEPS_1(names) TL_WGMMA_SS_STEP(names, "p", 132, 133)
#define TL_WGMMA_SS_STEPS_2(names) TL_WGMMA_SS_STEPS_1(names) TL_WGMMA_SS_STEP(names, "q", 134, 135)
#define TL_WGMMA_SS_STEPS_3(names) TL_WGMMA_SS_STEPS_2(names) TL_WGMMA_SS_STEP(names, "q", 136, 137)
#define TL_WGMMA_SS_STEPS_4(names) TL_WGMMA_SS_STEPS_3(names) TL_WGMMA_SS_STEP(names, "q", 138, 139)
#define TL_WGMMA_SS_STEPS_5(names) TL_WGMMA_SS_STEPS_4(names) TL_WGMMA_SS_STEP(names, "q", 140, 141)
#define TL_WGMMA_SS_STEPS_6(names) TL_WGMMA_SS_STEPS_5(names) TL_WGMMA_SS_STEP(names, "q", 142, 143)
#define TL_WGMMA_SS_STEPS_7(names) TL_WGMMA_SS_STEPS_6(names) TL_WGMMA_SS_STEP(names, "q", 144, 145)
#define TL_WGMMA_SS_STEPS_8(names) TL_WGMMA_SS_STEPS_7(names) TL_WGMMA_SS_STEP(names, "q", 146, 147)
#define TL_WGMMA_SS_INPUTS_1 TL_WGMMA_SS_INPUT(0)
#define TL_WGMMA_SS_INPUTS_2 TL_WGMMA_SS_INPUTS_1, TL_WGMMA_SS_INPUT(1)
#define TL_WGMMA_SS_INPUTS_3 TL_WGMMA_SS_INPUTS_2, TL_WGMMA_SS_INPUT(2)
#define TL_WGMMA_SS_INPUTS_4 TL_WGMMA_SS_INPUTS_3, TL_WGMMA_SS_INPUT(3)
#define TL_WGMMA_SS_INPUTS_5 TL_WGMMA_SS_INPUTS_4, TL_WGMMA_SS_INPUT(4)
#define TL_WGMMA_SS_INPUTS_6 TL_WGMMA_SS_INPUTS_5, TL_WGMMA_SS_INPUT(5)
#define TL_WGMMA_SS_INPUTS_7 TL_WGMMA_SS_INPUTS_6, TL_WGMMA_SS_INPUT(6)
#define TL_WGMMA_SS_INPUTS_8 TL_WGMMA_SS_INPUTS_7, TL_WGMMA_SS_INPUT(7)

#define TL_WGMMA_SS(T, n, steps)                                                       \
  template <>                                                                          \
  struct WgmmaShared<T, n, steps> {                                                    \
    template <int N, typename Types, typename Rest, int first, typename A, typename B> \
    static TL_DEVICE void run(T* d, A a, B b, int sum) {                               \
      TL_WGMMA_ASSEMBLY(T, n, TL_WGMMA_SS_STEPS_##steps(TL_NAMES_##n),                 \
                        TL_WGMMA_SS_INPUTS_##steps);                                   \
    }                                                                                  \
  };
TL_WGMMA_PRODUCTS(TL_WGMMA_SS, TL_WGMMA_NONE, TL_WGMMA_NONE)
#undef TL_WGMMA_SS

}  // namespace detail

/*!
 * Issues d = a * b + (sum ? d : 0) of the warp group, a and b from shared memory: a is M x K, b is
 * K x N, or several such steps along K (tl::wgmma_steps); `negate_a` and `negate_b` change their
 * signs. Lane l of warp w of the group holds elements
 * (16 * w + l / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (l % 4) + i % 2) of d. All 128 threads call
 * it; nobody touches d or writes the operands before warpgroup_wait. tf32 is the upper 19 bits of a
 * float. PTX ISA, wgmma.mma_async.
 */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool a_k_major = true,
          bool b_k_major = true, bool negate_a = false, bool negate_b = false, typename A,
          typename B>
TL_DEVICE void wgmma_ss(TC* d, A a, B b, bool sum) {
  TL_ASSERT_WGMMA_EXISTS(M, N, K, TA, TB, TC, a_k_major && b_k_major);
  TL_ASSERT_WGMMA_STEPS(A, B);
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
