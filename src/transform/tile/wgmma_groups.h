/*!
 * Groups of products in flight at a place of a tile program: what PlaceWgmmaWaits walks with.
 *
 * A queue is the groups that may be in flight there on one way through the program, the oldest
 * first; a state is the queues of all ways. A wait leaves the youngest n groups of whichever queue
 * it is, so n is the least that any of them allows.
 */
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "../../op/gemm.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"

namespace tl {

/*! A gemm that is issued as a group. */
struct WgmmaIssue {
  int order;  // in the program's text
  GemmOp op;
  Expr accumulator;  // the operator's argument
  WgmmaChoice choice;
  /*! T.wgmma_gemm: the program says itself who waits for it. */
  bool by_hand;
};

/*! One execution of it: how many iterations ago, for each loop around it. */
struct WgmmaGroup {
  static constexpr int kUnknown = -1, kMaxAge = 3;
  const WgmmaIssue* issue;
  std::map<const ForNode*, int> age;
  /*! A variable that its operands' indices are read from has been written since. */
  bool moved = false;

  bool operator<(const WgmmaGroup& o) const {
    return std::tie(issue->order, age, moved) < std::tie(o.issue->order, o.age, o.moved);
  }
  bool operator==(const WgmmaGroup& o) const {
    return issue == o.issue && age == o.age && moved == o.moved;
  }
};

struct WgmmaQueue {
  /*! wgmma.wait_group takes 0 to 7: older ones are told apart no longer. */
  static constexpr size_t kRecent = 7;
  std::set<WgmmaGroup> older;
  std::vector<WgmmaGroup> recent;

  bool operator<(const WgmmaQueue& o) const {
    return std::tie(older, recent) < std::tie(o.older, o.recent);
  }
  void Push(WgmmaGroup group);
  /*! Leaves the youngest n; returns the others. */
  std::vector<WgmmaGroup> Retire(size_t n);
};

using WgmmaState = std::set<WgmmaQueue>;

/*! A call of the tile operator `name`? */
bool IsTileOp(const CallNode* call, const char* name);

/*! What a statement touches: buffers under the names of their memory, with regions where known. */
struct TouchedMemory {
  struct Access {
    Var buffer;
    std::optional<TileRegion> region;
    bool writes;
  };
  std::vector<Access> accesses;
  /*! Someone else may do anything afterwards. */
  bool everything = false;
};

/*! Decides which groups a statement has to find complete. */
class WgmmaConflicts {
 public:
  WgmmaConflicts(const Views* views, Analyzer* analyzer) : views_(views), analyzer_(analyzer) {}

  /*! What a statement touches that issues no group. */
  TouchedMemory Touched(const Stmt& s) const;
  bool Conflicts(const TouchedMemory& touched, const WgmmaGroup& group) const;
  /*! The statement writes a variable that indices of the group's operands are read from. */
  bool Moves(const TouchedMemory& touched, const WgmmaGroup& group) const;
  /*! Has to wait for the group before it is issued. */
  bool Conflicts(const WgmmaIssue& next, const WgmmaGroup& group) const;

 private:
  bool Overlaps(const TouchedMemory::Access& access, const TileRegion& operand,
                const WgmmaGroup& group) const;

  const Views* views_;
  Analyzer* analyzer_;
};

/*! The youngest groups that may stay in flight, nullopt if all may. */
template <typename F>
std::optional<size_t> MayStay(const WgmmaState& state, F conflicts) {
  std::optional<size_t> least;
  for (const WgmmaQueue& q : state) {
    size_t n = 0;
    const size_t recent = q.recent.size();
    while (n < recent && !conflicts(q.recent[recent - 1 - n])) ++n;
    const bool found = n < recent || std::any_of(q.older.begin(), q.older.end(), conflicts);
    if (found && (!least || n < *least)) least = n;
  }
  return least;
}

}  // namespace tl
