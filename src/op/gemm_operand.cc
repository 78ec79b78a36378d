/*! Where lowering finds A and B of a T.gemm, and what brings them there. */
#include <algorithm>

#include "../layout/swizzle.h"
#include "../tvm/error.h"
#include "../tvm/functor.h"
#include "gemm.h"
#include "parallel_operator.h"

namespace tl {
namespace {

constexpr int64_t kVectorBits = 128;

/*!
 * For each register of `wanted` the register of `placed` that has the same element, in every thread
 * that `wanted` gives the element to; nullopt where such a thread does not hold it, or where the
 * register differs between threads.
 */
std::optional<std::vector<int64_t>> RegisterMap(const Fragment& wanted, const Fragment& placed) {
  if (wanted->Shape() != placed->Shape()) return std::nullopt;
  const std::vector<int64_t>&wanted_thread = wanted->ThreadTable(), &wanted_reg = wanted->Table();
  const std::vector<int64_t>&placed_thread = placed->ThreadTable(), &placed_reg = placed->Table();
  std::vector<int64_t> map(static_cast<size_t>(wanted->RegisterExtent()), -1);
  for (size_t e = 0; e < wanted_reg.size(); ++e) {
    const auto first = placed_thread.begin() + static_cast<int64_t>(e) * placed->replicate;
    for (int64_t r = 0; r < wanted->replicate; ++r) {
      const int64_t thread = wanted_thread[e * wanted->replicate + r];
      if (std::find(first, first + placed->replicate, thread) == first + placed->replicate) {
        return std::nullopt;
      }
    }
    int64_t& to = map[static_cast<size_t>(wanted_reg[e])];
    if (to >= 0 && to != placed_reg[e]) return std::nullopt;
    to = placed_reg[e];
  }
  return map;
}

/*! The map as a sum of digits of its index times strides, checked against all of it. */
std::optional<Expr> ClosedForm(const std::vector<int64_t>& map, const Expr& index) {
  const auto size = static_cast<int64_t>(map.size());
  auto at = [&](int64_t k) { return map[static_cast<size_t>(k)] - map[0]; };
  Expr sum = MakeInt(map[0]);
  std::vector<int64_t> value(map.size(), map[0]);
  for (int64_t divisor = 1; divisor < size;) {
    int64_t extent = 1;
    while (extent * divisor < size && at(extent * divisor) == extent * at(divisor)) ++extent;
    sum = sum + FloorModOf(FloorDivOf(index, divisor), extent) * at(divisor);
    for (int64_t k = 0; k < size; ++k) {
      value[static_cast<size_t>(k)] += k / divisor % extent * at(divisor);
    }
    divisor *= extent;
  }
  if (value != map) return std::nullopt;
  return sum;
}

/*! to[k] = from[map[k]] for all k. */
Stmt MoveRegisters(const Var& from, const Var& to, const std::vector<int64_t>& map,
                   const Span& span) {
  Var r = MakeVar("r");
  const auto size = static_cast<int64_t>(map.size());
  if (auto source = ClosedForm(map, r)) {
    Stmt move = MakeStore(to, LoadOf(from, {*source}), {r}, span);
    return MakeFor(r, MakeInt(size), ForKind::kUnrolled, move, span);
  }
  std::vector<Stmt> moves;
  for (int64_t k = 0; k < size; ++k) {
    moves.push_back(
        MakeStore(to, LoadOf(from, {MakeInt(map[static_cast<size_t>(k)])}), {MakeInt(k)}, span));
  }
  return MakeSeq(moves);
}

/*! The rows of a shared buffer consist of aligned vectors of `width` elements. */
bool HasVectorRows(const Layout& layout, int64_t width) {
  const std::vector<int64_t> shape = layout->Shape();
  if (shape.back() % width) return false;
  const std::vector<int64_t>& table = layout->Table();
  const size_t coords = layout->index.size();
  std::vector<int64_t> extent(coords, 1);
  for (size_t k = 0; k < table.size(); ++k) {
    extent[k % coords] = std::max(extent[k % coords], table[k] + 1);
  }
  int64_t first = 0;
  for (size_t k = 0; k * coords < table.size(); ++k) {
    int64_t place = 0;
    for (size_t c = 0; c < coords; ++c) place = place * extent[c] + table[k * coords + c];
    const auto lane = static_cast<int64_t>(k) % width;
    if (lane == 0) first = place;
    if (first % width || place != first + lane) return false;
  }
  return true;
}

/*! The region's first column is that of a vector. */
bool StartsAtVector(const TileRegion& region, int64_t width, Analyzer* analyzer) {
  const Analyzer::Modular start = analyzer->ModularSet(region.Mins().back());
  return start.coeff % width == 0 && start.base % width == 0;
}

/*! Bytes of the vectors of which each row of a shared buffer, and of the region, consists: 16, 8 or
 * 0. */
int64_t VectorBytes(const TileRegion& region, const Layout& layout, Analyzer* analyzer) {
  for (int64_t bytes : {kVectorBits / 8, kVectorBits / 16}) {
    const int64_t width = bytes * 8 / DTypeOf(region.buffer).bits;
    if (!layout.defined() || !StartsAtVector(region, width, analyzer)) continue;
    if (HasVectorRows(layout, width)) return bytes;
  }
  return 0;
}

GemmOperand FromShared(const TileRegion& region, bool transposed, LoweringScope* scope) {
  const Layout layout = scope->LayoutOf(region.buffer);
  return {region.buffer, region.Mins(), transposed, VectorBytes(region, layout, scope->analyzer),
          Var()};
}

/*! The nest that copies a fragment's matrix, all of it, and the layout of its iterations. */
struct Staging {
  ParallelNest nest;
  Array<Expr> element;
  std::optional<Fragment> layout;
};

Staging PlanStaging(const TileRegion& region, const Fragment& placed, const Span& span) {
  Staging s;
  s.nest.span = span;
  s.nest.vars = {MakeVar("i"), MakeVar("j")};
  s.element = region.Mins();
  const Array<Expr> shape = BufferOf(region.buffer)->shape;
  const size_t lead = shape.size() - 2;
  for (size_t d = 0; d < 2; ++d) {
    s.nest.extents.push_back(shape[lead + d]);
    s.element.Set(lead + d, s.nest.vars[d]);
  }
  const FragmentAccess read{region.buffer, s.element, false};
  s.layout = LayoutFromFragment(s.nest, read, placed);
  return s;
}

/*! New shared memory for a matrix: swizzled, or with rows that start in different banks. */
Var AllocStaging(const Var& buffer, const Array<Expr>& extents, bool for_wgmma,
                 LoweringScope* scope) {
  const DLDataType dtype = DTypeOf(buffer);
  const std::string name = std::string(buffer->name) + "_shared";
  const int64_t rows = ToInt(extents[0]), columns = ToInt(extents[1]);
  if (for_wgmma) {
    return scope->AllocShared(name, dtype, extents,
                              MakeUnpaddedSwizzle({rows, columns}, dtype.bits, columns));
  }
  const int64_t width = kVectorBits / dtype.bits;
  const int64_t vectors = (columns + width - 1) / width;
  const int64_t pitch = (vectors % 2 ? vectors : vectors + 1) * width;
  return scope->AllocShared(name, dtype, {extents[0], MakeInt(pitch)});
}

/*! Copies a fragment to new shared memory. */
GemmOperand StageInShared(const TileRegion& region, bool transposed, bool for_wgmma,
                          const Span& span, LoweringScope* scope, std::vector<Stmt>* before) {
  Staging s = PlanStaging(region, scope->FragmentOf(region.buffer), span);
  const int64_t width = kVectorBits / DTypeOf(region.buffer).bits;
  const Var shared = AllocStaging(region.buffer, s.nest.extents, for_wgmma, scope);
  s.nest.body =
      MakeStore(shared, LoadOf(region.buffer, s.element), {s.nest.vars[0], s.nest.vars[1]}, span);
  before->push_back(MakeParallelOperator(s.nest, *s.layout)->Lower(scope));
  const Array<Expr> mins = region.Mins();
  return {shared,
          {mins[mins.size() - 2], mins[mins.size() - 1]},
          transposed,
          StartsAtVector(region, width, scope->analyzer) ? kVectorBits / 8 : 0,
          Var()};
}

}  // namespace

Array<Expr> GemmOperand::Element(const Expr& row, const Expr& k) const {
  Array<Expr> element = mins;
  const size_t lead = element.size() - 2;
  element.Set(lead, element[lead] + (transposed ? k : row));
  element.Set(lead + 1, element[lead + 1] + (transposed ? row : k));
  return element;
}

void VerifyOperand(const GemmOp& op, const TileRegion& region, const Fragment& placed) {
  if (PlanStaging(region, placed, op.span).layout) return;
  ThrowAt(
      op.span, "ValueError",
      "T.gemm: found " + std::string(region.buffer->name) +
          ", a matrix of a fragment that is chosen at run time, wanted constant leading indices; "
          "copy it to shared memory");
}

GemmOperand LowerOperand(const GemmOp& op, const TileRegion& region, bool transposed,
                         const Fragment& wanted, LoweringScope* scope, std::vector<Stmt>* before,
                         bool for_wgmma) {
  if (IsShared(region.buffer)) return FromShared(region, transposed, scope);
  std::optional<std::vector<int64_t>> map;
  if (wanted.defined() && region.IsWhole()) {
    map = RegisterMap(wanted, scope->FragmentOf(region.buffer));
  }
  if (!map) return StageInShared(region, transposed, for_wgmma, op.span, scope, before);
  const Var registers = scope->RegistersOf(region.buffer);
  if (std::is_sorted(map->begin(), map->end()) &&
      static_cast<size_t>(map->back() + 1) == map->size()) {
    return {Var(), {}, transposed, 0, registers};
  }
  Var moved = MakeBuffer(std::string(region.buffer->name) + "_frag", DTypeOf(region.buffer),
                         {MakeInt(static_cast<int64_t>(map->size()))}, "local");
  before->push_back(MakeAlloc(moved));
  before->push_back(MoveRegisters(registers, moved, *map, op.span));
  return {Var(), {}, transposed, 0, moved};
}

}  // namespace tl
