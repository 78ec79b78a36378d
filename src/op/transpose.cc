/*! T.transpose: element (i, j) of one tile to element (j, i) of another. */
#include "parallel_operator.h"

namespace tl {
namespace {

/*! The element of a region whose last two dimensions are the matrix. */
Array<Expr> ElementOf(const TileRegion& region, const Expr& row, const Expr& column) {
  const Array<Expr> mins = region.Mins();
  std::vector<Expr> indices(mins.begin(), mins.end());
  const size_t last = indices.size() - 1;
  indices[last - 1] = indices[last - 1] + row;
  indices[last] = indices[last] + column;
  return Array<Expr>(indices.begin(), indices.end());
}

std::unique_ptr<TileOperator> MakeTranspose(const CallNode* call, const Span& span) {
  const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
  ParallelNest nest;
  nest.span = span;
  nest.vars = {MakeVar("i"), MakeVar("j")};
  // A version of a buffer has its number in front.
  const Array<Expr> extents = dst.Extents();
  nest.extents = {extents[extents.size() - 2], extents[extents.size() - 1]};
  const Expr i = nest.vars[0], j = nest.vars[1];
  const Expr value = LoadOf(src.buffer, ElementOf(src, j, i));
  nest.body = MakeStore(dst.buffer, CastTo(BufferOf(dst.buffer)->dtype->dtype, value),
                        ElementOf(dst, i, j), span);
  return MakeParallelOperator(nest, Fragment());
}

OperatorRegistration registration("tl.tileop.transpose", "tl.transpose", MakeTranspose);

}  // namespace
}  // namespace tl
