#include "thread_set.h"

#include <algorithm>

#include "../tvm/attrs.h"
#include "../tvm/shuffles.h"

namespace tl {

ThreadSet::ThreadSet(const std::vector<Axis>& axes) : axes_(axes) {
  size_t threads = 1;
  for (const Axis& a : axes) threads *= static_cast<size_t>(a.extent);
  members_.assign(threads, true);
}

ThreadSet ThreadSet::Of(const std::vector<Axis>& axes, const std::vector<ThreadRange>& ranges) {
  return ThreadSet(axes).Where([&](int64_t thread) {
    return AnyOf(ranges, [&](const ThreadRange& r) {
      return thread >= r.first && thread < r.first + r.threads;
    });
  });
}

ThreadSet ThreadSet::Where(const std::function<bool(int64_t)>& keep) const {
  ThreadSet out = *this;
  for (size_t t = 0; t < members_.size(); ++t) {
    if (members_[t]) out.members_[t] = keep(static_cast<int64_t>(t));
  }
  return out;
}

bool ThreadSet::ForEachValue(const Expr& e,
                             const std::function<bool(int64_t, int64_t)>& visit) const {
  const IndexBox box(axes_);
  const IntProgram program = box.Compile(e);
  std::vector<int64_t> point(axes_.size(), 0);
  for (size_t t = 0; t < members_.size(); ++t) {
    if (members_[t] && !visit(static_cast<int64_t>(t), program(point.data()))) return false;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (++point[i] < axes_[i].extent) break;
      point[i] = 0;
    }
  }
  return true;
}

std::optional<ThreadSet> ThreadSet::Where(const Expr& condition, bool value) const {
  if (!IndexBox(axes_).CanEvaluate(condition)) return std::nullopt;
  ThreadSet out = *this;
  ForEachValue(condition, [&](int64_t thread, int64_t v) {
    out.members_[static_cast<size_t>(thread)] = (v != 0) == value;
    return true;
  });
  return out;
}

bool ThreadSet::IsConstant(const Expr& e, int64_t unit) const {
  if (!IndexBox(axes_).CanEvaluate(e)) return false;
  std::optional<int64_t> seen;
  int64_t part = 0;
  return ForEachValue(e, [&](int64_t thread, int64_t v) {
    const int64_t here = unit ? thread / unit : 0;
    if (here != part) seen.reset();
    part = here;
    if (!seen) seen = v;
    return *seen == v;
  });
}

IntImm LaneMask(uint64_t lanes, int64_t warp_threads) {
  auto n = make_object<IntImmNode>();
  // A bit for each lane.
  n->ty = PrimTy({kDLUInt, static_cast<uint8_t>(warp_threads), 1});
  n->value = ffi::BigInt(lanes);
  return IntImm(n);
}

IntImm AllLanes(int64_t warp_threads) {
  return LaneMask(~uint64_t(0) >> (64 - warp_threads), warp_threads);
}

Expr FromFirstLane(const Expr& value, int64_t warp_threads) {
  return CallOp(kShuffleSync, {AllLanes(warp_threads), value, MakeInt(0), MakeInt(warp_threads)},
                value->ty);
}

uint64_t ThreadSet::LanesOf(int64_t warp, int64_t warp_threads) const {
  uint64_t lanes = 0;
  for (int64_t lane = 0; lane < warp_threads; ++lane) {
    const int64_t thread = warp * warp_threads + lane;
    if (thread < BlockSize() && Has(thread)) lanes |= uint64_t(1) << lane;
  }
  return lanes;
}

int64_t ThreadSet::Size() const { return std::count(members_.begin(), members_.end(), true); }

int64_t ThreadSet::First() const {
  return std::find(members_.begin(), members_.end(), true) - members_.begin();
}

std::optional<ThreadRange> ThreadSet::AsConsecutive() const {
  const int64_t first = First(), size = Size();
  for (int64_t t = first; t < first + size; ++t) {
    if (!Has(t)) return std::nullopt;
  }
  return size ? std::optional(ThreadRange{first, size}) : std::nullopt;
}

std::optional<ThreadRange> ThreadSet::AsWarps(int64_t warp_threads) const {
  const std::optional<ThreadRange> range = AsConsecutive();
  const bool whole =
      range && range->first % warp_threads == 0 && range->threads % warp_threads == 0;
  return whole ? range : std::nullopt;
}

std::string ThreadSet::Text() const {
  const std::optional<ThreadRange> range = AsConsecutive();
  if (!range) return std::to_string(Size()) + " threads that do not follow each other";
  const std::string first = std::to_string(range->first);
  if (range->threads == 1) return "thread " + first;
  return "threads " + first + " to " + std::to_string(range->first + range->threads - 1);
}

std::vector<Axis> ThreadAxesOf(const Stmt& kernel) {
  std::vector<Axis> axes;
  for (Stmt s = kernel; const auto* op = s.as<AttrStmtNode>(); s = op->body) {
    if (op->attr_key != kThreadExtent) continue;
    const IterVar axis = op->node.cast<IterVar>();
    const std::string tag = axis->thread_tag;
    if (tag.rfind("threadIdx.", 0) != 0) continue;
    const size_t place = static_cast<size_t>(tag.back() - 'x');
    while (axes.size() <= place) axes.push_back({MakeVar("unit"), 0, 1});
    axes[place] = {axis->var, 0, ToInt(op->value)};
  }
  return axes;
}

}  // namespace tl
