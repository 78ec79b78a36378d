/*!
 * LegalizeSafeMemoryAccess: no access of global memory leaves its tensor.
 *
 * In:  a thread program with scalar indices; block annotation `safe_value_map` (buffer -> value).
 * Out: the same without the annotation. A load from global memory whose indices are not proved to
 *      be within the buffer's shape is `if_then_else(bounds, load, 0)`, with the buffer's safe
 * value instead of 0 where it has one. Such a store is in `if bounds`. `bounds` has exactly the
 *      comparisons that are not proved from the ranges and conditions known at the access.
 *      Read-only loads are guarded like loads. Atomic operations are guarded like stores, and yield
 *      0. In an index into a dimension that int32 hardly counts, a name of a loaded integer is
 *      written out: TVM takes the name for an int32.
 *      Calls that several threads make together, such as shuffles, stay in front of the guards: in
 *      a guarded statement, and in the index of a guarded load, they are names of values bound in
 *      front of the statement; in the condition of a `while`, in front of a break in its body.
 * Establishes: what is read or written by index is an element of its tensor.
 * Left alone: operands of other `address_of`: who takes an address answers for it.
 * Refuses nothing. `tl.disable_safe_memory_legalize` turns the pass off.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <utility>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/rank_intrinsics.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! A convergent call (LLVM): a shuffle, a vote, a reduction of a warp, which several threads make
 * together. A guard
 * around it keeps some of these threads from it, and what is known behind the guard does not hold
 * in the others. */
bool IsConvergent(const CallNode* call) {
  const IntrinsicEffects* effects = EffectsOf(call);
  return effects && effects->meets != ThreadScope::kThread;
}

bool HasConvergentCall(const Expr& e) { return HasNode<CallNode>(e, IsConvergent); }

/*! Gives convergent calls names, whose values are bound in front: under the conditions that the
 * expression has for them, which are those of the program, and not under guards. */
class ConvergentCallBinder : public StmtExprMutator {
 public:
  explicit ConvergentCallBinder(const Span& span) : span_(span) {}
  std::vector<Stmt> binds;

  /*! `e`, which stays a call if it is one. */
  Expr Operands(const Expr& e) {
    const auto* call = e.as<CallNode>();
    return call ? MutateOperands(call) : Mutate(e);
  }

 protected:
  Expr Mutate_(const CallNode* op) override {
    const Expr e = MutateOperands(op);
    return IsConvergent(op) ? NameOf(e, ZeroOf(e->dtype())) : e;
  }
  Expr Mutate_(const AndNode* op) override {
    auto n = make_object<AndNode>(*op);
    n->a = Mutate(op->a);
    if (!HasConvergentCall(op->b)) return And(n);
    n->a = NameOf(n->a, MakeInt(kBool, 0));
    n->b = MutateWhere(n->a, op->b);
    return And(n);
  }
  Expr Mutate_(const OrNode* op) override {
    auto n = make_object<OrNode>(*op);
    n->a = Mutate(op->a);
    if (!HasConvergentCall(op->b)) return Or(n);
    n->a = NameOf(n->a, MakeInt(kBool, 1));
    n->b = MutateWhere(NotOf(n->a), op->b);
    return Or(n);
  }

 private:
  Expr MutateOperands(const CallNode* op) {
    if (!IsIfThenElse(op)) return Default<Expr>(op);
    auto n = make_object<CallNode>(*op);
    n->args.Set(0, Mutate(op->args[0]));
    if (!HasConvergentCall(op->args[1]) && !HasConvergentCall(op->args[2])) return Call(n);
    const Expr is_first = NameOf(n->args[0], MakeInt(kBool, 0));
    const Expr is_second = where_.defined() ? where_ && NotOf(is_first) : NotOf(is_first);
    n->args = {is_first, MutateWhere(is_first, op->args[1]), MutateWhere(is_second, op->args[2])};
    return Call(n);
  }
  Expr MutateWhere(const Expr& condition, const Expr& e) {
    const Expr around = std::exchange(where_, condition);
    const Expr result = Mutate(e);
    where_ = around;
    return result;
  }
  Expr NameOf(const Expr& e, const Expr& elsewhere) {
    const Var value = MakeVar("value", e->dtype());
    binds.push_back(
        MakeBind(value, where_.defined() ? IfThenElseOf(where_, e, elsewhere) : e, span_));
    return value;
  }

