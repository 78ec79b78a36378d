#include "block_axis.h"

#include <algorithm>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/im2col.h"
#include "../../op/region_nest.h"
#include "../../op/tma_reduce.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "buffer_bytes.h"

namespace tl {
namespace {

/*! Whether a region has all of its buffer in one dimension. */
bool IsWholeIn(const TileRegion& region, size_t dim) {
  const Range& range = region.ranges[dim];
  return IsConst(range->min, 0) &&
         AsInt(range->extent) == AsInt(BufferOf(region.buffer)->shape[dim]);
}

/*! Follows the axis from tensors through statements, to and fro, until no tile is new. */
class AxisFollower : public StmtExprVisitor {
 public:
  /*! `may_sum`: products and reductions over elements along the axis are followed, too. */
  explicit AxisFollower(const Var& v, bool may_sum = false) : v_(v), may_sum_(may_sum) {}

  /*! nullopt where no tile is along the axis, or a statement does not fit. */
  std::optional<AxisTiles> Follow(const Stmt& s) {
    do {
      is_new = false;
      AtBlockLevel(s);
    } while (fits && is_new);
    if (!fits || found.dims.empty()) return std::nullopt;
    return found;
  }

 private:
  AxisTiles found;
  bool fits = true, is_new = false;

  void AtBlockLevel(const Stmt& s) {
    if (!fits) return;
    if (s.as<SeqStmtNode>()) {
      for (const Stmt& t : FlatSeq(s)) AtBlockLevel(t);
    } else if (const auto* bind = s.as<BindNode>()) {
      fits &= IsAlike(bind->value) && !HasEffect(bind->value);
    } else if (const auto* loop = s.as<ForNode>()) {
      if (loop->kind == ForKind::kParallel) return OfNest(loop);
      fits &= loop->kind == ForKind::kSerial && IsAlike(loop->min) && IsAlike(loop->extent);
      AtBlockLevel(loop->body);
    } else if (const auto* branch = s.as<IfThenElseNode>()) {
      fits &= IsAlike(branch->condition) && !HasEffect(branch->condition);
      AtBlockLevel(branch->then_case);
      if (branch->else_case) AtBlockLevel(branch->else_case.value());
    } else if (const auto* decl = s.as<DeclBufferNode>()) {
      OfView(decl->buffer, ViewedBy(decl));
    } else if (const auto* attr = s.as<AttrStmtNode>()) {
      fits &= attr->attr_key == kSwizzle || attr->attr_key == kAliased;
      AtBlockLevel(attr->body);
    } else if (const Expr fact = AssumptionOf(s); fact.defined()) {
      fits &= IsAlike(fact);
    } else {
      const CallNode* call = AsTileOp(s);
      fits &= call != nullptr;
      if (fits) OfOperator(call, s->span);
    }
  }

 protected:
  void Visit_(const ForNode* op) final {
    fits &= op->kind == ForKind::kSerial && !Depends(op->min) && !Depends(op->extent);
    Default(op);
  }
  void Visit_(const BindNode* op) final {
    if (Depends(op->value)) named_.insert(op->var.get());
    Visit(op->value);
  }
  void Visit_(const EvaluateNode*) final { fits = false; }
  void Visit_(const AttrStmtNode*) final { fits = false; }
  void Visit_(const WhileNode*) final { fits = false; }
  void Visit_(const BufferStoreNode* op) final {
    // The value may tell that a loop is along the axis, as a mask does.
    Visit(op->value);
    OfAccess(op->buffer, op->indices);
    // Iterations along the axis that store to one element are a race, or all store the same.
    if (IsTile(op->buffer) && !found.dims.count(op->buffer.get())) fits &= !Depends(op->value);
  }
  void Visit_(const TensorLoadNode* op) final {
    OfAccess(op->source.as_or_throw<Var>(), op->indices);
  }
  void Visit_(const CallNode* op) final {
    fits &= !HasEffect(op);
    Default(op);
  }
#define TL_OF_INTEGER(Node) \
  void Visit_(const Node* op) final { OfExpression(op); }
  TL_OF_INTEGER(VarNode)
  TL_OF_INTEGER(AddNode)
  TL_OF_INTEGER(SubNode)
  TL_OF_INTEGER(MulNode)
  TL_OF_INTEGER(FloorDivNode)
  TL_OF_INTEGER(FloorModNode)
  TL_OF_INTEGER(MinNode)
  TL_OF_INTEGER(MaxNode)
#undef TL_OF_INTEGER

