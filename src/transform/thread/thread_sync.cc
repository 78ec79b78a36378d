/*!
 * ThreadSync: barriers between accesses of one place in memory by different threads of a block.
 *
 * In:  a thread program with explicit asynchronous copies, commits and waits. Shared buffers have
 *      their offsets where several have a byte in common.
 * Out: the same with barriers and proxy fences.
 * Establishes: between two conflicting accesses there is a barrier on every path. Accesses conflict
 *      if two threads of a block make them, one is a write, and both are of one byte of shared
 *      memory or of one element of a tensor that the kernel writes.
 *
 * Barriers. A barrier is `tvm_storage_sync`. In a region that whole warps run, chosen by the thread
 * index, it is `tl.sync_threads_partial`. If each of several warp groups waits for its own accesses
 * only, each has a barrier of its own. Barriers of the program count. A barrier stands as late as
 * possible, but outside of loops that do not need it in each iteration; a superfluous one is
 * dropped. `tl.disable_thread_storage_sync` leaves barriers out, and keeps fences.
 *
 * Asynchronous copies. To earlier accesses, a copy writes where it is issued. To later accesses, it
 * writes at each wait for it: the copying thread sees its bytes then, others after a barrier.
 *
 * Fences. If threads write what the async proxy reads (a store by TMA, an operand of wgmma), or
 * access what it writes, these threads also need a proxy fence. It stands in front of the last
 * barrier between the two accesses on each path. If an mbarrier, not a barrier, connects them, it
 * stands in front of the async proxy's access. An arrival at an mbarrier or at a cluster's barrier
 * may permit the async proxy to overwrite what the threads have read. So if the async proxy writes
 * the buffer, a fence stands in front of the arrival, or of the `sync_warp` after which one lane
 * arrives for its warp. If waits for wgmma stand in front of the arrival, it stands before them.
 *
 * The async proxy. A bulk copy or a wgmma may read its sources until the wait for its group. A
 * write that an mbarrier signals is ordered by the program with accesses of the same buffer, and by
 * barriers with those of other buffers in the same bytes. A write that all threads wait for at once
 * is ordered with everything behind it.
 *
 * The plan. The walk goes over the program; of a loop it walks an iteration, the next one, and one
 * later. A state is the set of accesses since the last barrier on some path, each with the threads
 * for which a barrier has ordered it. At the first conflict a barrier is marked, and the walk goes
 * on in front of the statement around both, or of the outermost loop around it that is walked
 * again. Iterations of a parallel nest are independent: one is walked, and where its threads meet
 * nowhere, no barrier is between its own accesses (kIndependentNest). Statements that neither
 * access memory that threads share nor wait are not walked. Another walk finds what is superfluous:
 * beside the state it has, for each barrier, what would be pending without that one alone.
 *
 * Refused (ValueError): two conflicting accesses in a region that neither all threads nor whole
 * warps known here run together; a barrier of the block in a region that not all threads run; one
 * that threads are missing at which left the kernel before; a jump outside of loops; more sets of
 * threads than the hardware has barriers.
 *
 * Tensors: two parameters are two memories, unless T.annotate_restrict_buffers names both. What
 * other blocks do with a tensor, barriers do not order. Where threads may meet nowhere, a conflict
 * in a tensor gives a warning, not an error: what lanes or flags order there is not seen here.
 * Copies by TMA are ordered among each other by their waits, for which there is one thread.
 *
 * What threads do in ranges of warp groups apart (`tl.thread_range`) is ordered by the program,
 * with mbarriers; in one range, the range's threads order it among themselves. If one of two ranges
 * contains the threads of the other, the threads of the larger one meet, inside of it; the block
 * meets on targets without named barriers. A barrier between ranges that share only some of their
 * threads is one of the block. A range that stands for several warp groups is one of each
 * (sync_instances.h). The ranges run side by side: a barrier for an access in front of
 * them stands in front of the first one, not between. A barrier of the block in a role that was the
 * kernel (`tl.warp_role`) becomes one of the role's threads.
 */
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "../../op/intrinsics.h"
#include "../../op/loop_layout.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "leaving_threads.h"
#include "named_barriers.h"
#include "proxy_fences.h"
#include "sync_instances.h"
#include "sync_ranges.h"
#include "sync_state.h"

