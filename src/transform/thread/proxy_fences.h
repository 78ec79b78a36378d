/*!
 * Fences between what threads and what the async proxy access: where ThreadSync's walk places them.
 *
 * The walk tells of each node that it visits, in the order of the program: first of the barriers in
 * front of the node and of the node itself if it is one, then of its accesses (Place). A fence is a
 * mark of the node that it stands in front of. A second walk is needed if one thread's arrival may
 * tell another one of a write that stands later in the program.
 */
#pragma once
#include <set>
#include <unordered_map>
#include <vector>

#include "sync_state.h"

namespace tl {

class ProxyFences {
 public:
  ProxyFences(SharedConflict* conflict, ThreadSubsets* subsets)
      : conflict_(*conflict), subsets_(*subsets) {}

  /*! Whether the async proxy accesses memory in the tree; notes what it writes. */
  bool AreNeeded(const SyncNode& root);
  /*! Whether the last walk has met an arrival that may tell other threads of a write. */
  bool HaveTold() const { return !told_.empty(); }

  /*! Notes the barrier in front of which a fence for the accesses of its threads may stand. */
  void NoteBarrier(const SyncNode& node, SyncState* state);
  /*! A fence may also stand in front of a `sync_warp`, after which one lane arrives for its warp.
   * An access that a barrier has followed keeps that barrier, because it orders for all warps. */
  void NoteSyncWarp(const SyncNode& node, SyncState* state);
  /*! Places the fences that the node's accesses need, and notes those accesses. */
  void Place(const SyncNode& node, SyncState* state);

 private:
  bool IsFilled(const Var& buffer);
  bool NeedsFence(const SharedAccess& access, bool no_barrier, const SharedAccess& by_proxy);

  SharedConflict& conflict_;
  ThreadSubsets& subsets_;
  /*! Writes of threads with an arrival at an mbarrier behind them, and no fence between. */
  std::set<const SharedAccess*, Earlier> told_;
  std::vector<Var> filled_;  // buffers that the async proxy writes
  std::unordered_map<const Object*, bool> is_filled_;
};

}  // namespace tl
