/*! Tiles that grow or shrink along an axis: of the grid, or of a loop over tiles. */
#pragma once
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../tvm/functor.h"
#include "block_axis.h"

namespace tl {

/*! Tiles become `times / parts` as long. */
struct Ratio {
  int64_t times, parts;
};
inline constexpr Ratio kTwice{2, 1}, kHalf{1, 2};

/*! Gives one value of an axis longer or shorter tiles, those of `along`: also the loops over them,
 * and what is at `v * extent + i`. The extent of the axis itself is the caller's. */
class AxisResizer : public StmtExprMutator {
 public:
  /*! `tiles`: those that the block allocates. */
  AxisResizer(Ratio ratio, const Var& v, const AxisTiles& along, const std::vector<Var>& tiles);

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const SBlockNode* op) override;
  Stmt Mutate_(const DeclBufferNode* op) override;
  Stmt Mutate_(const ForNode* op) override;
  Stmt Mutate_(const BufferStoreNode* op) override;
  Expr Mutate_(const TensorLoadNode* op) override;
  Expr Mutate_(const TensorRegionNode* op) override;
  Expr Mutate_(const CallNode* op) override;
#define TL_MOVED(Node)                                \
  Expr Mutate_(const Node* op) override {             \
    const Expr e = GetRef<Expr>(op);                  \
    return IsAlong(e) ? Moved(e) : Default<Expr>(op); \
  }
  TL_MOVED(VarNode)
  TL_MOVED(AddNode)
  TL_MOVED(SubNode)
  TL_MOVED(MulNode)
  TL_MOVED(FloorDivNode)
  TL_MOVED(FloorModNode)
  TL_MOVED(MinNode)
  TL_MOVED(MaxNode)
#undef TL_MOVED

  Ratio ratio() const { return ratio_; }
  /*! Of a tile, a loop or a region along the axis. */
  int64_t Resized(int64_t extent) const { return extent * ratio_.times / ratio_.parts; }

 private:
  Var WithDim(const Var& buffer, size_t dim) const;
  Expr MovedBy(int64_t step, const Expr& begin) const;
  bool IsAlong(const Expr& e) const;
  Expr Moved(const Expr& e) const;
  Var BufferFor(const Var& buffer) const;

  const Ratio ratio_;
  const Var v_;
  const AxisTiles& along_;
  std::unordered_map<const Object*, Var> resized_;
  /*! Loops along the axis around what is visited. */
  std::vector<std::pair<Var, int64_t>> extents_;
};

}  // namespace tl
