#include <map>

#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"
#include "warp_roles.h"

namespace tl {
namespace {

/*! Facts of a kernel's attributes and block. */
class KernelReader : public StmtExprVisitor {
 public:
  KernelInfo info;

 protected:
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const IterVar axis = op->node.cast<IterVar>();
      const std::string tag = axis->thread_tag;
      if (tag.rfind("threadIdx", 0) == 0) {
        info.thread_vars.push_back(axis->var);
        info.is_flat &= tag == "threadIdx.x" || IsConst(op->value, 1);
        if (tag == "threadIdx.x") info.threads = ToInt(op->value);
      } else {
        blocks_[tag] = axis->var;
      }
    } else if (op->attr_key == kClusterDims) {
      NoteCluster(op->node.cast<Array<Expr>>());
    } else if (op->attr_key == kMinBlocks) {
      info.min_blocks = ToInt(op->value);
    } else if (op->attr_key == kProducerRegisters || op->attr_key == kConsumerRegisters) {
      info.gives_registers = true;
    } else if (op->attr_key == kSwizzle) {
      info.is_swizzled = true;
    } else if (op->attr_key == kAliased) {
      info.aliased.push_back(ToString(op->value));
    }
    Default(op);
  }
  void Visit_(const SBlockNode* op) final {
    if (!info.block) info.block = op;
    Default(op);
  }

 private:
  void NoteCluster(const Array<Expr>& dims) {
    const char* const tags[] = {"blockIdx.x", "blockIdx.y", "blockIdx.z"};
    for (size_t d = 0; d < dims.size(); ++d) {
      const int64_t extent = ToInt(dims[d]);
      info.cluster_blocks *= extent;
      if (extent > 1) info.cluster.emplace_back(blocks_.at(tags[d]), extent);
    }
  }

  std::map<std::string, Var> blocks_;
};

}  // namespace

KernelInfo ReadKernelInfo(const Stmt& kernel, const PrimFunc& f) {
  KernelReader reader;
  reader.info.params = f->params;
  reader.info.target = &TargetOf(f);
  reader(kernel);
  return reader.info;
}

}  // namespace tl
