#include "operator.h"

#include <unordered_map>

#include "../tvm/error.h"
#include "../tvm/functor.h"
#include "../tvm/registry.h"
#include "intrinsics.h"
#include "parallel_operator.h"

namespace tl {
namespace {

struct OperatorRow {
  const char* printed;
  OperatorFactory factory;
};

std::unordered_map<std::string, OperatorRow>& Operators() {
  static std::unordered_map<std::string, OperatorRow> table;
  return table;
}

Registration operator_registration([] {
  for (const auto& [name, row] : Operators()) RegisterOp(name, row.printed, CallEffect::kOpaque);
});

/*! Buffers that a statement touches: operators tell, everything else is loads and stores. */
class UseCollector : public StmtExprVisitor {
 public:
  BufferUse use;

 protected:
  void Visit_(const EvaluateNode* op) final {
    if (std::unique_ptr<TileOperator> tile_op = OperatorOf(GetRef<Stmt>(op))) {
      const BufferUse own = tile_op->Use();
      for (const Var& v : own.reads) Add(&use.reads, v);
      for (const Var& v : own.writes) Add(&use.writes, v);
      for (const Expr& arg : op->value.as<CallNode>()->args) Visit(arg);
    } else {
      Default(op);
    }
  }
  void Visit_(const BufferStoreNode* op) final {
    Add(&use.writes, op->buffer);
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    Add(&use.reads, op->source.as_or_throw<Var>());
    Default(op);
  }
  void Visit_(const CallNode* op) final {
    const Intrinsic* row = FindIntrinsic(op);
    if (!row) return Default(op);
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (Writes(p.access)) Add(&use.writes, p.buffer);
      if (Reads(p.access)) Add(&use.reads, p.buffer);
      for (const Expr& index : p.indices) Visit(index);
    }
    for (size_t i = 0; i < op->args.size(); ++i) {
      if (!AsAddressOf(op->args[i])) Visit(op->args[i]);
    }
  }

 private:
  static void Add(std::vector<Var>* list, const Var& v) {
    if (!Contains(*list, v)) list->push_back(v);
  }
};

}  // namespace

std::vector<FragmentAccess> TileOperator::Unreached(const LayoutScope&) const { return {}; }

OperatorRegistration::OperatorRegistration(const char* name, const char* printed,
                                           OperatorFactory factory) {
  Operators()[name] = {printed, factory};
}

std::unique_ptr<TileOperator> OperatorOf(const Stmt& s) {
  if (const auto* loop = s.as<ForNode>(); loop && loop->kind == ForKind::kParallel) {
    return MakeParallelOperator(NestOfLoop(loop), LoopLayoutOf(loop));
  }
  const CallNode* call = AsTileOp(s);
  if (!call) return nullptr;
  auto it = Operators().find(OpOf(call)->name);
  if (it == Operators().end()) {
    ThrowBug(s->span, "OperatorOf", "no operator " + std::string(OpOf(call)->name));
  }
  return it->second.factory(call, s->span);
}

BufferUse CollectBufferUse(const Stmt& s) {
  UseCollector c;
  c(s);
  return c.use;
}

}  // namespace tl
