/*!
 * T.reduce_*: combines the elements of one dimension.
 *
 * From fragment to fragment: each thread combines what its registers hold of each result, then the
 * threads that hold parts of one result combine theirs (reduce_plan.h), then the results go to
 * where the destination has them. A source whose parts lie in no set of threads that shuffles or a
 * regular exchange can combine is first dealt to threads anew, through shared memory. From
 * per-thread memory to per-thread memory: a serial loop.
 */
#include <bitset>

#include "../target/access_width.h"
#include "../target/packed_float.h"
#include "../tvm/functor.h"
#include "block_reduce.h"
#include "loop_layout.h"
#include "reduce_plan.h"

namespace tl {
namespace {

struct ReduceOp {
  TileRegion src, dst;
  Reduction reduction;
  size_t dim;
  bool clear;
  Span span;

  DLDataType dtype() const { return DTypeOf(dst.buffer); }
};

/*! A loop over every dimension of a shape; unlike that of a region, unit dimensions have theirs. */
ParallelNest NestOverShape(const std::vector<int64_t>& shape, const Span& span) {
  ParallelNest nest;
  nest.span = span;
  for (size_t d = 0; d < shape.size(); ++d) {
    nest.vars.push_back(MakeVar("i" + std::to_string(d)));
    nest.extents.push_back(MakeInt(shape[d]));
  }
  return nest;
}

Array<Expr> ToIndices(const Array<Var>& vars) {
  Array<Expr> out;
  for (const Var& v : vars) out.push_back(v);
  return out;
}

/*! Whether each thread that `wanted` gives an element has it as `held`. */
bool IsHeldBy(const Fragment& held, const Fragment& wanted) {
  const ParallelNest nest = NestOverShape(wanted->Shape(), Span());
  return IsCompatible(nest, {Var(), ToIndices(nest.vars), false}, held, wanted);
}

/*! Emits a reduction from fragment to fragment. */
class FragmentReduce {
 public:
  FragmentReduce(const ReduceOp& op, LoweringScope* scope)
      : op_(op),
        scope_(scope),
        source_(scope->FragmentOf(op.src.buffer)),
        target_(scope->FragmentOf(op.dst.buffer)) {}

  Stmt Emit() {
    const ReducePlan plan = PlanReduce(source_, op_.dim, target_->Shape(), scope_->num_threads);
    const bool has_inverse =
        InvertFragment(source_, scope_->thread, MakeInt(0), scope_->num_threads).has_value();
    if (!plan.lanes || !has_inverse) return EmitThroughShared();
    const Var registers = scope_->RegistersOf(op_.src.buffer);
    const bool in_place = op_.clear && IsSameLayout(plan.result, target_);
    const Var result = in_place ? scope_->RegistersOf(op_.dst.buffer) : NewResult(plan);
    Stmt combined = Combine(source_, plan, result, [&](const Array<Expr>&, const Expr& r) {
      return LoadOf(registers, {r});
    });
    if (in_place) return combined;
    return MakeSeq({MakeAlloc(result), combined, Finish(plan.result, result, false)});
  }

 private:
  Var NewResult(const ReducePlan& plan) const {
    return NewLocal("_part", plan.result->RegisterExtent());
  }
  Var NewLocal(const std::string& suffix, int64_t count) const {
    return MakeBuffer(std::string(op_.dst.buffer->name) + suffix, op_.dtype(), {MakeInt(count)},
                      "local");
  }

  /*! The source in shared memory, as rows of what one result is made of, and from there. */
  Stmt EmitThroughShared() {
    const std::vector<int64_t> shape = source_->Shape();
    const int64_t elements = shape[op_.dim], results = Product(shape) / elements;
    const Var rows =
        scope_->AllocShared(std::string(op_.src.buffer->name) + "_rows", DTypeOf(op_.src.buffer),
                            {MakeInt(results), MakeInt(elements)});
    ParallelNest spill = NestOverShape(shape, op_.span);
    Expr row = MakeInt(0);
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d != op_.dim) row = row * shape[d] + spill.vars[d];
    }
    spill.body = MakeStore(rows, LoadOf(op_.src.buffer, ToIndices(spill.vars)),
                           {row, spill.vars[op_.dim]}, op_.span);
    const Fragment layout = PlanReducible({results, elements}, 1, 1, scope_->num_threads);
    const ReducePlan plan = PlanReduce(layout, 1, {results}, scope_->num_threads);
    TVM_FFI_ICHECK(plan.lanes) << "no plan for " << LayoutText(layout);
    const Var result = NewResult(plan);
    Stmt combined = Combine(layout, plan, result,
                            [&](const Array<Expr>& at, const Expr&) { return LoadOf(rows, at); });
    return MakeSeq({LowerNest(spill, source_, Context()), MakeAlloc(result), combined,
                    Finish(plan.result, result, true)});
  }

