#include "lds_copy.h"

#include "../tvm/error.h"
#include "region_nest.h"

namespace tl {
namespace {

/*! The first dimension from which on the region is all of its buffer; nullopt where one in front of
 * it has several elements. */
std::optional<size_t> FirstWholeDim(const TileRegion& r) {
  const BufferTypeNode* type = BufferOf(r.buffer);
  size_t first = r.ranges.size();
  while (first > 0) {
    const Range& range = r.ranges[first - 1];
    const auto extent = AsInt(range->extent), shape = AsInt(type->shape[first - 1]);
    if (!extent || !shape || *extent != *shape || !IsConst(range->min, 0)) break;
    --first;
  }
  for (size_t d = 0; d < first; ++d) {
    if (!IsConst(r.ranges[d]->extent, 1)) return std::nullopt;
  }
  return first;
}

/*! A block of the tile lies in as many places, all blocks alike, one behind the other. */
bool HasBlocks(const Layout& layout, int64_t block) {
  const std::vector<int64_t> places = layout->Addresses();
  for (int64_t i = 0; i < static_cast<int64_t>(places.size()); ++i) {
    const int64_t first = i / block * block;
    if (places[i] - first != places[i - first] || places[i - first] >= block) return false;
  }
  return true;
}

/*! Coordinates in a row-major box. */
Array<Expr> InBox(const Expr& place, const std::vector<int64_t>& box, Analyzer* analyzer) {
  Array<Expr> indices;
  int64_t step = Product(box);
  for (const int64_t extent : box) {
    step /= extent;
    const Expr digit = FloorDivOf(place, step);
    indices.push_back(analyzer->Simplify(indices.empty() ? digit : FloorModOf(digit, extent)));
  }
  return indices;
}

/*! The layout of the block's units of `unit` elements: to one number. */
Layout UnitsOf(const Layout& layout, size_t first_dim, int64_t unit) {
  const std::vector<int64_t> shape = layout->Shape(), box = layout->OutputShape();
  Array<Var> vars;
  std::vector<int64_t> extents;
  Array<Expr> element;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d < first_dim) {
      element.push_back(MakeInt(0));
      continue;
    }
    const bool is_last = d + 1 == shape.size();
    vars.push_back(MakeVar("u" + std::to_string(d)));
    extents.push_back(is_last ? shape[d] / unit : shape[d]);
    element.push_back(is_last ? vars.back() * unit : Expr(vars.back()));
  }
  Expr place = MakeInt(0);
  const Array<Expr> mapped = layout->MapIndex(element);
  for (size_t d = 0; d < box.size(); ++d) place = place * box[d] + mapped[d];
  return MakeLayout(vars, extents, {FloorDivOf(place, unit)});
}

/*! The coordinates of a unit, whose bounds are known: those of xors are not. */
Array<Expr> UnitCoordinates(const LdsPlan& plan, const Expr& unit, Analyzer* analyzer) {
  const Array<Expr> coords = plan.inverse->MapIndex({unit});
  const std::vector<int64_t> extents = plan.inverse->OutputShape();
  Array<Expr> bounded;
  for (size_t d = 0; d < coords.size(); ++d) {
    const Expr coord = analyzer->Simplify(coords[d]);
    const Analyzer::Bound bound = analyzer->ConstBound(coord);
    const bool is_inside = bound.min >= 0 && bound.max < extents[d];
    bounded.push_back(is_inside ? coord : FloorModOf(coord, extents[d]));
  }
  return bounded;
}

}  // namespace

std::optional<int64_t> ResourceBytes(const Var& tensor) {
  const int64_t bits = DTypeOf(tensor).bits;
  int64_t most = kMostResourceBytes * 8 / bits, elements = 1;
  for (const Expr& extent : BufferOf(tensor)->shape) {
    const auto n = AsInt(extent);
    if (!n || *n <= 0 || elements > most / *n) return std::nullopt;
    elements *= *n;
  }
  if (elements * bits % 8 || elements * bits / 8 >= kMostResourceBytes) return std::nullopt;
  return elements * bits / 8;
}

std::optional<int64_t> ReachOf(const TileRegion& region) {
  const BufferTypeNode* type = BufferOf(region.buffer);
  const int64_t bits = type->dtype->dtype.bits;
  int64_t last = 0;
  std::optional<int64_t> compact = 1;
  for (size_t d = region.ranges.size(); d-- > 0;) {
    const auto stride = type->strides.empty() ? compact : AsInt(type->strides[d]);
    const auto extent = AsInt(region.ranges[d]->extent), size = AsInt(type->shape[d]);
    if (!extent || (*extent > 1 && !stride)) return std::nullopt;
    if (*extent > 1) last += (*extent - 1) * *stride;
    compact = compact && size ? std::optional(*compact * *size) : std::nullopt;
    if (last > kMostResourceBytes * 8 || (compact && *compact > kMostResourceBytes * 8)) {
      compact = std::nullopt;
    }
  }
  return (last + 1) * bits / 8;
}

