#include "reaching_threads.h"

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"

namespace tl {

ReachingThreads::ReachingThreads(const Stmt& kernel, Uniformity::Asked asked, int64_t warp_threads)
    : uniformity_(kernel, asked, warp_threads) {
  stack_.push_back({ThreadSet(ThreadAxesOf(kernel)), Stmt()});
}

bool ReachingThreads::IsUniform(const Expr& e) const {
  return uniformity_.IsUniform(e, Here() ? &*Here() : nullptr);
}

void ReachingThreads::Enter(std::optional<ThreadSet> threads, const StmtNode* control) {
  const Place& outside = stack_.back();
  const bool same = threads == outside.threads;
  stack_.push_back({std::move(threads), same ? outside.control : GetRef<Stmt>(control)});
}

std::optional<ThreadSet> ReachingThreads::Restrict(const ThreadSet& from, const Expr& condition,
                                                   bool value) const {
  if (const auto* op = condition.as<NotNode>()) return Restrict(from, op->a, !value);
  if (std::optional<ThreadSet> some = from.Where(condition, value)) return some;
  if (uniformity_.IsUniform(condition, &from)) return from;
  const auto both = [&](const Expr& a, const Expr& b) -> std::optional<ThreadSet> {
    const std::optional<ThreadSet> first = Restrict(from, a, value);
    return first ? Restrict(*first, b, value) : std::nullopt;
  };
  if (const auto* op = condition.as<AndNode>(); op && value) return both(op->a, op->b);
  if (const auto* op = condition.as<OrNode>(); op && !value) return both(op->a, op->b);
  if (value && IsCallTo(condition, kShuffleElect)) {
    // Which lane of the warp it is does not matter here.
    const int64_t of = ToInt(condition.as<CallNode>()->args[0]);
    return from.Where([&](int64_t thread) { return of ? thread % of == 0 : thread == 0; });
  }
  return std::nullopt;
}

bool ReachingThreads::IsMixed(const Expr& condition) const {
  const Expr e = names_.Mutate(condition);
  if (!Here() || Here()->Where(e, true)) return false;
  const std::optional<ThreadSet> some = Restrict(*Here(), e, true);
  return some && !(some == Here());
}

void ReachingThreads::EnterBranch(const IfThenElseNode* branch, bool value) {
  if (!Here()) return Enter(std::nullopt, branch);
  const Expr condition = names_.Mutate(branch->condition);
  Enter(Restrict(*Here(), condition, value), branch);
}

template <typename Loop>
void ReachingThreads::EnterAnyLoop(const Loop* loop) {
  const bool together = Here() && uniformity_.IsUniform(loop, &*Here());
  Enter(together ? Here() : std::nullopt, loop);
}

void ReachingThreads::EnterLoop(const ForNode* loop) { EnterAnyLoop(loop); }
void ReachingThreads::EnterLoop(const WhileNode* loop) { EnterAnyLoop(loop); }

void ReachingThreads::EnterRange(const AttrStmtNode* range) {
  if (!Here()) return Enter(std::nullopt, range);
  const ThreadSet those = ThreadSet::Of(Block().axes(), ThreadRangesOf(range));
  Enter(Here()->Where([&](int64_t thread) { return those.Has(thread); }), range);
}

void ReachingThreads::Note(const BindNode* op) {
  const bool elected = IsCallTo(op->value, kShuffleElect);
  const auto* type = op->value->ty.as<PrimTypeNode>();
  if (!type || type->dtype.lanes != 1 || (!elected && !IsArithmetic(op->value))) return;
  names_.map[op->var.get()] = names_.Mutate(op->value);
}

}  // namespace tl
