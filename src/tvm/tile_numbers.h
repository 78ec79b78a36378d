/*! Which tiles a block of a persistent kernel takes: as many blocks as the launch has take turns.
 */
#pragma once

namespace tl {

/*! tiles_of_block(tiles): how many of all tiles are this block's. */
inline constexpr const char* kTilesOfBlock = "tl.tiles_of_block";
/*! tile_of_block(n, tiles): the number of its tile n, 0 to one less than that. */
inline constexpr const char* kTileOfBlock = "tl.tile_of_block";
/*! tile_index(tile, below, extent): its index in the dimension of this extent, of which each step
 * is so many tiles. The range of a tile's number and index ends at the last operand
 * (Analyzer::BindValue). */
inline constexpr const char* kTileIndex = "tl.tile_index";
/*! ordered_index<order, axis>(number, columns, rows, extent): the index along x (0) or y (1) of the
 * tile of this number in an order of T.use_swizzle. */
inline constexpr const char* kOrderedIndex = "tl.ordered_index";

}  // namespace tl
