#include "swizzle.h"

#include <map>
#include <tuple>
#include <utility>

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

/*! Rows and columns of the matrix. */
std::pair<int64_t, int64_t> MatrixOf(const std::vector<int64_t>& shape) {
  if (shape.size() < 2) {
    TVM_FFI_THROW(ValueError) << "swizzle: found " << shape.size()
                              << " dimension, wanted a matrix; use make_linear_layout";
  }
  return {shape[shape.size() - 2], shape.back()};
}

void Require(bool holds, const char* extent, int64_t found, int64_t unit, const char* repair) {
  if (holds) return;
  TVM_FFI_THROW(ValueError) << "swizzle: found " << found << " " << extent << ", wanted a multiple "
                            << "of " << unit << "; " << repair;
}

constexpr const char* kUseAny = "use make_swizzled_layout, which takes the widest that fits";

/*! Chunks of the widest swizzle whose span divides the columns, 0 if none does. */
int WidestSpan(int64_t cols, int bits) {
  for (int chunks : {8, 4, 2}) {
    if (cols % (chunks * 128 / bits) == 0) return chunks;
  }
  return 0;
}

Layout Tagged(Layout layout, int64_t swizzle_bytes, int bits) {
  layout->swizzle_bytes = swizzle_bytes;
  layout->swizzle_bits = bits;
  return layout;
}

/*! Rows of 16 doubles: chunk of four xored with the row, so that four rows lie in all 32 banks. */
Layout MakeDoubleSwizzle(const std::vector<int64_t>& shape) {
  TileVars t(shape.size());
  Expr chunk = XorOf(FloorModOf(FloorDivOf(t.col, 4), 4), FloorModOf(t.row, 4));
  Array<Expr> index = t.leading;
  index.push_back(t.row);
  index.push_back(FloorDivOf(t.col, 16) * 16 + chunk * 4 + FloorModOf(t.col, 4));
  return MakeLayout(t.vars, shape, index);
}

Layout NewBankSwizzle(const std::vector<int64_t>& shape, int bits, int chunks) {
  const auto [rows, cols] = MatrixOf(shape);
  const int64_t lanes = 128 / bits;
  Require(cols % (chunks * lanes) == 0, "columns", cols, chunks * lanes, kUseAny);
  Require(rows % 8 == 0 || rows == 4, "rows", rows, 8, kUseAny);
  TileVars t(shape.size());
  Expr s = FloorModOf(t.row, 8);
  Expr c = FloorModOf(FloorDivOf(t.col, lanes), chunks);
  // Rows that share a 128-byte line of banks (8 / chunks of them) keep the same xor.
  Expr swizzled = XorOf(c, FloorDivOf(s, 8 / chunks));
  Array<Expr> index = t.leading;
  index.push_back(FloorDivOf(FloorDivOf(t.col, lanes), chunks));
  index.push_back(FloorDivOf(t.row, 8));
  index.push_back(FloorModOf(t.col, lanes) + (swizzled + s * chunks) * lanes);
  // Four rows of 32 bytes exchange nothing.
  const bool is_linear = rows == 4 && chunks == 2 && cols == chunks * lanes;
  return Tagged(MakeLayout(t.vars, shape, index), is_linear ? 0 : chunks * 16, bits);
}

/*! Those that were made last, with their tables. */
class RecentSwizzles {
 public:
  using Key = std::tuple<std::vector<int64_t>, int, int>;
  Layout Get(const Key& key) {
    const auto found = made_.find(key);
    if (found != made_.end()) return found->second;
    const Layout made = std::apply(NewBankSwizzle, key);
    elements_ += Product(std::get<0>(key));
    if (elements_ > kMostElements) {
      made_.clear();
      elements_ = Product(std::get<0>(key));
    }
    return made_[key] = made;
  }

 private:
  static constexpr int64_t kMostElements = 1 << 19;  // of three coordinates: 12 MiB
  std::map<Key, Layout> made_;
  int64_t elements_ = 0;
};

}  // namespace

Layout MakeBankSwizzle(const std::vector<int64_t>& shape, int bits, int chunks) {
  // Each product and copy of a tile asks for its swizzles, and for their tables.
  thread_local RecentSwizzles recent;
  return recent.Get({shape, bits, chunks});
}

