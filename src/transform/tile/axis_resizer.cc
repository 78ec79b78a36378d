#include "axis_resizer.h"

#include "../../analysis/effects.h"
#include "../../op/im2col.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/error.h"

namespace tl {

AxisResizer::AxisResizer(Ratio ratio, const Var& v, const AxisTiles& along,
                         const std::vector<Var>& tiles)
    : ratio_(ratio), v_(v), along_(along) {
  for (const Var& tile : tiles) {
    const auto it = along.dims.find(tile.get());
    if (it == along.dims.end()) continue;
    resized_[tile.get()] = WithDim(tile, it->second);
  }
}

Stmt AxisResizer::Mutate_(const SBlockNode* op) {
  auto block = make_object<SBlockNode>(*op);
  block->alloc_buffers = op->alloc_buffers.Map([&](const Var& v) { return BufferFor(v); });
  block->body = Mutate(op->body);
  return SBlock(block);
}

Stmt AxisResizer::Mutate_(const DeclBufferNode* op) {
  const Var& view = op->buffer;
  const auto it = along_.dims.find(view.get());
  if (it == along_.dims.end()) return Default<Stmt>(op);
  const Var resized = WithDim(view, it->second);
  resized_[view.get()] = resized;
  return DeclareView(resized, BufferFor(ViewedBy(op)), op->span);
}

Stmt AxisResizer::Mutate_(const ForNode* op) {
  const bool is_along = along_.loops.count(op->loop_var.get()) != 0;
  if (is_along) extents_.emplace_back(op->loop_var, ToInt(op->extent));
  For loop = Default<Stmt>(op).as_or_throw<For>();
  if (!is_along) return loop;
  extents_.pop_back();
  loop.CopyOnWrite()->extent = MakeInt(op->extent->dtype(), Resized(ToInt(op->extent)));
  return loop;
}

Stmt AxisResizer::Mutate_(const BufferStoreNode* op) {
  return MakeStore(BufferFor(op->buffer), Mutate(op->value), MutateArray(op->indices), op->span);
}

Expr AxisResizer::Mutate_(const TensorLoadNode* op) {
  const Var buffer = op->source.as_or_throw<Var>();
  const auto it = resized_.find(buffer.get());
  if (it == resized_.end()) return Default<Expr>(op);
  return LoadOf(it->second, MutateArray(op->indices));
}

Expr AxisResizer::Mutate_(const TensorRegionNode* op) {
  TileRegion region = TileRegion::From(GetRef<Expr>(op));
  const auto it = along_.dims.find(region.buffer.get());
  for (size_t d = 0; d < region.ranges.size(); ++d) {
    const Range range = region.ranges[d];
    const bool moves = Uses(range->min, v_);
    // Shares of a sum move on in tensors, and no tile grows.
    const bool grows = it != along_.dims.end() ? it->second == d : moves && !along_.dims.empty();
    const int64_t extent = grows ? Resized(ToInt(range->extent)) : 0;
    Expr min = range->min;
    if (moves) min = grows ? MovedBy(extent, min) : Mutate(min);
    region.ranges.Set(
        d, MakeRange(min, grows ? MakeInt(range->extent->dtype(), extent) : range->extent));
  }
  region.buffer = BufferFor(region.buffer);
  return region.ToExpr();
}

Expr AxisResizer::Mutate_(const CallNode* op) {
  if (!IsCallTo(op, kIm2col) || !Uses(op->args[Im2col::kRowBlock], v_)) {
    return Default<Expr>(op);
  }
  Array<Expr> args = op->args;
  args.Set(Im2col::kRowBlock, MakeInt(0));
  auto call = make_object<CallNode>(*op);
  call->args = MutateArray(args);
  // The first block's rows begin where they did, at another number of tiles.
  const Expr block = op->args[Im2col::kRowBlock];
  const Expr number = FloorDivOf(block * ratio_.parts, ratio_.times);
  call->args.Set(Im2col::kRowBlock, MovedBy(1, number));
  return Call(call);
}

Var AxisResizer::WithDim(const Var& buffer, size_t dim) const {
  Array<Expr> shape = BufferOf(buffer)->shape;
  shape.Set(dim, MakeInt(Resized(ToInt(shape[dim]))));
  return MakeBuffer(buffer->name, DTypeOf(buffer), shape, ScopeOf(buffer));
}

/*! Where the first block begins, and so much on for each block behind it. */
Expr AxisResizer::MovedBy(int64_t step, const Expr& begin) const {
  const Expr first = Substitute(begin, v_, MakeInt(v_->dtype(), 0));
  return Analyzer().Simplify(first + v_ * MakeInt(v_->dtype(), step));
}

bool AxisResizer::IsAlong(const Expr& e) const { return IsPureInteger(e) && Uses(e, v_); }

/*! What `v * extent + i` alone decides (block_axis.cc), for a longer or a shorter loop over i. */
Expr AxisResizer::Moved(const Expr& e) const {
  for (const auto& [i, extent] : extents_) {
    if (!Uses(e, i)) continue;
    const Expr begin = v_ * MakeInt(v_->dtype(), Resized(extent));
    return Analyzer().Simplify(Substitute(MovedBy(0, e), i, i + CastTo(i->dtype(), begin)));
  }
  ThrowBug(Span(), "AxisResizer", "an index along the axis without a loop over its elements");
}

Var AxisResizer::BufferFor(const Var& buffer) const {
  const auto it = resized_.find(buffer.get());
  return it == resized_.end() ? buffer : it->second;
}

}  // namespace tl