  Span span_;
  /*! Where the expression is evaluated; undefined for everywhere. */
  Expr where_;
};

/*! The statement (a store, `Bind`, `Evaluate` or `IfThenElse`) behind `Bind`s of the convergent
 * calls in its expressions, operands first; of an `IfThenElse` in its condition. One that is all of
 * an `Evaluate` or `Bind` stays. */
Stmt WithConvergentCallsInFront(const Stmt& s) {
  ConvergentCallBinder binder(s->span);
  Stmt behind = s;
  if (const auto* op = s.as<BufferStoreNode>()) {
    auto n = make_object<BufferStoreNode>(*op);
    n->indices = op->indices.Map([&](const Expr& e) { return binder.Mutate(e); });
    n->value = binder.Mutate(op->value);
    behind = BufferStore(n);
  } else if (const auto* op = s.as<BindNode>()) {
    auto n = make_object<BindNode>(*op);
    n->value = binder.Operands(op->value);
    behind = tl::Bind(n);
  } else if (const auto* op = s.as<EvaluateNode>()) {
    auto n = make_object<EvaluateNode>(*op);
    n->value = binder.Operands(op->value);
    behind = Evaluate(n);
  } else if (const auto* op = s.as<IfThenElseNode>()) {
    auto n = make_object<IfThenElseNode>(*op);
    n->condition = binder.Mutate(op->condition);
    behind = IfThenElse(n);
  }
  if (binder.binds.empty()) return s;
  binder.binds.push_back(behind);
  return MakeSeq(binder.binds);
}

