/*! How an index changes over the lanes of a vector: what the addresses of swizzled tiles need. */
#pragma once
#include <optional>

#include "../../tvm/analyzer.h"

namespace tl {

/*! An index whose value in lane k is its value in lane 0 plus k * step. */
struct LaneValue {
  int64_t step;
  /*! A divisor of the value in lane 0; 0 where that is 0. */
  int64_t divisor;
};

/*!
 * `e` over lanes 0 to lanes - 1 of `lane`, nullopt where it is not of that form or not seen to be.
 * A division, or an xor with bits above, leaves a rise whole where the lanes end before the next
 * multiple of the divisor: lane 0 has a multiple of some g, and the rise is less than g.
 */
std::optional<LaneValue> LaneValueOf(const Expr& e, const Var& lane, int lanes, Analyzer* analyzer);

}  // namespace tl
