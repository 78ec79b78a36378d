/*!
 * HoistTableReads: a producer reads its tables before it waits for a slot.
 *
 * In:  a thread program with its barriers, before buffers are flat.
 * Out: the same. A coordinate of a load by TMA may be read from global memory that the kernel does
 *      not write: the number of a page, `tma_load(K, barrier, tile, 0, Table[step])`. If its
 *      variables are defined in front of the body of a serial loop, it becomes a name that is bound
 *      at the beginning of the body. Loads with the same coordinate share the name, and so do the
 *      program's own names for it.
 * Establishes: numbers that were moved are read before the wait for the slot, which would else stay
 *      empty meanwhile: NVVM does not move reads over waits. Only what runs in each iteration is
 *      moved, and nothing moves over a statement other than names, waits and arrivals at mbarriers,
 *      loads by TMA, and loops of these.
 * Refuses nothing. Unchanged: loads in branches; loads in loops whose extent is no constant, which
 * may have no iteration, and whose table entry may not exist (loops over the parts of a tile have
 * constant extents); operands of conditions that are not moved whole; tables that are read through
 * views, or that other ranks may write; and reads beyond the first kMostNames, since producers have
 * few registers.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../analysis/kernel_facts.h"
#include "../../op/intrinsics.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

constexpr size_t kMostNames = 8;

bool IsTmaLoad(const CallNode* call) {
  const IntrinsicEffects* effects = EffectsOf(call);
  return effects && effects->queue == AsyncQueue::kTmaLoad && effects->step == QueueStep::kIssue;
}

bool IsAtBarrier(const Expr& call) {
  for (const char* name : {kMbarrierWait, kMbarrierWaitCluster, kMbarrierArrive, kMbarrierExpectTx,
                           kMbarrierArriveExpectTx}) {
    if (IsCallTo(call, name)) return true;
  }
  return false;
}

/*! Waits and arrivals at mbarriers, loads by TMA, and loops of these that have an iteration. */
bool OnlyLoads(const Stmt& s) {
  if (const auto* loop = s.as<ForNode>()) {
    const std::vector<Stmt> body = FlatSeq(loop->body);
    const bool runs = AsInt(loop->extent).value_or(0) > 0;
    return runs && AllOf(body, OnlyLoads);
  }
  const auto* op = s.as<EvaluateNode>();
  const auto* call = op ? op->value.as<CallNode>() : nullptr;
  return call && (IsTmaLoad(call) || IsAtBarrier(op->value));
}

/*! A name for an integer: to compute it does nothing else. */
bool NamesInteger(const Stmt& s) {
  const auto* bind = s.as<BindNode>();
  const auto* type = bind ? bind->value->ty.as<PrimTypeNode>() : nullptr;
  if (!type || (type->dtype.code != kDLInt && type->dtype.code != kDLUInt)) return false;
  return !HasNode<CallNode>(bind->value, [](const CallNode* op) { return !IsIfThenElse(op); });
}

bool ReadsMemory(const Stmt& s) { return HasNode<TensorLoadNode>(s); }

/*! Names what loads by TMA read from tables. */
class TableReadNamer : public StmtExprMutator {
 public:
  explicit TableReadNamer(const std::unordered_set<const Object*>& unstable)
      : unstable_(unstable) {}
  std::vector<std::pair<Expr, Var>> names;
  /*! The names that the program has for the same. */
  Substituter renamed;

  /*! The next statement of the body with names; undefined for a name of the program itself, which
   * is one of these now. */
  Stmt Next(const Stmt& s) {
    const auto* bind = s.as<BindNode>();
    if (!bind) {
      ForEachIn<ForNode>(s, [&](const ForNode* op) { defined_.insert(op->loop_var.get()); });
      return Mutate(s);
    }
    if (const Expr name = NameOf(bind->value); name.defined()) {
      renamed.map[bind->var.get()] = name;
      return Stmt();
    }
    defined_.insert(bind->var.get());
    return s;
  }

