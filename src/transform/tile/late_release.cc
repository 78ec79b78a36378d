/*! Where the consumer gives up a slot that an asynchronous product reads: where it would wait for
 * the product anyway, or behind the next one, so that one product is in flight all the time. */
#include <algorithm>

#include "pipeline.h"
#include "role_schedule.h"
#include "wgmma_plan.h"

namespace tl {
namespace {

class ReleasePlanner {
 public:
  ReleasePlanner(const KernelInfo& kernel, const Views& views, const WarpRoles& roles)
      : views_(views), wgmma_(kernel, views, roles) {}

  void Place(const Channel& channel, Window* w) const {
    const std::vector<size_t> steps = StepOrder(*w->sequence);
    const auto last = std::find(steps.begin(), steps.end(), w->release);
    if (last == steps.end() || channel.consumer_writes) return;
    const auto group = WgmmaAt(*w->sequence, w->release);
    if (!group) return;
    const size_t at = last - steps.begin(), n = steps.size();
    const auto found = FindNeed(*w->sequence, steps, *group, at + 1, at + n);
    if (found && *found < n) {
      w->release_beside = steps[*found];
      w->release_side = -1;
      return;
    }
    size_t next = at + 1;
    while (!WgmmaAt(*w->sequence, steps[next % n])) ++next;
    if (found && *found < next) return;
    // Where someone waits for the next product, it is one wait for both: ptxas runs products one
    // after the other if some are in flight over the end of an iteration, and a wait for a part of
    // them stands in front of a use of accumulators.
    const GemmOp next_group = *WgmmaAt(*w->sequence, steps[next % n]);
    const auto wait = FindNeed(*w->sequence, steps, next_group, next + 1, at + n);
    const size_t place = wait.value_or(next);
    const bool late = place >= n;
    if (late && !MayBeLate(channel, *w)) return;
    w->release_beside = steps[place % n];
    w->one_fill_late = late;
  }

 private:
  /*! The fill that an iteration waits for needs no slot that it is to give up itself. */
  static bool MayBeLate(const Channel& channel, const Window& w) {
    return FillCount::CountingLoop(w.sequence) && channel.versions >= 2 + StageOf(w);
  }

  /*! Place in the steps, the first of them in [begin, end) that finds the product complete. */
  std::optional<size_t> FindNeed(const RoleSequence& sequence, const std::vector<size_t>& steps,
                                 const GemmOp& group, size_t begin, size_t end) const {
    for (size_t p = begin; p < end; ++p) {
      const size_t i = steps[p % steps.size()];
      if (Needs(*sequence.nodes[i], group, WgmmaAt(sequence, i))) return p;
    }
    return std::nullopt;
  }

  /*! Statements of the consumer as a step runs them; none where the compiler is to place some. */
  static std::vector<size_t> StepOrder(const RoleSequence& sequence) {
    const RoleSchedule schedule = ScheduleOf(sequence);
    std::vector<size_t> steps;
    for (size_t i = 0; i < sequence.nodes.size(); ++i) {
      const RoleNode& node = *sequence.nodes[i];
      if (node.fill != FillBy::kNothing || node.stmt.as<BindNode>()) continue;
      if (!schedule.empty() && !schedule[i]) return {};
      steps.push_back(i);
    }
    if (schedule.empty()) return steps;
    std::sort(steps.begin(), steps.end(),
              [&](size_t a, size_t b) { return schedule[a]->order < schedule[b]->order; });
    return steps;
  }

  static RoleSchedule ScheduleOf(const RoleSequence& sequence) {
    const RoleNode* owner = sequence.owner;
    return owner && owner->Loop() ? ReadSchedule(*owner) : RoleSchedule();
  }

  /*! Steps from the first statement of an iteration to the last use of the slot. */
  static int64_t StageOf(const Window& w) {
    const RoleSchedule schedule = ScheduleOf(*w.sequence);
    if (schedule.empty()) return 0;
    int64_t first = schedule[w.release]->stage;
    for (const auto& place : schedule) {
      if (place) first = std::min(first, place->stage);
    }
    return schedule[w.release]->stage - first;
  }

  std::optional<GemmOp> WgmmaAt(const RoleSequence& sequence, size_t i) const {
    return wgmma_.At(*sequence.nodes[i]);
  }

  /*! A statement that finds the product complete: all that touches its accumulators but products
   * into them, and what writes operands that are registers. */
  bool Needs(const RoleNode& node, const GemmOp& group, const std::optional<GemmOp>& next) const {
    const Var c = views_.RootOf(group.c.buffer), a = views_.RootOf(group.a.buffer);
    if (IsFragment(a) && Contains(node.use.writes, a)) return true;
    if (!Contains(node.use.reads, c) && !Contains(node.use.writes, c)) return false;
    return !next || !views_.IsSameMemory(next->c.buffer, c) ||
           views_.IsSameMemory(next->a.buffer, c);
  }

  const Views& views_;
  WgmmaPlan wgmma_;
};

}  // namespace

void PlaceReleases(const KernelInfo& kernel, const Views& views, WarpRoles* roles) {
  const ReleasePlanner planner(kernel, views, *roles);
  for (Channel& channel : roles->channels) {
    for (Window& w : channel.windows) {
      w.release_beside = w.release;
      if (channel.empty_arrivals) planner.Place(channel, &w);
    }
  }
}

}  // namespace tl
