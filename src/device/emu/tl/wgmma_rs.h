/*! Matrix products of a warp group with A from registers and B from shared memory. */
#pragma once

#include <tl/wgmma.h>

namespace tl {

/*! wgmma_ss with a from registers: each warp holds its 16 rows as for mma_sync. */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool b_k_major = true,
          bool negate_a = false, bool negate_b = false, typename B>
TL_DEVICE void wgmma_rs(TC* d, const mma_memory<TA>* a, B b, bool sum,
                        emu::Location where = emu::here()) {
  TL_ASSERT_WGMMA_EXISTS(M, N, K, TA, TB, TC, b_k_major);
  using Product = emu::WarpProduct<N, TA, TB, TC, true, true, b_k_major, negate_a, negate_b>;
  constexpr int kElements = 16 / int(sizeof(mma_memory<TA>));  // of one step
  for (int k = 0; k < detail::kWgmmaSteps<B>; ++k) {
    emu::wgmma<Product>("wgmma_rs",
                        {d, a + k * kElements, 0, detail::wgmma_step(b, k), sum || k > 0}, where);
  }
}

}  // namespace tl