  /*! result = the combination over the registers of a layout, and over the threads. `element` gives
   *  the element at (coordinates, register). */
  template <typename Element>
  Stmt Combine(const Fragment& layout, const ReducePlan& plan, const Var& result, Element element) {
    const int64_t count = plan.result->RegisterExtent();
    // Apart from the result, which may then be known to be the same in all threads.
    const Var own = *plan.lanes ? NewLocal("_own", count) : result;
    Var n = MakeVar("k"), r = MakeVar("r");
    const Stmt init = UnrolledFor(
        n, count, MakeStore(own, op_.reduction.Identity(op_.dtype()), {n}, op_.span), op_.span);
    const auto inverse = InvertFragment(layout, scope_->thread, r, scope_->num_threads);
    TVM_FFI_ICHECK(inverse) << "digits without an inverse: " << LayoutText(layout);
    Analyzer* analyzer = scope_->analyzer;
    analyzer->BindConst(r, layout->RegisterExtent());
    const Expr to = analyzer->Simplify(plan.ResultRegister(r));
    const Array<Expr> at = inverse->coords.Map([&](Expr e) { return analyzer->Simplify(e); });
    const Expr value = op_.reduction.Contribution(element(at, r), op_.dtype());
    const Expr guard = analyzer->Simplify(inverse->guard);
    const Stmt add =
        MakeStore(own, op_.reduction.Combine(LoadOf(own, {to}), value), {to}, op_.span);
    Stmt all = UnrolledFor(r, layout->RegisterExtent(), MakeIf(guard, add, op_.span), op_.span);
    if (IsConst(guard, 1)) all = InPairs(own, count, r, layout, to, value).value_or(all);
    const ThreadGroups groups = ThreadGroups::DifferingIn(
        *plan.lanes, scope_->thread, scope_->num_threads, scope_->target->warp_threads);
    std::vector<Stmt> out;
    if (!own.same_as(result)) out.push_back(MakeAlloc(own));
    out.insert(out.end(),
               {init, all,
                CombineOverGroups(groups, op_.reduction, own, result,
                                  std::string(op_.dst.buffer->name) + "_parts", scope_, op_.span)});
    return MakeSeq(out);
  }

  /*! The sums of the even registers of each result and those of the odd ones, and these together,
   * if the target adds float32 in pairs. */
  std::optional<Stmt> InPairs(const Var& result, int64_t count, const Var& r,
                              const Fragment& layout, const Expr& to, const Expr& value) {
    const int64_t registers = layout->RegisterExtent();
    const DLDataType type = op_.dtype();
    const bool is_sum = op_.reduction.AddsFloats(type) && type.bits == 32;
    const bool pairs = HasPackedFloat32(*scope_->target) && is_sum;
    if (!pairs || registers % 2 != 0 || registers < 4 * count) return std::nullopt;
    Analyzer* analyzer = scope_->analyzer;
    const Var half = MakeVar("r"), lane = MakeVar("v"), n = MakeVar("k");
    analyzer->BindConst(half, registers / 2);
    analyzer->BindConst(lane, 2);
    const auto of_pair = [&](const Expr& e) {
      return analyzer->Simplify(Substitute(e, r, Expr(half) * 2 + lane));
    };
    const Expr place = of_pair(to);
    if (Uses(place, lane)) return std::nullopt;
    const Var sums =
        MakeBuffer(std::string(result->name) + "_pair", type, {MakeInt(2 * count)}, "local");
    const Array<Expr> at = {place * 2 + lane};
    Stmt add = MakeStore(sums, LoadOf(sums, at) + Substitute(value, r, Expr(half) * 2 + lane), at,
                         op_.span);
    add = MakeFor(lane, MakeInt(2), ForKind::kUnrolled, add, op_.span);
    const Var first = MakeVar("k");
    const Stmt init =
        UnrolledFor(first, 2 * count, MakeStore(sums, ZeroOf(type), {first}, op_.span), op_.span);
    const Expr both = LoadOf(sums, {Expr(n) * 2}) + LoadOf(sums, {Expr(n) * 2 + 1});
    const Stmt together = UnrolledFor(
        n, count, MakeStore(result, LoadOf(result, {n}) + both, {n}, op_.span), op_.span);
    return MakeSeq(
        {MakeAlloc(sums), init, UnrolledFor(half, registers / 2, add, op_.span), together});
  }

