/*! The tiles of a block of a persistent kernel, whose grid has one dimension and any number of
 * blocks: block b takes tile b, then each that is as many further on as there are blocks. */
#pragma once

#include <tl/platform.h>
#include <tl/rasterization.h>

namespace tl {

/*! How many of `tiles` are this block's. */
TL_DEVICE int tiles_of_block(int tiles) {
  const unsigned behind = unsigned(tiles) - blockIdx.x;
  return blockIdx.x < unsigned(tiles) ? int((behind + gridDim.x - 1) / gridDim.x) : 0;
}

/*! The number of its tile n, of all of these. */
TL_DEVICE int tile_of_block(int n, int) { return int(unsigned(n) * gridDim.x + blockIdx.x); }

/*! Its index in the dimension of this extent, of which each step is `below` tiles. */
TL_DEVICE int tile_index(int tile, int below, int extent) {
  return int(unsigned(tile) / unsigned(below) % unsigned(extent));
}

/*! The index along x (axis 0) or y of the tile of this number in an order of rasterization.h. Its
 * range ends at the last argument. */
template <dim3 (*order)(unsigned, unsigned, unsigned), int axis>
TL_DEVICE int ordered_index(int number, int columns, int rows, int) {
  const dim3 tile = order(unsigned(number), unsigned(columns), unsigned(rows));
  return int(axis == 0 ? tile.x : tile.y);
}

}  // namespace tl
