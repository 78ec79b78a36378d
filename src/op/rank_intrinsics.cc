#include "rank_intrinsics.h"

#include "../tvm/attrs.h"

namespace tl {

std::vector<Intrinsic> RankIntrinsics() {
  constexpr IntrinsicEffects kPure = IntrinsicEffects::None();
  // Who hears of a signal may read and overwrite what this block has copied.
  constexpr IntrinsicEffects kTells = kPure.Tells(ThreadScope::kGrid);
  constexpr Access kNone = Access::kNone, kRead = Access::kRead, kAtomic = Access::kAtomic;
  return {
      // Other ranks write to the tensor while the kernel runs, as atomic operations do.
      {kPeer, "tl::peer", "tl/rank.h", 0, {kAtomic, kRead, kNone, kNone}, kPure},
      {kMapOfPeer, "tl::peer_map", "tl/rank.h", 0, {}, kPure},
      {kTensorMapAt, "tl::tensor_map_at", "tl/rank.h", 0, {}, kPure},
      {kBeforeSignal, "tl::before_signal", "tl/rank.h", 0, {}, kTells},
      {kBehindWait, "tl::behind_wait", "tl/rank.h", 0, {}, kPure},
      {kSignalSet, "tl::signal_set", "tl/rank.h", 0, {kAtomic, kNone}, kTells},
      {kSignalAdd, "tl::signal_add", "tl/rank.h", 0, {kAtomic, kNone}, kTells},
      {kSignalWait,
       "tl::signal_wait_until",
       "tl/rank.h",
       1,
       {kAtomic, kNone, kNone, kNone},
       kTells},
      {kSyncRanksArrive,
       "tl::sync_ranks_arrive",
       "tl/rank.h",
       0,
       {kAtomic, kAtomic, kNone, kNone, kNone, kNone, kRead},
       kTells},
      {kSyncRanksWait,
       "tl::sync_ranks_wait",
       "tl/rank.h",
       0,
       {kAtomic, kNone, kNone, kNone, kNone},
       kTells},
  };
}

bool OrdersRanks(const CallNode* call) {
  const Expr e = GetRef<Expr>(call);
  return IsCallTo(e, kSignalOp) || IsCallTo(e, kSignalWaitOp) || IsCallTo(e, kSyncRanksOp);
}

}  // namespace tl
