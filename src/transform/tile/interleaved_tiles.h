/*! Which gemms deal neighbouring rows and columns to several of a warp's MMAs (Interleaving). */
#pragma once
#include "../../op/views.h"
#include "../../target/target.h"
#include "kernel_scope.h"

namespace tl {

/*!
 * The kernel with `interleaved` on gemms whose instructions are selected, where their operands are
 * read better so, and nothing else is placed worse.
 *
 * An interleaved accumulator has another layout. So all gemms of an accumulator are interleaved
 * alike, and also those of accumulators that a loop or an operator uses together: of dimensions of
 * fragments that go by the same loop variable. No dimension is that goes together with one of a
 * fragment that is an operand of a gemm, which takes it from registers as accumulators lie by
 * themselves, or with one that the user has placed (`annotated`), or that has another name.
 */
Stmt InterleaveTiles(const Stmt& kernel, const Views& views, const Map<Var, Layout>& annotated,
                     const Target& target);

}  // namespace tl
