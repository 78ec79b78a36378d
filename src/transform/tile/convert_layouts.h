/*! Conversions of fragments between layouts, by way of shared memory or of a fragment in another
 * layout: a part of LayoutInference. */
#pragma once
#include <utility>
#include <vector>

#include "../../layout/layout.h"
#include "../../op/views.h"
#include "../../tvm/build.h"

namespace tl {

/*! A statement's access of a fragment that is not where the statement's threads look for it. */
struct Conversion {
  Stmt statement;
  Var fragment;
  Array<Expr> indices;
  bool is_write;
  /*! The layout of a fragment in which the statement finds the elements, and which is worth its
   * registers; undefined where it is to find them in shared memory. */
  Fragment held_as;
};

using HeldFragments = std::vector<std::pair<Var, Fragment>>;

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
 * and where a statement writes the fragment, the tile is copied back behind it. Where the statement
 * only reads, and other lanes of its warps have the elements, the copy is a fragment, whose layout
 * is the one that the statement wants. Of reads, those are replaced that have a conversion. A copy
 * stands in front of the loops that do not change the fragment, and serves all statements up to the
 * next change. In a loop that changes it, and whose other users of it take a shared tile as well,
 * the fragment is the tile; it is copied before and behind the loop only where something outside
 * writes it, or reads it. Establishes: statements read what the fragment would have had.
 * Conversions inside of such a loop are left to another call. Refuses nothing. `notes` gets a line
 * for each fragment that is a tile during a loop; copies say themselves what they are. `made` gets
 * the new fragments and their layouts.
 */
Stmt ConvertLayouts(const Stmt& kernel, const std::vector<Conversion>& conversions,
                    Array<String>* notes, HeldFragments* made);

}  // namespace tl