  /*! From registers laid out as `held` to the destination; `flat` if `held` numbers the results in
   *  row-major order. */
  Stmt Finish(const Fragment& held, const Var& registers, bool flat) {
    const Var partial =
        MakeBuffer(std::string(registers->name), op_.dtype(), held->shape, "local.fragment");
    NestLowering ctx = Context();
    const NestLowering plain = ctx;
    ctx.fragment = [=](const Var& b) { return b.same_as(partial) ? held : plain.fragment(b); };
    ctx.registers = [=](const Var& b) {
      return b.same_as(partial) ? registers : plain.registers(b);
    };

    ParallelNest nest = NestOverShape(target_->Shape(), op_.span);
    const Array<Expr> element = ToIndices(nest.vars);
    Expr row = MakeInt(0);
    for (size_t d = 0; d < nest.vars.size(); ++d) row = row * nest.extents[d] + nest.vars[d];
    const Array<Expr> at = flat ? Array<Expr>{row} : element;
    if (IsCompatible(nest, {partial, at, false}, held, target_)) {
      nest.body = Deliver(element, LoadOf(partial, at));
      return LowerNest(nest, target_, ctx);
    }
    const Var moved =
        scope_->AllocShared(std::string(op_.dst.buffer->name) + "_moved", op_.dtype(), held->shape);
    ParallelNest write = NestOverShape(held->Shape(), op_.span);
    const Array<Expr> held_at = ToIndices(write.vars);
    write.body = MakeStore(moved, LoadOf(partial, held_at), held_at, op_.span);
    nest.body = Deliver(element, LoadOf(moved, at));
    return MakeSeq({LowerNest(write, held, ctx), LowerNest(nest, target_, ctx)});
  }

  Stmt Deliver(const Array<Expr>& at, const Expr& value) const {
    const Expr all = op_.clear ? value : op_.reduction.Combine(LoadOf(op_.dst.buffer, at), value);
    return MakeStore(op_.dst.buffer, all, at, op_.span);
  }

  NestLowering Context() const {
    LoweringScope* scope = scope_;
    return {scope->thread, scope->num_threads, scope->analyzer,
            [scope](const Var& b) { return scope->FragmentOf(b); },
            [scope](const Var& b) { return scope->RegistersOf(b); }};
  }

  const ReduceOp& op_;
  LoweringScope* scope_;
  Fragment source_, target_;
};

/*! Emits a reduction in the memory of each thread. */
Stmt ReduceLocal(const ReduceOp& op) {
  const std::vector<int64_t> shape = ConstShape(op.src.buffer);
  const bool dim_stays = ConstShape(op.dst.buffer).size() == shape.size();
  Array<Expr> from, to;
  std::vector<Var> vars;
  for (size_t d = 0; d < shape.size(); ++d) {
    vars.push_back(MakeVar("i" + std::to_string(d)));
    from.push_back(vars[d]);
    if (d != op.dim) {
      to.push_back(vars[d]);
    } else if (dim_stays) {
      to.push_back(MakeInt(0));
    }
  }
  const Expr value = op.reduction.Contribution(LoadOf(op.src.buffer, from), op.dtype());
  Stmt body = UnrolledFor(
      vars[op.dim], shape[op.dim],
      MakeStore(op.dst.buffer, op.reduction.Combine(LoadOf(op.dst.buffer, to), value), to, op.span),
      op.span);
  if (op.clear) {
    body =
        MakeSeq({MakeStore(op.dst.buffer, op.reduction.Identity(op.dtype()), to, op.span), body});
  }
  for (size_t d = shape.size(); d-- > 0;) {
    if (d != op.dim) body = UnrolledFor(vars[d], shape[d], body, op.span);
  }
  return body;
}

