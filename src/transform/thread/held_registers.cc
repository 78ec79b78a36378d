#include "held_registers.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "../../analysis/effects.h"
#include "../../analysis/thread_set.h"
#include "../../op/intrinsics.h"
#include "../../target/mma.h"
#include "../../target/registers.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../instances.h"

namespace tl {
namespace {

/*! A setmaxnreg. */
struct Step {
  int64_t registers;  // of a thread
  bool takes;
  Span span;
};
/*! By warp group, in the order of the program. */
using Steps = std::vector<std::vector<Step>>;

class StepReader : public StmtExprVisitor {
 public:
  explicit StepReader(const Stmt& kernel) : threads_(ThreadAxesOf(kernel)) {
    steps.resize(threads_.BlockSize() / kWarpGroupThreads);
  }
  Steps steps;
  int64_t Threads() const { return threads_.BlockSize(); }

 protected:
  void Visit_(const BindNode* op) final {
    if (IsPureInteger(op->value)) names_.map[op->var.get()] = names_.Mutate(op->value);
  }

  void Visit_(const IfThenElseNode* op) final {
    const Expr condition = names_.Mutate(op->condition);
    const auto taken = threads_.Where(condition, true), left = threads_.Where(condition, false);
    VisitOf(taken, op->then_case);
    if (op->else_case) VisitOf(left, *op->else_case);
  }

  void Visit_(const ForNode* op) final {
    std::vector<size_t> before;
    for (const auto& of_group : steps) before.push_back(of_group.size());
    unsure_ += AsInt(op->extent).value_or(0) < 1;
    Visit(op->body);
    unsure_ -= AsInt(op->extent).value_or(0) < 1;
    if (!IsInstances(op)) return;
    // The groups behind the first one do what it does.
    const int64_t first = *IntAnnotation(op->annotations, kInstances);
    const std::vector<Step>& own = steps[first];
    for (int64_t g = first + 1; g < first + ToInt(op->extent); ++g) {
      steps[g].insert(steps[g].end(), own.begin() + before[first], own.end());
    }
  }

  void Visit_(const WhileNode* op) final {
    ++unsure_;
    Visit(op->body);
    --unsure_;
  }

  void Visit_(const EvaluateNode* op) final {
    const bool takes = IsCallTo(op->value, kRegAlloc);
    if (!takes && !IsCallTo(op->value, kRegDealloc)) return;
    if (takes && unsure_) return;
    const int64_t registers = ToInt(op->value.as<CallNode>()->args[0]);
    for (size_t g = 0; g < steps.size(); ++g) {
      if (threads_.Has(g * kWarpGroupThreads)) steps[g].push_back({registers, takes, op->span});
    }
  }

 private:
  void VisitOf(const std::optional<ThreadSet>& threads, const Stmt& s) {
    const ThreadSet around = threads_;
    if (threads) threads_ = *threads;
    unsure_ += !threads;
    Visit(s);
    unsure_ -= !threads;
    threads_ = around;
  }

  ThreadSet threads_;
  Substituter names_;
  /*! Branches and loops around the statement of which it is not known who runs them. */
  int unsure_ = 0;
};

/*! A program that takes turns so often is let pass: each order of a few groups' steps is tried. */
constexpr size_t kMostStates = 1 << 14;

/*! The groups of a block on their way through their steps. */
class Block {
 public:
  Block(const Steps& steps, int64_t start, int64_t threads)
      : steps_(steps), start_(start), threads_(threads), at_(steps.size()), held_(at_.size()) {
    std::fill(held_.begin(), held_.end(), start);
  }

  /*! Whether all get to the end in some order. If not, the block is left where the first order that
   * was tried ends. */
  bool Finishes() {
    GoOn();
    if (IsAtEnd()) return true;
    if (!seen_.insert(at_).second) return false;
    if (seen_.size() > kMostStates) return true;
    std::optional<std::pair<std::vector<size_t>, std::vector<int64_t>>> end;
    for (size_t g = 0; g < at_.size(); ++g) {
      if (at_[g] == steps_[g].size() || !Fits(g)) continue;
      const auto at = at_;
      const auto held = held_;
      held_[g] = steps_[g][at_[g]++].registers;
      if (Finishes()) return true;
      if (!end) end.emplace(at_, held_);
      at_ = at;
      held_ = held;
    }
    if (end) std::tie(at_, held_) = *end;
    return false;
  }

  [[noreturn]] void Refuse() const {
    const auto is_waiting = [&](size_t g) { return at_[g] < steps_[g].size(); };
    size_t g = 0;
    while (!is_waiting(g)) ++g;
    const Step& step = steps_[g][at_[g]];
    std::string found;
    int64_t sum = (threads_ % kWarpGroupThreads) * start_;
    for (size_t i = 0; i < held_.size(); ++i) {
      const int64_t each = i == g ? step.registers : held_[i];
      sum += each * kWarpGroupThreads;
      found += (i == 0 ? "" : i + 1 == held_.size() ? " and " : ", ") + std::to_string(each);
    }
    const int64_t room = threads_ * start_ - sum + step.registers * kWarpGroupThreads;
    const int64_t most = room / kWarpGroupThreads / kRegisterStep * kRegisterStep;
    const std::string give = "let another group give back more by T.dec_max_nreg";
    ThrowAt(step.span, "ValueError",
            "found setmaxnreg to " + std::to_string(step.registers) +
                " registers for each thread of warp group " + std::to_string(g) +
                ", which waits for ever: the warp groups would hold " + found +
                " for each thread, " + std::to_string(sum) + " in all, wanted at most the " +
                std::to_string(threads_ * start_) + " that the block's " +
                std::to_string(threads_) + " threads begin with (" + std::to_string(start_) +
                " each); " +
                (most > held_[g] ? "take at most " + std::to_string(most) + " here, or " + give
                                 : give));
  }

 private:
  bool IsAtEnd() const {
    for (size_t g = 0; g < at_.size(); ++g) {
      if (at_[g] < steps_[g].size()) return false;
    }
    return true;
  }
  /*! Does what waits for nothing: then others wait no longer than before. */
  void GoOn() {
    for (size_t g = 0; g < at_.size(); ++g) {
      for (; at_[g] < steps_[g].size(); ++at_[g]) {
        const Step& step = steps_[g][at_[g]];
        if (step.takes && step.registers > held_[g]) break;
        if (!step.takes) held_[g] = std::min(held_[g], step.registers);
      }
    }
  }
  bool Fits(size_t group) const {
    int64_t free = threads_ / kWarpGroupThreads * start_;
    for (const int64_t h : held_) free -= h;
    return held_[group] + free >= steps_[group][at_[group]].registers;
  }

  const Steps& steps_;
  const int64_t start_, threads_;
  std::vector<size_t> at_;
  std::vector<int64_t> held_;
  std::set<std::vector<size_t>> seen_;
};

}  // namespace

void RefuseEndlessWaits(const Stmt& kernel, int64_t start) {
  StepReader reader(kernel);
  reader(kernel);
  Block block(reader.steps, start, reader.Threads());
  if (!block.Finishes()) block.Refuse();
}

}  // namespace tl
