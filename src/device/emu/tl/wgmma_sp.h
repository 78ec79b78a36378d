/*! Matrix products of a warp group with half of A stored. */
#pragma once

#include <tl/wgmma.h>

namespace tl {

/*! wgmma_ss with half of the elements of a stored, as the lanes' metadata tells. */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool b_k_major = true>
TL_DEVICE void wgmma_sp_ss(TC* d, uint64_t a, uint64_t b, uint32_t metadata, bool sum,
                           emu::Location where = emu::here()) {
  TL_ASSERT_WGMMA_SP_EXISTS(M, N, K, TA, TB, TC, b_k_major);
  using Product = emu::WarpProduct<N, TA, TB, TC, false, true, b_k_major, false, false, true>;
  emu::wgmma<Product>("wgmma_sp_ss", {d, nullptr, a, b, sum, metadata}, where);
}

}  // namespace tl
