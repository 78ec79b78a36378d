/*! What of a kernel's block grows if the block does the work of neighbours along one axis of the
 * grid. */
#pragma once
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "../../op/tile_op.h"

namespace tl {

/*! Where all of `region` moves on by its extent from one value of `v` to the next, in one
 * dimension; nullopt where it stays or moves otherwise. */
std::optional<size_t> MovingDim(const TileRegion& region, const Var& v);

/*! The dimensions of tiles in which neighbours have elements beside each other, and the loops over
 * these. The other tiles of neighbours are the same. Where neighbours add shares of one sum to a
 * tensor, no tile has a dimension, and the loop is the one of which a share is. */
struct AxisTiles {
  std::unordered_map<const Object*, size_t> dims;
  std::unordered_set<const Object*> loops;
};

/*! Those of a block along the axis `v`. nullopt where one block cannot do what neighbours do by
 * longer tiles alone. */
std::optional<AxisTiles> TilesAlong(const SBlockNode* block, const Var& v);

/*! The same of the iterations of a loop over tiles, of which each sums, or takes maxima, over
 * elements of its tiles. Whether one iteration with longer tiles carries what two do is not asked.
 */
std::optional<AxisTiles> TilesAlongLoop(const ForNode* loop);

// --- sum_shares.cc
/*! The loop of which blocks along the axis `v` have an equal number of iterations each, one block
 * behind the other, whose sums they add to the same elements of tensors. nullptr where they do
 * something else. */
const ForNode* SharedLoop(const SBlockNode* block, const Var& v);

}  // namespace tl
