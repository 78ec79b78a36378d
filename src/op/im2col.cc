/*!
 * T.im2col: a tile of a convolution's matrix (im2col.h), gathered by all threads. In pipelined
 * loops it may become tl.tileop.tma_im2col.
 */
#include "im2col.h"

#include "parallel_operator.h"

namespace tl {
namespace {

std::unique_ptr<TileOperator> MakeIm2Col(const CallNode* call, const Span& span) {
  const Im2col im2col = Im2col::From(call);
  const Var image = im2col.image.buffer, tile = im2col.tile.buffer;
  const Array<Expr>& shape = BufferOf(image)->shape;

  ParallelNest nest;
  nest.span = span;
  nest.vars = {MakeVar("i"), MakeVar("j")};
  nest.extents = {im2col.rows, im2col.columns};
  const Im2col::Pixel pixel = im2col.FirstPixel(im2col.first_row + nest.vars[0]);
  const Im2col::Tap tap = im2col.TapInTile(nest.vars[1]);
  const Expr y = pixel.y + tap.y, x = pixel.x + tap.x, zero = MakeInt(0);
  const Expr inside = tap.inside && y >= zero && y < shape[1] && x >= zero && x < shape[2] &&
                      tap.channel < shape[3];
  const Expr element = LoadOf(image, {pixel.image, y, x, tap.channel});
  const Expr value = IfThenElseOf(inside, element, ZeroOf(element->dtype()));
  nest.body = MakeStore(tile, CastTo(DTypeOf(tile), value),
                        im2col.tile.MatrixElement(nest.vars[0], nest.vars[1]), span);
  return MakeParallelOperator(nest, Fragment());
}

OperatorRegistration im2col_registration(kIm2col, "tl.im2col", MakeIm2Col);

}  // namespace

Im2col Im2col::From(const CallNode* call) {
  Im2col out;
  out.image = TileRegion::From(call->args[0]);
  out.tile = TileRegion::From(call->args[1]);
  const Array<Expr> extents = out.tile.MatrixExtents();
  out.rows = extents[0];
  out.columns = extents[1];
  out.first_row = call->args[kRowBlock] * out.rows;
  out.first_column = call->args[kColumnBlock] * out.columns;
  out.kernel = ToInt(call->args[4]);
  out.stride = ToInt(call->args[5]);
  out.dilation = ToInt(call->args[6]);
  out.pad = ToInt(call->args[7]);
  out.whole_taps = ToInt(call->args[8]) != 0;
  return out;
}

Expr Im2col::TapColumns() const {
  if (!whole_taps) return Channels();
  return FloorDivOf(Channels() + (columns + (-1)), columns) * columns;
}

Im2col::Outputs Im2col::OutputsOfImage() const {
  const auto outputs = [&](const Expr& extent) {
    return FloorDivOf(extent + (2 * pad - dilation * (kernel - 1) - 1), stride) + 1;
  };
  const Array<Expr>& shape = BufferOf(image.buffer)->shape;
  return {outputs(shape[1]), outputs(shape[2])};
}

Im2col::Pixel Im2col::FirstPixel(const Expr& row) const {
  const auto [height, width] = OutputsOfImage();
  return {FloorDivOf(row, height * width),
          FloorModOf(FloorDivOf(row, width), height) * stride + (-pad),
          FloorModOf(row, width) * stride + (-pad)};
}

Im2col::Tap Im2col::TapOf(const Expr& column) const {
  const Expr width = TapColumns(), tap = FloorDivOf(column, width);
  return {FloorDivOf(tap, kernel) * dilation, FloorModOf(tap, kernel) * dilation,
          FloorModOf(column, width), tap >= MakeInt(0) && tap < MakeInt(kernel * kernel)};
}

Im2col::Tap Im2col::TapInTile(const Expr& column) const {
  Analyzer analyzer;
  if (!analyzer.CanProveEqual(FloorModOf(TapColumns(), columns), MakeInt(0))) {
    return TapOf(first_column + column);
  }
  Tap tap = TapOf(first_column);
  tap.channel = tap.channel + column;
  return tap;
}

Expr WiderBlock(const Expr& block, int64_t times, Analyzer* analyzer) {
  const Analyzer::Modular m = analyzer->ModularSet(block);
  if (m.coeff % times || m.base % times) return Expr();
  return analyzer->Simplify(FloorDivOf(block, MakeInt(block->dtype(), times)));
}

}  // namespace tl
