#include "tensor_box.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "../tvm/hidden_operations.h"

namespace tl {
namespace {

/*! Elements of the largest layout whose table is computed: a few milliseconds. */
constexpr int64_t kMostElements = int64_t(1) << 20;

std::string TextOf(const ObjectRef& e) {
  static const Function repr = Function::GetGlobalRequired("ffi.ReprPrint");
  return repr(e).cast<String>();
}

/*! index // divisor % extent, times a stride; the highest digit of an index has no `%`. */
struct TensorDigit {
  size_t dim;
  int64_t divisor;
  /*! Values that it takes; nullopt for the highest digit of an index of symbolic extent. */
  std::optional<int64_t> extent;
  bool highest;
  int64_t stride;
};
using Digits = std::vector<TensorDigit>;

std::optional<int64_t> Multiplied(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/*! Reads expressions as sums of digits; nullopt where they are none. */
class DigitReader {
 public:
  explicit DigitReader(const LayoutNode* layout) : layout_(layout) {}

  std::optional<Digits> Read(const Expr& e) const {
    if (IsConst(e, 0)) return Digits{};
    if (e.as<VarNode>()) return ReadIndex(e);
    if (const auto* op = e.as<CastNode>()) {
      // Indices of tiles are below 2^31.
      const bool wraps = e->dtype().bits < 32 && !HoldsAll(e->dtype(), op->value->dtype());
      return wraps ? std::nullopt : Read(op->value);
    }
    if (IsModulo(e->dtype())) return std::nullopt;
    if (const auto* op = e.as<AddNode>()) return Sum(op->a, op->b);
    if (const auto* op = e.as<MulNode>()) {
      const bool left = AsInt(op->a).has_value();
      return Scaled(left ? op->b : op->a, AsInt(left ? op->a : op->b));
    }
    if (const auto* op = e.as<FloorDivNode>()) return Part(op->a, AsInt(op->b), true);
    if (const auto* op = e.as<FloorModNode>()) return Part(op->a, AsInt(op->b), false);
    return std::nullopt;
  }

 private:
  std::optional<Digits> ReadIndex(const Expr& e) const {
    for (size_t d = 0; d < layout_->vars.size(); ++d) {
      if (!e.same_as(layout_->vars[d])) continue;
      const std::optional<int64_t> extent = AsInt(layout_->shape[d]);
      if (extent == 1) return Digits{};
      return Digits{{d, 1, extent, true, 1}};
    }
    return std::nullopt;
  }

  std::optional<Digits> Sum(const Expr& a, const Expr& b) const {
    std::optional<Digits> x = Read(a);
    const std::optional<Digits> y = Read(b);
    if (!x || !y) return std::nullopt;
    AppendRange(&*x, *y);
    return x;
  }

  std::optional<Digits> Scaled(const Expr& e, const std::optional<int64_t>& factor) const {
    std::optional<Digits> digits = Read(e);
    if (!digits || !factor || *factor <= 0) return std::nullopt;
    for (TensorDigit& digit : *digits) {
      const auto stride = Multiplied(digit.stride, *factor);
      if (!stride) return std::nullopt;
      digit.stride = *stride;
    }
    return digits;
  }

  /*! Quotient or remainder: the digits of at least `by`, or those below, which have to be less than
   * `by` together. A digit that reaches over it is two. */
  std::optional<Digits> Part(const Expr& e, const std::optional<int64_t>& by, bool quotient) const {
    const std::optional<Digits> digits = Read(e);
    if (!digits || !by || *by <= 0) return std::nullopt;
    Digits high, low;
    for (const TensorDigit& digit : *digits) {
      if (digit.stride % *by == 0) {
        high.push_back(digit);
      } else if (*by % digit.stride != 0 || !Split(digit, *by / digit.stride, &high, &low)) {
        return std::nullopt;
      }
    }
    int64_t most = 0;
    for (const TensorDigit& digit : low) {
      if (__builtin_add_overflow(most, (*digit.extent - 1) * digit.stride, &most)) {
        return std::nullopt;
      }
    }
    if (most >= *by) return std::nullopt;
    if (!quotient) return low;
    for (TensorDigit& digit : high) digit.stride /= *by;
    return high;
  }

  /*! `digit` as digit % at and digit // at. */
  static bool Split(const TensorDigit& digit, int64_t at, Digits* high, Digits* low) {
    if (digit.extent && *digit.extent <= at) {
      low->push_back(digit);
      return true;
    }
    if (!digit.highest && *digit.extent % at) return false;
    const auto divisor = Multiplied(digit.divisor, at), stride = Multiplied(digit.stride, at);
    if (!divisor || !stride) return false;
    std::optional<int64_t> rest;
    if (digit.extent) rest = (*digit.extent + at - 1) / at;
    low->push_back({digit.dim, digit.divisor, at, false, digit.stride});
    high->push_back({digit.dim, *divisor, rest, digit.highest, *stride});
    return true;
  }

  const LayoutNode* layout_;
};

TensorBox Defect(std::string found, std::string wanted) {
  return {{}, std::move(found), std::move(wanted)};
}

TensorBox NotDense() {
  return Defect("two elements in one place, or places without an element",
                "each digit of each index once, the strides of a coordinate's digits a mixed radix "
                "(1, then the extents multiplied); look at the strides and what the indices are "
                "divided by");
}

TensorBox NotDivided(const Layout& layout, const TensorDigit& highest) {
  const std::string extent = TextOf(layout->shape[highest.dim]);
  const std::string by = std::to_string(highest.divisor);
  return Defect(
      "extent " + extent + " of dimension " + std::to_string(highest.dim) +
          ", which the layout cuts into groups of " + by + ",",
      "a multiple of " + by +
          ", since the last group would lie behind the tensor's end; pad the tensor" +
          (AsInt(layout->shape[highest.dim]) ? std::string()
                                             : ", or say T.assume(" + extent + " % " + by +
                                                   " == 0) in front of the kernel's statements"));
}

/*! The extent of a coordinate, undefined where its digits are not dense. */
Expr ExtentOf(Digits digits, const LayoutNode* layout) {
  std::sort(digits.begin(), digits.end(),
            [](const TensorDigit& a, const TensorDigit& b) { return a.stride < b.stride; });
  int64_t dense = 1;
  Expr extent = MakeInt(1);
  for (const TensorDigit& digit : digits) {
    if (digit.stride != dense || AsInt(extent) != dense) return Expr();
    if (!digit.extent) {
      extent = FloorDivOf(layout->shape[digit.dim], digit.divisor) * dense;
      continue;
    }
    const auto next = Multiplied(dense, *digit.extent);
    if (!next) return Expr();
    dense = *next;
    extent = MakeInt(dense > INT32_MAX ? kInt64 : kInt32, dense);
  }
  return extent;
}

/*! Each index is the sum of its digits, and nothing is left over. */
TensorBox CheckIndices(const Layout& layout, const std::vector<Digits>& coordinates,
                       Analyzer* analyzer) {
  std::vector<Digits> of_index(layout->vars.size());
  for (const Digits& coordinate : coordinates) {
    for (const TensorDigit& digit : coordinate) of_index[digit.dim].push_back(digit);
  }
  for (size_t d = 0; d < of_index.size(); ++d) {
    Digits& digits = of_index[d];
    std::sort(digits.begin(), digits.end(),
              [](const TensorDigit& a, const TensorDigit& b) { return a.divisor < b.divisor; });
    int64_t next = 1;
    bool complete = IsConst(layout->shape[d], 1);
    for (const TensorDigit& digit : digits) {
      if (digit.divisor != next || complete) return NotDense();
      complete = digit.highest;
      if (!digit.highest) next = digit.divisor * *digit.extent;
    }
    if (!complete) return NotDense();
    if (digits.empty()) continue;
    const Expr rest = FloorModOf(layout->shape[d], digits.back().divisor);
    if (!analyzer->CanProveEqual(rest, MakeInt(rest->dtype(), 0))) {
      return NotDivided(layout, digits.back());
    }
  }
  return {};
}

bool HasTable(const Layout& layout) {
  int64_t elements = 1;
  for (const Expr& e : layout->shape) {
    const auto extent = AsInt(e);
    if (!extent || __builtin_mul_overflow(elements, *extent, &elements)) return false;
  }
  return elements <= kMostElements;
}

TensorBox BoxOfTable(const Layout& layout) {
  const std::string defect = PlacementDefect(layout);
  if (!defect.empty()) return Defect(defect, "a place of its own for each element");
  const std::vector<int64_t> box = layout->OutputShape();
  if (Product(box) != Product(layout->Shape())) return NotDense();
  TensorBox out;
  for (int64_t extent : box) out.extents.push_back(MakeInt(extent));
  return out;
}

/*! What digits show; nullopt for a layout that is no sum of them, with the coordinate. */
std::optional<TensorBox> BoxOfDigits(const Layout& layout, Analyzer* analyzer, Expr* no_sum) {
  const DigitReader reader(layout.get());
  std::vector<Digits> coordinates;
  for (const Expr& e : layout->index) {
    const std::optional<Digits> digits = reader.Read(e);
    if (!digits) {
      *no_sum = e;
      return std::nullopt;
    }
    coordinates.push_back(*digits);
  }
  TensorBox box;
  for (const Digits& digits : coordinates) {
    const Expr extent = ExtentOf(digits, layout.get());
    if (!extent.defined()) return NotDense();
    box.extents.push_back(analyzer->Simplify(extent));
  }
  TensorBox defect = CheckIndices(layout, coordinates, analyzer);
  return defect.defect.empty() ? box : defect;
}

}  // namespace

TensorBox BoxOfTensor(const Layout& layout, Analyzer* analyzer) {
  Expr no_sum;
  const std::optional<TensorBox> by_digits = BoxOfDigits(layout, analyzer, &no_sum);
  if (by_digits && by_digits->defect.empty()) return *by_digits;
  if (HasTable(layout)) {
    TensorBox by_table = BoxOfTable(layout);
    if (by_table.defect.empty() || !by_digits) return by_table;
  }
  if (by_digits) return *by_digits;
  return Defect("coordinate " + TextOf(no_sum) + ", which is no sum of digits of the indices,",
                "sums of index // constant % constant times a constant: they show for any extent "
                "that no two elements share a place; write it with these");
}

}  // namespace tl