namespace tl {
namespace {

using Kind = SyncNode::Kind;
using Mark = SyncNode::Mark;

class SyncPlanner {
 public:
  SyncPlanner(const Stmt& body, const Target& target)
      : tree_(BuildSyncTree(body, target.warp_threads)),
        conflict_(tree_),
        subsets_(target.warp_threads),
        has_subset_barriers_(target.Has(Feature::kNamedBarriers)),
        fences_(&conflict_, &subsets_) {}

  /*! If `places_barriers` is false, only fences are placed: the program has its own order. */
  Stmt Plan(bool places_barriers) {
    if (places_barriers) {
      Walk(Aim::kMark);
      Prune();
    }
    if (fences_.AreNeeded(*tree_.root)) {
      Walk(Aim::kFence);
      // An arrival may tell other threads of a write that stands later in the program, or in the
      // other branch. So the accesses are walked once more when all such writes are known.
      if (fences_.HaveTold()) Walk(Aim::kFence);
      MoveFencesBeforeWaits(tree_.root.get());
    }
    RefuseBarriersWithoutAll(*tree_.root, &subsets_);
    MarkBarriersOfRoles(tree_.root.get());
    NamedBarriers(&subsets_).Assign(tree_.root.get());
    return WithBarriers(*tree_.root);
  }

 private:
  struct Conflict {
    Pending earlier;
    const SharedAccess* later;
  };
  struct LoopExits {
    SyncState breaks, continues;
  };

  /*! What a walk is for: to see whether barriers order everything, to mark them, to find those
   * without which the others do not, to place fences. */
  enum class Aim : uint8_t { kCheck, kMark, kFindNeeded, kFence };

  /*! False if there is a conflict that no barrier orders. A walk that marks barriers leaves none.
   */
  bool Walk(Aim aim) {
    aim_ = aim;
    SyncState state;
    found_.reset();
    return aim == Aim::kMark ? MarkAndVisit(*tree_.root, &state) : Visit(*tree_.root, &state);
  }

  // The visits return false when they have found a conflict.
  bool Visit(const SyncNode& node, SyncState* state) {
    if (node.plan->mark != Mark::kNone) PassMark(node, state);
    if (aim_ == Aim::kFence) {
      fences_.Place(node, state);
    } else if (!Check(node, *state)) {
      return false;
    }
    for (const SharedAccess& a : node.accesses) {
      if (!a.signalled && !a.waited) AddPending(a, state);
      if (a.queue != AsyncQueue::kNone) state->in_flight[&a] = 0;
    }
    switch (node.kind) {
      case Kind::kScope:
        return VisitSequence(node.body, state);
      case Kind::kLoop:
        return VisitLoop(node, state);
      case Kind::kIf: {
        SyncState otherwise = *state;
        if (!VisitSequence(node.body, state)) return false;
        if (!VisitSequence(node.otherwise, &otherwise)) return false;
        state->Join(otherwise);
        return true;
      }
      case Kind::kBarrier:
        VisitBarrier(node, state);
        return true;
      case Kind::kCommit:
        for (auto& [copy, groups] : state->in_flight) {
          if (copy->queue == node.queue && node.groups.Contains(copy->node->groups)) ++groups;
        }
        return true;
      case Kind::kWait:
        VisitWait(node, state);
        return true;
      case Kind::kBreak:
        exits_.back().breaks.Join(*state);
        return true;
      case Kind::kContinue:
        exits_.back().continues.Join(*state);
        return true;
      case Kind::kLeaf:
        fences_.NoteSyncWarp(node, state);
        if (IsBarrierOfMore(node)) OrderTensors(state);
        return true;
    }
    return true;
  }

  bool VisitSequence(const std::vector<std::unique_ptr<SyncNode>>& nodes, SyncState* state) {
    return AllOf(nodes, [&](const auto& n) {
      if (n->is_inert && n->plan->mark == Mark::kNone) return true;
      return aim_ == Aim::kMark && !is_later_ ? MarkAndVisit(*n, state) : Visit(*n, state);
    });
  }

