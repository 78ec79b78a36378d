/*!
 * LegalizeSafeMemoryAccess: no access of global memory leaves its tensor.
 *
 * Input: a thread program with scalar indices. Output: the same, with each load from global memory
 * whose indices are not proved to be within the buffer's shape as `if_then_else(bounds, load, 0)`,
 * and each such store in `if bounds`. `bounds` has exactly the comparisons that are not proved from
 * the ranges and conditions known at the access. The block annotation `safe_value_map` (buffer ->
 * value) gives what such loads yield instead of 0; it is gone in the output. Read-only loads are
 * guarded like loads, atomic operations like stores, and yield 0. Operands of other `address_of`
 * are left alone: who takes an address answers for it. In an index into a dimension that int32
 * hardly counts, a name of a loaded integer is written out: TVM takes the name for an int32. Off
 * with `tl.disable_safe_memory_legalize`.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/rank_intrinsics.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

class SafeMemoryLegalizer : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  using AnalyzingMutator::Mutate_;

  // Where the guard of asynchronous copies is false nothing is read from global memory. Shared
  // memory may then still be written, so nothing but these bounds may rest on the guard.
  Stmt Mutate_(const AttrStmtNode* op) override {
    if (op->attr_key != kAsyncCopy || AsInt(op->value)) return AnalyzingMutator::Mutate_(op);
    auto n = make_object<AttrStmtNode>(*op);
    n->body = MutateUnder(op->value, op->body);
    return AttrStmt(n);
  }

  Stmt Mutate_(const BindNode* op) override {
    const Stmt bind = AnalyzingMutator::Mutate_(op);
    const auto* n = bind.as<BindNode>();
    const auto* type = n->value->ty.as<PrimTypeNode>();
    if (type && type->dtype == kInt32 && !IsPureInteger(n->value) && Lasts(n->value)) {
      names_.map[n->var.get()] = names_.Mutate(n->value);
    }
    return bind;
  }

  Expr Mutate_(const TensorLoadNode* op) override {
    auto n = make_object<TensorLoadNode>(*Default<Expr>(op).as<TensorLoadNode>());
    n->indices = WrittenOut(n->source.as_or_throw<Var>(), n->indices);
    const TensorLoad load(n);
    const Expr bounds = UnprovedBounds(load->source.as_or_throw<Var>(), load->indices, op->span);
    if (!bounds.defined()) return load;
    return IfThenElseOf(bounds, load, SafeValue(load->source.get(), load->dtype()));
  }

  Stmt Mutate_(const SBlockNode* op) override {
    auto it = op->annotations.find(kSafeValues);
    if (it == op->annotations.end()) return Default<Stmt>(op);
    for (auto [buffer, value] : (*it).second.cast<Map<Var, Expr>>()) {
      safe_values_[buffer.get()] = CastTo(BufferOf(buffer)->dtype->dtype, value);
    }
    auto block = make_object<SBlockNode>(*op);
    block->annotations.erase(kSafeValues);
    block->body = Mutate(op->body);
    return SBlock(block);
  }

  Stmt Mutate_(const EvaluateNode* op) override {
    const auto* call = op->value.as<CallNode>();
    const Expr bounds = call ? ElementBounds(call, op->span) : Expr();
    if (!bounds.defined()) return Default<Stmt>(op);
    auto evaluate = make_object<EvaluateNode>(*op);
    WithFacts(bounds, [&] { evaluate->value = MutateCall(call); });
    return MakeIf(bounds, Evaluate(evaluate), op->span);
  }

  Expr Mutate_(const CallNode* op) override {
    const TensorLoadNode* pointee = AsAddressOf(GetRef<Expr>(op));
    if (!pointee) {
      const Expr bounds = ElementBounds(op, op->span);
      if (!bounds.defined()) return AnalyzingMutator::Mutate_(op);
      Expr call;
      WithFacts(bounds, [&] { call = MutateCall(op); });
      return IfThenElseOf(bounds, call, OutOfBounds(op));
    }
    auto load = make_object<TensorLoadNode>(*pointee);
    load->indices = MutateArray(pointee->indices);
    auto call = make_object<CallNode>(*op);
    call->args = {TensorLoad(load)};
    return Call(call);
  }

  Stmt Mutate_(const BufferStoreNode* op) override {
    auto store = make_object<BufferStoreNode>(*op);
    store->indices = WrittenOut(op->buffer, MutateArray(op->indices));
    const Expr bounds = UnprovedBounds(op->buffer, store->indices, op->span);
    store->value = bounds.defined() ? MutateUnder(bounds, op->value) : Mutate(op->value);
    return bounds.defined() ? MakeIf(bounds, BufferStore(store), op->span) : BufferStore(store);
  }

 private:
  Array<Expr> WrittenOut(const Var& buffer, Array<Expr> indices) {
    constexpr int64_t kHuge = int64_t(1) << 30;
    const Array<Expr>& shape = BufferOf(buffer)->shape;
    if (!IsGlobal(buffer) || names_.map.empty() || shape.size() != indices.size()) return indices;
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto extent = AsInt(shape[i]);
      if (extent && *extent >= kHuge) indices.Set(i, names_.Mutate(indices[i]));
    }
    return indices;
  }

  Expr MutateCall(const CallNode* op) { return AnalyzingMutator::Mutate_(op); }

  Expr SafeValue(const Object* buffer, DLDataType type) const {
    auto it = safe_values_.find(buffer);
    return it == safe_values_.end() ? ZeroOf(type) : it->second;
  }
  /*! What a guarded call yields where its element does not exist. */
  Expr OutOfBounds(const CallNode* op) const {
    if (!IsCallTo(GetRef<Expr>(op), kLoadReadOnly)) return ZeroOf(op->dtype());
    return SafeValue(AsAddressOf(op->args[0])->source.get(), op->dtype());
  }

  /*! The bounds of the elements that an atomic operation or a read-only load touches; undefined for
   * other calls. */
  Expr ElementBounds(const CallNode* op, const Span& span) {
    // It names the memory, and touches nothing there.
    if (IsCallTo(GetRef<Expr>(op), kPeer)) return Expr();
    const bool reads = IsCallTo(GetRef<Expr>(op), kLoadReadOnly);
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (p.access != Access::kAtomic && !reads) continue;
      const Array<Expr> first = MutateArray(p.indices);
      const Expr bounds = UnprovedBounds(p.buffer, first, span);
      const auto* type = op->args.back()->ty.as<PrimTypeNode>();
      if (!type || type->dtype.lanes == 1) return bounds;
      Array<Expr> last = first;
      last.Set(last.size() - 1, last.back() + (type->dtype.lanes - 1));
      const Expr more = UnprovedBounds(p.buffer, last, span);
      return bounds.defined() && more.defined() ? bounds && more : bounds.defined() ? bounds : more;
    }
    return Expr();
  }

  /*! The conjunction of the bounds of a global access that are not proved; undefined if there is
   * none. */
  Expr UnprovedBounds(const Var& buffer, const Array<Expr>& indices, const Span& span) {
    if (!IsGlobal(buffer)) return Expr();
    const Array<Expr>& shape = BufferOf(buffer)->shape;
    std::vector<Expr> bounds;
    for (size_t i = 0; i < indices.size(); ++i) {
      const Expr& index = indices[i];
      if (index->dtype().lanes != 1) {
        ThrowAt(span, "ValueError",
                "found a vector index of " + std::string(buffer->name) +
                    ", wanted scalar indices; write the access in a T.vectorized loop");
      }
      AddUnlessProved(index >= MakeInt(index->dtype(), 0), &bounds);
      AddUnlessProved(index < shape[i], &bounds);
    }
    Expr all;
    for (const Expr& bound : bounds) all = all.defined() ? all && bound : bound;
    return all;
  }

  void AddUnlessProved(const Expr& bound, std::vector<Expr>* bounds) {
    if (analyzer_.CanProveSymbolic(bound)) return;
    for (const Expr& other : *bounds) {
      if (ffi::StructuralEqual()(other, bound)) return;
    }
    bounds->push_back(bound);
  }

  std::unordered_map<const Object*, Expr> safe_values_;
  Substituter names_;
};

PrimFunc LegalizeSafeMemoryAccess(PrimFunc f) {
  if (PassConfigFlag("tl.disable_safe_memory_legalize", false)) return f;
  return WithBody(f, SafeMemoryLegalizer(f).Mutate(f->body));
}

Registration registration([] {
  RegisterPass("LegalizeSafeMemoryAccess", LegalizeSafeMemoryAccess);
});

}  // namespace
}  // namespace tl
