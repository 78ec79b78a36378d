#include "../../analysis/predicated_load.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/operator.h"
#include "../../op/parallel.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "warp_roles.h"

namespace tl {
namespace {

constexpr int64_t kVectorBytes = 16;

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

bool HasProducts(const Stmt& s) {
  return HasNode<EvaluateNode>(s, [](const EvaluateNode* op) { return IsGemm(GetRef<Stmt>(op)); });
}

bool IsVectorCopy(const Stmt& s) {
  const auto* loop = s.as<ForNode>();
  if (!loop || loop->kind != ForKind::kParallel || !IsElementCopy(s)) return false;
  const ParallelNest nest = NestOfLoop(loop);
  const auto* store = nest.body.as<BufferStoreNode>();
  const auto* load = store ? store->value.as<TensorLoadNode>() : nullptr;
  if (!load || load->indices.size() != 1 || nest.loop_layout.defined()) return false;
  const int64_t vector = kVectorBytes * 8 / load->dtype().bits;
  Analyzer analyzer;
  const auto begins = [&](const Expr& place) {
    const Analyzer::Modular m = analyzer.ModularSet(analyzer.Simplify(place - nest.vars.back()));
    return m.coeff % vector == 0 && m.base % vector == 0;
  };
  return nest.vars.back().same_as(store->indices.back()) &&
         AsInt(nest.extents.back()).value_or(1) % vector == 0 && begins(load->indices[0]);
}

bool LoadsByCpAsync(const Stmt& kernel) {
  bool loads = false, only = true;
  const auto note = [&](bool by_cp_async) {
    loads = true;
    only &= by_cp_async;
  };
  ForEachIn<ForNode>(kernel, [&](const ForNode* loop) {
    if (!IsPipelined(loop)) return;
    for (const Stmt& s : FlatSeq(loop->body)) {
      if (IsTileLoad(s)) {
        const CopyChoice choice = ChoiceOf(AsTileOp(s));
        note(choice.Has(kByCpAsync) && choice.aligned >= kCpAsyncBytes);
      } else if (IsElementCopy(s)) {
        note(IsVectorCopy(s));
      }
    }
  });
  return loads && only;
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