  /*! Adds an access, unless a like one is pending: what orders that one orders this one. */
  static void AddPending(const SharedAccess& access, SyncState* state) {
    const bool is_known = AnyOf(state->pending, [&](const Pending& p) {
      return p.access->like == access.like && p.IsAsNew();
    });
    if (!is_known) state->pending.Insert({&access, {}});
  }

  /*! Visits a statement in the first iteration of each loop around it, and marks a barrier for each
   * conflict in it. False if the barrier belongs in front of an enclosing or an earlier statement:
   * the enclosing sequence is then visited again. */
  bool MarkAndVisit(const SyncNode& node, SyncState* state) {
    // A leaf in which a conflict is found has not changed the state.
    const bool is_leaf = node.kind == Kind::kLeaf;
    const SyncState before = is_leaf ? SyncState() : *state;
    const LoopExits exits = is_leaf || exits_.empty() ? LoopExits() : exits_.back();
    while (!Visit(node, state)) {
      if (found_) place_ = InsertBarrier(*std::exchange(found_, std::nullopt));
      if (!place_->IsInside(&node)) return false;
      if (is_leaf) continue;
      *state = before;
      if (!exits_.empty()) exits_.back() = exits;
    }
    return true;
  }

  /*! A marked barrier. A walk that finds those that are needed keeps what would be pending without
   * this one. */
  void PassMark(const SyncNode& node, SyncState* state) {
    fences_.NoteBarrier(node, state);
    const int number = aim_ == Aim::kFindNeeded ? node.plan->number : 0;
    PendingSet behind;
    for (const Pending& p : state->pending) {
      if (needed_[p.without]) continue;
      if (p.without != 0 && p.without == number) {
        behind.Insert(p);
        continue;
      }
      const std::optional<Pending> ordered = Behind(node, p);
      if (ordered) behind.Insert(*ordered);
      const bool is_same = ordered && !Earlier()(p, *ordered) && !Earlier()(*ordered, p);
      if (number == 0 || p.without != 0 || is_same || needed_[number]) continue;
      Pending without = p;
      without.without = number;
      behind.Insert(without);
    }
    state->pending = std::move(behind);
  }

  /*! An access that is pending in front of a marked barrier as it is behind it; nullopt if it is
   * ordered with all that follows. */
  std::optional<Pending> Behind(const SyncNode& barrier, Pending p) {
    if (barrier.plan->mark == Mark::kBlock) return std::nullopt;
    const int set = subsets_.At(&barrier);
    if (barrier.plan->mark == Mark::kSubset) return Ordered(set, p);
    p.in_groups |= subsets_.Contains(set, subsets_.At(p.access->node));
    return p;
  }

  bool Check(const SyncNode& node, const SyncState& state) {
    for (const SharedAccess& later : node.accesses) {
      for (const Pending& earlier : state.pending) {
        // Most accesses of a long program without loops are apart.
        if (conflict_.AreApart(*earlier.access, later)) continue;
        if (aim_ == Aim::kFindNeeded && earlier.without == 0) continue;
        if (needed_[earlier.without]) continue;
        if (node.groups.IsDisjoint(earlier.access->node->groups)) continue;
        if (earlier.ordered_for != ThreadSubsets::kNone &&
            subsets_.Contains(earlier.ordered_for, subsets_.At(&node))) {
          continue;
        }
        if (later.signalled && later.buffer.same_as(earlier.access->buffer)) continue;
        if (left_.count({earlier.access, &later, earlier.distance.loop})) continue;
        if (AreOfNest(earlier, later) &&
            (IsProved(later) || promised_.count({earlier.access, &later}))) {
          continue;
        }
        using Between = SharedConflict::Between;
        const Between between = earlier.in_groups ? Between::kWarpGroups : Between::kThreads;
        if (!conflict_.MayConflict(*earlier.access, later, earlier.distance, between)) continue;
        if (earlier.without != 0) {
          needed_[earlier.without] = true;
          continue;
        }
        found_ = Conflict{earlier, &later};
        return false;
      }
    }
    return true;
  }

