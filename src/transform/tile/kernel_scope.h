/*! The launch around a statement: which variables are threads and blocks, how many there are. */
#pragma once
#include <string>
#include <vector>

#include "../../op/thread_range.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/functor.h"

namespace tl {

/*! The threads that run a statement: those of a block, read from thread_extent attributes, or of
 * the tl.thread_range attribute around it. */
class KernelScope {
 public:
  /*! What `body` gives, which visits the attribute's body: in its range, with its block or thread
   * axis. */
  template <typename F>
  auto Within(const AttrStmtNode* op, F body) {
    struct Restore {
      std::vector<ThreadRange>* ranges;
      std::vector<ThreadRange> outside;
      ~Restore() { *ranges = std::move(outside); }
    } restore{&ranges_, ranges_};
    NoteAxis(op);
    if (std::vector<ThreadRange> ranges = ThreadRangesOf(op); !ranges.empty()) ranges_ = ranges;
    return body();
  }
  /*! The one range of threads that tile operators here work with, the block outside of all ranges.
   * ValueError for the operator at `span` where threads are not consecutive. */
  ThreadRange Threads(const Span& span) const;
  /*! Linear number of the thread in its block: x + ex (y + ey z). */
  Expr ThreadIndex() const;
  /*! The thread indices of the block and how many of each there are: z, y, x, without absent ones.
   */
  std::vector<std::pair<Var, Expr>> ThreadAxes() const;
  /*! Tells the analyzer the ranges of all thread and block variables. */
  void BindTo(Analyzer* analyzer) const;

 private:
  void NoteAxis(const AttrStmtNode* op);
  struct Axis {
    std::string tag;
    Var var;
    Expr extent;
  };
  const Axis* Find(const std::string& tag) const;
  std::vector<Axis> axes_;
  std::vector<ThreadRange> ranges_;
};

/*! What T.assume states of parameters alone in front of all that a kernel does: it holds in the
 * whole kernel, and for tensor maps that the launch makes. */
std::vector<Expr> LeadingAssumptions(const Stmt& kernel);

/*! The leading assumptions, what the values of the kernel's variables are multiples of, and what
 * T.assume states of a variable behind its binding. */
std::vector<Expr> FactsWithin(const Stmt& kernel);

/*! Runs `body` while the analyzer knows `facts`, from the one with this index on. */
template <typename F>
void WithFacts(Analyzer* analyzer, const std::vector<Expr>& facts, F body, size_t first = 0) {
  if (first == facts.size()) return body();
  analyzer->WithConstraint(facts[first], [&] { WithFacts(analyzer, facts, body, first + 1); });
}

}  // namespace tl
