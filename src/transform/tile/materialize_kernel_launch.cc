/*!
 * MaterializeKernelLaunch: loops over blocks and threads become the launch.
 *
 * In:  loops of kind kThreadBinding around `tilelang_root` blocks, which may have the annotation
 *      `cluster_dims`.
 * Out: thread_extent attributes in their place, an attribute around the block in that of the
 *      annotation, the function's root block gone, and tiles that nothing names.
 * Establishes: block and thread variables are parameters of a statement, not loops. What passes
 *      count of shared memory and registers is what the kernel uses: programs that choose a form in
 *      Python allocate for others, too.
 * Refuses: clusters on a chip that has none.
 */
#include <unordered_set>

#include "../../layout/annotation.h"
#include "../../op/intrinsics.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

class Materializer : public StmtExprMutator {
 public:
  explicit Materializer(PrimFunc f) : function_(std::move(f)) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    if (op->kind != ForKind::kThreadBinding) return Default<Stmt>(op);
    const std::string tag = op->thread_binding.value()->thread_tag;
    constexpr int kThreadIndex = 1;
    Any axis = TL_GLOBAL("tirx.IterVar")(MakeRange(op->min, op->extent), op->loop_var, kThreadIndex,
                                         String(tag), nullptr);
    auto attr = make_object<AttrStmtNode>();
    attr->node = axis;
    attr->attr_key = kThreadExtent;
    attr->value = op->extent;
    attr->body = Mutate(op->body);
    attr->span = op->span;
    return AttrStmt(attr);
  }
  Stmt Mutate_(const SBlockRealizeNode* op) final {
    const auto dims = op->block->annotations.find(kClusterDims);
    if (dims == op->block->annotations.end()) return Default<Stmt>(op);
    const Target& target = TargetOf(function_);
    if (!target.Has(Feature::kCluster)) {
      ThrowAt(op->span, "ValueError",
              "found a kernel with clusters of blocks for " + target.arch + ", wanted " +
                  TargetsWith(Feature::kCluster) +
                  ". Leave out cluster_dims, or compile for another target");
    }
    auto attr = make_object<AttrStmtNode>();
    attr->node = (*dims).second.cast<Array<Expr>>();
    attr->attr_key = kClusterDims;
    attr->value = MakeInt(0);
    attr->body = GetRef<Stmt>(op);
    attr->span = op->span;
    return AttrStmt(attr);
  }

  Stmt Mutate_(const SBlockNode* op) final {
    SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    std::vector<Var> named = VarsOf(block->body);
    for (const Var& v : AnnotatedBuffers(block->annotations)) named.push_back(v);
    std::unordered_set<const Object*> kept;
    for (const Var& v : named) kept.insert(v.get());
    Array<Var> buffers;
    for (const Var& v : block->alloc_buffers) {
      // Barriers have arrival counts, and what a target lacks is refused by name: both stay.
      if (kept.count(v.get()) || !(IsShared(v) || IsFragment(v))) buffers.push_back(v);
    }
    if (buffers.size() != block->alloc_buffers.size()) block.CopyOnWrite()->alloc_buffers = buffers;
    return block;
  }

 private:
  PrimFunc function_;
};

PrimFunc MaterializeKernelLaunch(PrimFunc f) {
  Stmt body = f->body;
  if (const auto* root = body.as<SBlockRealizeNode>(); root && root->block->alloc_buffers.empty()) {
    if (root->block->iter_vars.empty() && root->block->name_hint == "root")
      body = root->block->body;
  }
  return WithBody(f, Materializer(f).Mutate(body));
}

TL_REGISTER_PASS(MaterializeKernelLaunch);

}  // namespace
}  // namespace tl