  /*! The innermost nest of independent iterations around a node, nullptr where there is none. */
  static const SyncNode* NestAround(const SyncNode* node) {
    const auto is_nest = [](const SyncNode* n) {
      const auto* attr = n->stmt.as<AttrStmtNode>();
      return attr && attr->attr_key == kIndependentNest;
    };
    while (node && !is_nest(node)) node = node->parent;
    return node;
  }
  static bool IsProved(const SharedAccess& access) {
    return IsConst(NestAround(access.node)->stmt.as<AttrStmtNode>()->value, kProvedNest);
  }

  /*! Whether threads make both accesses in one run of a nest of independent iterations. */
  static bool AreOfNest(const Pending& earlier, const SharedAccess& later) {
    const auto is_threads = [](const SharedAccess& a) {
      return a.queue == AsyncQueue::kNone && !a.by_warp && !a.async_proxy;
    };
    if (!is_threads(*earlier.access) || !is_threads(later)) return false;
    const SyncNode* nest = NestAround(later.node);
    const SyncNode* carrier = earlier.distance.loop;
    return nest && earlier.access->node->IsInside(nest) && (!carrier || carrier->IsInside(nest));
  }

  /*! Whether all threads of the block meet at a call: a barrier of the cluster, or a vote. */
  static bool IsBarrierOfMore(const SyncNode& node) {
    return node.meets_in_order && DivergentAround(node).empty();
  }

  static void OrderTensors(SyncState* state) {
    PendingSet left;
    for (const Pending& p : state->pending) {
      if (!p.access->tensor) left.Insert(p);
    }
    state->pending = std::move(left);
  }

  /*! The threads of a set meet at a barrier: their accesses are ordered with their later ones. */
  void Order(int set, SyncState* state) {
    PendingSet ordered;
    for (const Pending& p : state->pending) ordered.Insert(Ordered(set, p));
    state->pending = std::move(ordered);
  }
  Pending Ordered(int set, Pending p) {
    if (subsets_.Contains(set, subsets_.At(p.access->node))) {
      p.ordered_for = subsets_.Union(p.ordered_for, set);
    }
    return p;
  }

  /*! A named barrier counts if the threads that run it are exactly those that it waits for. */
  void VisitBarrier(const SyncNode& node, SyncState* state) {
    if (node.of_role) {
      fences_.NoteBarrier(node, state);
      Order(subsets_.At(&node), state);
    } else if (!node.named) {
      RefuseDivergentBarrier(node);
      fences_.NoteBarrier(node, state);
      state->pending.clear();
    } else if (subsets_.Meeting(&node) == node.named->threads) {
      fences_.NoteBarrier(node, state);
      Order(subsets_.At(&node), state);
    }
  }

  void VisitWait(const SyncNode& node, SyncState* state) {
    decltype(state->in_flight) left;
    for (const auto& [copy, groups] : state->in_flight) {
      if (copy->queue != node.queue || node.groups.IsDisjoint(copy->node->groups)) {
        left[copy] = groups;
        continue;
      }
      // For threads that do not wait here, the copy stays in flight.
      const bool is_complete = node.in_flight == 0 || groups > node.in_flight;
      if (!is_complete || !node.groups.Contains(copy->node->groups)) left[copy] = groups;
      std::unique_ptr<SharedAccess>& end = completed_[{&node, copy}];
      if (!end) {
        end = std::make_unique<SharedAccess>(EndOf(*copy, &node));
        end->order = tree_.accesses + static_cast<int>(completed_.size());
      }
      state->pending.Insert({end.get(), {}});
    }
    state->in_flight = std::move(left);
  }

