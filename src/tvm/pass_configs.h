/*! Pass configs that several passes ask (docs/configuration.md); those of one are where it is. */
#pragma once
#include "registry.h"

namespace tl {

inline constexpr const char* kDisableTma = "tl.disable_tma_lower";
inline constexpr const char* kDisableWarpSpecialized = "tl.disable_warp_specialized";

inline bool DisablesTma() { return PassConfigFlag(kDisableTma, false); }
inline bool DisablesWarpSpecialized() { return PassConfigFlag(kDisableWarpSpecialized, false); }
inline bool DisablesSafeMemoryAccess() {
  return PassConfigFlag("tl.disable_safe_memory_legalize", false);
}
inline bool EnablesAsyncCopy() { return PassConfigFlag("tl.enable_async_copy", true); }
inline bool DisablesVectorize() { return PassConfigFlag("tirx.disable_vectorize", false); }

}  // namespace tl
