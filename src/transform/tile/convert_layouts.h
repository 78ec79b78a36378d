/*! Conversions of fragments between layouts, by way of shared memory: a part of LayoutInference. */
#pragma once
#include <vector>

#include "../../op/views.h"
#include "../../tvm/build.h"

namespace tl {

/*! A statement's access of a fragment that is not where the statement's threads look for it. */
struct Conversion {
  Stmt statement;
  Var fragment;
  Array<Expr> indices;
  bool is_write;
};

/*! How many of `loops` around a statement, outermost first, stay around the copy of a fragment that
 * it reads elsewhere: those inside do not write the fragment. */
size_t CopyDepth(const std::vector<const ForNode*>& loops, const Var& fragment, const Views& views);

/*!
 * In:  a tile program under thread_extent attributes.
 * Out: the same; statements with conversions access a tile in shared memory instead,
 *
 *   parallel i, j: f[i, j] += g[j, i]
 *
 * as
 *
 *   copy(g, g_shared)
 *   parallel i, j: f[i, j] += g_shared[j, i]
 *
 * and where a statement writes the fragment, the tile is copied back behind it. Of reads, those are
 * replaced that have a conversion. A copy stands in front of the loops that do not change the
 * fragment, and serves all statements up to the next change. In a loop that changes it, and whose
 * other users of it take a shared tile as well, the fragment is the tile; it is copied before and
 * behind the loop only where something outside writes it, or reads it.
 * Establishes: statements read what the fragment would have had. Conversions inside of such a loop
 * are left to another call. Refuses nothing. `notes` gets a line for each fragment that is a tile
 * during a loop; copies say themselves what they are.
 */
Stmt ConvertThroughShared(const Stmt& kernel, const std::vector<Conversion>& conversions,
                          Array<String>* notes);

}  // namespace tl
