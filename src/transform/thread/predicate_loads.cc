/*!
 * PredicateLoads: loads under a condition whose place is long to compute have a predicate.
 *
 * In:  a flat thread program. Behind it no pass simplifies expressions.
 * Out: the same, in which `if_then_else(condition, A[i], 0)` is `tl.load_if<lanes>(A + i,
 *      condition)` where i has 64 bits, or a product of two values of the call, such as a row's
 *      number and the length of rows.
 *      An unrolled loop that stores such loads to shared memory is written out in batches, each of
 *      loads to registers first, then of stores.
 * Establishes: the place is computed in any case, and the loads of a batch are in flight together.
 *      NVVM keeps a branch around what it takes for expensive, such as a product of 64 bits. Then
 *      each load waits for the one before. It also makes one sum of a place from the place before,
 *      if no branch lies between them.
 * Refuses nothing. Unchanged: targets whose instructions have no predicates; tensors that may
 *      change while the kernel runs, whose loads stay in the order of the program; places that are
 *      read from memory, or have a quotient by a value of the call, which may trap; elements of
 *      less than a byte, and vectors of more than 16 bytes.
 */
#include <algorithm>
#include <string>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../analysis/kernel_facts.h"
#include "../../analysis/predicated_load.h"
#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../target/target.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! PTX ISA, ld: at most 16 bytes. */
constexpr int kMostBitsOfLoad = 128;
/*! Loads in flight take registers, of which a thread that multiplies has some left. */
constexpr int64_t kMostRegisters = 32, kRegisterBits = 32;

/*! Arithmetic of 64 bits, or a product of two values of the call. */
bool IsLongPlace(const Expr& place) {
  return place->dtype().bits > 32 ||
         HasNode<MulNode>(place, [](const MulNode* op) { return !AsInt(op->a) && !AsInt(op->b); });
}

/*! A quotient by a value of the call: a thread whose condition is false may divide by 0. */
bool MayTrap(const Expr& place) {
  return HasNode<FloorDivNode>(place, [](const FloorDivNode* op) { return !AsInt(op->b); }) ||
         HasNode<FloorModNode>(place, [](const FloorModNode* op) { return !AsInt(op->b); }) ||
         HasNode<DivNode>(place, [](const DivNode* op) { return !AsInt(op->b); }) ||
         HasNode<ModNode>(place, [](const ModNode* op) { return !AsInt(op->b); });
}

class LoadPredicator : public StmtExprMutator {
 public:
  explicit LoadPredicator(const PrimFunc& f)
      : views_(f->body), aliased_(KernelFacts(f).aliased), written_(WrittenTensors(f->body)) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    const Stmt loop = Default<Stmt>(op);
    return InBatches(loop.as<ForNode>());
  }
  Expr Mutate_(const CallNode* op) final {
    const Expr call = GetRef<Expr>(op);
    const auto guarded = IsIfThenElse(op) ? AsPredicatedLoad(call) : std::nullopt;
    const Expr place = guarded ? PlaceOf(*guarded) : Expr();
    if (!place.defined()) return Default<Expr>(op);
    const Var tensor = guarded->load->source.as_or_throw<Var>();
    return CallOp(
        kLoadIf,
        {MakeInt(op->dtype().lanes), AddressOf(tensor, {place}), Mutate(guarded->condition)},
        op->ty);
  }

 private:
  /*! The loop, whose loads are calls already: loads of a batch, then their stores. */
  static Stmt InBatches(const ForNode* loop) {
    const auto* store = loop->body.as<BufferStoreNode>();
    const int64_t extent = AsInt(loop->extent).value_or(0);
    const bool copies = store && IsShared(store->buffer) && IsCallTo(store->value, kLoadIf) &&
                        IsArithmetic(store->value.as<CallNode>()->args[2]);
    if (!copies || loop->kind != ForKind::kUnrolled || !IsConst(loop->min, 0) || loop->step ||
        extent < 2) {
      return GetRef<Stmt>(loop);
    }
    const DLDataType type = store->value->dtype();
    const int64_t registers = (type.bits * type.lanes + kRegisterBits - 1) / kRegisterBits;
    int64_t batch = std::min(extent, kMostRegisters / registers);
    while (extent % batch) --batch;
    const Var& v = loop->loop_var;
    const Var first = MakeVar("batch", v->dtype());
    const Var loaded =
        MakeBuffer("loaded", WithLanes(type, 1), {MakeInt(batch * type.lanes)}, "local");
    const auto unrolled = [&](auto make) {
      const Var each = MakeVar(v->name, v->dtype());
      const Expr begin = each * MakeInt(v->dtype(), type.lanes);
      const Stmt body = make(type.lanes == 1 ? Expr(each) : RampOf(begin, 1, type.lanes));
      const Expr at =
          batch == extent ? Expr(each) : first * MakeInt(v->dtype(), batch) + Expr(each);
      return MakeFor(each, MakeInt(v->dtype(), batch), ForKind::kUnrolled, Substitute(body, v, at),
                     loop->span);
    };
    const Stmt body = MakeSeq({MakeAlloc(loaded), unrolled([&](const Expr& place) {
                                 return MakeStore(loaded, store->value, {place}, store->span);
                               }),
                               unrolled([&](const Expr& place) {
                                 return MakeStore(store->buffer, LoadOf(loaded, {place}),
                                                  store->indices, store->span);
                               })});
    if (batch == extent) return body;
    return MakeFor(first, MakeInt(v->dtype(), extent / batch), ForKind::kUnrolled, body,
                   loop->span);
  }

  /*! Where the load begins, if it is one for a predicate. */
  Expr PlaceOf(const PredicatedLoad& guarded) const {
    const TensorLoadNode* load = guarded.load;
    const Var tensor = load->source.as_or_throw<Var>();
    const DLDataType type = load->dtype();
    const int bits = type.bits * type.lanes;
    const bool has_instruction = type.bits >= 8 && bits <= kMostBitsOfLoad && !(bits & (bits - 1));
    const Var root = views_.RootOf(tensor);
    if (!has_instruction || written_.count(root.get()) || aliased_.count(root->name)) return Expr();
    Expr place = load->indices[0];
    if (const auto* ramp = place.as<RampNode>()) {
      if (!IsConst(ramp->stride, 1)) return Expr();
      place = ramp->base;
    }
    const bool is_cheap_to_try = IsPureInteger(place) && !MayTrap(place);
    return is_cheap_to_try && IsLongPlace(place) ? place : Expr();
  }

  const Views views_;
  const std::unordered_set<std::string> aliased_;
  const std::unordered_set<const Object*> written_;
};

PrimFunc PredicateLoads(PrimFunc f) {
  // Behind a wait for the kernel before, memory is another one.
  const bool has = TargetOf(f).kind == "cuda" && !HasCall(f->body, {kPdlSync});
  return has ? WithBody(f, LoadPredicator(f).Mutate(f->body)) : f;
}

TL_REGISTER_PASS(PredicateLoads);

}  // namespace
}  // namespace tl
