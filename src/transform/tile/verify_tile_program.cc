/*!
 * VerifyTileProgram: the form of programs in front of LowerTileOp, as a check of the passes there.
 *
 * In:  a program after any of these passes. Out: the same program. Establishes: a tile operator is
 * a statement of its own, known, with operands that it can be made from; buffers have scopes of
 * tile programs and as many indices as dimensions; parallel loops hold no tile operator and no
 * loop of another kind that does; annotations of layouts name buffers. Refuses: anything else, as
 * a bug of the pass in front.
 */
#include <string>
#include <unordered_set>

#include "../../layout/annotation.h"
#include "../../op/operator.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

constexpr const char* kPass = "VerifyTileProgram";

bool IsTileOpName(const std::string& name) { return name.rfind("tl.tileop.", 0) == 0; }

class Verifier : public StmtExprVisitor {
 protected:
  using StmtExprVisitor::Visit_;

  void Visit_(const EvaluateNode* op) final {
    span_ = op->span;
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = AsTileOp(s);
    if (!call) return Default(op);
    const std::string name = OpOf(call)->name;
    if (parallel_) ThrowBug(op->span, kPass, "found " + name + " in a parallel loop");
    if (!OperatorOf(s)) ThrowBug(op->span, kPass, "found " + name + ", which is no tile operator");
    for (const Expr& arg : call->args) Visit(arg);
  }
  void Visit_(const CallNode* op) final {
    const OpNode* callee = OpOf(op);
    if (callee && IsTileOpName(callee->name)) {
      ThrowBug(
          span_, kPass,
          "found " + std::string(callee->name) + " inside of an expression, wanted a statement");
    }
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    span_ = op->span;
    const bool outside = parallel_;
    parallel_ |= op->kind == ForKind::kParallel;
    Default(op);
    parallel_ = outside;
  }
  void Visit_(const BufferStoreNode* op) final {
    span_ = op->span;
    CheckAccess(op->buffer, op->indices.size());
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    CheckAccess(op->source.as_or_throw<Var>(), op->indices.size());
    Default(op);
  }
  void Visit_(const TensorRegionNode* op) final {
    CheckAccess(op->source.as_or_throw<Var>(), op->region.size());
    Default(op);
  }
  void Visit_(const SBlockNode* op) final {
    for (const Var& buffer : op->alloc_buffers) CheckScope(buffer);
    for (const auto& [buffer, layout] : GetLayoutMap(op->annotations)) CheckScope(buffer);
    Default(op);
  }

 private:
  void CheckAccess(const Var& buffer, size_t indices) {
    CheckScope(buffer);
    const size_t rank = BufferOf(buffer)->shape.size();
    if (rank == indices) return;
    ThrowBug(span_, kPass,
             "found " + std::to_string(indices) + " indices of " + std::string(buffer->name) +
                 ", which has " + std::to_string(rank) + " dimensions");
  }
  void CheckScope(const Var& buffer) {
    if (IsGlobal(buffer) || IsShared(buffer) || IsFragment(buffer) || IsLocal(buffer) ||
        IsReducer(buffer) || IsBarrier(buffer)) {
      return;
    }
    ThrowBug(span_, kPass,
             "found " + std::string(buffer->name) + " in scope " + ScopeOf(buffer) +
                 ", which tile programs do not have");
  }

  bool parallel_ = false;
  Span span_;
};

PrimFunc VerifyTileProgram(PrimFunc f) {
  Verifier()(f->body);
  return f;
}

Registration registration([] { RegisterPass(kPass, VerifyTileProgram); });

}  // namespace
}  // namespace tl
