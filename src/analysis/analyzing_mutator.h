/*!
 * AnalyzingMutator: a StmtExprMutator whose analyzer knows, at each node, what holds there: the
 * ranges of threads, loops and dimensions, the values of `Bind`, and the conditions of the
 * enclosing `if` statements and expressions, and `assume` from its place to the end of its
 * sequence.
 *
 * A condition that loads from memory is used only if the function never writes that memory;
 * otherwise it could be stale.
 */
#pragma once
#include <functional>
#include <vector>

#include "../tvm/analyzer.h"
#include "../tvm/functor.h"
#include "effects.h"

namespace tl {

class AnalyzingMutator : public StmtExprMutator {
 public:
  explicit AnalyzingMutator(const PrimFunc& f);

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const AttrStmtNode* op) override;
  Stmt Mutate_(const ForNode* op) override;
  Stmt Mutate_(const BindNode* op) override;
  Stmt Mutate_(const IfThenElseNode* op) override;
  Stmt Mutate_(const SeqStmtNode* op) override;
  Expr Mutate_(const CallNode* op) override;
  Expr Mutate_(const AndNode* op) override;
  Expr Mutate_(const OrNode* op) override;

  template <typename R>
  R MutateUnder(const Expr& condition, const R& node) {
    R result;
    WithFacts(condition, [&] { result = Mutate(node); });
    return result;
  }
  /*! Runs `body` while the analyzer knows those conjuncts of `condition` that cannot become stale.
   */
  void WithFacts(const Expr& condition, const std::function<void()>& body);

  /*! It has one value wherever the function computes it. */
  bool Lasts(const Expr& e) const;

  Analyzer analyzer_;

 private:
  void MutateFrom(const std::vector<Stmt>& from, size_t first, std::vector<Stmt>* to);

  const BufferWrites written_;
};

/*! What an `assume` statement says, undefined for other statements. */
Expr AssumptionOf(const Stmt& s);

}  // namespace tl
