/*!
 * T.transpose: element (.., i, j) of one tile to element (.., j, i) of another. Dimensions in front
 * of the last two are equal but for some of extent 1, such as the version of a buffer.
 */
#include <string>
#include <vector>

#include "parallel_operator.h"
#include "region_nest.h"

namespace tl {
namespace {

/*! Dimensions in front of the matrix that have loops. */
std::vector<size_t> LeadingDims(const TileRegion& r) {
  std::vector<size_t> found = NonUnitDims(r);
  while (!found.empty() && found.back() + 2 >= r.ranges.size()) found.pop_back();
  return found;
}

/*! The element (row, column) of the matrix that the first variables of `nest` mean. */
Array<Expr> ElementAt(const TileRegion& r, const ParallelNest& nest, const Expr& row,
                      const Expr& column) {
  const Array<Expr> matrix = r.MatrixElement(row, column);
  std::vector<Expr> indices(matrix.begin(), matrix.end());
  const std::vector<size_t> dims = LeadingDims(r);
  for (size_t d = 0; d < dims.size(); ++d) indices[dims[d]] = indices[dims[d]] + nest.vars[d];
  return Array<Expr>(indices.begin(), indices.end());
}

std::unique_ptr<TileOperator> MakeTranspose(const CallNode* call, const Span& span) {
  const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
  ParallelNest nest;
  nest.span = span;
  for (const size_t d : LeadingDims(dst)) {
    nest.vars.push_back(MakeVar("b" + std::to_string(d)));
    nest.extents.push_back(dst.ranges[d]->extent);
  }
  const Var i = MakeVar("i"), j = MakeVar("j");
  nest.vars.push_back(i);
  nest.vars.push_back(j);
  for (const Expr& extent : dst.MatrixExtents()) nest.extents.push_back(extent);
  const Expr value = LoadOf(src.buffer, ElementAt(src, nest, j, i));
  nest.body =
      MakeStore(dst.buffer, CastTo(DTypeOf(dst.buffer), value), ElementAt(dst, nest, i, j), span);
  return MakeParallelOperator(nest, Fragment());
}

OperatorRegistration transpose_registration(kTranspose, "tl.transpose", MakeTranspose);

}  // namespace
}  // namespace tl
