/*! T.transpose: element (i, j) of one tile to element (j, i) of another. */
#include "parallel_operator.h"

namespace tl {
namespace {

std::unique_ptr<TileOperator> MakeTranspose(const CallNode* call, const Span& span) {
  const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
  ParallelNest nest;
  nest.span = span;
  nest.vars = {MakeVar("i"), MakeVar("j")};
  nest.extents = dst.MatrixExtents();
  const Expr i = nest.vars[0], j = nest.vars[1];
  const Expr value = LoadOf(src.buffer, src.MatrixElement(j, i));
  nest.body = MakeStore(dst.buffer, CastTo(BufferOf(dst.buffer)->dtype->dtype, value),
                        dst.MatrixElement(i, j), span);
  return MakeParallelOperator(nest, Fragment());
}

OperatorRegistration registration("tl.tileop.transpose", "tl.transpose", MakeTranspose);

}  // namespace
}  // namespace tl
