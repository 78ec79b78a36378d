/*!
 * AssumeGuards: what the call has checked is known in each kernel.
 *
 * In:  a tile program under thread_extent attributes; perhaps the function attribute
 *      `tilelang_guards`, conditions on the sizes of the call (tilelang/engine/variants.py).
 * Out: the same; each kernel begins with a `T.assume` of each condition.
 * Establishes: a variant of a program differs from the program by assumptions alone. The launch
 * plan's guards are made of the same attribute.
 * Refuses nothing.
 */
#include "../../tvm/registry.h"
#include "../each_kernel.h"

namespace tl {
namespace {

/*! Puts statements in front of those of the outermost block. */
class Prepender : public StmtExprMutator {
 public:
  explicit Prepender(std::vector<Stmt> first) : first_(std::move(first)) {}

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    auto n = make_object<SBlockNode>(*op);
    std::vector<Stmt> stmts = first_;
    for (const Stmt& s : FlatSeq(op->body)) stmts.push_back(s);
    n->body = MakeSeq(stmts);
    return SBlock(n);
  }

 private:
  std::vector<Stmt> first_;
};

PrimFunc AssumeGuards(PrimFunc f) {
  const Any guards = GetAttr(f, kGuards);
  if (guards == nullptr) return f;
  std::vector<Stmt> assumptions;
  for (const Expr& guard : guards.cast<Array<Expr>>()) {
    assumptions.push_back(MakeAssume(guard, f->span));
  }
  return ForEachKernel(
      f, [&](const AttrStmtNode* op) { return Prepender(assumptions).Mutate(GetRef<Stmt>(op)); });
}

TL_REGISTER_PASS(AssumeGuards);

}  // namespace
}  // namespace tl
