#include "inline_names.h"

#include "../analysis/effects.h"

namespace tl {

bool NameInliner::IsInlined(const Expr& value) const { return IsPureInteger(value); }

bool NameInliner::Keeps(const Var& name, const Expr& value) {
  return !IsInlined(value) || !counts_.Add(name, value);
}

Stmt NameInliner::Mutate_(const BindNode* op) {
  const Expr value = Mutate(op->value);
  if (Keeps(op->var, value)) return With(op, &BindNode::value, value);
  map[op->var.get()] = value;
  return MakeSeq({});
}

Expr NameInliner::Mutate_(const LetNode* op) {
  const Expr value = Mutate(op->value);
  if (Keeps(op->var, value)) return Default<Expr>(op);
  map[op->var.get()] = value;
  return Mutate(op->body);
}

Stmt NameInliner::Mutate_(const SeqStmtNode* op) {
  std::vector<Stmt> stmts;
  for (const Stmt& s : op->seq) {
    const Stmt t = Mutate(s);
    if (!IsNothing(t)) stmts.push_back(t);
  }
  return MakeSeq(stmts);
}

}  // namespace tl
