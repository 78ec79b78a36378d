/*!
 * RaiseAdditions: loops that add a tile to a tensor element by element become T.atomic_add of
 * tiles.
 *
 * In:  a tile program under thread_extent attributes, as it was written.
 * Out: the same, where a parallel loop over a whole fragment adds each element to a tensor's,
 *        for i, j in parallel(128, 128): atomic_add(C[by * 128 + i, bx * 128 + j], C_local[i, j])
 *      is
 *        atomic(C[by * 128 : .., bx * 128 : ..], C_local, "add", "relaxed")
 * Establishes: passes that ask what a block does with a tile (ResizeBlocks) see one form of it.
 * Left alone: additions under a condition, with an order, of something else than the fragment's
 *      element; places that follow each other otherwise; loops with a layout or width.
 * Refuses nothing.
 */
#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/parallel.h"
#include "../../op/tma_reduce.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"

namespace tl {
namespace {

/*! The region that a nest names one element after the other, its dimensions in the nest's order;
 * nullopt where it names others. */
std::optional<TileRegion> RegionOf(const TensorLoadNode* place, const ParallelNest& nest) {
  TileRegion region{place->source.as_or_throw<Var>(), {}};
  Analyzer analyzer;
  size_t next = 0;
  for (const Expr& index : place->indices) {
    Expr extent = MakeInt(index->dtype(), 1), first = index;
    if (next < nest.vars.size() && Uses(index, nest.vars[next])) {
      first = analyzer.Simplify(index - nest.vars[next]);
      extent = nest.extents[next++];
    }
    if (!IsPureInteger(first)) return std::nullopt;
    for (const Var& v : nest.vars) {
      if (Uses(first, v)) return std::nullopt;
    }
    region.ranges.push_back(MakeRange(first, extent));
  }
  return next == nest.vars.size() ? std::optional<TileRegion>(region) : std::nullopt;
}

/*! The fragment of which a nest reads each element once; undefined for other values. */
Var WholeFragment(const Expr& value, const ParallelNest& nest) {
  const auto* load = value.as<TensorLoadNode>();
  if (!load || !AreIteration(load->indices, nest)) return Var();
  const Var fragment = load->source.as_or_throw<Var>();
  if (!IsFragment(fragment)) return Var();
  for (size_t d = 0; d < nest.vars.size(); ++d) {
    const std::optional<int64_t> extent = AsInt(nest.extents[d]);
    if (!extent || extent < 2 || extent != AsInt(BufferOf(fragment)->shape[d])) return Var();
  }
  return fragment;
}

class AdditionRaiser : public StmtExprMutator {
 protected:
  Stmt Mutate_(const ForNode* op) final {
    if (op->kind != ForKind::kParallel || !op->annotations.empty()) return Default<Stmt>(op);
    const ParallelNest nest = NestOfLoop(op);
    const auto* body = nest.body.as<EvaluateNode>();
    const auto* add = body ? body->value.as<CallNode>() : nullptr;
    if (!add || !IsCallTo(add, kAtomicAdd) || ToString(add->args[0]) != "tl::relaxed") {
      return Default<Stmt>(op);
    }
    const TensorLoadNode* place = AsAddressOf(add->args[1]);
    const Var fragment = WholeFragment(add->args[2], nest);
    if (!place || !fragment.defined() || !IsGlobal(place->source.as_or_throw<Var>())) {
      return Default<Stmt>(op);
    }
    const std::optional<TileRegion> region = RegionOf(place, nest);
    if (!region) return Default<Stmt>(op);
    const Array<Expr> args = {region->ToExpr(), TileRegion::Whole(fragment).ToExpr(),
                              StringOf("add"), StringOf("relaxed")};
    return MakeEvaluate(CallOp(kAtomic, args), op->span);
  }
};

PrimFunc RaiseAdditions(PrimFunc f) { return WithBody(f, AdditionRaiser().Mutate(f->body)); }

TL_REGISTER_PASS(RaiseAdditions);

}  // namespace
}  // namespace tl
