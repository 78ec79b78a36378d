/*! Intervals of integers that provably have nothing in common. */
#pragma once
#include "analyzer.h"

namespace tl {

/*! Whether [a, a + a_extent) and [b, b + b_extent) are disjoint for all values of the variables
 * that the analyzer knows; `(k + 2) % 3` and `k % 3` are. */
bool AreDisjoint(const Expr& a, int64_t a_extent, const Expr& b, int64_t b_extent,
                 Analyzer* analyzer);

}  // namespace tl