 protected:
  Expr Mutate_(const CallNode* op) final {
    const bool around = in_load_;
    // An address reads nothing.
    in_load_ = (around || IsTmaLoad(op)) && !AsAddressOf(GetRef<Expr>(op));
    Expr call = around && IsIfThenElse(op) ? NameOf(GetRef<Expr>(op)) : Expr();
    if (!call.defined()) call = IsIfThenElse(op) ? NamedCondition(op) : Default<Expr>(op);
    in_load_ = around;
    return call;
  }
  Expr Mutate_(const AndNode* op) final { return Mutate(op->a) && AsItIs(op->b); }
  Expr Mutate_(const OrNode* op) final { return Mutate(op->a) || AsItIs(op->b); }
  Expr Mutate_(const TensorLoadNode* op) final {
    const Expr name = in_load_ ? NameOf(GetRef<Expr>(op)) : Expr();
    return name.defined() ? name : Default<Expr>(op);
  }

 private:
  /*! A choice that has no name: one of its branches is not evaluated, and may not be legal. */
  Expr NamedCondition(const CallNode* op) {
    auto call = make_object<CallNode>(*op);
    call->args = {Mutate(op->args[0]), AsItIs(op->args[1]), AsItIs(op->args[2])};
    return Call(call);
  }
  /*! What is not evaluated in each iteration. */
  Expr AsItIs(const Expr& e) {
    const bool around = in_load_;
    in_load_ = false;
    const Expr same = Mutate(e);
    in_load_ = around;
    return same;
  }
  /*! An integer from tables that has one value in the whole body. */
  bool IsRead(const Expr& e) const {
    bool reads = false, stays = e->dtype().code == kDLInt || e->dtype().code == kDLUInt;
    ForEachIn<TensorLoadNode>(e, [&](const TensorLoadNode* op) {
      const Var table = op->source.as_or_throw<Var>();
      reads = true;
      stays &= IsGlobal(table) && !unstable_.count(table.get());
    });
    ForEachIn<CallNode>(e, [&](const CallNode* op) { stays &= IsIfThenElse(op); });
    ForEachIn<VarNode>(e, [&](const VarNode* op) { stays &= !defined_.count(op); });
    return reads && stays;
  }

  /*! Undefined if it has none. */
  Expr NameOf(const Expr& e) {
    if (!IsRead(e)) return Expr();
    for (const auto& [value, name] : names) {
      if (tvm::ffi::StructuralEqual()(value, e)) return name;
    }
    if (names.size() == kMostNames) return Expr();
    names.emplace_back(e, MakeVar("number", e->dtype()));
    return names.back().second;
  }

  const std::unordered_set<const Object*>& unstable_;
  /*! Variables that the body defines: not known at its beginning. */
  std::unordered_set<const Object*> defined_;
  bool in_load_ = false;
};

class Hoister : public StmtExprMutator {
 public:
  explicit Hoister(const PrimFunc& kernel) : unstable_(BuffersThatMayChange(kernel)) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    if (op->kind != ForKind::kSerial) return Default<Stmt>(op);
    const std::vector<Stmt> body = FlatSeq(op->body);
    size_t first = 0;
    while (first < body.size() && body[first].as<BindNode>() && !ReadsMemory(body[first])) ++first;
    size_t last = first;
    TableReadNamer namer(unstable_);
    std::vector<Stmt> named;
    for (; last < body.size() && (OnlyLoads(body[last]) || NamesInteger(body[last])); ++last) {
      const Stmt s = namer.Next(body[last]);
      if (s.defined()) named.push_back(s);
    }
    if (namer.names.empty()) return Default<Stmt>(op);
    std::vector<Stmt> out(body.begin(), body.begin() + first);
    for (const auto& [value, name] : namer.names) out.push_back(MakeBind(name, value, op->span));
    AppendRange(&out, named);
    for (size_t i = last; i < body.size(); ++i) out.push_back(Mutate(body[i]));
    return With(op, &ForNode::body, namer.renamed.Mutate(MakeSeq(out)));
  }

 private:
  /*! Buffers whose elements may change while the kernel runs. */
  std::unordered_set<const Object*> unstable_;
};

PrimFunc HoistTableReads(PrimFunc f) { return WithBody(f, Hoister(f).Mutate(f->body)); }

TL_REGISTER_PASS(HoistTableReads);

}  // namespace
}  // namespace tl
