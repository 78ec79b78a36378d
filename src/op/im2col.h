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
  TileRegion image, tile;
  /*! Extents of the tile, and the place of its first element in the matrix. */
  Expr rows, columns, first_row, first_column;
  int64_t kernel, stride, dilation, pad;
  bool whole_taps;

  static Im2col From(const CallNode* call);
  Expr Channels() const { return BufferOf(image.buffer)->shape[3]; }
  /*! Columns of the matrix that a tap has. */
  Expr TapColumns() const;
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
};

/*!
 * Plans the load of the tile, which lies as `layout` says, in im2col mode. Returns why there is no
 * plan, as the words behind "found"; empty if there is one.
 */
std::string PlanIm2col(const Im2col& im2col, const Layout& layout, Analyzer* analyzer,
                       TmaPlan* plan);

}  // namespace tl
