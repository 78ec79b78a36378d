/*!
 * A nest that touches a part of a fragment, as one over all of it: each element is visited, and a
 * condition says whether an iteration of the nest names it. In
 *
 *   parallel i < 4: f[3 * i + 1] = g[i]
 *
 * f of 16 elements is visited as
 *
 *   parallel x < 16: if x >= 1 and x - 1 < 12 and (x - 1) % 3 == 0: f[x] = g[(x - 1) // 3]
 *
 * So an element stays in the thread that holds it, whatever part the nest names, and no layout of
 * the part is needed. Parts are what sums of digits times strides name: slices, steps, rows that a
 * flat loop counts. What is added to the digits need not be known: `f[i + n]`, column `t` of a loop
 * around the nest.
 */
#pragma once
#include <optional>

#include "parallel.h"

namespace tl {

struct WholeNest {
  ParallelNest nest;
  /*! What the part's access has become. */
  FragmentAccess access;
  /*! Loops over a dimension whose index is the same in all iterations of the part, such as `k` in
   * `f[k, i]`. */
  std::vector<bool> is_fixed;
  /*! The indices of these dimensions. */
  std::vector<Expr> fixed;
};

/*!
 * The nest over the elements of the fragment that `access` names a part of; nullopt where the
 * iterations cannot be told from the elements that they name. Dimensions whose index is a number
 * are visited where `visits_numbers` says so, else the index stays; indices by loops inside of the
 * nest stay.
 */
std::optional<WholeNest> OverWholeFragment(const ParallelNest& nest, const FragmentAccess& access,
                                           bool visits_numbers);

}  // namespace tl