  /*! Walks iterations k and k + 1, and one for all later iterations if iteration k has left
   * accesses that no barrier of iteration k + 1 has ordered. */
  bool VisitLoop(const SyncNode& loop, SyncState* state) {
    const auto* op = loop.stmt.as<ForNode>();
    int64_t least = 0, most = INT64_MAX;
    if (op && !op->step && AsInt(op->extent)) least = most = ToInt(op->extent);
    if (op && op->annotations.count(kIndependentIterations)) most = std::min<int64_t>(most, 1);
    const SyncState before = *state;
    SyncState breaks;
    if (!VisitIteration(loop, state, &breaks, true)) return false;
    SyncState all = *state;
    if (most >= 2) {
      SyncState next = *state;
      next.pending = Shifted(state->pending, loop);
      if (!VisitIteration(loop, &next, &breaks, false)) return false;
      all.Join(next);
      SyncState far = next;
      far.pending = Survivors(next.pending, loop);
      if (most >= 3 && !far.pending.empty()) {
        if (!VisitIteration(loop, &far, &breaks, false)) return false;
        all.Join(far);
      }
    }
    all.Join(breaks);
    if (least < 1) all.Join(before);
    state->in_flight = all.in_flight;
    state->unfenced = all.unfenced;
    state->pending.clear();
    for (Pending p : all.pending) {
      if (p.distance.loop == &loop) p.distance = {};
      state->pending.Insert(p);
    }
    return true;
  }

  bool VisitIteration(const SyncNode& loop, SyncState* state, SyncState* breaks, bool is_first) {
    const bool is_around_later = std::exchange(is_later_, is_later_ || !is_first);
    exits_.emplace_back();
    const bool ordered = VisitSequence(loop.body, state);
    breaks->Join(exits_.back().breaks);
    state->Join(exits_.back().continues);
    exits_.pop_back();
    is_later_ = is_around_later;
    return ordered;
  }

  /*! The pending accesses as the next iteration sees them. */
  static PendingSet Shifted(const PendingSet& pending, const SyncNode& loop) {
    PendingSet out;
    for (Pending p : pending) {
      const bool outer = p.distance.loop && p.distance.loop->depth < loop.depth;
      const bool inside = p.access->node != &loop && p.access->node->IsInside(&loop);
      if (inside && !outer) p.distance = {&loop, true};
      out.Insert(p);
    }
    return out;
  }

  /*! Those that no barrier of the next iteration has ordered, as later iterations see them. */
  static PendingSet Survivors(const PendingSet& pending, const SyncNode& loop) {
    PendingSet out;
    for (Pending p : pending) {
      if (p.distance.loop != &loop) continue;
      p.distance.next = false;
      out.Insert(p);
    }
    return out;
  }

  static void RefuseDivergentBarrier(const SyncNode& node) {
    const std::vector<const SyncNode*> regions = DivergentAround(node);
    if (regions.empty()) return;
    ThrowAt(node.stmt->span, "ValueError",
            "found a barrier in a region" + At(*regions[0]) +
                " that may not be run by all threads of the block together, wanted one that all "
                "threads reach; move it out of the region, make the region's condition the same "
                "for all threads, or use T.sync_threads(barrier_id, arrive_count)");
  }

  static std::string At(const SyncNode& node) {
    const std::string where = Where(node.stmt->span);
    return where.empty() ? "" : " (" + where + ")";
  }

  /*!
   * Marks a barrier that orders a conflict, and gives its place. The place begins as the statement
   * with the later access. It moves out of every loop and branch that the earlier access is outside
   * of, up to the loop that carries the conflict. Then it moves out of divergent regions, as long
   * as the earlier access is outside of them, and from between ranges of threads to their front.
   */
  const SyncNode* InsertBarrier(const Conflict& c) {
    const SyncNode* a = c.earlier.access->node;
    const SyncNode* carrier = c.earlier.distance.loop;
    const SyncNode* place = c.later->node;
    // The threads of both accesses are those of the later one's range: they meet by themselves.
    const bool own =
        a->range && place->range &&
        (has_subset_barriers_ ? place->groups.Contains(a->groups) : place->groups == a->groups);
    if (SyncNode* end = own ? nullptr : EndOfLargerRange(c.earlier, *place)) {
      // Jumps may leave the range elsewhere.
      if (end->plan->mark == Mark::kNone && has_subset_barriers_ && subsets_.Meeting(end)) {
        end->plan->mark = Mark::kSubset;
        return end;
      }
    }
    auto is_body = [&](const SyncNode* around) {
      return carrier ? around == carrier : a->IsInside(around);
    };
    while (!is_body(place->parent) && !(own && place->parent == place->range)) {
      place = place->parent;
    }
    for (const SyncNode* region : DivergentAround(*place)) {
      const bool around = carrier && carrier->depth < region->depth;
      if (a->IsInside(region) && !around) continue;
      if (own && region->depth < place->range->depth) continue;
      place = region;
      break;
    }
    place = InFrontOfRanges(place, c.earlier);
    if (place->first_instance) place = place->first_instance;
    if (place->plan->mark != Mark::kNone && place->plan->mark != Mark::kGroups) {
      ThrowBug(place->stmt->span, "ThreadSync", "a barrier does not order the accesses around it");
    }
    const std::vector<const SyncNode*> regions = DivergentAround(*place);
    if (!regions.empty() && !(has_subset_barriers_ && subsets_.Meeting(place))) {
      if (AreOfNest(c.earlier, *c.later)) {
        promised_.insert({c.earlier.access, c.later});
        return c.later->node;
      }
      if (!c.later->tensor) RefuseDivergentConflict(c, *regions[0]);
      LeaveToProgram(c, *regions[0]);
      return c.later->node;
    }
    place->plan->mark = regions.empty()              ? Mark::kBlock
                        : MayMeetInGroups(*place, c) ? Mark::kGroups
                                                     : Mark::kSubset;
    return place;
  }

