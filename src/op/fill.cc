/*! T.fill and T.clear: one value for every element of a region. */
#include "region_nest.h"
#include "thread_nest.h"

namespace tl {
namespace {

std::unique_ptr<TileOperator> MakeFill(const CallNode* call, const Span& span) {
  const TileRegion dst = TileRegion::From(call->args[0]);
  ParallelNest nest = NestOverRegion(dst, span);
  nest.body =
      MakeStore(dst.buffer, CastTo(DTypeOf(dst.buffer), call->args[1]), ElementOf(dst, nest), span);
  return MakeNestOperator(nest, {dst.buffer});
}

OperatorRegistration fill_registration(kFill, "tl.fill", MakeFill);

}  // namespace
}  // namespace tl
