/*!
 * Chooses where the consumer releases a slot whose last reader is an asynchronous wgmma.
 *
 * Preferred: at a statement that waits for that wgmma, or for a later one, anyway. Otherwise: after
 * the next wgmma is issued, so that one is always in flight. Otherwise: right after the operation.
 */
#include <algorithm>

#include "../../analysis/effects.h"
#include "pipeline.h"
#include "role_schedule.h"
#include "wgmma_plan.h"

namespace tl {
namespace {

class ReleasePlanner {
 public:
  ReleasePlanner(const Views& views, const WarpRoles& roles, size_t role)
      : views_(views), wgmma_(roles), role_(role) {}

  void Place(const Channel& channel, const Window* w, SlotUse* use) const {
    const std::vector<size_t> steps = StepOrder(*w->sequence);
    const auto last = std::find(steps.begin(), steps.end(), use->release);
    if (last == steps.end() || channel.consumer_writes) return;
    if (!WgmmaAt(*w->sequence, use->release)) return;
    const size_t at = last - steps.begin(), n = steps.size();
    const auto found = FindWait(*w->sequence, steps, at);
    if (found && found->place < n) {
      // If the statement waits for a later MMA, the release goes in front of it, behind a wait for
      // this MMA alone. But ptxas serialises MMAs if some are in flight across iterations and such
      // a partial wait precedes a use of accumulators: then it goes behind the statement.
      use->release_at = steps[found->place];
      use->is_waited_for = true;
      use->release_side = !found->for_later || EndsIdle(*w->sequence, steps) ? -1 : 1;
      return;
    }
    size_t next = at + 1;
    while (!WgmmaAt(*w->sequence, steps[next % n])) ++next;
    // The default: at the end of the operation of a schedule that the MMA belongs to.
    use->release_at = steps[EndOfOperation(*w->sequence, steps, at)];
    if (found && found->place < next) return;
    size_t place = found ? found->place : next;
    // If the next fill needs this very slot, the release cannot move to the next iteration.
    if (place >= n && !MayBeLate(channel, *w, *use)) place = next;
    const bool late = place >= n;
    if (late && !MayBeLate(channel, *w, *use)) return;
    use->release_at = steps[place % n];
    use->is_deferred = late;
  }

  /*! Moves the release of a slot that a pipelined loop uses to the end into its last iteration,
   * where the MMA that reads the slot last is waited for anyway. Behind it are what that iteration
   * makes of the MMA's result, and the MMAs that overlap with the next iteration: the slot's next
   * load runs beside them. */
  void PlaceInLoop(const Channel& channel, const Window& w, SlotUse* use) const {
    const RoleNode& node = *w.sequence->nodes[use->release];
    const ForNode* loop = node.Loop();
    if (!loop || !IsPipelined(loop) || channel.consumer_writes) return;
    // Which iteration is the last one is asked in the loop, which may change what is read.
    if (HasLoad(loop->min) || HasLoad(loop->extent)) return;
    const std::vector<size_t> steps = StepOrder(node.body);
    const RoleSchedule schedule = ScheduleOf(node.body);
    const auto stage = [&](size_t i) { return schedule.empty() ? 0 : schedule[i]->stage; };
    std::optional<size_t> last;
    for (size_t p = 0; p < steps.size(); ++p) {
      const RoleNode& n = *node.body.nodes[steps[p]];
      if (HasJump(n)) return;
      const bool used = AnyOf(channel.buffers, [&](const Var& v) { return IsUsed(n, v); });
      if (used && (!last || stage(steps[*last]) <= stage(steps[p]))) last = p;
    }
    if (!last || !WgmmaAt(node.body, steps[*last])) return;
    const auto found = FindWait(node.body, steps, *last);
    // A partial wait in front of a use of accumulators: see Place.
    if (!found || found->place >= steps.size() || found->for_later) return;
    use->in_loop = {steps[found->place], steps[*last]};
    use->release_side = -1;
  }

 private:
  /*! The loop around the statement may end early by it. */
  static bool HasJump(const RoleNode& node) {
    bool found = IsBreak(node.stmt) || IsContinue(node.stmt);
    for (const RoleSequence* body : {&node.body, &node.otherwise}) {
      ForEachNode(*body,
                  [&](const RoleNode* n) { found |= IsBreak(n->stmt) || IsContinue(n->stmt); });
    }
    return found;
  }

