/*! Intrinsics of the tensor memory access unit (sm_90): copies of boxes and of bytes. */
#include "intrinsics.h"

namespace tl {

std::vector<Intrinsic> TmaIntrinsics() {
  constexpr Access kRead = Access::kRead, kWrite = Access::kWrite, kBarrier = Access::kBarrier,
                   kEngineRead = Access::kEngineRead, kEngineWrite = Access::kEngineWrite;
  return {
      // An argument of those below; see MakeDescriptor in tma_copy.cc. SplitHostDevice makes it a
      // parameter.
      {kCreateTmaDescriptor, "tl::create_tma_descriptor", "tl/tma.h", 0, {}},
      // tma_load<hint>(descriptor, barrier, shared, coordinates..), innermost first
      {kTmaLoad, "tl::tma_load", "tl/tma.h", 1, {kRead, kBarrier, kEngineWrite}},
      // tma_load_multicast<hint>(descriptor, barrier, shared, blocks, coordinates..)
      {kTmaLoadMulticast, "tl::tma_load_multicast", "tl/tma.h", 1, {kRead, kBarrier, kEngineWrite}},
      // tma_store<hint>(descriptor, shared, coordinates..)
      {kTmaStore, "tl::tma_store", "tl/tma.h", 1, {kWrite, kEngineRead}},
  };
}

bool IsBulkStore(const CallNode* call) { return IsCallTo(GetRef<Expr>(call), kTmaStore); }

int TmaSwizzle(const CallNode* descriptor) {
  // Behind type, rank and address: extents, strides, box and element strides, and the interleave.
  const int64_t number = ToInt(descriptor->args[3 + 4 * ToInt(descriptor->args[1]) + 1]);
  return number == 0 ? 0 : 16 << number;
}

}  // namespace tl
