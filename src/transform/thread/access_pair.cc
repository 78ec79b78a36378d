#include "access_pair.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "../../tvm/attrs.h"

namespace tl {

std::vector<Var> ThreadVars(const SyncNode* node) {
  std::vector<Var> vars;
  for (const SyncNode* n = node; n; n = n->parent) {
    const auto* op = n->stmt.as<AttrStmtNode>();
    if (!op || op->attr_key != kThreadExtent) continue;
    const IterVar axis = op->node.cast<IterVar>();
    if (!IsBlockAxis(axis)) vars.push_back(axis->var);
  }
  return vars;
}

std::vector<const SyncNode*> LoopsAround(const SyncNode* node) {
  std::vector<const SyncNode*> loops;
  for (const SyncNode* n = node->parent; n; n = n->parent) {
    if (n->stmt.as<ForNode>()) loops.push_back(n);
  }
  std::reverse(loops.begin(), loops.end());
  return loops;
}

std::optional<LoopRange> RangeOf(const SyncNode* loop, Analyzer* analyzer) {
  const ForNode* op = LoopOf(loop);
  if (const std::optional<Axis> axis = AxisOf(op)) return LoopRange{*axis};
  if (op->step && AsInt(*op->step) != 1) return std::nullopt;
  const Expr end = op->min + op->extent;
  const int64_t first = analyzer->ConstBound(op->min).min;
  const int64_t last = analyzer->ConstBound(end).max - 1;
  const auto is_small = [](int64_t v) { return std::abs(v) <= INT32_MAX; };
  if (!is_small(first) || !is_small(last) || last < first) return std::nullopt;
  return LoopRange{{op->loop_var, first, last - first + 1},
                   {{op->loop_var >= op->min, true}, {op->loop_var < end, true}}};
}

AccessPair::AccessPair(const SharedAccess& a, const SharedAccess& b,
                       SharedConflict::Distance distance)
    : a(a), b(b), distance(distance) {
  for (const SyncNode* loop : LoopsAround(a.node)) {
    (IsSame(loop) ? same : a_free).push_back(loop);
  }
  for (const SyncNode* loop : LoopsAround(b.node)) {
    if (!IsSame(loop)) b_free.push_back(loop);
  }
}

bool AccessPair::IsSame(const SyncNode* loop) const {
  return a.node->IsInside(loop) && b.node->IsInside(loop) &&
         (!distance.loop || loop->depth < distance.loop->depth);
}

}  // namespace tl