class SafeMemoryLegalizer : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  // Where the guard of asynchronous copies is false nothing is read from global memory. Shared
  // memory may then still be written, so nothing but these bounds may rest on the guard.
  Stmt Mutate_(const AttrStmtNode* op) override {
    if (op->attr_key != kAsyncCopy || AsInt(op->value)) return AnalyzingMutator::Mutate_(op);
    return With(op, &AttrStmtNode::body, MutateUnder(op->value, op->body));
  }

  Stmt Mutate_(const IfThenElseNode* op) override {
    return BesideConvergentCalls(op, [&] { return AnalyzingMutator::Mutate_(op); });
  }

  // Such calls in a condition are made anew in each iteration.
  Stmt Mutate_(const WhileNode* op) override {
    const bool around = std::exchange(guards_convergent_call_, false);
    const Stmt legal = AnalyzingMutator::Mutate_(op);
    if (!std::exchange(guards_convergent_call_, around)) return legal;
    ConvergentCallBinder binder(op->span);
    const Expr condition = binder.Mutate(op->condition);
    if (binder.binds.empty()) return legal;
    const Expr leave = CallOp("tirx.break_loop", {});
    binder.binds.push_back(MakeIf(NotOf(condition), MakeEvaluate(leave, op->span), op->span));
    binder.binds.push_back(op->body);
    auto loop = make_object<WhileNode>(*op);
    loop->condition = MakeInt(kBool, 1);
    loop->body = MakeSeq(binder.binds);
    return AnalyzingMutator::Mutate_(loop.get());
  }

  Stmt Mutate_(const BindNode* op) override {
    return BesideConvergentCalls(op, [&] { return Bound(op); });
  }

  Stmt Mutate_(const EvaluateNode* op) override {
    return BesideConvergentCalls(op, [&] { return Evaluated(op); });
  }

  Stmt Mutate_(const BufferStoreNode* op) override {
    return BesideConvergentCalls(op, [&] { return Stored(op); });
  }

  Expr Mutate_(const TensorLoadNode* op) override {
    auto n = make_object<TensorLoadNode>(*Default<Expr>(op).as<TensorLoadNode>());
    n->indices = WrittenOut(n->source.as_or_throw<Var>(), n->indices);
    const TensorLoad load(n);
    const Expr bounds = UnprovedBounds(load->source.as_or_throw<Var>(), load->indices, op->span);
    if (!bounds.defined()) return load;
    for (const Expr& index : load->indices) guards_convergent_call_ |= HasConvergentCall(index);
    return IfThenElseOf(bounds, load, SafeValue(load->source.get(), load->dtype()));
  }

  Stmt Mutate_(const SBlockNode* op) override {
    auto it = op->annotations.find(kSafeValues);
    if (it == op->annotations.end()) return Default<Stmt>(op);
    for (auto [buffer, value] : (*it).second.cast<Map<Var, Expr>>()) {
      safe_values_[buffer.get()] = CastTo(DTypeOf(buffer), value);
    }
    auto block = make_object<SBlockNode>(*op);
    block->annotations.erase(kSafeValues);
    block->body = Mutate(op->body);
    return SBlock(block);
  }

  Expr Mutate_(const CallNode* op) override {
    const TensorLoadNode* pointee = AsAddressOf(GetRef<Expr>(op));
    if (!pointee) {
      const Expr bounds = ElementBounds(op, op->span);
      if (!bounds.defined()) return AnalyzingMutator::Mutate_(op);
      guards_convergent_call_ |= HasConvergentCall(GetRef<Expr>(op));
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

 private:
  Stmt Bound(const BindNode* op) {
    const Stmt bind = AnalyzingMutator::Mutate_(op);
    const auto* n = bind.as<BindNode>();
    const auto* type = n->value->ty.as<PrimTypeNode>();
    if (type && type->dtype == kInt32 && !IsPureInteger(n->value) && Lasts(n->value)) {
      names_.map[n->var.get()] = names_.Mutate(n->value);
    }
    return bind;
  }

  Stmt Evaluated(const EvaluateNode* op) {
    const auto* call = op->value.as<CallNode>();
    const Expr bounds = call ? ElementBounds(call, op->span) : Expr();
    if (!bounds.defined()) return Default<Stmt>(op);
    for (const Expr& arg : call->args) guards_convergent_call_ |= HasConvergentCall(arg);
    auto evaluate = make_object<EvaluateNode>(*op);
    WithFacts(bounds, [&] { evaluate->value = MutateCall(call); });
    return MakeIf(bounds, Evaluate(evaluate), op->span);
  }

  Stmt Stored(const BufferStoreNode* op) {
    auto store = make_object<BufferStoreNode>(*op);
    store->indices = WrittenOut(op->buffer, MutateArray(op->indices));
    const Expr bounds = UnprovedBounds(op->buffer, store->indices, op->span);
    store->value = bounds.defined() ? MutateUnder(bounds, op->value) : Mutate(op->value);
    if (!bounds.defined()) return BufferStore(store);
    guards_convergent_call_ |= HasConvergentCall(op->value) || HasConvergentCall(bounds);
    return MakeIf(bounds, BufferStore(store), op->span);
  }

  /*! What `legalize` makes of a statement, and if it puts a guard around a convergent call, what it
   * makes of the statement with such calls in front. */
  template <typename Node, typename Legalize>
  Stmt BesideConvergentCalls(const Node* op, Legalize legalize) {
    const bool around = std::exchange(guards_convergent_call_, false);
    const Stmt legal = legalize();
    if (!std::exchange(guards_convergent_call_, around)) return legal;
    const Stmt s = GetRef<Stmt>(op), apart = WithConvergentCallsInFront(s);
    return apart.same_as(s) ? legal : Mutate(apart);
  }

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
    if (!IsCallTo(op, kLoadReadOnly)) return ZeroOf(op->dtype());
    return SafeValue(AsAddressOf(op->args[0])->source.get(), op->dtype());
  }

  /*! The bounds of the elements that an atomic operation or a read-only load touches; undefined for
   * other calls. */
  Expr ElementBounds(const CallNode* op, const Span& span) {
    // It names the memory, and touches nothing there.
    if (IsCallTo(op, kPeer)) return Expr();
    const bool reads = IsCallTo(op, kLoadReadOnly);
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

  bool guards_convergent_call_ = false;
  std::unordered_map<const Object*, Expr> safe_values_;
  Substituter names_;
};

PrimFunc LegalizeSafeMemoryAccess(PrimFunc f) {
  if (DisablesSafeMemoryAccess()) return f;
  return WithBody(f, SafeMemoryLegalizer(f).Mutate(f->body));
}

TL_REGISTER_PASS(LegalizeSafeMemoryAccess);

}  // namespace
}  // namespace tl
