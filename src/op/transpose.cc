/*! T.transpose: element (i, j) of one tile to element (j, i) of another. */
#include "parallel_operator.h"

namespace tl {
namespace {

std::unique_ptr<TileOperator> MakeTranspose(const CallNode* call, const Span& span) {
  const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
  ParallelNest nest;
  nest.span = span;
  nest.vars = {MakeVar("i"), MakeVar("j")};
  nest.extents = dst.Extents();
  const Array<Expr> from = src.Mins(), to = dst.Mins();
  const Expr value = LoadOf(src.buffer, {from[0] + nest.vars[1], from[1] + nest.vars[0]});
  nest.body = MakeStore(dst.buffer, CastTo(BufferOf(dst.buffer)->dtype->dtype, value),
                        {to[0] + nest.vars[0], to[1] + nest.vars[1]}, span);
  return MakeParallelOperator(nest, Fragment());
}

OperatorRegistration registration("tl.tileop.transpose", "tl.transpose", MakeTranspose);

}  // namespace
}  // namespace tl
