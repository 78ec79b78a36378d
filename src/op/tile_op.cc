#include "tile_op.h"

#include <algorithm>

#include "../tvm/functor.h"
#include "../tvm/registry.h"
#include "intrinsics.h"

namespace tl {

TileRegion TileRegion::From(const Expr& e) {
  const auto* r = e.as<TensorRegionNode>();
  TVM_FFI_ICHECK(r) << "operand of a tile operator is a " << e->GetTypeKey() << ", not a region";
  return {r->source.as_or_throw<Var>(), r->region};
}

Array<Expr> TileRegion::Extents() const {
  Array<Expr> out;
  for (const Range& r : ranges) out.push_back(r->extent);
  return out;
}

Array<Expr> TileRegion::Mins() const {
  Array<Expr> out;
  for (const Range& r : ranges) out.push_back(r->min);
  return out;
}

const CallNode* AsTileOp(const Stmt& s) {
  const auto* eval = s.as<EvaluateNode>();
  const auto* call = eval ? eval->value.as<CallNode>() : nullptr;
  const OpNode* op = call ? OpOf(call) : nullptr;
  if (!op) return nullptr;
  return std::string(op->name).rfind("tl.tileop.", 0) == 0 ? call : nullptr;
}

bool IsTileOp(const Stmt& s, const char* op) {
  const CallNode* call = AsTileOp(s);
  return call && OpOf(call)->name == op;
}

Any TileOpAttr(const CallNode* call, const char* key) {
  const auto* attrs = call->attrs.defined() ? call->attrs.as<DictAttrsNode>() : nullptr;
  if (!attrs) return Any(nullptr);
  auto it = attrs->__dict__.find(key);
  return it == attrs->__dict__.end() ? Any(nullptr) : (*it).second;
}

namespace {

class UseCollector : public StmtExprVisitor {
 public:
  BufferUse use;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const BufferStoreNode* op) final {
    Add(&use.writes, op->buffer);
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    Add(&use.reads, op->source);
    Default(op);
  }
  void Visit_(const CallNode* op) final {
    const OpNode* o = OpOf(op);
    const std::string name = o ? std::string(o->name) : "";
    if (name == kCopy) {
      Add(&use.reads, Source(op->args[0]));
      Add(&use.writes, Source(op->args[1]));
    } else if (name == kFill) {
      Add(&use.writes, Source(op->args[0]));
    } else if (name == kGemm) {
      Add(&use.reads, Source(op->args[0]));
      Add(&use.reads, Source(op->args[1]));
      Add(&use.reads, Source(op->args[2]));
      Add(&use.writes, Source(op->args[2]));
    } else if (const Intrinsic* row = FindIntrinsic(op)) {
      for (const PointerAccess& p : PointerAccesses(op)) {
        if (p.access != Access::kRead) Add(&use.writes, p.buffer);
        if (p.access == Access::kRead || p.access == Access::kReadWrite) Add(&use.reads, p.buffer);
      }
      for (int i = 0; i < row->template_args; ++i) Visit(op->args[i]);
      return;
    }
    Default(op);
  }

 private:
  static Expr Source(const Expr& region) { return region.as<TensorRegionNode>()->source; }
  static void Add(std::vector<Var>* list, const Expr& buffer) {
    Var v = buffer.as_or_throw<Var>();
    const bool known =
        std::any_of(list->begin(), list->end(), [&](const Var& u) { return u.same_as(v); });
    if (!known) list->push_back(v);
  }
};

Registration registration([] {
  RegisterOp(kCopy, "tl.copy", CallEffect::kOpaque);
  RegisterOp(kFill, "tl.fill", CallEffect::kOpaque);
  RegisterOp(kGemm, "tl.gemm", CallEffect::kOpaque);
});

}  // namespace

BufferUse CollectBufferUse(const Stmt& s) {
  UseCollector c;
  c(s);
  return c.use;
}

}  // namespace tl
