/*! Products that add to what is in their accumulators, and how they begin these themselves. */
#pragma once
#include "../../tvm/stmt.h"

namespace tl {

/*! The accumulator, all of it, that the statement, a product, adds to; undefined if it does
 * something else. */
Var AddedToBy(const Stmt& s);
/*! The product, which clears its accumulator first where `when` holds. */
Stmt WithClear(const Stmt& s, const Expr& when);

}  // namespace tl
