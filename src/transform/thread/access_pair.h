/*! Two accesses of one block's threads, and what their iterations have in common. */
#pragma once
#include <vector>

#include "shared_conflict.h"

namespace tl {

/*! The thread indices around a node. */
std::vector<Var> ThreadVars(const SyncNode* node);
/*! The `for` loops around a node, the outermost first. */
std::vector<const SyncNode*> LoopsAround(const SyncNode* node);
inline const ForNode* LoopOf(const SyncNode* n) { return n->stmt.as<ForNode>(); }

/*! The values of a loop's variable: its axis, or where its range depends on loops around it, one
 * that holds all of them, with the conditions that they meet. nullopt where no constants bound it.
 */
struct LoopRange {
  Axis axis;
  std::vector<std::pair<Expr, bool>> conditions = {};
};
std::optional<LoopRange> RangeOf(const SyncNode* loop, Analyzer* analyzer);

/*! Which loops are in one iteration for both accesses (`same`) or in any two (`free`). */
struct AccessPair {
  AccessPair(const SharedAccess& a, const SharedAccess& b, SharedConflict::Distance distance);

  const SharedAccess& a;
  const SharedAccess& b;
  SharedConflict::Distance distance;
  std::vector<const SyncNode*> same, a_free, b_free;

 private:
  bool IsSame(const SyncNode* loop) const;
};

}  // namespace tl
