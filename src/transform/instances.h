/*! Ranges that stand for several warp groups: T.ws(.., each=True). */
#pragma once
#include "../op/thread_range.h"
#include "../target/mma.h"
#include "../tvm/attrs.h"

namespace tl {

/*! The loop over warp groups of the branch that the first one takes; nullptr for other branches. */
inline const ForNode* InstancesOf(const IfThenElseNode* branch) {
  const auto* range = branch->then_case.as<AttrStmtNode>();
  const auto* loop = range && range->attr_key == kThreadRange ? range->body.as<ForNode>() : nullptr;
  return loop && IsInstances(loop) ? loop : nullptr;
}

/*! Whether such a loop has the form that it is made with. */
inline bool IsOverGroups(const ForNode* loop) {
  return loop->kind == ForKind::kSerial && IsConst(loop->min, 0) && !loop->step &&
         AsInt(loop->extent).value_or(0) > 0 && IntAnnotation(loop->annotations, kInstances);
}

/*! Whether its first group is the one whose range is around it. */
inline bool IsOfRange(const ForNode* loop, const AttrStmtNode* range) {
  const std::vector<ThreadRange> ranges = ThreadRangesOf(range);
  return IsOverGroups(loop) && ranges.size() == 1 && ranges[0].threads == kWarpGroupThreads &&
         ranges[0].first == *IntAnnotation(loop->annotations, kInstances) * kWarpGroupThreads;
}

}  // namespace tl
