#include "wgmma_operand.h"

#include <numeric>

#include "../layout/swizzle.h"
#include "../tvm/analyzer.h"
#include "views.h"

namespace tl {
namespace {

/*! Rows of eight make a pattern of a swizzle. */
constexpr int64_t kPatternRows = 8;

/*! What divides every value of a modular set; 0 if the only one is 0. */
int64_t DivisorOf(const Analyzer::Modular& m) { return std::gcd(m.coeff, m.base); }

/*! Do `extent` numbers from any value of the set on lie between two multiples of `span`? */
bool StaysWithin(const Analyzer::Modular& begin, int64_t extent, int64_t span) {
  // Values are `base` more than multiples of `unit`, which divides the span.
  const int64_t unit = std::gcd(begin.coeff, span);
  return (begin.base % unit + unit) % unit + extent <= unit;
}

/*! The operand's matrix: the last two dimensions of its buffer. */
struct Matrix {
  int64_t rows, columns;
  /*! What divides the region's first row and column, what its first column may be, and its extent
   * along columns. */
  int64_t row_step, column_step;
  Analyzer::Modular first_column;
  int64_t extent;
  int bits;

  explicit Matrix(const TileRegion& r) {
    const std::vector<int64_t> shape = ConstShape(r.buffer);
    const size_t lead = shape.size() - 2;
    rows = shape[lead];
    columns = shape[lead + 1];
    Analyzer analyzer;
    row_step = DivisorOf(analyzer.ModularSet(r.ranges[lead]->min));
    first_column = analyzer.ModularSet(r.ranges[lead + 1]->min);
    column_step = DivisorOf(first_column);
    extent = ToInt(r.ranges[lead + 1]->extent);
    bits = DTypeOf(r.buffer).bits;
  }
};

std::string WhyNotRows(const WgmmaOperand& o, const Matrix& m) {
  const std::string name = o.region.buffer->name;
  if (ScopeOf(o.region.buffer) != "shared.dyn") return name + " is not in dynamic shared memory";
  if (m.rows % kPatternRows == 0 && m.row_step % kPatternRows == 0) return "";
  return "the rows of " + name + " must be a multiple of 8, and the tile begin at one";
}

std::string WhyNotSpan(const WgmmaOperand& o, const Matrix& m, int span) {
  const int64_t elements = span * 8 / m.bits;
  const std::string bytes = std::to_string(span) + " bytes", name = o.region.buffer->name;
  if (m.columns % elements) return "a row of " + name + " is no multiple of " + bytes;
  if (o.k_major) {
    if (o.k > elements) return "an instruction takes more of a row of " + name + " than " + bytes;
    // Steps along K stay in a span or go from the begin of one to that of the next.
    const bool whole = m.column_step % elements == 0;
    const bool within = StaysWithin(m.first_column, m.extent, elements);
    if (m.column_step % o.k == 0 && (whole || within)) return "";
  } else if (std::gcd(m.column_step, o.rows) % elements == 0) {
    return "";
  }
  return "an instruction's part of " + name + " does not begin at a multiple of " + bytes;
}

/*! Do the leading dimensions keep coordinates of their own? Synchronisation tells versions of a
 * buffer apart by them, and takes the last three physical ones for the matrix. */
bool KeepsLeading(const Layout& layout) {
  const std::vector<int64_t> shape = layout->Shape(), out = layout->OutputShape();
  const size_t lead = shape.size() - 2;
  if (Product(out) != Product(shape) || out.size() > lead + 3) return false;
  for (size_t d = 0; d < lead && d + 3 < out.size(); ++d) {
    if (out[d] != shape[d]) return false;
  }
  return true;
}

}  // namespace

std::optional<Layout> WgmmaLayout(const WgmmaOperand& operand, std::string* why) {
  const Matrix m(operand.region);
  *why = WhyNotRows(operand, m);
  for (int span = 128; span >= 32 && why->empty(); span /= 2) {
    *why = WhyNotSpan(operand, m, span);
    if (why->empty()) {
      return MakeBankSwizzle(ConstShape(operand.region.buffer), m.bits, span / 16);
    }
    if (span > 32) why->clear();
  }
  return std::nullopt;
}

std::string WhyNotWgmmaLayout(const WgmmaOperand& operand, const Layout& layout) {
  const Matrix m(operand.region);
  const std::string why = WhyNotRows(operand, m);
  if (!why.empty()) return why;
  const auto span = layout->SwizzleBytes(m.bits);
  if (!span || *span == 0 || !KeepsLeading(layout)) {
    return "the layout of " + std::string(operand.region.buffer->name) +
           " has no swizzle of 128, 64 or 32 bytes";
  }
  return WhyNotSpan(operand, m, static_cast<int>(*span));
}

Layout CommonWgmmaLayout(const Var& root, const std::vector<WgmmaOperand>& operands) {
  const auto suits = [&](const Layout& layout) {
    return AllOf(operands, [&](const WgmmaOperand& operand) {
      const auto own = CarryLayout(layout, root, operand.region.buffer);
      return own && WhyNotWgmmaLayout(operand, *own).empty();
    });
  };
  for (int span = 128; span >= 32; span /= 2) {
    for (const WgmmaOperand& operand : operands) {
      if (!WhyNotRows(operand, Matrix(operand.region)).empty()) return Layout();
      if (!WhyNotSpan(operand, Matrix(operand.region), span).empty()) continue;
      const int bits = Matrix(operand.region).bits;
      const Layout own = MakeBankSwizzle(ConstShape(operand.region.buffer), bits, span / 16);
      const auto layout = CarryLayout(own, operand.region.buffer, root);
      if (layout && suits(*layout)) return *layout;
    }
  }
  return Layout();
}

Expr WgmmaStrides::Offset(const Expr& row, const Expr& k) const {
  const int64_t elements = span / element;
  auto along = [&](const Expr& e) {
    return FloorDivOf(e, elements) * beside + FloorModOf(e, elements) * element;
  };
  return k_major ? row * span + along(k) : k * span + along(row);
}

WgmmaStrides StridesOf(const WgmmaOperand& operand, const Layout& layout) {
  const Matrix m(operand.region);
  WgmmaStrides s;
  s.span = static_cast<int>(layout->SwizzleBytes(m.bits).value());
  s.k_major = operand.k_major;
  s.element = m.bits / 8;
  s.beside = m.rows * s.span;
  // Where K is side by side, the leading stride means nothing to a swizzle.
  s.leading = operand.k_major ? 16 : s.beside;
  s.stride = kPatternRows * s.span;
  return s;
}

}  // namespace tl
