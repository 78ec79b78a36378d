/*!
 * Orders in which the blocks of a 2-D grid take their tiles.
 *
 * Blocks start in the order of their linear index. Walking a panel of `panel` rows (columns) at a
 * time lets the blocks that run together share rows of one operand and columns of the other in the
 * L2 cache. In the orders Row and Column every second panel is walked backwards, so that
 * neighbouring panels meet at tiles that are still cached; MLX walks all forwards (ml-explore/mlx,
 * BlockSwizzle). The last panel may be narrower; every tile of every grid is taken once.
 *
 * A chip of several chiplets, each with an L2 cache of its own, deals blocks to these in turn:
 * block b runs on chiplet b % chiplets (AMD CDNA 3 ISA, "XCC"; MI300 has 8 of them). With
 * `chiplets` each walks a part of the tiles that follow each other, as long as the others' or one
 * longer.
 */
#pragma once

#include <tl/platform.h>

namespace tl {
namespace detail {

struct Tile {
  unsigned along, across;
};

// The number of this block's tile in the walk.
template <int chiplets>
TL_DEVICE unsigned number_in_walk() {
  static_assert(chiplets >= 1, "a chip has at least one chiplet");
  const unsigned index = blockIdx.x + blockIdx.y * gridDim.x;
  if constexpr (chiplets == 1) return index;
  const unsigned blocks = gridDim.x * gridDim.y, chiplet = index % chiplets;
  const unsigned longer = blocks % chiplets;
  return chiplet * (blocks / chiplets) + (chiplet < longer ? chiplet : longer) + index / chiplets;
}

// Tile number `index` of a walk along `length` steps, each taking a panel's width across.
template <bool turns = true>
TL_DEVICE Tile walk_panels(unsigned index, unsigned length, unsigned breadth, unsigned panel) {
  const unsigned number = index / (length * panel);
  const unsigned offset = index % (length * panel);
  const unsigned first = number * panel;
  const unsigned width = breadth - first < panel ? breadth - first : panel;
  const unsigned along = offset / width;
  return {turns && number % 2 ? length - 1 - along : along, first + offset % width};
}

}  // namespace detail

/*! Tile number `index` of a grid of `columns` and `rows` when panels of `panel` rows are walked
 * along x. */
template <int panel>
TL_DEVICE dim3 rasterization2DRow(unsigned index, unsigned columns, unsigned rows) {
  static_assert(panel >= 1, "a panel has at least one row");
  const detail::Tile tile = detail::walk_panels(index, columns, rows, panel);
  return dim3(tile.along, tile.across);
}

/*! The same when panels of `panel` columns are walked along y. */
template <int panel>
TL_DEVICE dim3 rasterization2DColumn(unsigned index, unsigned columns, unsigned rows) {
  static_assert(panel >= 1, "a panel has at least one column");
  const detail::Tile tile = detail::walk_panels(index, rows, columns, panel);
  return dim3(tile.across, tile.along);
}

/*! As rasterization2DRow, with each panel walked forwards. */
template <int panel>
TL_DEVICE dim3 rasterization2DMLX(unsigned index, unsigned columns, unsigned rows) {
  static_assert(panel >= 1, "a panel has at least one row");
  const detail::Tile tile = detail::walk_panels<false>(index, columns, rows, panel);
  return dim3(tile.along, tile.across);
}

/*! The tile of this block in one of these orders: `const dim3 blockIdx = ...`. */
template <int panel, int chiplets = 1>
TL_DEVICE dim3 rasterization2DRow() {
  const unsigned index = detail::number_in_walk<chiplets>();
  const dim3 tile = rasterization2DRow<panel>(index, gridDim.x, gridDim.y);
  return dim3(tile.x, tile.y, blockIdx.z);
}
template <int panel, int chiplets = 1>
TL_DEVICE dim3 rasterization2DColumn() {
  const unsigned index = detail::number_in_walk<chiplets>();
  const dim3 tile = rasterization2DColumn<panel>(index, gridDim.x, gridDim.y);
  return dim3(tile.x, tile.y, blockIdx.z);
}
template <int panel, int chiplets = 1>
TL_DEVICE dim3 rasterization2DMLX() {
  const unsigned index = detail::number_in_walk<chiplets>();
  const dim3 tile = rasterization2DMLX<panel>(index, gridDim.x, gridDim.y);
  return dim3(tile.x, tile.y, blockIdx.z);
}

}  // namespace tl