  /*! The last step of the operation that step `at` belongs to. */
  static size_t EndOfOperation(const RoleSequence& sequence, const std::vector<size_t>& steps,
                               size_t at) {
    const std::string& id = sequence.nodes[steps[at]]->id;
    if (id.empty()) return at;
    while (at + 1 < steps.size() && sequence.nodes[steps[at + 1]]->id == id) ++at;
    return at;
  }

  /*! A release may move to the next iteration: the fill that this iteration waits for needs another
   * slot. */
  bool MayBeLate(const Channel& channel, const Window& w, const SlotUse& use) const {
    return FillCount::CountingLoop(w.sequence) && channel.versions >= 2 + StageOf(w, use);
  }

  /*! A statement that waits for an MMA: its place in the steps, and whether it waits for one
   * that is issued later, too. */
  struct Wait {
    size_t place;
    bool for_later;
  };

  /*! The first statement behind `at`, up to an iteration later, that finds the MMA at `at`
   * complete: it needs that one, or one that is issued after it. */
  std::optional<Wait> FindWait(const RoleSequence& sequence, const std::vector<size_t>& steps,
                               size_t at) const {
    const size_t n = steps.size();
    const GemmOp group = *WgmmaAt(sequence, steps[at]);
    std::vector<GemmOp> later;
    for (size_t p = at + 1; p < at + n; ++p) {
      const size_t i = steps[p % n];
      const bool for_later = AnyOf(later, [&](const GemmOp& g) { return Needs(sequence, i, g); });
      if (for_later || Needs(sequence, i, group)) return Wait{p, for_later};
      if (const auto next = WgmmaAt(sequence, i)) later.push_back(*next);
    }
    return std::nullopt;
  }

  /*! No MMA is in flight when an iteration ends. */
  bool EndsIdle(const RoleSequence& sequence, const std::vector<size_t>& steps) const {
    for (size_t at = 0; at < steps.size(); ++at) {
      if (!WgmmaAt(sequence, steps[at])) continue;
      const auto found = FindWait(sequence, steps, at);
      if (!found || found->place >= steps.size()) return false;
    }
    return true;
  }

  /*! The role's statements in the order of a step; empty if a schedule leaves some unplaced. */
  std::vector<size_t> StepOrder(const RoleSequence& sequence) const {
    const RoleSchedule schedule = ScheduleOf(sequence);
    std::vector<size_t> steps;
    for (size_t i = 0; i < sequence.nodes.size(); ++i) {
      const RoleNode& node = *sequence.nodes[i];
      if (!node.IsRunBy(role_) || node.stmt.as<BindNode>()) continue;
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
  static int64_t StageOf(const Window& w, const SlotUse& use) {
    const RoleSchedule schedule = ScheduleOf(*w.sequence);
    if (schedule.empty()) return 0;
    int64_t first = schedule[use.release]->stage;
    for (const auto& place : schedule) {
      if (place) first = std::min(first, place->stage);
    }
    return schedule[use.release]->stage - first;
  }

  std::optional<GemmOp> WgmmaAt(const RoleSequence& sequence, size_t i) const {
    return wgmma_.At(*sequence.nodes[i]);
  }

  /*! The statement needs the MMA complete: it writes an operand, or touches the accumulators other
   * than by an MMA into them. */
  bool Needs(const RoleSequence& sequence, size_t i, const GemmOp& group) const {
    const RoleNode& node = *sequence.nodes[i];
    const Var c = views_.RootOf(group.c.buffer), a = views_.RootOf(group.a.buffer);
    const Var b = views_.RootOf(group.b.buffer);
    if (Contains(node.use.writes, a) || Contains(node.use.writes, b)) return true;
    if (!Contains(node.use.reads, c) && !Contains(node.use.writes, c)) return false;
    const auto next = WgmmaAt(sequence, i);
    return !next || !views_.IsSameMemory(next->c.buffer, c) ||
           views_.IsSameMemory(next->a.buffer, c);
  }

  const Views& views_;
  WgmmaPlan wgmma_;
  size_t role_;
};

}  // namespace

void PlaceReleases(const Views& views, WarpRoles* roles) {
  for (Channel& channel : roles->channels) {
    for (Window& w : channel.windows) {
      for (SlotUse& use : w.uses) {
        use.release_at = use.release;
        if (!channel.empty_arrivals) continue;
        const ReleasePlanner planner(views, *roles, use.role);
        planner.Place(channel, &w, &use);
        // Roles of a schedule may rely on where another one releases a slot (RefineReleases).
        if (!roles->is_scheduled) planner.PlaceInLoop(channel, w, &use);
      }
    }
  }
}

}  // namespace tl
