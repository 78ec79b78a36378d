/*!
 * Which arrivals at `empty` the roles of a schedule can leave out, and where the others stand.
 *
 * A role does not arrive if the arrival of another role implies its own. That is so if the other
 * role first waits for something that this one signals after its last use of the slot. The role
 * still waits for its MMAs where it would have arrived.
 * Arrivals at all blocks of a cluster stand after the role's next signal: the fence of that signal
 * would otherwise wait until the arrivals are complete.
 */
#include <algorithm>

#include "warp_roles.h"

namespace tl {
namespace {

class ReleaseRefiner {
 public:
  ReleaseRefiner(WarpRoles* roles, int64_t warp_threads)
      : roles_(*roles), warp_threads_(warp_threads) {}

  void Run() {
    for (Channel& channel : roles_.channels) {
      if (!channel.empty_arrivals) continue;
      for (size_t r = 0; r < roles_.roles.size(); ++r) {
        // A role that writes to the slot has a fence in front of its arrival: it keeps both.
        if (!channel.IsUsedBy(r) || channel.consumer_writes) continue;
        if (IsImplied(channel, r)) OmitOf(r, &channel);
      }
      if (channel.blocks == 1) continue;
      for (Window& w : channel.windows) {
        for (SlotUse& use : w.uses) MoveBehindSignal(*w.sequence, &use);
      }
    }
  }

 private:
  /*! Windows of the body that the role's threads fill by stores, and then arrive. TMA and cp.async
   * are left out: they arrive when they are done, whatever stands behind them. */
  std::vector<const Window*> SignalsOf(const RoleSequence* sequence, size_t role) const {
    std::vector<const Window*> out;
    for (const Channel& c : roles_.channels) {
      if (c.source != role || !c.by_threads || c.by_cp_async) continue;
      for (const Window& w : c.windows) {
        if (w.sequence == sequence) out.push_back(&w);
      }
    }
    return out;
  }

  /*! In every window another role releases the slot after role `r` is done with it. */
  bool IsImplied(const Channel& channel, size_t r) const {
    return AllOf(channel.windows, [&](const Window& w) {
      const SlotUse* use = w.UseBy(r);
      return use && AnyOf(w.uses, [&](const SlotUse& later) {
               return later.role != r && !later.is_implied && Follows(*w.sequence, later, *use);
             });
    });
  }

  /*! The role of `use` signals something after the place of its release, and the role of `later`
   * waits for that signal, in the same iteration, before it releases the slot. */
  bool Follows(const RoleSequence& sequence, const SlotUse& later, const SlotUse& use) const {
    if (!use.is_waited_for) return false;
    const auto signalled = SignalsOf(&sequence, use.role);
    return AnyOf(signalled, [&](const Window* w) {
      const bool is_over =
          use.release_side < 0 ? use.release_at <= w->last_fill : use.release_at < w->last_fill;
      const SlotUse* awaited = w->UseBy(later.role);
      return is_over && awaited && awaited->acquire <= later.release;
    });
  }

  void OmitOf(size_t r, Channel* channel) const {
    for (Window& w : channel->windows) {
      for (SlotUse& use : w.uses) use.is_implied |= use.role == r;
    }
    channel->empty_arrivals -= channel->blocks * roles_.roles[r].range.threads / warp_threads_;
  }

  /*! Not if the role waits for a fill in between: that fill might wait for this slot. */
  void MoveBehindSignal(const RoleSequence& sequence, SlotUse* use) const {
    if (!use->is_waited_for || use->is_implied) return;
    size_t first = SIZE_MAX;
    for (const Window* w : SignalsOf(&sequence, use->role)) {
      if (w->last_fill >= use->release_at) first = std::min(first, w->last_fill);
    }
    const size_t from = use->release_at + (use->release_side > 0);
    if (first == SIZE_MAX || AcquiresWithin(sequence, use->role, from, first)) return;
    use->release_at = first;
    use->release_side = 1;
  }

  bool AcquiresWithin(const RoleSequence& sequence, size_t role, size_t from, size_t to) const {
    return AnyOf(roles_.channels, [&](const Channel& c) {
      return AnyOf(c.windows, [&](const Window& w) {
        const SlotUse* use = w.sequence == &sequence ? w.UseBy(role) : nullptr;
        return use && from <= use->acquire && use->acquire <= to;
      });
    });
  }

  WarpRoles& roles_;
  const int64_t warp_threads_;
};

}  // namespace

void RefineReleases(WarpRoles* roles, int64_t warp_threads) {
  ReleaseRefiner(roles, warp_threads).Run();
}

}  // namespace tl
