#include "swizzle.h"

#include "../tvm/registry.h"

namespace tl {
namespace {

/*! Placeholder variables of a tile: leading ones, then row and column. */
struct TileVars {
  Array<Var> vars;
  Array<Expr> leading;
  Var row, col;
  explicit TileVars(size_t rank) {
    for (size_t d = 0; d + 2 < rank; ++d) {
      vars.push_back(MakeVar("s" + std::to_string(d)));
      leading.push_back(vars[d]);
    }
    row = MakeVar("i");
    col = MakeVar("j");
    vars.push_back(row);
    vars.push_back(col);
  }
};

}  // namespace

Layout MakeBankSwizzle(const std::vector<int64_t>& shape, int bits, int chunks) {
  TileVars t(shape.size());
  const int64_t lanes = 128 / bits;
  Expr s = FloorModOf(t.row, 8);
  Expr c = FloorModOf(FloorDivOf(t.col, lanes), chunks);
  // Rows that share a 128-byte line of banks (8 / chunks of them) keep the same xor.
  Expr swizzled = XorOf(c, FloorDivOf(s, 8 / chunks));
  Array<Expr> index = t.leading;
  index.push_back(FloorDivOf(FloorDivOf(t.col, lanes), chunks));
  index.push_back(FloorDivOf(t.row, 8));
  index.push_back(FloorModOf(t.col, lanes) + (swizzled + s * chunks) * lanes);
  return MakeLayout(t.vars, shape, index);
}

Layout MakePaddedLayout(const std::vector<int64_t>& shape, int bits) {
  TileVars t(shape.size());
  const int64_t cols = shape.back();
  const int64_t stride = cols * bits % 256 == 0 ? cols + 128 / bits : cols;
  Array<Expr> index = t.leading;
  index.push_back(t.row * stride + t.col);
  return MakeLayout(t.vars, shape, index);
}

Layout MakeSwizzledLayout(const std::vector<int64_t>& shape, int bits) {
  const int64_t rows = shape[shape.size() - 2], cols = shape.back();
  for (int chunks : {8, 4, 2}) {
    if (rows % 8 == 0 && cols % (chunks * 128 / bits) == 0)
      return MakeBankSwizzle(shape, bits, chunks);
  }
  return MakePaddedLayout(shape, bits);
}

namespace {

Registration registration([] {
  RegisterFunction("MakeSwizzledLayout", [](Array<int64_t> shape, int bits) {
    return MakeSwizzledLayout({shape.begin(), shape.end()}, bits);
  });
  RegisterFunction("MakePaddedLayout", [](Array<int64_t> shape, int bits) {
    return MakePaddedLayout({shape.begin(), shape.end()}, bits);
  });
});

}  // namespace
}  // namespace tl
