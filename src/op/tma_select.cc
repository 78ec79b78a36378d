#include "tma_select.h"

#include "../tvm/attrs.h"
#include "../tvm/pass_configs.h"
#include "copy_instruction.h"
#include "im2col.h"
#include "launch_sized.h"
#include "tma_copy.h"
#include "tma_reduce.h"

namespace tl {
namespace {

/*! The sides of a call. */
struct TmaSides {
  TileRegion global, shared;
  bool loads;
};

TmaSides TmaSidesOf(const CallNode* call) {
  const TileRegion first = TileRegion::From(call->args[0]);
  const TileRegion second = TileRegion::From(call->args[1]);
  if (IsGlobal(first.buffer)) return {first, second, true};
  return {second, first, false};
}

/*! PTX ISA, cp.reduce.async.bulk.tensor: .add. */
bool HasAddition(DLDataType t) {
  if (t.code == kDLInt) return t.bits == 32;
  if (t.code == kDLUInt) return t.bits == 32 || t.bits == 64;
  return (t.code == kDLFloat && (t.bits == 16 || t.bits == 32)) || t.code == kDLBfloat;
}

std::string WhyNotAddition(const TmaSides& sides) {
  if (!IsShared(sides.shared.buffer)) {
    return std::string(sides.shared.buffer->name) + ", which is not in shared memory";
  }
  const DLDataType type = DTypeOf(sides.global.buffer);
  return HasAddition(type) ? "" : "elements of " + DTypeName(type);
}

/*! What the passes so far have against it. */
std::string WhyNotChosen(const CallNode* copy, const TmaSides& sides) {
  const CopyChoice choice = ChoiceOf(copy);
  if (!choice.Has(kByTma)) return "a copy that has TMA not among its candidates";
  return sides.loads && !choice.Is(kByTma) ? kUnwaited : "";
}

std::string Plan(const CallNode* call, const TmaSides& sides, Analyzer* analyzer,
                 TmaDecision* made) {
  const Expr e = GetRef<Expr>(call);
  if (IsCallTo(e, kIm2col) || IsCallTo(e, kTmaIm2col)) {
    return PlanIm2col(Im2col::From(call), made->layout, analyzer, &made->plan);
  }
  const bool is_demanded = !IsCopy(call) || ChoiceOf(call).demanded;
  const TmaProof proof = is_demanded ? TmaProof::kAtLaunch : TmaProof::kFully;
  const bool writes = !sides.loads || IsCallTo(e, kAtomic);
  return PlanTma(sides.global, sides.shared, made->layout, writes, proof, analyzer, &made->plan);
}

}  // namespace

std::string WhyNotTmaTarget(const Target& target) {
  return target.Has(Feature::kTma) ? "" : "a target without TMA (" + target.arch + ")";
}

std::string WhyNotTmaAsked(const CallNode* copy) {
  // The unit knows tensors by their strides.
  if (const Any placed = TileOpAttr(copy, kPlacedTensor); placed != nullptr) {
    return "the layout of " + std::string(placed.cast<String>()) + " (T.annotate_layout)";
  }
  for (const Expr& arg : copy->args) {
    const auto* region = arg.as<TensorRegionNode>();
    if (!region || !IsSizedAtLaunch(region->source.as_or_throw<Var>())) continue;
    return "a tile whose extents only the launch knows";
  }
  if (DisablesTma()) return kDisableTma;
  if (TileOpIntAttr(copy, "disable_tma", 0)) return "disable_tma=True";
  if (TileOpIntAttr(copy, "is_async_copy", 0)) return "T.async_copy";
  if (TileOpAttr(copy, "parallel_loop_layout") != nullptr) return "a loop_layout";
  if (TileOpIntAttr(copy, "coalesced_width", 0)) return "a coalesced_width";
  const Any prefer = TileOpAttr(copy, "prefer_instruction");
  if (prefer == nullptr || prefer.cast<String>() == "tma") return "";
  return "prefer_instruction=\"" + std::string(prefer.cast<String>()) + "\"";
}

TmaDecision SelectTma(const CallNode* call, TmaMoment moment, const Layout& layout,
                      const Target& target, Analyzer* analyzer) {
  TmaDecision made;
  const TmaSides sides = TmaSidesOf(call);
  if (IsCopy(call)) {
    made.why = moment == TmaMoment::kCandidate ? WhyNotTmaAsked(call) : WhyNotChosen(call, sides);
  }
  if (made.why.empty()) made.why = WhyNotTmaTarget(target);
  if (made.why.empty() && IsCallTo(call, kAtomic)) made.why = WhyNotAddition(sides);
  if (!made.why.empty()) return made;
  if (layout.defined()) {
    made.layout = layout;
  } else if (moment == TmaMoment::kFinal) {
    made.layout = MakeLinearLayout(ConstShape(sides.shared.buffer));
  } else {
    made.layout = sides.loads ? ProposeTmaLayout(sides.shared) : ProposeStoreLayout(sides.shared);
  }
  made.why = Plan(call, sides, analyzer, &made);
  return made;
}

}  // namespace tl