Layout MakeWideSwizzle(const std::vector<int64_t>& shape, int bits, int chunks) {
  const auto [rows, cols] = MatrixOf(shape);
  const int64_t lanes = 128 / bits, span = chunks * lanes, of_line = 16 / chunks;
  Require(cols % span == 0, "columns", cols, span, kUseAny);
  Require(rows % of_line == 0, "rows", rows, of_line, kUseAny);
  // What a bit of the row is worth in the number of a chunk among the 16 of a line.
  static const std::map<int, std::vector<std::pair<int, int>>> masks = {
      {8, {{2, 4}, {4, 3}, {8, 2}, {16, 1}}},
      {4, {{4, 3}, {8, 2}, {16, 1}}},
      {2, {{8, 9}, {16, 1}}},
      {1, {{16, 12}}}};
  TileVars t(shape.size());
  Expr row = t.row, place = FloorModOf(FloorDivOf(t.col, lanes), chunks);
  for (const auto& [bit, mask] : masks.at(chunks)) {
    const Expr set = FloorModOf(FloorDivOf(t.row, bit), 2);
    if (mask % chunks) place = XorOf(place, set * (mask % chunks));
    if (mask / chunks) row = XorOf(row, set * (mask / chunks));
  }
  Array<Expr> index = t.leading;
  index.push_back(FloorDivOf(t.col, span));
  index.push_back(row);
  index.push_back(place * lanes + FloorModOf(t.col, lanes));
  return MakeLayout(t.vars, shape, index);
}

Layout MakePaddedLayout(const std::vector<int64_t>& shape, int bits) {
  TileVars t(shape.size());
  const int64_t cols = MatrixOf(shape).second;
  const int64_t stride = cols * bits % 256 == 0 ? cols + 128 / bits : cols;
  Array<Expr> index = t.leading;
  index.push_back(t.row * stride + t.col);
  const Layout layout = MakeLayout(t.vars, shape, index);
  return stride == cols ? Tagged(layout, 0, bits) : layout;
}

Layout MakeSwizzledLayout(const std::vector<int64_t>& shape, int bits, bool k_major, int banks) {
  const auto [rows, cols] = MatrixOf(shape);
  if (bits == 64 && cols % 16 == 0) return MakeDoubleSwizzle(shape);
  const int chunks = WidestSpan(cols, bits);
  const int wide = chunks ? chunks : cols * bits % 128 == 0;
  if (banks == 64 && wide && rows % (16 / wide) == 0) return MakeWideSwizzle(shape, bits, wide);
  const bool byte_reads = bits == 8 && !k_major;
  if (byte_reads || !chunks || (rows % 8 && rows != 4)) return MakePaddedLayout(shape, bits);
  return MakeBankSwizzle(shape, bits, chunks);
}

Layout MakeUnpaddedSwizzle(const std::vector<int64_t>& shape, int bits, int64_t continuity) {
  const auto [rows, cols] = MatrixOf(shape);
  Require(cols % continuity == 0, "columns", cols, continuity, "pass a continuity that divides");
  Require(rows % 8 == 0, "rows", rows, 8, "use a taller tile");
  Require(continuity % (128 / bits) == 0, "elements side by side", continuity, 128 / bits,
          "use a wider tile");
  const int chunks = WidestSpan(continuity, bits);
  return chunks ? MakeBankSwizzle(shape, bits, chunks) : MakeLinearLayout(shape);
}

