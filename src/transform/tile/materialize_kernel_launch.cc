/*!
 * MaterializeKernelLaunch: loops over blocks and threads become the launch.
 *
 * In:  loops of kind kThreadBinding around `tilelang_root` blocks.
 * Out: thread_extent attributes in their place, the function's root block gone.
 * Establishes: block and thread variables are parameters of a statement, not loops.
 * Refuses: nothing.
 */
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

class Materializer : public StmtExprMutator {
 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const ForNode* op) final {
    if (op->kind != ForKind::kThreadBinding) return Default<Stmt>(op);
    const std::string tag = op->thread_binding.value()->thread_tag;
    auto range = make_object<RangeNode>();
    range->min = op->min;
    range->extent = op->extent;
    constexpr int kThreadIndex = 1;
    Any axis =
        TL_GLOBAL("tirx.IterVar")(Range(range), op->loop_var, kThreadIndex, String(tag), nullptr);
    auto attr = make_object<AttrStmtNode>();
    attr->node = axis;
    attr->attr_key = "thread_extent";
    attr->value = op->extent;
    attr->body = Mutate(op->body);
    attr->span = op->span;
    return AttrStmt(attr);
  }
};

PrimFunc MaterializeKernelLaunch(PrimFunc f) {
  Stmt body = f->body;
  if (const auto* root = body.as<SBlockRealizeNode>(); root && root->block->alloc_buffers.empty()) {
    if (root->block->iter_vars.empty() && root->block->name_hint == "root")
      body = root->block->body;
  }
  return WithBody(std::move(f), Materializer().Mutate(body));
}

Registration registration([] { RegisterPass("MaterializeKernelLaunch", MaterializeKernelLaunch); });

}  // namespace
}  // namespace tl
