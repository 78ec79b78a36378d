/*! Names for scalar values in the body of a pipelined loop: each user computes the value itself,
 * because it may work on another iteration than its neighbours. */
#pragma once
#include <string>
#include <vector>

#include "../../op/parallel.h"
#include "../../op/views.h"

namespace tl {

/*! The body without its bindings, or a binding that has to be computed once, where it stands. */
struct InlinedBody {
  std::vector<Stmt> body;
  Stmt fixed;
  /*! Why; a clause about the binding. */
  std::string reason;
};

InlinedBody InlineBindings(const std::vector<Stmt>& source, const Views& views);

/*! The nest of `loop` with the values of names in it at their users, so that an index that has a
 * name is seen. A nest with a value that has to be computed once keeps its names. */
ParallelNest InlinedNestOfLoop(const ForNode* loop, const Views& views);

/*! A copy whose indices come from tables in global memory reads these where `predicate` holds, and
 * has 0 for them elsewhere: the predicate of an asynchronous copy covers what it copies alone. */
Stmt GuardTables(const Stmt& copy, const Expr& predicate);

}  // namespace tl