std::string PlanLdsCopy(const TileRegion& dst, const Layout& layout,
                        const std::vector<int64_t>& widths, int64_t aligned, int64_t threads,
                        LdsPlan* plan) {
  const std::string name(dst.buffer->name);
  const std::vector<int64_t> shape = ConstShape(dst.buffer);
  const std::optional<size_t> first = FirstWholeDim(dst);
  if (!first || *first == shape.size()) return "a part of " + name;
  const Layout placed = layout.defined() ? layout : MakeLinearLayout(shape);
  int64_t block = 1;
  for (size_t d = *first; d < shape.size(); ++d) block *= shape[d];
  if (Product(placed->OutputShape()) != Product(shape) || !HasBlocks(placed, block)) {
    return "a layout of " + name + " whose places do not follow each other";
  }
  const int64_t bits = DTypeOf(dst.buffer).bits;
  std::string why = "rows that are no multiples of " + std::to_string(widths[0]) + " bytes";
  for (auto bytes = widths.rbegin(); bytes != widths.rend(); ++bytes) {
    const int64_t unit = *bytes * 8 / bits;
    if (unit < 1 || shape.back() % unit) continue;
    if (ContiguousElements(placed) % unit || placed->OutputShape().back() % unit) {
      why = "a layout of " + name + " in which " + std::to_string(*bytes) +
            " bytes do not lie side by side";
      continue;
    }
    if (*bytes > aligned) continue;
    if (block % (unit * threads)) {
      why = std::to_string(block * bits / 8) + " bytes for " + std::to_string(threads) +
            " threads, who do not have equally many times " + std::to_string(*bytes);
      continue;
    }
    std::string reason;
    const auto inverse = InvertLayout(UnitsOf(placed, *first, unit), &reason);
    if (!inverse) {
      why = "a layout of " + name + " with " + reason;
      continue;
    }
    *plan = {*bytes, unit, *first, block, *inverse};
    return "";
  }
  return why;
}

void RefuseLdsLoads(const std::string& why, const Span& span) {
  ThrowAt(span, "ValueError",
          "T.copy: found " + why +
              ", wanted a whole tile that buffer loads to LDS can fill; use T.copy without "
              "prefer_instruction");
}

Stmt LowerToLdsLoads(const TileRegion& src, const TileRegion& dst, const LdsPlan& plan,
                     LoweringScope* scope, const Span& span) {
  const int64_t units = plan.block / plan.unit, rounds = units / scope->num_threads;
  const Var round = MakeVar("r", scope->thread->dtype()), lane = MakeVar("e");
  scope->analyzer->BindConst(round, rounds);
  const Expr number = round * scope->num_threads + scope->thread;
  const Array<Expr> coords = UnitCoordinates(plan, number, scope->analyzer);
  std::vector<Expr> from;
  for (const Range& range : src.ranges) from.push_back(range->min);
  const std::vector<size_t> src_dims = NonUnitDims(src), dst_dims = NonUnitDims(dst);
  const size_t last = dst.ranges.size() - 1;
  for (size_t k = 0; k < dst_dims.size(); ++k) {
    const Expr coord = coords[dst_dims[k] - plan.first_dim];
    Expr& index = from[src_dims[k]];
    index = index + (dst_dims[k] == last ? coord * plan.unit + lane : coord);
  }
  // The block's number, then the place in it.
  Expr block = MakeInt(0);
  Array<Expr> first_of_block;
  for (size_t d = 0; d < dst.ranges.size(); ++d) {
    first_of_block.push_back(d < plan.first_dim ? dst.ranges[d]->min : Expr(MakeInt(0)));
    if (d < plan.first_dim) block = block * BufferOf(dst.buffer)->shape[d] + dst.ranges[d]->min;
  }
  const auto [tile, ignored] = scope->ToPhysical(dst.buffer, first_of_block);
  std::vector<int64_t> box = ConstShape(tile);
  box.back() /= plan.unit;
  Array<Expr> to = InBox(block * units + number, box, scope->analyzer);
  to.Set(to.size() - 1, to.back() * plan.unit + lane);
  const Expr value = LoadOf(src.buffer, Array<Expr>(from.begin(), from.end()));
  const Stmt store = MakeStore(tile, value, to, span);
  const Stmt vector = MakeFor(lane, MakeInt(plan.unit), ForKind::kVectorized, store, span);
  return MakeFor(round, MakeInt(rounds), ForKind::kUnrolled, vector, span);
}

}  // namespace tl
