/*! How often a channel's slots are filled, and how many arrivals say so. */
#include <optional>

#include "../../analysis/effects.h"
#include "../../op/operator.h"
#include "../../op/tma_copy.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "warp_roles.h"

namespace tl {
namespace {

/*! Type of running counts: remainders of unsigned numbers need no care of signs. */
constexpr DLDataType kUInt32{kDLUInt, 32, 1};

int64_t WarpsThatUse(const Channel& channel, const WarpRoles& roles, int64_t warp_threads) {
  int64_t warps = 0;
  for (size_t r = 0; r < roles.roles.size(); ++r) {
    if (channel.IsUsedBy(r)) warps += roles.roles[r].range.threads / warp_threads;
  }
  return warps;
}

/*! A jump may leave out some of what the loop repeats. */
bool HasJump(const RoleNode& loop) {
  bool found = false;
  ForEachNode(loop.body, [&](const RoleNode* node) {
    found |= (IsBreak(node->stmt) || IsContinue(node->stmt)) && LoopAround(*node) == &loop;
  });
  return found;
}

/*! The loops around a sequence, the innermost first, if their variables tell how often it has run:
 * nothing is conditional or jumped over, and the inner ones run a constant number of times. */
std::optional<std::vector<const ForNode*>> LoopsThatCount(const RoleSequence& sequence) {
  std::vector<const ForNode*> loops;
  for (const RoleSequence* s = &sequence; IsRepeated(*s); s = s->owner->parent) {
    const bool is_inner = loops.empty();
    // Nothing jumps over a window in its own loop: JumpOutOfWindow.
    if (!is_inner && (!AsInt(loops.back()->extent) || HasJump(*s->owner))) return std::nullopt;
    const ForNode* loop = FillCount::CountingLoop(s);
    if (!loop) return std::nullopt;
    loops.push_back(loop);
  }
  return loops;
}

}  // namespace

bool HasLoad(const Expr& e) { return HasNode<TensorLoadNode>(e); }

const ForNode* FillCount::CountingLoop(const RoleSequence* sequence) {
  const ForNode* loop = sequence->owner ? sequence->owner->Loop() : nullptr;
  if (!loop || (loop->step && !IsConst(*loop->step, 1))) return nullptr;
  return HasLoad(loop->extent) || HasLoad(loop->min) ? nullptr : loop;
}

Expr FillCount::Number(const RoleSequence* sequence) const {
  if (variable.defined()) {
    const ForNode* loop = CountingLoop(sequence);
    const Expr iteration = loop ? loop->loop_var - loop->min : Expr(MakeInt(0));
    return LoadOf(variable, {MakeInt(0)}) + CastTo(kUInt32, iteration);
  }
  Expr number = MakeInt(0), times = MakeInt(1);
  for (const ForNode* loop : loops) {
    number = CastTo(kInt32, loop->loop_var - loop->min) * times + number;
    times = CastTo(kInt32, loop->extent) * times;
  }
  return number;
}

const SlotUse* Window::UseBy(size_t role) const {
  const auto it = FindIf(uses, [&](const SlotUse& use) { return use.role == role; });
  return it == uses.end() ? nullptr : &*it;
}

bool Channel::IsUsedBy(size_t role) const {
  return AnyOf(windows, [&](const Window& w) { return w.UseBy(role) != nullptr; });
}

Var MakeCountVariable(const std::string& name) {
  return MakeBuffer(name, kUInt32, {MakeInt(1)}, "local.var");
}

void CountFills(WarpRoles* roles) {
  for (Channel& channel : roles->channels) {
    std::vector<const RoleSequence*> sequences;
    for (const Window& w : channel.windows) sequences.push_back(w.sequence);
    auto known =
        FindIf(roles->counts, [&](const FillCount& c) { return c.sequences == sequences; });
    channel.count = known - roles->counts.begin();
    if (known != roles->counts.end()) continue;
    FillCount count{sequences, {}, Var()};
    const auto loops = LoopsThatCount(*sequences[0]);
    if (sequences.size() == 1 && loops) {
      count.loops = *loops;
    } else {
      count.variable = MakeCountVariable(std::string(channel.buffers[0]->name) + "_fills");
    }
    roles->counts.push_back(count);
  }
  ForEachNode(roles->body, [&](const RoleNode* node) {
    if (node->fill != CopyKind::kTma) return;
    for (Window& w : roles->channels[node->channel].windows) {
      if (w.sequence != node->parent) continue;
      w.tma_bytes += TmaBytes(TileRegion::From(AsTileOp(node->stmt)->args[1]));
    }
  });
}

void CountArrivals(WarpRoles* roles, int64_t warp_threads) {
  for (Channel& c : roles->channels) {
    const int64_t fillers = roles->roles[c.source].range.threads;
    // What a thread copies by cp.async arrives by itself; a warp's stores are one arrival.
    c.full_arrivals = c.IsByOne() ? 1 : 0;
    if (c.by_cp_async) c.full_arrivals += fillers;
    if (c.by_threads) c.full_arrivals += fillers / warp_threads;
    const bool once = c.windows.size() == 1 && !IsRepeated(*c.windows[0].sequence);
    c.empty_arrivals = once ? 0 : c.blocks * WarpsThatUse(c, *roles, warp_threads);
  }
}

}  // namespace tl
