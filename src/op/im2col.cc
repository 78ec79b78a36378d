/*!
 * T.im2col: a tile of the matrix whose rows are the pixels that a convolution computes and whose
 * columns are the inputs of each: row ((n OH) + oh) OW + ow, column ((kh K) + kw) C + c is
 * image[n, oh stride + kh dilation - pad, ow stride + kw dilation - pad, c], and zero outside of
 * the image and of the matrix.
 */
#include "parallel_operator.h"

namespace tl {
namespace {

/*! im2col(image region, tile region, row block, column block, kernel, stride, dilation, pad) */
std::unique_ptr<TileOperator> MakeIm2Col(const CallNode* call, const Span& span) {
  const TileRegion tile = TileRegion::From(call->args[1]);
  const Var image = TileRegion::From(call->args[0]).buffer;
  const Array<Expr>& shape = BufferOf(image)->shape;
  const Expr height = shape[1], width = shape[2], channels = shape[3];
  const int64_t kernel = ToInt(call->args[4]), stride = ToInt(call->args[5]),
                dilation = ToInt(call->args[6]), pad = ToInt(call->args[7]);
  const auto outputs = [&](const Expr& extent) {
    return FloorDivOf(extent + (2 * pad - dilation * (kernel - 1) - 1), stride) + 1;
  };
  const Expr out_height = outputs(height), out_width = outputs(width);

  ParallelNest nest;
  nest.span = span;
  nest.vars = {MakeVar("i"), MakeVar("j")};
  nest.extents = tile.MatrixExtents();
  const Expr row = call->args[2] * nest.extents[0] + nest.vars[0];
  const Expr column = call->args[3] * nest.extents[1] + nest.vars[1];
  const Expr tap = FloorDivOf(column, channels);
  const Expr y = FloorModOf(FloorDivOf(row, out_width), out_height) * stride +
                 FloorDivOf(tap, kernel) * dilation + (-pad);
  const Expr x = FloorModOf(row, out_width) * stride + FloorModOf(tap, kernel) * dilation + (-pad);
  const Expr zero = MakeInt(0);
  const Expr inside =
      tap < MakeInt(kernel * kernel) && y >= zero && y < height && x >= zero && x < width;
  const Expr pixel =
      LoadOf(image, {FloorDivOf(row, out_height * out_width), y, x, FloorModOf(column, channels)});
  const Expr value = IfThenElseOf(inside, pixel, ZeroOf(pixel->dtype()));
  nest.body = MakeStore(tile.buffer, CastTo(BufferOf(tile.buffer)->dtype->dtype, value),
                        tile.MatrixElement(nest.vars[0], nest.vars[1]), span);
  return MakeParallelOperator(nest, Fragment());
}

OperatorRegistration registration("tl.tileop.im2col", "tl.im2col", MakeIm2Col);

}  // namespace
}  // namespace tl