Layout MakeVoltaSwizzle(const std::vector<int64_t>& shape, bool is_a, bool k_inner) {
  const auto [rows, cols] = MatrixOf(shape);
  TileVars t(shape.size());
  const Expr r = t.row;
  Array<Expr> index = t.leading;
  if (k_inner) {
    // Vectors of four elements; a column of them is contiguous, its rows permuted in sixteens.
    Require(rows % 32 == 0, "rows", rows, 32, "use a taller tile");
    Require(cols % 4 == 0, "columns", cols, 4, "use a wider tile");
    Expr vec = FloorDivOf(t.col, 4);
    Expr low = XorOf(FloorModOf(FloorDivOf(r, 4), 4), FloorModOf(FloorDivOf(r, 16), 2) * 2);
    Expr place = FloorModOf(r, 4) * 4 + XorOf(low, FloorModOf(FloorDivOf(vec, 2), 4));
    index.push_back(vec);
    index.push_back((FloorDivOf(r, 16) * 16 + place) * 4 + FloorModOf(t.col, 4));
    return MakeLayout(t.vars, shape, index);
  }
  // Tiles of 4 rows by 8 vectors of eight elements.
  Require(rows % 4 == 0, "rows", rows, 4, "use a taller tile");
  Require(cols % 64 == 0, "columns", cols, 64, "use a wider tile");
  Expr vec = FloorModOf(FloorDivOf(t.col, 8), 8), tile_row = FloorModOf(r, 4);
  Expr row = is_a ? FloorDivOf(vec, 2) : FloorModOf(vec, 4);
  Expr high = is_a ? FloorModOf(vec, 2) : FloorDivOf(vec, 4);
  Expr place = XorOf(tile_row, row) + high * 4;
  index.push_back(FloorDivOf(r, 4) * 4 + row);
  index.push_back(FloorDivOf(t.col, 64) * 64 + place * 8 + FloorModOf(t.col, 8));
  return MakeLayout(t.vars, shape, index);
}

Layout MakeRowMajorLayout(const std::vector<int64_t>& shape) {
  Array<Var> vars;
  Expr flat = MakeInt(0);
  for (size_t d = 0; d < shape.size(); ++d) {
    vars.push_back(MakeVar("i" + std::to_string(d)));
    flat = flat * shape[d] + vars[d];
  }
  return Tagged(MakeLayout(vars, shape, {flat}), 0, 0);
}

Layout WithSwizzle(const Layout& layout, int bits) {
  const auto has_extent = [](const Expr& e) { return AsInt(e).has_value(); };
  if (layout->SwizzleBytes(bits) || layout.as<FragmentNode>() ||
      !AllOf(layout->shape, has_extent)) {
    return layout;
  }
  const std::vector<int64_t> shape = layout->Shape();
  const bool is_matrix = shape.size() >= 2;
  const int64_t rows = is_matrix ? shape[shape.size() - 2] : 1, cols = is_matrix ? shape.back() : 1;
  std::vector<Layout> known = {MakeLinearLayout(shape)};
  for (int chunks : {8, 4, 2}) {
    if (!is_matrix || cols % (chunks * 128 / bits) || (rows % 8 && rows != 4)) continue;
    known.push_back(MakeBankSwizzle(shape, bits, chunks));
  }
  const std::vector<int64_t> addresses = layout->Addresses();
  for (const Layout& other : known) {
    if (addresses != other->Addresses()) continue;
    return Tagged(MakeLayout(layout->vars, shape, layout->index), other->swizzle_bytes, bits);
  }
  return layout;
}

namespace {

Registration swizzle_registration([] {
  RegisterFunction("MakeBankSwizzle", [](Array<int64_t> shape, int bits, int chunks) {
    return MakeBankSwizzle(ToVector(shape), bits, chunks);
  });
  RegisterFunction("MakeSwizzledLayout", [](Array<int64_t> shape, int bits, bool k_major) {
    return MakeSwizzledLayout(ToVector(shape), bits, k_major);
  });
  RegisterFunction("MakeWideSwizzle", [](Array<int64_t> shape, int bits, int chunks) {
    return MakeWideSwizzle(ToVector(shape), bits, chunks);
  });
  RegisterFunction("MakeUnpaddedSwizzle", [](Array<int64_t> shape, int bits, int64_t continuity) {
    return MakeUnpaddedSwizzle(ToVector(shape), bits, continuity);
  });
  RegisterFunction("MakePaddedLayout", [](Array<int64_t> shape, int bits) {
    return MakePaddedLayout(ToVector(shape), bits);
  });
  RegisterFunction("MakeVoltaSwizzle", [](Array<int64_t> shape, bool is_a, bool k_inner) {
    return MakeVoltaSwizzle(ToVector(shape), is_a, k_inner);
  });
  RegisterFunction("MakeRowMajorLayout",
                   [](Array<int64_t> shape) { return MakeRowMajorLayout(ToVector(shape)); });
  RegisterFunction("LayoutSwizzleBytes", [](Layout l, int bits) {
    return WithSwizzle(l, bits)->SwizzleBytes(bits).value_or(-1);
  });
});

}  // namespace
}  // namespace tl
