#include "sync_ranges.h"

namespace tl {
SyncNode* EndOfLargerRange(const Pending& earlier, const SyncNode& later) {
  const SyncNode* range = earlier.access->node->range;
  if (!range || !later.range || later.IsInside(range)) return nullptr;
  SyncNode* end = range->body.back().get();
  return end->groups.Contains(later.groups) ? end : nullptr;
}

const SyncNode* InFrontOfRanges(const SyncNode* place, const Pending& earlier) {
  const SyncNode* a = earlier.access->node;
  const SyncNode* around = place->parent;
  if (!around->has_range || (a->range && a->range->IsInside(around))) return place;
  const SyncNode* first = nullptr;
  bool is_behind = false;
  for (const auto& n : place->in_otherwise ? around->otherwise : around->body) {
    is_behind |= n.get() == place;
    if (n->has_range && is_behind) return first ? first : place;
    if (n->has_range && !first) first = n.get();
    if (!is_behind && !earlier.distance.loop && a->IsInside(n.get())) first = nullptr;
  }
  return place;
}

}  // namespace tl
