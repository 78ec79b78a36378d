/*! Matrix products of a warp group with half of A stored, both operands from shared memory. */
#pragma once

#include <tl/wgmma_ss.h>

namespace tl {
namespace detail {

// As WgmmaTypes, with twice the elements along K.
template <typename TA, typename TB, typename TC, int unused = 0>
struct WgmmaSparseTypes;
#define TL_WGMMA_TYPES(TA, TB, TC, types)       \
  template <int unused>                         \
  struct WgmmaSparseTypes<TA, TB, TC, unused> { \
    static constexpr char text[] = types;       \
  };
TL_WGMMA_TYPES(half_t, half_t, float, "k32.f32.f16.f16")
TL_WGMMA_TYPES(half_t, half_t, half_t, "k32.f16.f16.f16")
TL_WGMMA_TYPES(bfloat16_t, bfloat16_t, float, "k32.f32.bf16.bf16")
TL_WGMMA_TYPES(fp8_e4_t, fp8_e4_t, float, "k64.f32.e4m3.e4m3")
TL_WGMMA_TYPES(fp8_e5_t, fp8_e5_t, float, "k64.f32.e5m2.e5m2")
TL_WGMMA_TYPES(int8_t, int8_t, int, "k64.s32.s8.s8")
TL_WGMMA_TYPES(uint8_t, uint8_t, int, "k64.s32.u8.u8")
#undef TL_WGMMA_TYPES

/*! What stands for a sparse operand. */
struct WgmmaStored {
  uint64_t shared;
  uint32_t metadata;
};

template <typename T, int registers, int steps>
struct WgmmaSparse;

#define TL_WGMMA_SP(T, n, steps)                                                      \
  template <>                                                                         \
  struct WgmmaSparse<T, n, steps> {                                                   \
    template <int N, typename Types, typename Rest, int first>                        \
    static TL_DEVICE void run(T* d, WgmmaStored a, uint64_t b, int sum) {             \
      TL_WGMMA_ASSEMBLY(T, n,                                                         \
                        "wgmma.mma_async.sp.sync.aligned.m64n%129%130 {" TL_NAMES_##n \
                        "}, %132, %133, %134, 0, p%131;\n",                           \
                        "l"(a.shared), "l"(b), "r"(a.metadata));                      \
    }                                                                                 \
  };
TL_WGMMA_PRODUCTS(TL_WGMMA_NONE, TL_WGMMA_NONE, TL_WGMMA_SP)
#undef TL_WGMMA_SP

}  // namespace detail

/*!
 * wgmma_ss with half of the elements of a stored, M x K / 2 and K-major: of every four those that
 * the lanes' metadata tells, in ascending order. Each warp's lanes have it for their 16 rows as for
 * mma_sp_sync. PTX ISA, wgmma.mma_async.sp with sparsity selector 0.
 */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool b_k_major = true>
TL_DEVICE void wgmma_sp_ss(TC* d, uint64_t a, uint64_t b, uint32_t metadata, bool sum) {
  TL_ASSERT_WGMMA_SP_EXISTS(M, N, K, TA, TB, TC, b_k_major);
  using Types = detail::WgmmaSparseTypes<TA, TB, TC>;
  const detail::WgmmaStored stored{a, metadata};
  if constexpr (is_same<TC, int>) {
    detail::wgmma<detail::WgmmaSparse, N, Types, detail::WgmmaNoRest>(d, stored, b, sum);
  } else if constexpr (is_half<TA>) {
    using Rest = detail::WgmmaSignsShared<false, false, true, b_k_major>;
    detail::wgmma<detail::WgmmaSparse, N, Types, Rest>(d, stored, b, sum);
  } else {
    using Rest = detail::WgmmaSigns<false, false>;
    detail::wgmma<detail::WgmmaSparse, N, Types, Rest>(d, stored, b, sum);
  }
}

}  // namespace tl
