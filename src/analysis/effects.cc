#include "effects.h"

#include <string>
#include <vector>

#include "../op/intrinsics.h"
#include "../op/tile_op.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"

namespace tl {
namespace {

class WriteCollector : public StmtExprVisitor {
 public:
  std::unordered_set<const Object*> written;

 protected:
  // What a tile operator reads is a region, too.
  void Visit_(const EvaluateNode* op) override {
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = AsTileOp(s);
    if (!call) return Default(op);
    for (const Var& v : CollectBufferUse(s).writes) written.insert(v.get());
    for (const Expr& arg : call->args) Visit(arg);
  }
  void Visit_(const TensorRegionNode* op) override {
    for (const Range& r : op->region) {
      Visit(r->min);
      Visit(r->extent);
    }
  }
  void Visit_(const BufferStoreNode* op) override {
    written.insert(op->buffer.get());
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
  }
  void Visit_(const TensorLoadNode* op) override {
    for (const Expr& i : op->indices) Visit(i);
  }
  void Visit_(const CallNode* op) override {
    const bool known = FindIntrinsic(op) != nullptr;
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (Writes(p.access)) written.insert(p.buffer.get());
    }
    for (const Expr& arg : op->args) {
      const TensorLoadNode* pointee = AsAddressOf(arg);
      if (pointee && !known) written.insert(pointee->source.get());
      Visit(pointee ? Expr(GetRef<TensorLoad>(pointee)) : arg);
    }
  }
  // A buffer outside of a load or store is a pointer that goes somewhere.
  void Visit_(const VarNode* op) override {
    if (AsBuffer(GetRef<Var>(op))) written.insert(op);
  }
  // What is written through a view is written to the buffer, and the other way round.
  void Visit_(const DeclBufferNode* op) override {
    written.insert(op->buffer.get());
    Visit(op->data);
  }
  void Visit_(const SBlockNode* op) override { Visit(op->body); }
};

}  // namespace

std::unordered_set<const Object*> WrittenBuffers(const Stmt& s) {
  WriteCollector collector;
  collector(s);
  return std::move(collector.written);
}

bool IsArithmetic(const Expr& e) { return !HasNode<TensorLoadNode, CallNode>(e); }

bool IsPureInteger(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  if (!type || type->dtype.lanes != 1) return false;
  if (type->dtype.code != kDLInt && type->dtype.code != kDLUInt) return false;
  return IsArithmetic(e);
}

bool HasEffect(const CallNode* call) {
  // The last of TVM's kinds that change nothing: an annotation, a pure function, one that reads.
  constexpr int64_t kReads = 2;
  const OpNode* op = OpOf(call);
  if (!op) return true;
  const Any kind = TL_GLOBAL("ir.OpGetAttr")(GetRef<Op>(op), String("TCallEffectKind"));
  return kind == nullptr || kind.cast<int64_t>() > kReads;
}

bool HasEffect(const Expr& e) {
  return HasNode<CallNode>(e, [](const CallNode* call) { return HasEffect(call); });
}

bool WritesMemory(const Expr& e) {
  return HasNode<CallNode>(e, [](const CallNode* call) {
    const std::vector<PointerAccess> accesses = PointerAccesses(call);
    return IsCallTo(call, "tirx.call_extern") ||
           AnyOf(accesses, [](const PointerAccess& p) { return Writes(p.access); });
  });
}

bool IsNothing(const Stmt& s) {
  const auto* op = s.as<EvaluateNode>();
  return op && AsInt(op->value);
}

bool IsBreak(const Stmt& s) {
  const auto* op = s.as<EvaluateNode>();
  return s.as<BreakNode>() || (op && IsCallTo(op->value, "tirx.break_loop"));
}

bool IsContinue(const Stmt& s) {
  const auto* op = s.as<EvaluateNode>();
  return s.as<ContinueNode>() || (op && IsCallTo(op->value, "tirx.continue_loop"));
}

bool LeavesEarly(const Stmt& s) {
  return HasNode<BreakNode, ContinueNode>(s) ||
         HasNode<EvaluateNode>(s, [](const EvaluateNode* op) {
           const Stmt s = GetRef<Stmt>(op);
           return IsBreak(s) || IsContinue(s) || IsCallTo(op->value, kThreadReturn);
         });
}

bool IsIfThenElse(const CallNode* call) { return IsCallTo(call, "prim.if_then_else"); }

bool IsElementwise(const CallNode* call) {
  static const std::unordered_set<std::string> names = {
      "tirx.exp",   "tirx.exp2",      "tirx.exp10",    "tirx.log",         "prim.log2",
      "tirx.log10", "tirx.sqrt",      "tirx.rsqrt",    "tirx.sin",         "tirx.cos",
      "tirx.tan",   "tirx.sinh",      "tirx.cosh",     "tirx.tanh",        "tirx.atan",
      "tirx.erf",   "tirx.fabs",      "tirx.floor",    "prim.ceil",        "tirx.trunc",
      "tirx.round", "tirx.nearbyint", "tirx.pow",      "tirx.fmod",        "tirx.isnan",
      "prim.clz",   "tirx.popcount",  "tirx.sigmoid",  "tirx.reinterpret", "tirx.asin",
      "tirx.acos",  "tirx.asinh",     "tirx.acosh",    "tirx.atanh",       "tirx.log1p",
      "tirx.atan2", "tirx.hypot",     "tirx.copysign", "tirx.nextafter",   "tirx.ldexp"};
  if (const Intrinsic* row = FindIntrinsic(call)) return row->elementwise;
  const OpNode* op = OpOf(call);
  return op && names.count(std::string(op->name));
}

}  // namespace tl
