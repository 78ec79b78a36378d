/*! What ThreadSync knows at a place in a program: accesses that no barrier, wait or fence has
 * ordered on some path to it. */
#pragma once
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "shared_conflict.h"
#include "thread_subset.h"

namespace tl {

/*! An access that a later one may conflict with. */
struct Pending {
  const SharedAccess* access;
  SharedConflict::Distance distance;
  int ordered_for = ThreadSubsets::kNone;  // threads that have met at a barrier since the access
  bool in_groups = false;                  // each warp group has had its own barrier since
  /*! The number of a marked barrier behind the access without which the rest is so; 0 if the rest
   * is so as barriers are marked. */
  int without = 0;

  /*! No barrier and no other iteration has come. */
  bool IsAsNew() const {
    return !distance.loop && ordered_for == ThreadSubsets::kNone && !in_groups && without == 0;
  }
};

// Orders accesses by their place in the program, so that equal programs get equal plans.
struct Earlier {
  bool operator()(const SharedAccess* a, const SharedAccess* b) const {
    return a->order < b->order;
  }
  bool operator()(const Pending& a, const Pending& b) const { return Key(a) < Key(b); }
  static std::tuple<int, int, bool, int, bool, int> Key(const Pending& p) {
    return {p.access->order, p.distance.loop ? p.distance.loop->depth : -1,
            p.distance.next, p.ordered_for,
            p.in_groups,     p.without};
  }
};

/*! Sorted, each once. A vector, since states are copied far more often than they grow. */
class PendingSet {
 public:
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }
  void clear() { items_.clear(); }
  void Insert(const Pending& p) {
    const auto place = std::lower_bound(items_.begin(), items_.end(), p, Earlier());
    if (place == items_.end() || Earlier()(p, *place)) items_.insert(place, p);
  }
  void Insert(const PendingSet& others) {
    std::vector<Pending> all;
    all.reserve(items_.size() + others.items_.size());
    std::set_union(items_.begin(), items_.end(), others.items_.begin(), others.items_.end(),
                   std::back_inserter(all), Earlier());
    items_ = std::move(all);
  }

 private:
  std::vector<Pending> items_;
};

/*! What some path to this place has left without order. */
struct SyncState {
  PendingSet pending;  // accesses since the last barrier
  /*! Asynchronous operations that may be in flight. Each has the number of groups that were
   * committed since it was issued, its own group included: the least number on any path. */
  std::map<const SharedAccess*, int64_t, Earlier> in_flight;
  /*! Accesses of threads that no proxy fence has followed: their writes, and their reads of what
   * the async proxy writes. Each has the last barriers that followed it, one for each path; nullptr
   * stands for a path without a barrier. */
  std::map<const SharedAccess*, std::set<const SyncNode*>, Earlier> unfenced;

  void Join(const SyncState& o) {
    pending.Insert(o.pending);
    for (const auto& [access, groups] : o.in_flight) {
      const auto [it, added] = in_flight.insert({access, groups});
      if (!added) it->second = std::min(it->second, groups);
    }
    for (const auto& [access, barriers] : o.unfenced) {
      unfenced[access].insert(barriers.begin(), barriers.end());
    }
  }
};

}  // namespace tl
