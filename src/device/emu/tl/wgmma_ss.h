/*! Matrix products of a warp group with both operands from shared memory. */
#pragma once

#include <tl/wgmma.h>

namespace tl {

/*! Issues d = a * b + (sum ? d : 0) of the warp group, a and b from shared memory. */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool a_k_major = true,
          bool b_k_major = true, bool negate_a = false, bool negate_b = false, typename A,
          typename B>
TL_DEVICE void wgmma_ss(TC* d, A a, B b, bool sum, emu::Location where = emu::here()) {
  TL_ASSERT_WGMMA_EXISTS(M, N, K, TA, TB, TC, a_k_major && b_k_major);
  TL_ASSERT_WGMMA_STEPS(A, B);
  using Product = emu::WarpProduct<N, TA, TB, TC, false, a_k_major, b_k_major, negate_a, negate_b>;
  for (int k = 0; k < detail::kWgmmaSteps<B>; ++k) {
    const uint64_t a_k = detail::wgmma_step(a, k), b_k = detail::wgmma_step(b, k);
    emu::wgmma<Product>("wgmma_ss", {d, nullptr, a_k, b_k, sum || k > 0}, where);
  }
}

}  // namespace tl