  /*! Whether a barrier of each warp group by itself orders the conflict, and no other conflict has
   * marked a larger barrier here. */
  bool MayMeetInGroups(const SyncNode& place, const Conflict& c) {
    return place.plan->mark == Mark::kNone && place.range && subsets_.AreWarpGroups(&place) &&
           !conflict_.MayConflict(*c.earlier.access, *c.later, c.earlier.distance,
                                  SharedConflict::Between::kWarpGroups);
  }

  /*! Words for a region whose threads cannot meet, by what the target has barriers for. */
  std::string ThoseWhoMeet() const {
    return has_subset_barriers_
               ? "that neither all threads of the block nor whole warps of constant number run "
                 "together"
               : "that not all threads of the block run together";
  }

  [[noreturn]] void RefuseDivergentConflict(const Conflict& c, const SyncNode& region) const {
    const SharedAccess& a = *c.earlier.access;
    ThrowAt(c.later->node->stmt->span, "ValueError",
            "found an access of shared buffer " + std::string(c.later->buffer->name) +
                " that needs a barrier after an access by other threads" + At(*a.node) +
                ", both in a region" + At(region) + " " + ThoseWhoMeet() +
                ", wanted a place for the barrier that they reach; move one access out of the "
                "region or make the region's condition the same for all threads of " +
                (has_subset_barriers_ ? "each warp" : "the block"));
  }

  /*! Leaves a conflict in a tensor as it is, with a warning, because its threads can meet nowhere.
   * The program may order it by flags or by lanes of a warp, which is not seen here. */
  void LeaveToProgram(const Conflict& c, const SyncNode& region) {
    const SharedAccess& a = *c.earlier.access;
    left_.insert({&a, c.later, c.earlier.distance.loop});
    const Span& span = c.later->node->stmt->span;
    if (!warned_.insert(Where(span)).second) return;
    LogAt(LogLevel::kWarning, span,
          "found an access of tensor " + std::string(c.later->name->name) +
              " after an access of it by other threads" + At(*a.node) + ", both in a region" +
              At(region) + " " + ThoseWhoMeet() +
              ", so that no barrier orders them; move one access out of the region, or let atomic "
              "operations order them");
  }

  /*! Drops barriers if the others order everything without them; of two of which one is needed, the
   * first in the program. */
  void Prune() {
    std::vector<SyncNode*> barriers;
    NumberMarks(tree_.root.get(), false, &barriers);
    if (barriers.empty()) return;
    needed_.assign(barriers.size() + 1, false);
    Walk(Aim::kFindNeeded);
    barriers.erase(std::remove_if(barriers.begin(), barriers.end(),
                                  [&](const SyncNode* n) { return needed_[n->plan->number]; }),
                   barriers.end());
    Drop(barriers.data(), barriers.data() + barriers.size());
  }

