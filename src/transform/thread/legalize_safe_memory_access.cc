/*!
 * LegalizeSafeMemoryAccess: no access of global memory leaves its tensor.
 *
 * Input: a thread program with scalar indices. Output: the same, with each load from global memory
 * whose indices are not proved to be within the buffer's shape as `if_then_else(bounds, load, 0)`,
 * and each such store in `if bounds`. `bounds` has exactly the comparisons that are not proved from
 * the ranges and conditions known at the access. Operands of `address_of` are left alone: who takes
 * an address answers for it. Off with `tl.disable_safe_memory_legalize`.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include "../../op/intrinsics.h"
#include "../../tvm/error.h"
#include "../../tvm/registry.h"
#include "analyzing_mutator.h"

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

  Expr Mutate_(const TensorLoadNode* op) override {
    const TensorLoad load = Default<Expr>(op).as_or_throw<TensorLoad>();
    const Expr bounds = UnprovedBounds(load->source.as_or_throw<Var>(), load->indices, op->span);
    if (!bounds.defined()) return load;
    return IfThenElseOf(bounds, load, ZeroOf(load->dtype()));
  }

  Expr Mutate_(const CallNode* op) override {
    const TensorLoadNode* pointee = AsAddressOf(GetRef<Expr>(op));
    if (!pointee) return AnalyzingMutator::Mutate_(op);
    auto load = make_object<TensorLoadNode>(*pointee);
    load->indices = MutateArray(pointee->indices);
    auto call = make_object<CallNode>(*op);
    call->args = {TensorLoad(load)};
    return Call(call);
  }

  Stmt Mutate_(const BufferStoreNode* op) override {
    auto store = make_object<BufferStoreNode>(*op);
    store->indices = MutateArray(op->indices);
    const Expr bounds = UnprovedBounds(op->buffer, store->indices, op->span);
    store->value = bounds.defined() ? MutateUnder(bounds, op->value) : Mutate(op->value);
    return bounds.defined() ? MakeIf(bounds, BufferStore(store), op->span) : BufferStore(store);
  }

 private:
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
