/*! Products that add to what is in their accumulators, and how they begin these themselves. */
#pragma once
#include <optional>
#include <vector>

#include "../../op/views.h"
#include "../../tvm/stmt.h"

namespace tl {

/*! The accumulator, all of it, that the statement, a product, adds to; undefined if it does
 * something else. */
Var AddedToBy(const Stmt& s);
/*! The product, which clears its accumulator first where `when` holds. */
Stmt WithClear(const Stmt& s, const Expr& when);

/*! The accumulator of which the statement clears all; undefined if it does something else. */
Var ClearedBy(const Stmt& s);
/*! The statement names the memory of the accumulator, by whatever name. */
bool Touches(const Stmt& s, const Var& accumulator, const Views& views);
/*! The statement in front of the n-th that clears the accumulator, where none between touches it
 * and none may jump over the n-th. */
std::optional<size_t> ClearInFront(const std::vector<Stmt>& body, size_t n, const Var& accumulator,
                                   const Views& views);

}  // namespace tl
