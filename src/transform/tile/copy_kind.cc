#include "../../analysis/predicated_load.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/operator.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "warp_roles.h"

namespace tl {
namespace {

/*! cp.async makes all of the copy, and keeps all threads busy. */
bool IsForCpAsync(const CallNode* copy, const CopyChoice& choice, int64_t threads) {
  if (!choice.Has(kByCpAsync) || choice.aligned < kCpAsyncBytes) return false;
  const TileRegion dst = TileRegion::From(copy->args[1]);
  int64_t elements = 1;
  for (const Range& r : dst.ranges) elements *= AsInt(r->extent).value_or(0);
  const int64_t bits = DTypeOf(dst.buffer).bits;
  return elements >= std::max<int64_t>(1, kCpAsyncBytes * 8 / bits) * threads;
}

}  // namespace

bool IsTileLoad(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  return call && IsCopy(call) && IsGlobal(TileRegion::From(call->args[0]).buffer) &&
         IsShared(TileRegion::From(call->args[1]).buffer);
}

bool IsElementCopy(const Stmt& s) {
  if (!s.as<ForNode>() || AsTileOp(s)) return false;
  bool only = true;
  ForEachIn<BufferStoreNode>(s, [&](const BufferStoreNode* store) {
    only &= AsPredicatedLoad(store->value) && IsShared(store->buffer);
  });
  return only && !HasNode<EvaluateNode>(s);
}

bool IsGemm(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  return call && IsGemm(call);
}

bool IsFetchTile(const Stmt& s) { return AsTileOp(s, kFetchTile) != nullptr; }

CopyKind CopyKindOf(const Stmt& copy, int64_t threads, std::string* why) {
  const CallNode* call = AsTileOp(copy);
  if (!call) {
    *why = "it is a loop over elements";
    return copy.as<ForNode>() ? CopyKind::kThreads : CopyKind::kNothing;
  }
  if (TileOpIntAttr(call, "is_async_copy", 0)) {
    *why = "T.async_copy commits copies of its own";
    return CopyKind::kNothing;
  }
  if (!IsTileLoad(copy)) {
    *why = "it is no copy of a tile";
    return CopyKind::kNothing;
  }
  const CopyChoice choice = ChoiceOf(call);
  *why = choice.WhyNot(kByTma);
  if (why->empty()) return CopyKind::kTma;
  if (choice.Is(kByTma)) return CopyKind::kNothing;
  return IsForCpAsync(call, choice, threads) ? CopyKind::kCpAsync : CopyKind::kThreads;
}

}  // namespace tl