 private:
  void Add(const Var& tile, size_t dim) {
    const auto [it, added] = found.dims.emplace(tile.get(), dim);
    fits &= it->second == dim;
    is_new |= added;
  }
  /*! A dimension of one tile is along the axis where one of the other is. */
  void Link(const TileRegion& a, size_t dim_a, const TileRegion& b, size_t dim_b) {
    const bool is_a = IsAlong(a, dim_a), is_b = IsAlong(b, dim_b);
    if (!is_a && !is_b) return;
    fits &= IsWholeIn(a, dim_a) && IsWholeIn(b, dim_b);
    Add(a.buffer, dim_a);
    Add(b.buffer, dim_b);
  }
  bool IsAlong(const TileRegion& region, size_t dim) const {
    const auto it = found.dims.find(region.buffer.get());
    return it != found.dims.end() && it->second == dim;
  }

  /*! A view that only divides rows into other elements has the buffer's rows. */
  void OfView(const Var& view, const Var& viewed) {
    fits &= viewed.defined();
    if (!fits) return;
    const BufferTypeNode *a = BufferOf(view), *b = BufferOf(viewed);
    bool has_rows = a->shape.size() == b->shape.size() && a->strides.empty() && b->strides.empty();
    for (size_t d = 0; has_rows && d + 1 < a->shape.size(); ++d) {
      has_rows = AsInt(a->shape[d]) == AsInt(b->shape[d]);
    }
    for (const auto& [from, to] : {std::pair(view, viewed), std::pair(viewed, view)}) {
      const auto it = found.dims.find(from.get());
      if (it == found.dims.end()) continue;
      const size_t dim = it->second;
      fits &= has_rows && dim + 1 < a->shape.size();
      Add(to, dim);
    }
  }

  void OfOperator(const CallNode* call, const Span& span) {
    fits &= !ReadsTileAlong(GetRef<Expr>(call));
    if (IsGemm(call)) return OfGemm(ParseGemm(call, span));
    fits &= TileOpAttrs(call).empty();
    if (IsCallTo(call, kCopy)) {
      OfCopy(TileRegion::From(call->args[0]), TileRegion::From(call->args[1]), false);
    } else if (IsCallTo(call, kAtomic) && call->args[1].as<TensorRegionNode>()) {
      OfCopy(TileRegion::From(call->args[1]), TileRegion::From(call->args[0]), true);
    } else if (IsCallTo(call, kFill)) {
      const TileRegion tile = TileRegion::From(call->args[0]);
      const auto it = found.dims.find(tile.buffer.get());
      fits &= IsTile(tile.buffer) && !Uses(GetRef<Expr>(call), v_) && !HasEffect(call->args[1]);
      fits &= it == found.dims.end() || IsWholeIn(tile, it->second);
    } else if (IsCallTo(call, kReduce)) {
      OfReduction(call);
    } else if (IsCallTo(call, kIm2col)) {
      OfWindows(call);
    } else {
      fits = false;
    }
  }

  void OfGemm(const GemmOp& op) {
    fits &= !op.asynchronous && !op.IsSparse() && !op.IsScaled() && !op.packed && !op.trans_c;
    fits &= !Uses(op.clear_accum, v_);
    for (const TileRegion* region : {&op.a, &op.b, &op.c}) {
      fits &= region->IsWhole() && region->ranges.size() == 2;
    }
    if (!fits) return;
    const size_t row = op.trans_a ? 1 : 0, column = op.trans_b ? 0 : 1;
    Link(op.a, row, op.c, 0);
    Link(op.b, column, op.c, 1);
    // Sums over K are of one block.
    if (!may_sum_) fits &= !IsAlong(op.a, 1 - row) && !IsAlong(op.b, 1 - column);
    Link(op.a, 1 - row, op.b, 1 - column);
  }

