/*!
 * GuardMasks: masks are skipped in iterations in which they mask nothing.
 *
 * In:  a tile program under thread_extent attributes.
 * Out: the same, where a loop that masks all of a fragment, in a loop with products, runs in those
 *      iterations of that loop alone in which some element is masked (causal attention):
 *
 *        gemm(Q, K, S); S[i, j] = if_then_else(first + i >= k * 128 + j, S[i, j], -inf)
 *        gemm(Q, K, S); if !(first >= k * 128 + 127): S[i, j] = ..
 *
 *      and if the mask begins the accumulator of a product:
 *
 *        S[i, j] = if_then_else(first + i >= k * 128 + j, 0, -inf); gemm(Q, K, S)
 *        if !(first >= k * 128 + 127): S[i, j] = ..
 *        gemm(Q, K, S, clear_accum=first >= k * 128 + 127)
 *
 *      The condition is that of the mask with each side of a comparison at its largest or smallest
 *      value, of all elements.
 * Establishes: nothing. A mask costs a thread two instructions for each register, and most
 *      iterations of a loop over keys have none to mask.
 * Left alone: masks that no loop with products changes, that always hold, whose comparisons neither
 *      grow nor shrink with the indices of the fragment, or read memory; those in a branch without
 *      a product, for which the program has a condition; loops whose statements the program has
 *      ordered. Refuses nothing.
 */
#include <algorithm>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../analysis/extrema.h"
#include "../../analysis/predicated_load.h"
#include "../../analysis/trend.h"
#include "../../analysis/uniformity.h"
#include "../../op/gemm.h"
#include "../../op/parallel.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "product_clears.h"

namespace tl {
namespace {

/*! A loop over all elements of a fragment: where the condition is `keeps` an element stays as it
 * is, or becomes 0 if the loop `begins` it. */
struct Mask {
  Var buffer;
  ParallelNest nest;
  Expr condition;
  bool keeps, begins;
};

/*! The element itself. */
bool IsKept(const Expr& value, const BufferStoreNode* store) {
  const auto* load = value.as<TensorLoadNode>();
  return load && load->source.same_as(store->buffer) &&
         std::equal(load->indices.begin(), load->indices.end(), store->indices.begin(),
                    store->indices.end(),
                    [](const Expr& a, const Expr& b) { return a.same_as(b); });
}

bool CoversAll(const ParallelNest& nest, const BufferStoreNode* store) {
  const std::vector<int64_t> shape = ConstShape(store->buffer);
  if (shape.size() != nest.vars.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!store->indices[d].same_as(nest.vars[d]) || !IsConst(nest.extents[d], shape[d])) {
      return false;
    }
  }
  return true;
}

std::optional<Mask> AsMask(const Stmt& s) {
  const auto* loop = s.as<ForNode>();
  if (!loop || loop->kind != ForKind::kParallel) return std::nullopt;
  const ParallelNest nest = NestOfLoop(loop);
  const std::vector<Stmt> body = FlatSeq(nest.body);
  Substituter names;
  for (const Stmt& name : body) {
    const auto* bind = name.as<BindNode>();
    if (!bind) break;
    names.map[bind->var.get()] = names.Mutate(bind->value);
  }
  const auto* store = body.back().as<BufferStoreNode>();
  if (names.map.size() + 1 != body.size()) return std::nullopt;
  if (!store || !IsFragment(store->buffer) || !CoversAll(nest, store)) return std::nullopt;
  const auto* cast = store->value.as<CastNode>();
  const auto* choice = (cast ? cast->value : store->value).as<CallNode>();
  if (!choice || !IsIfThenElse(choice)) return std::nullopt;
  const Expr &a = choice->args[1], &b = choice->args[2];
  const Expr condition = names.Mutate(choice->args[0]);
  const bool keeps_a = IsKept(a, store), begins_a = IsZeros(a);
  if (keeps_a || IsKept(b, store)) {
    return Mask{store->buffer, nest, condition, keeps_a, false};
  }
  if (!begins_a && !IsZeros(b)) return std::nullopt;
  return Mask{store->buffer, nest, condition, begins_a, true};
}

bool HasProduct(const Stmt& s) {
  return HasNode<CallNode>(s, [](const CallNode* call) { return IsGemm(call); });
}

class MaskGuard : public AnalyzingMutator {
 public:
  explicit MaskGuard(const PrimFunc& f)
      : AnalyzingMutator(f), trends_(&analyzer_), uniformity_(f->body), views_(f->body) {}

 protected:
  Stmt Mutate_(const BindNode* op) final {
    trends_.Name(op);
    return AnalyzingMutator::Mutate_(op);
  }
  Stmt Mutate_(const ForNode* op) final {
    if (op->kind == ForKind::kParallel || op->annotations.count(kUserOrder))
      return GetRef<Stmt>(op);
    const bool has_product = HasProduct(op->body);
    if (has_product) loops_.push_back(op->loop_var);
    const Stmt loop = AnalyzingMutator::Mutate_(op);
    if (has_product) loops_.pop_back();
    return loop;
  }
  Stmt Mutate_(const IfThenElseNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    return HasProduct(s) ? AnalyzingMutator::Mutate_(op) : s;
  }
  Stmt Mutate_(const SeqStmtNode* op) final {
    // What is known in front of a statement is known behind it, names among it.
    const Stmt mutated = AnalyzingMutator::Mutate_(op);
    std::vector<Stmt> body = FlatSeq(mutated);
    bool changed = false;
    for (size_t n = 0; n < body.size(); ++n) changed |= Guard(&body, n);
    return changed ? MakeSeq(body) : mutated;
  }

