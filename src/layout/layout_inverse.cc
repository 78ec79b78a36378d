/*!
 * Inverse of a layout that fills its box. The closed form is read off the inverse's table: along
 * each axis of the places the elements' coordinates are digits times strides. The digits of one
 * coordinate are added, or, where their ranges overlap, xored: a swizzle's inverse is a swizzle.
 * The form is compared with the whole table, so that another function is refused and never wrongly
 * inverted.
 *
 * Example: 8 x 64 swizzled, (i, j) -> 64 i + (j xor 8 i). Along the axis of places p the digits are
 * p % 64, worth (0, 1), and p / 64, worth (1, 8). The ranges of j's digits overlap, so
 * i = p / 64, j = p % 64 xor 8 (p / 64).
 */
#include <algorithm>

#include "../tvm/registry.h"
#include "layout.h"

namespace tl {
namespace {

/*! Elements by place, row-major: coordinates of each. */
struct ElementTable {
  std::vector<int64_t> shape;
  size_t rank;
  std::vector<int64_t> coords;

  int64_t At(int64_t place, size_t d) const { return coords[place * rank + d]; }
};

/*! A digit of a place's coordinate, (x / divisor) % extent, and what it is worth in each of the
 * element's coordinates. */
struct PlaceDigit {
  Expr value;
  int64_t extent;
  std::vector<int64_t> strides;
};

ElementTable TableOfPlaces(const Layout& layout) {
  ElementTable t;
  t.shape = layout->OutputShape();
  const std::vector<int64_t> input = layout->Shape(), address = layout->Addresses();
  t.rank = input.size();
  t.coords.resize(address.size() * t.rank);
  for (size_t k = 0; k < address.size(); ++k) {
    int64_t flat = static_cast<int64_t>(k);
    for (size_t d = t.rank; d-- > 0;) {
      t.coords[address[k] * t.rank + d] = flat % input[d];
      flat /= input[d];
    }
  }
  return t;
}

/*! Reads the digits of place coordinate `axis` along its axis through the origin. */
void ReadDigits(const ElementTable& t, size_t axis, const Var& var,
                std::vector<PlaceDigit>* digits) {
  int64_t step = 1;
  for (size_t d = axis + 1; d < t.shape.size(); ++d) step *= t.shape[d];
  auto worth = [&](int64_t x) {
    std::vector<int64_t> w;
    for (size_t d = 0; d < t.rank; ++d) w.push_back(t.At(x * step, d) - t.At(0, d));
    return w;
  };
  auto times = [](std::vector<int64_t> w, int64_t n) {
    for (int64_t& x : w) x *= n;
    return w;
  };
  for (int64_t divisor = 1; divisor < t.shape[axis];) {
    const int64_t count = (t.shape[axis] + divisor - 1) / divisor;
    const std::vector<int64_t> unit = worth(divisor);
    int64_t extent = 1;
    while (extent < count && worth(extent * divisor) == times(unit, extent)) ++extent;
    digits->push_back({FloorModOf(FloorDivOf(var, divisor), extent), extent, unit});
    divisor *= extent;
  }
}

/*! Which digits of a coordinate are xored: none, those whose multiples of the stride overlap, or
 * those that share a bit. */
enum class Xor : uint8_t { kNone, kRanges, kBits };

/*! What the digits are worth in coordinate d. */
Expr Combine(const std::vector<PlaceDigit>& digits, size_t d, int64_t base, Xor rule) {
  std::vector<const PlaceDigit*> terms;
  for (const PlaceDigit& g : digits) {
    if (g.strides[d]) terms.push_back(&g);
  }
  auto low = [&](const PlaceDigit* g) {
    const int64_t stride = g->strides[d];
    return rule == Xor::kBits ? stride & -stride : stride;
  };
  std::stable_sort(terms.begin(), terms.end(),
                   [&](const PlaceDigit* a, const PlaceDigit* b) { return low(a) < low(b); });
  Expr sum = MakeInt(base);
  for (size_t k = 0; k < terms.size();) {
    Expr term = terms[k]->value * terms[k]->strides[d];
    int64_t reach = terms[k]->strides[d] * terms[k]->extent;
    for (++k; rule != Xor::kNone && k < terms.size() && low(terms[k]) < reach; ++k) {
      term = XorOf(term, terms[k]->value * terms[k]->strides[d]);
      reach = std::max(reach, terms[k]->strides[d] * terms[k]->extent);
    }
    sum = sum + term;
  }
  return sum;
}

}  // namespace

std::optional<Layout> InvertLayout(const Layout& layout, std::string* reason) {
  *reason = PlacementDefect(layout);
  if (!reason->empty()) return std::nullopt;
  const std::vector<int64_t> places = layout->OutputShape();
  if (Product(places) != Product(layout->Shape())) {
    *reason = "places without an element";
    return std::nullopt;
  }
  const ElementTable t = TableOfPlaces(layout);
  Array<Var> vars;
  std::vector<PlaceDigit> digits;
  for (size_t d = 0; d < places.size(); ++d) {
    vars.push_back(MakeVar("p" + std::to_string(d)));
    ReadDigits(t, d, vars[d], &digits);
  }
  for (Xor rule : {Xor::kNone, Xor::kRanges, Xor::kBits}) {
    Array<Expr> index;
    for (size_t d = 0; d < t.rank; ++d) index.push_back(Combine(digits, d, t.At(0, d), rule));
    Layout inverse = MakeLayout(vars, places, index);
    if (inverse->Table() == t.coords) return inverse;
  }
  *reason = "an inverse that is neither sums nor xors of digits times strides";
  return std::nullopt;
}

namespace {

Registration layout_inverse_registration([] {
  RegisterFunction("LayoutInverse", [](Layout l) {
    if (const auto* f = l.as<FragmentNode>()) l = PlaceOf(GetRef<Fragment>(f));
    std::string reason;
    if (auto inverse = InvertLayout(l, &reason)) return *inverse;
    TVM_FFI_THROW(ValueError) << "inverse: found " << reason << ", wanted a bijection in closed "
                              << "form; compare table() with what was meant:\n  " << LayoutText(l);
  });
});

}  // namespace
}  // namespace tl
