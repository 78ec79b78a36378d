/*!
 * T.copy: an elementwise copy, casting where dtypes differ. The side that is closer to the
 * arithmetic (fragment, then shared, then global memory) gives the iteration space.
 */
#include "../layout/annotation.h"
#include "parallel_operator.h"
#include "region_nest.h"

namespace tl {
namespace {

int Closeness(const Var& buffer) {
  if (IsGlobal(buffer)) return 0;
  return IsShared(buffer) ? 1 : 2;
}

std::unique_ptr<TileOperator> MakeCopy(const CallNode* call, const Span& span) {
  const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
  const bool by_dst = Closeness(dst.buffer) > Closeness(src.buffer);
  ParallelNest nest = NestOverBoth("T.copy", src, dst, by_dst ? dst : src, span);
  nest.coalesced_width = TileOpIntAttr(call, "coalesced_width", 0);
  nest.loop_layout = GetLoopLayout(TileOpAttrs(call));
  Expr value = LoadOf(src.buffer, ElementOf(src, nest));
  nest.body = MakeStore(dst.buffer, CastTo(BufferOf(dst.buffer)->dtype->dtype, value),
                        ElementOf(dst, nest), span);
  return MakeParallelOperator(nest, Fragment());
}

OperatorRegistration registration("tl.tileop.copy", "tl.copy", MakeCopy);

}  // namespace
}  // namespace tl