 private:
  bool Guard(std::vector<Stmt>* body, size_t n) {
    const std::optional<Mask> mask = AsMask((*body)[n]);
    if (!mask) return false;
    const std::optional<size_t> product = mask->begins ? ProductBehind(*body, n, mask->buffer) : n;
    const Expr nothing = product ? NothingToMask(*mask) : Expr();
    if (!nothing.defined()) return false;
    (*body)[n] = MakeIf(NotOf(nothing), (*body)[n], (*body)[n]->span);
    if (mask->begins) (*body)[*product] = WithClear((*body)[*product], nothing);
    return true;
  }

  /*! The product that adds to what the n-th statement stores, the first one behind it to use it. */
  std::optional<size_t> ProductBehind(const std::vector<Stmt>& body, size_t n, const Var& c) const {
    const auto uses = [&](const Stmt& s) {
      return LeavesEarly(s) || HasNode<VarNode>(s, [&](const VarNode* v) {
               return views_.IsSameMemory(GetRef<Var>(v), c);
             });
    };
    const auto next = std::find_if(body.begin() + n + 1, body.end(), uses);
    if (next == body.end() || !AddedToBy(*next).same_as(c)) return std::nullopt;
    return next - body.begin();
  }

  /*! Undefined where no condition says so, or it is the same in all iterations. */
  Expr NothingToMask(const Mask& mask) {
    const Expr found = Always(mask, mask.condition, mask.keeps);
    if (!found.defined()) return Expr();
    const Expr nothing = analyzer_.Simplify(found);
    if (AsInt(nothing) || !Changes(nothing) || !uniformity_.IsUniform(nothing)) return Expr();
    // ApplyAssumptions leaves such a mask out.
    const bool always = !HasExtremum(nothing) && analyzer_.CanProveSymbolic(nothing);
    return always ? Expr() : nothing;
  }

  /*! With a loop around that has products. */
  bool Changes(const Expr& condition) const {
    return AnyOf(loops_,
                 [&](const Var& v) { return trends_.Of(condition, v) != Trend::kConstant; });
  }

  /*! Where it holds, the condition is `value` in all iterations of the mask; undefined if there is
   * no such expression without these iterations' variables. */
  Expr Always(const Mask& mask, const Expr& condition, bool value) const {
    if (const auto* op = condition.as<NotNode>()) return Always(mask, op->a, !value);
    if (const auto* op = condition.as<AndNode>()) return Both(mask, op->a, op->b, value, value);
    if (const auto* op = condition.as<OrNode>()) return Both(mask, op->a, op->b, value, !value);
    if (const auto* op = condition.as<LTNode>()) return Ordered(mask, op->a, op->b, true, value);
    if (const auto* op = condition.as<GTNode>()) return Ordered(mask, op->b, op->a, true, value);
    if (const auto* op = condition.as<LENode>()) return Ordered(mask, op->a, op->b, false, value);
    if (const auto* op = condition.as<GENode>()) return Ordered(mask, op->b, op->a, false, value);
    return Expr();
  }
  Expr Both(const Mask& mask, const Expr& a, const Expr& b, bool value, bool all) const {
    const Expr of_a = Always(mask, a, value), of_b = Always(mask, b, value);
    if (!of_a.defined() || !of_b.defined()) return all ? Expr() : of_a.defined() ? of_a : of_b;
    return all ? of_a && of_b : of_a || of_b;
  }
  /*! When `a < b`, or `a <= b` if not `strict`, is `value` for all elements. */
  Expr Ordered(const Mask& mask, const Expr& a, const Expr& b, bool strict, bool value) const {
    if (!IsPureInteger(a) || !IsPureInteger(b)) return Expr();
    // a < b fails where b <= a.
    const Expr low = Extreme(mask, value ? a : b, Trend::kUp);
    const Expr high = Extreme(mask, value ? b : a, Trend::kDown);
    if (!low.defined() || !high.defined()) return Expr();
    return strict == value ? low < high : high >= low;
  }
  /*! The largest value in all iterations (kUp), or the smallest one. */
  Expr Extreme(const Mask& mask, Expr e, Trend wanted) const {
    for (size_t d = 0; d < mask.nest.vars.size(); ++d) {
      const Var& v = mask.nest.vars[d];
      const Trend trend = trends_.Of(e, v);
      if (trend == Trend::kUnknown) return Expr();
      const int64_t last = ToInt(mask.nest.extents[d]) - 1;
      e = Substitute(e, v, MakeInt(v->dtype(), trend == wanted ? last : 0));
    }
    return e;
  }

  Trends trends_;
  const Uniformity uniformity_;
  const Views views_;
  std::vector<Var> loops_;
};

PrimFunc GuardMasks(PrimFunc f) {
  if (!HasProduct(f->body)) return f;
  MaskGuard guard(f);
  const Stmt body = guard.Mutate(f->body);
  return WithBody(std::move(f), body);
}

TL_REGISTER_PASS(GuardMasks);

}  // namespace
}  // namespace tl
