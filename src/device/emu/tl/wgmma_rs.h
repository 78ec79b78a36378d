/*! Matrix products of a warp group with A from registers and B from shared memory. */
#pragma once

#include <tl/wgmma.h>

namespace tl {

/*! wgmma_ss with a from registers: each warp holds its 16 rows as for mma_sync. */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool b_k_major = true,
          bool negate_a = false, bool negate_b = false>
TL_DEVICE void wgmma_rs(TC* d, const mma_memory<TA>* a, uint64_t b, bool sum,
                        emu::Location where = emu::here()) {
  TL_ASSERT_WGMMA_EXISTS(M, N, K, TA, TB, TC, b_k_major);
  using Product = emu::WarpProduct<N, TA, TB, TC, true, true, b_k_major, negate_a, negate_b>;
  emu::wgmma<Product>("wgmma_rs", {d, a, 0, b, sum}, where);
}

}  // namespace tl
