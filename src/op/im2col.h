/*! The matrix that turns a convolution into a matrix product, and who loads a tile of it. */
#pragma once
#include <string>

#include "tma_plan.h"

namespace tl {

inline constexpr const char* kIm2col = "tl.tileop.im2col";

/*!
 * Operands of `tl.tileop.im2col(image region, tile region, row block, column block, kernel, stride,
 * dilation, pad, whole taps)`: row ((n OH) + oh) OW + ow, column ((kh K) + kw) W + c of the matrix
 * is image[n, oh stride + kh dilation - pad, ow stride + kw dilation - pad, c], and zero outside of
 * the image and of the matrix. W is the number of channels, of whole taps the least multiple of the
 * tile's columns that has them all.
 */
struct Im2col {
  /*! The operands that say which rows and columns of the matrix the tile has, in tiles. */
  static constexpr size_t kRowBlock = 2, kColumnBlock = 3;

  TileRegion image, tile;
  /*! Extents of the tile, and the place of its first element in the matrix. */
  Expr rows, columns, first_row, first_column;
  int64_t kernel, stride, dilation, pad;
  bool whole_taps;

  static Im2col From(const CallNode* call);
  Expr Channels() const { return BufferOf(image.buffer)->shape[3]; }
  /*! Columns of the matrix that a tap has. */
  Expr TapColumns() const;
  /*! Rows of the matrix for each image: pixels of the convolution's result. */
  struct Outputs {
    Expr height, width;
  };
  Outputs OutputsOfImage() const;
  /*! What a row and a column say: the pixel of the image that tap (0, 0) reads, which may lie
   * outside, and the tap, with its distance in pixels. */
  struct Pixel {
    Expr image, y, x;
  };
  Pixel FirstPixel(const Expr& row) const;
  struct Tap {
    Expr y, x, channel, inside;
  };
  Tap TapOf(const Expr& column) const;
  /*! That of a column of the tile: all are of one tap, if tiles divide what a tap has. */
  Tap TapInTile(const Expr& column) const;
};

/*!
 * The number of a tile of `times` as many rows or columns that begins where tile number `block`
 * does; undefined where none is shown to begin there.
 */
Expr WiderBlock(const Expr& block, int64_t times, Analyzer* analyzer);

/*!
 * Plans the load of the tile, which lies as `layout` says, in im2col mode. Returns why there is no
 * plan, as the words behind "found"; empty if there is one.
 */
std::string PlanIm2col(const Im2col& im2col, const Layout& layout, Analyzer* analyzer,
                       TmaPlan* plan);

}  // namespace tl