  /*! Numbers the barriers that may be superfluous. Only a barrier that was marked later can make
   * one so: one inside of its statement, or one in the same loop. */
  void NumberMarks(SyncNode* node, bool in_loop, std::vector<SyncNode*>* barriers) {
    if (node->plan->mark != Mark::kNone && !node->is_copy && (in_loop || HasMarks(*node))) {
      barriers->push_back(node);
      node->plan->number = static_cast<int>(barriers->size());
    }
    in_loop |= node->kind == Kind::kLoop;
    for (const auto& n : node->body) NumberMarks(n.get(), in_loop, barriers);
    for (const auto& n : node->otherwise) NumberMarks(n.get(), in_loop, barriers);
  }

  /*! Drops those of some barriers that can be dropped one after the other: mostly that is all. */
  void Drop(SyncNode** begin, SyncNode** end) {
    if (begin == end) return;
    std::vector<Mark> marks;
    for (SyncNode** n = begin; n != end; ++n) {
      marks.push_back(std::exchange((*n)->plan->mark, Mark::kNone));
    }
    if (Walk(Aim::kCheck)) return;
    for (SyncNode** n = begin; n != end; ++n) (*n)->plan->mark = marks[n - begin];
    if (end - begin == 1) return;
    SyncNode** middle = begin + (end - begin) / 2;
    Drop(begin, middle);
    Drop(middle, end);
  }

  /*! Whether a node in the bodies of this one has a barrier. */
  static bool HasMarks(const SyncNode& node) {
    const auto any = [](const std::vector<std::unique_ptr<SyncNode>>& nodes) {
      return AnyOf(nodes,
                   [](const auto& n) { return n->plan->mark != Mark::kNone || HasMarks(*n); });
    };
    return any(node.body) || any(node.otherwise);
  }

  /*! The program's barriers of the block in a role become named barriers of the role's threads. */
  void MarkBarriersOfRoles(SyncNode* node) {
    if (node->of_role) {
      const std::optional<int> meeting = subsets_.Meeting(node);
      if (!meeting || *meeting != subsets_.Meeting(node->range->body.front().get())) {
        RefuseDivergentBarrier(*node);
      }
      node->plan->mark = Mark::kSubset;
    }
    for (const auto& n : node->body) MarkBarriersOfRoles(n.get());
    for (const auto& n : node->otherwise) MarkBarriersOfRoles(n.get());
  }

  SyncTree tree_;
  SharedConflict conflict_;
  ThreadSubsets subsets_;
  const bool has_subset_barriers_;
  ProxyFences fences_;
  std::optional<Conflict> found_;
  const SyncNode* place_ = nullptr;  // where the last barrier was marked
  Aim aim_ = Aim::kCheck;            // of the present walk
  bool is_later_ = false;            // in an iteration behind the first of a loop
  /*! By the numbers of barriers, whether it is known that something conflicts without them. */
  std::vector<bool> needed_ = {false};
  /*! Conflicts that are left to the program, each with the loop that carries it, and the places
   * that a warning has named. */
  std::set<std::tuple<const SharedAccess*, const SharedAccess*, const SyncNode*>> left_;
  /*! Conflicts within a nest whose threads meet nowhere: the program promises that its iterations
   * are independent. Where threads meet, they have a barrier all the same. */
  std::set<std::pair<const SharedAccess*, const SharedAccess*>> promised_;
  std::set<std::string> warned_;
  std::vector<LoopExits> exits_;
  std::map<std::pair<const SyncNode*, const SharedAccess*>, std::unique_ptr<SharedAccess>>
      completed_;
};

class WithoutNests : public StmtExprMutator {
 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    return op->attr_key == kIndependentNest ? Mutate(op->body) : Default<Stmt>(op);
  }
};

PrimFunc ThreadSync(PrimFunc f) {
  const bool places_barriers = !PassConfigFlag("tl.disable_thread_storage_sync", false);
  return ForEachKernel(f, [&, &target = TargetOf(f)](const AttrStmtNode* op) {
    const Stmt kernel = WithAllInstances(GetRef<Stmt>(op), target);
    const Stmt planned = SyncPlanner(kernel, target).Plan(places_barriers);
    return WithOneInstance(WithoutNests().Mutate(planned));
  });
}

TL_REGISTER_PASS(ThreadSync);

}  // namespace
}  // namespace tl