class ReduceOperator : public TileOperator {
 public:
  explicit ReduceOperator(ReduceOp op) : TileOperator(op.span), op_(std::move(op)) {}

  BufferUse Use() const final {
    BufferUse use{{op_.src.buffer}, {op_.dst.buffer}};
    if (!op_.clear) use.reads.push_back(op_.dst.buffer);
    return use;
  }

  bool Infer(LayoutScope* scope, InferLevel level) final {
    if (!IsFragment(op_.src.buffer) || level == InferLevel::kStrict) return false;
    const Fragment source = scope->FindFragment(op_.src.buffer);
    if (!source.defined()) return level == InferLevel::kFree && PlaceSource(scope);
    if (scope->Find(op_.dst.buffer).defined()) return false;
    const std::vector<int64_t> shape = ConstShape(op_.dst.buffer);
    scope->SetLayout(op_.dst.buffer, PlanReduce(source, op_.dim, shape, scope->num_threads).result,
                     span);
    return true;
  }

  int64_t LayoutCost(const LayoutScope& scope) const final {
    // A barrier costs about what 16 registers take.
    constexpr int64_t kBarrierBits = 512;
    if (!IsFragment(op_.src.buffer)) return 0;
    const Fragment source = scope.FindFragment(op_.src.buffer);
    const Fragment target = scope.FindFragment(op_.dst.buffer);
    const ReducePlan plan = PlanReduce(source, op_.dim, target->Shape(), scope.num_threads);
    int64_t bits = 0;
    const int64_t warp = scope.target->warp_threads;
    if (plan.lanes && *plan.lanes >= warp) {
      const int64_t parts = int64_t(1) << std::bitset<64>(*plan.lanes / warp).count();
      bits += kBarrierBits + plan.result->RegisterExtent() * (1 + parts) * op_.dtype().bits;
    }
    if (!plan.lanes) {
      bits += kBarrierBits;
      bits += source->RegisterExtent() * 2 * DTypeOf(op_.src.buffer).bits;
    }
    if (!plan.lanes || !IsHeldBy(plan.result, target)) {
      bits += kBarrierBits;
      bits += target->RegisterExtent() * 2 * op_.dtype().bits;
    }
    return bits;
  }

  Stmt Lower(LoweringScope* scope) const final {
    return IsFragment(op_.src.buffer) ? FragmentReduce(op_, scope).Emit() : ReduceLocal(op_);
  }

 private:
  /*! Chooses for a source that nobody has placed: rows lie in neighbouring lanes, columns in
   * threads of their own. */
  bool PlaceSource(LayoutScope* scope) const {
    constexpr int64_t kWord = 32;
    const std::vector<int64_t> shape = ConstShape(op_.src.buffer);
    const int64_t bits = DTypeOf(op_.src.buffer).bits, last = shape.back();
    const bool by_rows = op_.dim + 1 == shape.size();
    const int64_t columns = Product(shape) / shape[op_.dim];
    int64_t width = 1;
    while (width * 2 * bits <= kMaxInstructionBits && last % (2 * width) == 0) {
      // Vectors of columns, as wide as leaves each column to a thread; a word, where none does.
      const bool pays = columns >= 2 * width * scope->num_threads ||
                        (columns * 2 <= scope->num_threads && 2 * width * bits <= kWord);
      if (!by_rows && !pays) break;
      width *= 2;
    }
    scope->SetLayout(op_.src.buffer, PlanReducible(shape, op_.dim, width, scope->num_threads),
                     span);
    return true;
  }

  ReduceOp op_;
};

std::unique_ptr<TileOperator> MakeReduce(const CallNode* call, const Span& span) {
  ReduceOp op;
  op.src = TileRegion::From(call->args[0]);
  op.dst = TileRegion::From(call->args[1]);
  const std::string name = ToString(call->args[2]);
  op.reduction = Reduction::Named(name, TileOpIntAttr(call, "nan_propagate", 0) != 0);
  op.dim = static_cast<size_t>(ToInt(call->args[3]));
  op.clear = ToInt(call->args[4]) != 0;
  op.span = span;
  return std::make_unique<ReduceOperator>(std::move(op));
}

OperatorRegistration reduce_registration(kReduce, "tl.reduce", MakeReduce);

}  // namespace
}  // namespace tl