  void OfReduction(const CallNode* call) {
    const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
    const size_t reduced = ToInt(call->args[3]);
    fits &= src.IsWhole() && dst.IsWhole() && dst.ranges.size() + 1 == src.ranges.size() &&
            (may_sum_ || !IsAlong(src, reduced));
    for (size_t d = 0; fits && d < src.ranges.size(); ++d) {
      if (d != reduced) Link(src, d, dst, d < reduced ? d : d - 1);
    }
  }

  void OfWindows(const CallNode* call) {
    const TileRegion tile = TileRegion::From(call->args[1]);
    const Expr block = call->args[Im2col::kRowBlock];
    fits &= tile.IsWhole() && !Uses(tile.ToExpr(), v_);
    if (!Uses(GetRef<Expr>(call), v_)) {
      fits &= !found.dims.count(tile.buffer.get());
      return;
    }
    Array<Expr> others = call->args;
    others.Set(Im2col::kRowBlock, MakeInt(0));
    Analyzer analyzer;
    const Expr next = Substitute(block, v_, v_ + MakeInt(v_->dtype(), 1));
    const Expr doubled = Substitute(block, v_, v_ * MakeInt(v_->dtype(), 2));
    fits &= !Uses(others, v_) && IsConst(analyzer.Simplify(next - block), 1) &&
            WiderBlock(doubled, 2, &analyzer).defined();
    Add(tile.buffer, 0);
  }

  /*! `adds`: what two blocks do to one element is not what one does. */
  void OfCopy(const TileRegion& src, const TileRegion& dst, bool adds) {
    const std::vector<size_t> from = NonUnitDims(src), to = NonUnitDims(dst);
    fits &= from.size() == to.size() && (IsTile(src.buffer) || IsTile(dst.buffer));
    if (!fits) return;
    if (IsTile(src.buffer) && IsTile(dst.buffer)) {
      fits &= !Uses(src.ToExpr(), v_) && !Uses(dst.ToExpr(), v_);
      for (size_t d = 0; d < from.size(); ++d) Link(src, from[d], dst, to[d]);
      return;
    }
    const bool loads = IsTile(dst.buffer);
    const TileRegion &tile = loads ? dst : src, &tensor = loads ? src : dst;
    fits &= IsGlobal(tensor.buffer) && !Uses(tile.ToExpr(), v_);
    if (!Uses(tensor.ToExpr(), v_)) {
      fits &= !found.dims.count(tile.buffer.get()) && !adds;
      return;
    }
    const auto& dims = loads ? from : to;
    const std::optional<size_t> moving = MovingDim(tensor, v_);
    const auto it = moving ? std::find(dims.begin(), dims.end(), *moving) : dims.end();
    fits &= it != dims.end();
    if (!fits) return;
    const size_t dim = (loads ? to : from)[it - dims.begin()];
    fits &= IsWholeIn(tile, dim);
    Add(tile.buffer, dim);
  }

  void OfNest(const ForNode* loop) {
    const ParallelNest nest = NestOfLoop(loop);
    fits &= loop->annotations.empty();
    extents_.clear();
    for (size_t i = 0; i < nest.vars.size(); ++i) {
      const std::optional<int64_t> extent = AsInt(nest.extents[i]);
      fits &= extent.has_value();
      extents_.emplace_back(nest.vars[i], extent.value_or(0));
    }
    if (!fits) return;
    Visit(nest.body);
    // Two of them would have iterations between what two blocks do.
    fits &= CountIf(nest.vars, [&](const Var& i) { return found.loops.count(i.get()) != 0; }) <= 1;
  }

