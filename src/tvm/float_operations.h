/*!
 * TVM's simplifier takes floats for real numbers: it makes 0 of x - x, true of x == x, and x >= 1
 * of not x < 1, which is something else where x is NaN or infinite, and x of (x + a) - a, which
 * rounds. So it gets to see calls in their place.
 */
#pragma once
#include "build.h"

namespace tl {

/*! The same with calls of `tl.float.<Operation>` in the place of each arithmetic operation and
 * comparison of floats. They are pure and nothing is known of them. */
Stmt HideFloats(const Stmt& s);
Expr HideFloats(const Expr& e);

/*! Undoes HideFloats. */
Stmt ShowFloats(const Stmt& s);
Expr ShowFloats(const Expr& e);

}  // namespace tl
