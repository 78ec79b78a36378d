/*!
 * The hardware writes a box row-major and then, with a swizzle of 128, 64 or 32 bytes, exchanges
 * the 16-byte chunks of each row: bits 4 to 6 of the address (4 to 5, 4) are xored with bits 7 to 9
 * (7 to 8, 7). CUDA C++ Programming Guide, "Tensor Memory Access, Swizzle". Whether a layout is
 * that is read off its table: undoing the exchange must leave the box dense. Limits of boxes and
 * strides: CUDA Driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.
 */
#include "tma_plan.h"

#include <algorithm>
#include <numeric>

#include "../layout/swizzle.h"
#include "region_nest.h"

namespace tl {
namespace {

constexpr int64_t kMaxBox = 256, kMaxPixels = 1024;
constexpr size_t kMaxRank = 5;
constexpr int64_t kMaxByteStride = int64_t(1) << 40;
/*! Bytes that a box's place in shared memory is a multiple of. */
constexpr int64_t kSmemAlignment = 128;

int64_t LargestDivisor(int64_t n, int64_t limit, int64_t unit) {
  for (int64_t d = std::min(n, limit); d >= unit; --d) {
    if (n % d == 0 && d % unit == 0) return d;
  }
  return 0;
}

int64_t Unswizzled(int64_t address, int swizzle) {
  if (swizzle == 0) return address;
  return address ^ ((address >> 7) & (swizzle / 16 - 1)) << 4;
}

/*! Visits the number of each element of a tile of this shape that is at one of the places in every
 * dimension; false if a dimension has none or `visit` was false once. */
template <typename F>
bool ForEachStart(const std::vector<std::vector<int64_t>>& starts,
                  const std::vector<int64_t>& shape, F visit) {
  std::vector<size_t> at(starts.size(), 0);
  for (const auto& s : starts) {
    if (s.empty()) return false;
  }
  for (;;) {
    int64_t first = 0;
    for (size_t d = 0; d < at.size(); ++d) first = first * shape[d] + starts[d][at[d]];
    if (!visit(first)) return false;
    size_t d = at.size();
    while (d-- > 0) {
      if (++at[d] < starts[d].size()) break;
      at[d] = 0;
    }
    if (d == size_t(-1)) return true;
  }
}

/*! How far element k of a box, row-major, is behind the first in a tile of this shape. */
int64_t ElementIn(const std::vector<int64_t>& box, const std::vector<int64_t>& shape, int64_t k) {
  int64_t element = 0, scale = 1;
  for (size_t d = box.size(); d-- > 0;) {
    element += k % box[d] * scale;
    k /= box[d];
    scale *= shape[d];
  }
  return element;
}

/*! The tile as the hardware sees it under one swizzle. */
class BoxTable {
 public:
  /*! `addresses` are those of the layout. Boxes have to start at multiples of `unit` bytes. */
  BoxTable(const Layout& layout, const std::vector<int64_t>& addresses, int64_t bytes, int swizzle,
           int64_t unit)
      : shape_(layout->Shape()),
        addresses_(addresses),
        bytes_(bytes),
        unit_(unit),
        swizzle_(swizzle) {}

  /*! Every box that starts at one of `starts` (places by dimension) lies dense. */
  bool AllDense(const std::vector<std::vector<int64_t>>& starts,
                const std::vector<int64_t>& box) const {
    return ForEachStart(starts, shape_, [&](int64_t first) { return IsDense(first, box); });
  }

 private:
  bool IsDense(int64_t first, const std::vector<int64_t>& box) const {
    const int64_t base = ByteOf(first);
    if (base % unit_) return false;
    const int64_t size = Product(box), row = box.back();
    for (int64_t k = 0; k < size; k += row) {
      const int64_t element = first + ElementIn(box, shape_, k);
      for (int64_t column = 0; column < row; ++column) {
        if (ByteOf(element + column) != base + (k + column) * bytes_) return false;
      }
    }
    return true;
  }