  /*! A loop's name of the nest. */
  std::optional<int64_t> ExtentOf(const Expr& e) const {
    for (const auto& [var, extent] : extents_) {
      if (e.same_as(var)) return extent;
    }
    return std::nullopt;
  }

  void OfAccess(const Var& buffer, const Array<Expr>& indices) {
    fits &= IsTile(buffer) || IsGlobal(buffer);
    for (size_t d = 0; fits && d < indices.size(); ++d) {
      const Expr& index = indices[d];
      const auto it = found.dims.find(buffer.get());
      const bool is_along = it != found.dims.end() && it->second == d;
      const std::optional<int64_t> extent = ExtentOf(index);
      if (!IsTile(buffer) || (!is_along && !(extent && found.loops.count(index.get())))) {
        Visit(index);
        continue;
      }
      fits &= extent && extent == AsInt(BufferOf(buffer)->shape[d]);
      Add(buffer, d);
      is_new |= found.loops.insert(index.get()).second;
    }
  }

  /*! An element of a tile of which each block has its own: one block has one value of it. */
  bool ReadsTileAlong(const Expr& e) const {
    return HasNode<TensorLoadNode>(e, [&](const TensorLoadNode* load) {
      return found.dims.count(load->source.as_or_throw<Var>().get()) != 0;
    });
  }
  /*! Neighbouring blocks have the same value. */
  bool IsAlike(const Expr& e) const { return !Uses(e, v_) && !ReadsTileAlong(e); }

  /*! The value differs from block to block, or along a loop over what blocks have. */
  bool Depends(const Expr& e) const {
    return HasNode<VarNode>(e, [&](const VarNode* op) {
      return op == v_.get() || found.loops.count(op) || named_.count(op);
    });
  }

  template <typename Node>
  void OfExpression(const Node* op) {
    const Expr e = GetRef<Expr>(op);
    if (!IsPureInteger(e)) return Default(op);
    if (!Depends(e)) return;
    // What `v * extent + i` alone decides is the same for a longer loop over i.
    for (const auto& [i, extent] : extents_) {
      if (!Uses(e, i)) continue;
      const Expr beside = Substitute(e, i, i + MakeInt(i->dtype(), extent));
      const Expr behind = Substitute(e, v_, v_ + MakeInt(v_->dtype(), 1));
      if (!Uses(e, v_) || !IsConst(Analyzer().Simplify(beside - behind), 0)) continue;
      for (const auto& [other, unused] : extents_) {
        fits &= other.same_as(i) || !found.loops.count(other.get()) || !Uses(e, other);
      }
      is_new |= found.loops.insert(i.get()).second;
      return;
    }
    fits = false;
  }

  const Var v_;
  const bool may_sum_;
  /*! The loops of the nest that is visited. */
  std::vector<std::pair<Var, int64_t>> extents_;
  /*! Names of values that differ so. */
  std::unordered_set<const Object*> named_;
};

}  // namespace

std::optional<size_t> MovingDim(const TileRegion& region, const Var& v) {
  std::optional<size_t> found;
  for (size_t d = 0; d < region.ranges.size(); ++d) {
    const Range& range = region.ranges[d];
    if (!Uses(range->min, v) && !Uses(range->extent, v)) continue;
    const Expr next = Substitute(range->min, v, v + MakeInt(v->dtype(), 1));
    const auto step = AsInt(Analyzer().Simplify(next - range->min));
    if (found || !step || step != AsInt(range->extent)) return std::nullopt;
    found = d;
  }
  return found;
}

std::optional<AxisTiles> TilesAlongLoop(const ForNode* loop) {
  return AxisFollower(loop->loop_var, true).Follow(loop->body);
}

std::optional<AxisTiles> TilesAlong(const SBlockNode* block, const Var& v) {
  if (auto found = AxisFollower(v).Follow(block->body)) return found;
  const ForNode* loop = SharedLoop(block, v);
  if (!loop) return std::nullopt;
  AxisTiles shares;
  shares.loops.insert(loop->loop_var.get());
  return shares;
}

}  // namespace tl
