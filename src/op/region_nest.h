/*!
 * Loop nests over regions: a loop for each dimension that is longer than 1. Operands of one
 * operator are matched by these dimensions in order, so `A[i, 0:64]` and `S[0:64]` fit.
 */
#pragma once
#include <vector>

#include "parallel.h"

namespace tl {

/*! Dimensions whose extent is not the constant 1. */
std::vector<size_t> NonUnitDims(const TileRegion& r);
/*! A nest over those dimensions (one loop of extent 1 if there are none), without a body. */
ParallelNest NestOverRegion(const TileRegion& r, const Span& span);
/*! The element of a region that a point of a nest over its non-unit dimensions means. */
Array<Expr> ElementOf(const TileRegion& r, const ParallelNest& nest);
/*!
 * A nest over two regions of one shape; the extents come from `of`, one of the two. ValueError, in
 * the name of operator `op`, where their non-unit dimensions differ.
 */
ParallelNest NestOverBoth(const char* op, const TileRegion& a, const TileRegion& b,
                          const TileRegion& of, const Span& span);
/*! The nest of a T.copy, element by element, in the iteration space of the side that is closer to
 * the arithmetic. */
ParallelNest NestOfCopy(const CallNode* copy, const Span& span);
/*! A T.copy without keywords as the loops that it is; undefined for other statements. */
Stmt LoopsOfCopy(const Stmt& s);

}  // namespace tl
