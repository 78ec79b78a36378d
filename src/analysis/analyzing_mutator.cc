#include "analyzing_mutator.h"

#include "../tvm/attrs.h"
#include "../tvm/find.h"

namespace tl {
AnalyzingMutator::AnalyzingMutator(const PrimFunc& f) : written_(f->body) {
  analyzer_.BindShapes(f);
}

bool AnalyzingMutator::Lasts(const Expr& condition) const {
  const auto may_change = [&](const TensorLoadNode* op) { return written_.Has(op->source.get()); };
  const auto is_no_function = [](const CallNode* op) {
    return !IsElementwise(op) && !IsIfThenElse(op);
  };
  return !HasNode<TensorLoadNode>(condition, may_change) &&
         !HasNode<CallNode>(condition, is_no_function);
}

void AnalyzingMutator::WithFacts(const Expr& condition, const std::function<void()>& body) {
  if (const auto* both = condition.as<AndNode>()) {
    return WithFacts(both->a, [&] { WithFacts(both->b, body); });
  }
  if (condition->dtype().lanes != 1 || !Lasts(condition)) return body();
  analyzer_.WithConstraint(condition, body);
}

Stmt AnalyzingMutator::Mutate_(const AttrStmtNode* op) {
  if (op->attr_key == kThreadExtent) analyzer_.BindThread(op);
  return Default<Stmt>(op);
}

Stmt AnalyzingMutator::Mutate_(const ForNode* op) {
  analyzer_.BindLoop(op);
  return Default<Stmt>(op);
}

Stmt AnalyzingMutator::Mutate_(const BindNode* op) {
  Stmt result = Default<Stmt>(op);
  const BindNode* bind = result.as<BindNode>();
  if (IsPureInteger(bind->value)) {
    analyzer_.BindExpr(bind->var, bind->value);
  } else {
    analyzer_.BindValue(bind);
  }
  return result;
}

Stmt AnalyzingMutator::Mutate_(const IfThenElseNode* op) {
  const Expr condition = Mutate(op->condition);
  const Stmt then_case = MutateUnder(condition, op->then_case);
  Optional<Stmt> else_case = op->else_case;
  if (else_case) else_case = MutateUnder(NotOf(condition), *else_case);
  if (condition.same_as(op->condition) && then_case.same_as(op->then_case) &&
      else_case.same_as(op->else_case)) {
    return GetRef<Stmt>(op);
  }
  auto n = make_object<IfThenElseNode>(*op);
  n->condition = condition;
  n->then_case = then_case;
  n->else_case = else_case;
  return IfThenElse(n);
}

Stmt AnalyzingMutator::Mutate_(const SeqStmtNode* op) {
  std::vector<Stmt> stmts;
  MutateFrom(FlatSeq(GetRef<Stmt>(op)), 0, &stmts);
  return MakeSeq(stmts);
}

void AnalyzingMutator::MutateFrom(const std::vector<Stmt>& from, size_t first,
                                  std::vector<Stmt>* to) {
  for (size_t i = first; i < from.size(); ++i) {
    to->push_back(Mutate(from[i]));
    if (const Expr fact = AssumptionOf(from[i]); fact.defined()) {
      return WithFacts(fact, [&] { MutateFrom(from, i + 1, to); });
    }
  }
}

Expr AssumptionOf(const Stmt& s) {
  const auto* evaluate = s.as<EvaluateNode>();
  return evaluate && IsCallTo(evaluate->value, "tirx.assume")
             ? evaluate->value.as<CallNode>()->args[0]
             : Expr();
}

Expr AnalyzingMutator::Mutate_(const CallNode* op) {
  if (!IsIfThenElse(op)) return Default<Expr>(op);
  const Expr condition = Mutate(op->args[0]);
  const Array<Expr> args = {condition, MutateUnder(condition, op->args[1]),
                            MutateUnder(NotOf(condition), op->args[2])};
  return With(op, &CallNode::args, args);
}

// `and` and `or` evaluate their second operand only where the first one does not decide.
Expr AnalyzingMutator::Mutate_(const AndNode* op) {
  const Expr a = Mutate(op->a);
  auto n = make_object<AndNode>(*op);
  n->a = a;
  n->b = MutateUnder(a, op->b);
  return And(n);
}

Expr AnalyzingMutator::Mutate_(const OrNode* op) {
  const Expr a = Mutate(op->a);
  auto n = make_object<OrNode>(*op);
  n->a = a;
  n->b = MutateUnder(NotOf(a), op->b);
  return Or(n);
}

}  // namespace tl