  int64_t ByteOf(int64_t element) const {
    return Unswizzled(addresses_[element] * bytes_, swizzle_);
  }

  std::vector<int64_t> shape_;
  const std::vector<int64_t>& addresses_;
  int64_t bytes_, unit_;
  int swizzle_;
};

std::string PlanDims(const TileRegion& global, const TileRegion& shared, TmaPlan* plan) {
  const std::vector<size_t> g = NonUnitDims(global), s = NonUnitDims(shared);
  if (g.size() != s.size()) return "tiles of different rank";
  for (size_t k = 0; k < g.size(); ++k) {
    auto m = AsInt(global.ranges[g[k]]->extent), n = AsInt(shared.ranges[s[k]]->extent);
    if (!m || !n) return "an extent that is known at run time only";
    if (*m != *n) return "tiles of different extents";
    plan->dims.push_back({g[k], s[k], *n, 1});
  }
  if (g.empty() || g.back() + 1 != global.ranges.size()) {
    return "one element of the tensor's innermost dimension";
  }
  return "";
}

std::string WhyNotTypes(const TileRegion& global, const TileRegion& shared) {
  if (!IsGlobal(global.buffer) || !IsShared(shared.buffer)) {
    return "a copy that is not between global and shared memory";
  }
  // A map has at least one element in each dimension, which the copy would take for the tensor's.
  for (const Expr& extent : BufferOf(global.buffer)->shape) {
    if (IsConst(extent, 0)) return "a tensor without elements";
  }
  const DLDataType t = DTypeOf(global.buffer);
  const DLDataType u = DTypeOf(shared.buffer);
  if (t.code != u.code || t.bits != u.bits || t.lanes != u.lanes) {
    return "a conversion from " + DTypeName(t) + " to " + DTypeName(u);
  }
  const bool whole = t.lanes == 1 && (t.bits == 8 || t.bits == 16 || t.bits == 32 || t.bits == 64);
  return whole ? "" : "elements of " + DTypeName(t);
}

/*! The stride of a dimension in elements. */
Expr StrideOf(const BufferTypeNode* type, size_t dim) {
  if (!type->strides.empty()) return CastTo(kInt64, type->strides[dim]);
  Expr stride = MakeInt(kInt64, 1);
  for (size_t d = dim + 1; d < type->shape.size(); ++d) {
    stride = stride * CastTo(kInt64, type->shape[d]);
  }
  return stride;
}

std::string CheckStrides(const TileRegion& global, TmaProof proof, Analyzer* analyzer,
                         TmaPlan* plan) {
  const BufferTypeNode* type = BufferOf(global.buffer);
  const size_t rank = type->shape.size();
  if (!IsConst(type->elem_offset, 0)) return "a tensor that begins inside of its memory";
  if (!IsConst(StrideOf(type, rank - 1), 1)) return "elements of a row that are not neighbours";
  for (size_t d = 0; d < rank; ++d) {
    const bool unit = IsConst(type->shape[d], 1) && IsConst(global.ranges[d]->extent, 1);
    if (rank > kMaxRank && unit && d + 1 < rank) continue;
    plan->map_dims.push_back(d);
    const auto extent = AsInt(type->shape[d]);
    if (extent && *extent > INT32_MAX) {
      return "a dimension of " + std::to_string(*extent) + " elements in " +
             std::string(global.buffer->name) + ", which coordinates of 32 bits do not reach";
    }
    if (d + 1 == rank) continue;
    const Expr stride = analyzer->Simplify(TmaByteStride(type, d));
    const auto known = AsInt(stride);
    const Analyzer::Modular modular = analyzer->ModularSet(stride);
    const bool multiple = modular.coeff % kTmaChunkBytes == 0 && modular.base % kTmaChunkBytes == 0;
    if (known ? !multiple || *known >= kMaxByteStride : proof == TmaProof::kFully && !multiple) {
      return "a stride of " +
             (known ? std::to_string(*known) : std::string("a symbolic number of")) + " bytes in " +
             std::string(global.buffer->name) + ", not a multiple of 16";
    }
  }
  if (plan->map_dims.size() > kMaxRank) {
    return std::to_string(plan->map_dims.size()) + " dimensions, more than 5";
  }
  return "";
}

/*!
 * A box whose innermost coordinate is no multiple of 16 bytes is an illegal instruction on Hopper,
 * in loads, stores and reductions, with and without a swizzle; PTX ISA does not say so. Nothing
 * checks coordinates at a launch, so what cannot be proved here is not made, not even on demand.
 */
std::string CheckInnermostStart(const TileRegion& global, Analyzer* analyzer) {
  const int64_t bytes = DTypeOf(global.buffer).bits / 8;
  const Expr start = analyzer->Simplify(CastTo(kInt64, global.ranges.back()->min) * bytes);
  const Analyzer::Modular m = analyzer->ModularSet(start);
  if (m.coeff % kTmaChunkBytes == 0 && m.base % kTmaChunkBytes == 0) return "";
  const int64_t elements = kTmaChunkBytes / bytes;
  return "a region of " + std::string(global.buffer->name) + " that begins " +
         (m.coeff == 0 ? "at element " + std::to_string(m.base / bytes) + " of a row, not"
                       : "anywhere in a row, not provably") +
         " at a multiple of " + std::to_string(elements) + " (16 bytes)";
}

/*!
 * A store or a reduction writes the whole chunk of 16 bytes in which a row of the map ends, with
 * what the box has there: only whole chunks are left out behind the innermost extent (seen on an
 * H200; loads are exact). So a row ends with a chunk, or the region ends in front of it.
 */
std::string CheckInnermostEnd(const TileRegion& global, TmaProof proof, Analyzer* analyzer,
                              const TmaPlan& plan) {
  const BufferTypeNode* type = BufferOf(global.buffer);
  const Range range = global.ranges.back();
  const Expr extent = CastTo(kInt64, type->shape.back());
  const int64_t bytes = type->dtype->dtype.bits / 8;
  const Analyzer::Modular m = analyzer->ModularSet(analyzer->Simplify(extent * bytes));
  if (m.coeff % kTmaChunkBytes == 0 && m.base % kTmaChunkBytes == 0) return "";
  const Expr end = CastTo(kInt64, range->min) + CastTo(kInt64, range->extent);
  if (analyzer->CanProve(extent >= end)) return "";
  // The launch checks strides: rows behind each other end with a chunk as they begin with one. It
  // checks none of a single row, whose stride is rounded up (TmaByteStride).
  const auto is_of_rows = [&](size_t d) {
    return d + 1 < type->shape.size() && !IsConst(type->shape[d], 1) &&
           analyzer->CanProveEqual(StrideOf(type, d), extent);
  };
  if (proof == TmaProof::kAtLaunch && !AsInt(extent) && AnyOf(plan.map_dims, is_of_rows)) {
    return "";
  }
  const auto known = AsInt(extent);
  return "rows of " + std::string(global.buffer->name) + " that end " +
         (known ? "behind " + std::to_string(*known) + " elements, not"
                : std::string("anywhere, not provably")) +
         " at a multiple of " + std::to_string(kTmaChunkBytes / bytes) +
         " (16 bytes), of which TMA writes whole ones";
}

/*! Where a region's boxes may start in dimension `d` of the tile. */
std::vector<int64_t> Starts(const TileRegion& shared, size_t d, int64_t extent, int64_t box,
                            int64_t count, Analyzer* analyzer) {
  const Analyzer::Modular m = analyzer->ModularSet(shared.ranges[d]->min);
  std::vector<int64_t> out;
  const auto add = [&](int64_t min) {
    for (int64_t k = 0; k < count; ++k) out.push_back(min + k * box);
  };
  if (m.coeff == 0) {
    if (m.base >= 0 && m.base + box * count <= extent) add(m.base);
    return out;
  }
  for (int64_t min = m.base % m.coeff; min + box * count <= extent; min += m.coeff) add(min);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

/*! Every box of `dims`, wherever the region may begin, lies dense. */
bool LiesDense(const TileRegion& shared, const BoxTable& table, const std::vector<TmaDim>& dims,
               Analyzer* analyzer) {
  const std::vector<int64_t> shape = ConstShape(shared.buffer);
  std::vector<int64_t> box(shape.size(), 1), count(shape.size(), 1);
  for (const TmaDim& dim : dims) {
    box[dim.shared] = dim.box;
    count[dim.shared] = dim.count;
  }
  std::vector<std::vector<int64_t>> starts;
  for (size_t d = 0; d < shape.size(); ++d) {
    starts.push_back(Starts(shared, d, shape[d], box[d], count[d], analyzer));
  }
  return table.AllDense(starts, box);
}

/*! Whether a range ends within an extent. Asked without casts, too: they hide that a block's number
 * is below an extent that a call brings. */
bool EndsInside(const Range& range, const Expr& shape, Analyzer* analyzer) {
  const auto wide = [](const Expr& e) { return CastTo(kInt64, e); };
  if (analyzer->CanProve(wide(shape) >= wide(range->min) + wide(range->extent))) return true;
  const Expr min = range->min, extent = range->extent;
  return min->dtype() == shape->dtype() && extent->dtype() == shape->dtype() &&
         analyzer->CanProve(shape - extent >= min);
}

/*! The region is inside of the tensor and one piece of its memory, at a multiple of 16 bytes. */
bool IsOnePiece(const TileRegion& global, int64_t bytes, Analyzer* analyzer) {
  const BufferTypeNode* type = BufferOf(global.buffer);
  if (!IsConst(type->elem_offset, 0)) return false;
  const auto wide = [](const Expr& e) { return CastTo(kInt64, e); };
  Expr start = MakeInt(kInt64, 0), dense = MakeInt(kInt64, 1);
  bool whole = true;  // the dimensions behind are taken as they are
  for (size_t d = type->shape.size(); d-- > 0;) {
    const Expr min = wide(global.ranges[d]->min), extent = wide(global.ranges[d]->extent);
    const Expr shape = wide(type->shape[d]);
    if (!whole && !IsConst(global.ranges[d]->extent, 1)) return false;
    if (!analyzer->CanProveEqual(StrideOf(type, d), dense)) return false;
    whole = whole && IsConst(global.ranges[d]->min, 0) && analyzer->CanProveEqual(extent, shape);
    const bool inside = whole || (analyzer->CanProve(min >= MakeInt(kInt64, 0)) &&
                                  EndsInside(global.ranges[d], type->shape[d], analyzer));
    if (!inside) return false;
    start = start + min * dense;
    dense = dense * shape;
  }
  const Analyzer::Modular m = analyzer->ModularSet(analyzer->Simplify(start * bytes));
  return m.coeff % kTmaChunkBytes == 0 && m.base % kTmaChunkBytes == 0;
}

/*! The place of each element of a region, row-major, from the region's first byte on; nullopt where
 * they are not one piece at a multiple of 16 bytes, the same wherever the region begins. */
using PieceOrder = std::optional<std::vector<int64_t>>;

PieceOrder OrderOf(const TileRegion& shared, const Layout& layout, const std::vector<TmaDim>& dims,
                   int64_t bytes, Analyzer* analyzer) {
  const std::vector<int64_t> shape = layout->Shape(), addresses = layout->Addresses();
  std::vector<int64_t> box(shape.size(), 1);
  for (const TmaDim& dim : dims) box[dim.shared] = dim.box;
  std::vector<std::vector<int64_t>> starts;
  for (size_t d = 0; d < shape.size(); ++d) {
    starts.push_back(Starts(shared, d, shape[d], box[d], 1, analyzer));
  }
  PieceOrder order;
  const bool same = ForEachStart(starts, shape, [&](int64_t first) {
    std::vector<int64_t> places;
    for (int64_t k = 0; k < Product(box); ++k) {
      places.push_back(addresses[first + ElementIn(box, shape, k)] * bytes);
    }
    const int64_t base = *std::min_element(places.begin(), places.end());
    const int64_t last = *std::max_element(places.begin(), places.end());
    if (base % kTmaChunkBytes || last - base != (Product(box) - 1) * bytes || places[0] != base)
      return false;
    for (int64_t& place : places) place -= base;
    if (!order) order = places;
    return *order == places;
  });
  return same ? order : std::nullopt;
}

/*! The bytes of a copy of one piece into one piece, 0 where that is none. */
int64_t BulkBytes(const TileRegion& global, const TileRegion& shared, const Layout& layout,
                  const std::vector<TmaDim>& dims, Analyzer* analyzer) {
  const int64_t bytes = DTypeOf(shared.buffer).bits / 8;
  int64_t size = bytes;
  for (const TmaDim& dim : dims) size *= dim.box;
  if (size % kTmaChunkBytes || !IsOnePiece(global, bytes, analyzer)) return 0;
  const std::vector<int64_t> addresses = layout->Addresses();
  const BoxTable table(layout, addresses, bytes, 0, kTmaChunkBytes);
  return LiesDense(shared, table, dims, analyzer) ? size : 0;
}

/*! Boxes as large as the layout allows under one swizzle, of dimensions that are one box so far;
 * false if it has none. */
bool PlanBoxes(const TileRegion& shared, const Layout& layout,
               const std::vector<int64_t>& addresses, int swizzle, Analyzer* analyzer,
               TmaPlan* plan) {
  const int64_t bytes = DTypeOf(shared.buffer).bits / 8;
  std::vector<TmaDim> dims = plan->dims;
  for (TmaDim& dim : dims) {
    const int64_t extent = dim.box;
    const bool inner = &dim == &dims.back();
    const int64_t span = swizzle / bytes;
    dim.box = !inner    ? LargestDivisor(extent, plan->pixels ? kMaxPixels : kMaxBox, 1)
              : swizzle ? (extent % span ? 0 : span)
                        : LargestDivisor(extent, kMaxBox, kTmaChunkBytes / bytes);
    if (dim.box == 0) return false;
    dim.count = extent / dim.box;
  }
  const BoxTable table(layout, addresses, bytes, swizzle,
                       std::max<int64_t>(kSmemAlignment, swizzle * 8));
  // A box that is not dense may be several that are: its outer dimensions go one by one.
  for (size_t outer = 0; outer < dims.size(); ++outer) {
    if (outer > 0) {
      TmaDim& dim = dims[outer - 1];
      dim.count *= dim.box;
      dim.box = 1;
    }
    if (!LiesDense(shared, table, dims, analyzer)) continue;
    plan->swizzle = swizzle;
    plan->dims = dims;
    return true;
  }
  return false;
}

std::string PlanSwizzle(const TileRegion& shared, const Layout& layout, Analyzer* analyzer,
                        TmaPlan* plan) {
  const int64_t bytes = DTypeOf(shared.buffer).bits / 8;
  const int64_t row = plan->dims.back().box * bytes;
  if (row % kTmaChunkBytes)
    return "rows of " + std::to_string(row) + " bytes, not a multiple of 16";
  const std::vector<int64_t> addresses = layout->Addresses();
  for (int swizzle : {0, 128, 64, 32}) {
    if (PlanBoxes(shared, layout, addresses, swizzle, analyzer, plan)) return "";
  }
  return "a layout of " + std::string(shared.buffer->name) +
         " that is neither row-major nor a swizzle of 128, 64 or 32 bytes where the copied part "
         "begins at a multiple of 128 bytes (8 rows of a swizzle):\n  " +
         LayoutLine(layout) + "\n ";
}

}  // namespace

int64_t TmaPlan::BoxOf(size_t global) const {
  for (const TmaDim& dim : dims) {
    if (dim.global == global) return dim.box;
  }
  return 1;
}

Map<String, Any> TmaPlan::Describe() const {
  Array<Array<int64_t>> boxes;
  for (const TmaDim& d : dims) {
    boxes.push_back(
        {static_cast<int64_t>(d.global), static_cast<int64_t>(d.shared), d.box, d.count});
  }
  Map<String, Any> text = {{"boxes", boxes}};
  if (bulk_bytes) text.Set("bytes", bulk_bytes);
  if (!map_dims.empty()) {
    const std::vector<int64_t> in_map(map_dims.begin(), map_dims.end());
    text.Set("dims", Array<int64_t>(in_map.begin(), in_map.end()));
  }
  if (swizzle) text.Set("swizzle", static_cast<int64_t>(swizzle));
  if (pixels) text.Set("pixels", Array<int64_t>{pixels->lower, pixels->upper, pixels->step});
  if (group_dim) text.Set("group_dim", static_cast<int64_t>(*group_dim));
  return text;
}

TmaPlan TmaPlan::From(const Map<String, Any>& text) {
  TmaPlan plan;
  for (const Array<int64_t>& d : text.at("boxes").cast<Array<Array<int64_t>>>()) {
    plan.dims.push_back({static_cast<size_t>(d[0]), static_cast<size_t>(d[1]), d[2], d[3]});
  }
  const auto number = [&](const char* key) {
    return text.count(key) ? text.at(key).cast<int64_t>() : 0;
  };
  const auto numbers = [&](const char* key) {
    return text.count(key) ? text.at(key).cast<Array<int64_t>>() : Array<int64_t>();
  };
  plan.bulk_bytes = number("bytes");
  plan.swizzle = static_cast<int>(number("swizzle"));
  for (int64_t d : numbers("dims")) plan.map_dims.push_back(static_cast<size_t>(d));
  if (const auto p = numbers("pixels"); !p.empty()) plan.pixels = PixelBox{p[0], p[1], p[2]};
  if (text.count("group_dim")) plan.group_dim = static_cast<size_t>(number("group_dim"));
  return plan;
}

std::string PlanTma(const TileRegion& global, const TileRegion& shared, const Layout& layout,
                    bool writes, TmaProof proof, Analyzer* analyzer, TmaPlan* plan) {
  *plan = TmaPlan();
  std::string why = WhyNotTypes(global, shared);
  if (why.empty()) why = PlanDims(global, shared, plan);
  if (!why.empty()) return why;
  plan->bulk_bytes = BulkBytes(global, shared, layout, plan->dims, analyzer);
  if (plan->bulk_bytes > 0) return "";
  why = CheckStrides(global, proof, analyzer, plan);
  if (why.empty()) why = CheckInnermostStart(global, analyzer);
  if (why.empty() && writes) why = CheckInnermostEnd(global, proof, analyzer, *plan);
  if (!why.empty()) return why;
  return PlanSwizzle(shared, layout, analyzer, plan);
}

Expr TmaByteStride(const BufferTypeNode* type, size_t dim) {
  const Expr stride = StrideOf(type, dim) * MakeInt(kInt64, type->dtype->dtype.bits / 8);
  if (!IsConst(type->shape[dim], 1)) return stride;
  const Expr unit = MakeInt(kInt64, kTmaChunkBytes);
  return FloorDivOf(stride + MakeInt(kInt64, kTmaChunkBytes - 1), unit) * unit;
}

std::string PlanTmaPixels(const TileRegion& image, const TileRegion& tile, const Layout& layout,
                          const PixelBox& pixels, Analyzer* analyzer, TmaPlan* plan) {
  *plan = TmaPlan();
  std::string why = WhyNotTypes(image, tile);
  if (why.empty()) why = CheckStrides(image, TmaProof::kFully, analyzer, plan);
  if (!why.empty()) return why;
  plan->pixels = pixels;
  for (size_t d : {size_t(0), size_t(1)}) {
    const size_t of_tile = tile.ranges.size() - 2 + d;
    plan->dims.push_back({d, of_tile, ToInt(tile.ranges[of_tile]->extent), 1});
  }
  return PlanSwizzle(tile, layout, analyzer, plan);
}

std::string WhyNotBytes(const TileRegion& from, const Layout& from_layout, const TileRegion& to,
                        const Layout& to_layout, Analyzer* analyzer) {
  const DLDataType t = DTypeOf(from.buffer), u = DTypeOf(to.buffer);
  if (!IsShared(from.buffer) || !IsShared(to.buffer)) return "a tile that is not in shared memory";
  if (t != u || t.bits % 8) return "a copy from " + DTypeName(t) + " to " + DTypeName(u);
  TmaPlan there, here;  // shared is the region's own side
  std::string why = PlanDims(from, to, &there);
  if (why.empty()) why = PlanDims(to, from, &here);
  if (!why.empty()) return why;
  const int64_t bytes = t.bits / 8;
  int64_t size = bytes;
  for (const TmaDim& dim : there.dims) size *= dim.box;
  if (size % kTmaChunkBytes) return std::to_string(size) + " bytes, not a multiple of 16";
  const PieceOrder a = OrderOf(from, from_layout, here.dims, bytes, analyzer);
  const PieceOrder b = OrderOf(to, to_layout, there.dims, bytes, analyzer);
  if (!a || !b) return "a tile that lies in several pieces";
  return *a == *b ? "" : "tiles whose elements lie in another order";
}

namespace {

/*! Whether the region is eights of rows. Other copies fill the rest of an eight, which begin where
 * no swizzle does. */
bool HasWholeEights(const TileRegion& shared) {
  const Range& rows = shared.ranges[shared.ranges.size() - 2];
  const auto first = AsInt(rows->min), count = AsInt(rows->extent);
  return count && *count % 8 == 0 && (!first || *first % 8 == 0);
}

}  // namespace

Layout ProposeTmaLayout(const TileRegion& shared) {
  const std::vector<int64_t> shape = ConstShape(shared.buffer);
  const int bits = DTypeOf(shared.buffer).bits;
  const auto inner = AsInt(shared.ranges.back()->extent);
  if (shape.size() >= 2 && shape[shape.size() - 2] % 8 == 0 && inner && HasWholeEights(shared)) {
    for (int chunks : {8, 4, 2}) {
      const int64_t span = chunks * 128 / bits;
      if (shape.back() % span == 0 && *inner % span == 0) {
        return MakeBankSwizzle(shape, bits, chunks);
      }
    }
  }
  return MakeLinearLayout(shape);
}

Layout ProposeStoreLayout(const TileRegion& shared) {
  constexpr int64_t kMostBox = 256, kMostConflicts = 2;
  const std::vector<int64_t> shape = ConstShape(shared.buffer);
  const int64_t bits = DTypeOf(shared.buffer).bits;
  const int64_t row = shape.back() * bits / 8, chunks = row / kTmaChunkBytes;
  const auto inner = AsInt(shared.ranges.back()->extent);
  const bool is_one_box = inner == shape.back() && *inner <= kMostBox;
  const bool is_swizzled_whole = row <= kL2LineBytes && (row & (row - 1)) == 0;
  if (is_one_box && row % kL2LineBytes && row % kTmaChunkBytes == 0 && !is_swizzled_whole &&
      std::gcd(chunks, kL2LineBytes / kTmaChunkBytes) <= kMostConflicts) {
    return MakeLinearLayout(shape);
  }
  return ProposeTmaLayout(shared);
}

}  // namespace tl
