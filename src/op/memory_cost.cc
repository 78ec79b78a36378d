#include "memory_cost.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "../layout/int_program.h"
#include "../layout/inverse.h"
#include "../target/access_width.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"

namespace tl {
namespace {

constexpr int64_t kSectorsAtOnce = 4;
/*! Costs of an instruction whose lanes move 32 bits each, and of issuing one. */
constexpr int64_t kWavefrontBits = 32, kIssueBits = 8;
/*! A stride that nobody knows. */
constexpr int64_t kLongRow = 4096;

/*! The offsets of global accesses, in elements. */
struct GlobalAccesses : StmtExprVisitor {
  struct Access {
    Expr offset;
    int bits;
  };
  std::vector<Access> found;

  using StmtExprVisitor::Visit_;
  void Visit_(const BufferStoreNode* op) final {
    Add(op->buffer, op->indices);
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    Add(op->source.as_or_throw<Var>(), op->indices);
    Default(op);
  }

 private:
  void Add(const Var& buffer, const Array<Expr>& indices) {
    if (!IsGlobal(buffer)) return;
    const BufferTypeNode* t = BufferOf(buffer);
    Substituter long_rows;
    for (const Var& v : SizeSymbolsOf(buffer))
      long_rows.map[v.get()] = MakeInt(v->dtype(), kLongRow);
    Expr offset = MakeInt(0);
    for (size_t d = 0; d < indices.size(); ++d) {
      const Expr index = CastTo(DLDataType{kDLInt, 64, 1}, indices[d]);
      const auto extent = [&](const Array<Expr>& list) {
        return CastTo(DLDataType{kDLInt, 64, 1}, long_rows.Mutate(list[d]));
      };
      offset = CastTo(DLDataType{kDLInt, 64, 1}, offset);
      offset = t->strides.empty() ? offset * extent(t->shape) + index
                                  : offset + index * extent(t->strides);
    }
    found.push_back({offset, t->dtype->dtype.bits});
  }
};

/*! A sum, product, quotient or remainder of variables and numbers, which has a value whatever the
 * variables are. */
bool IsArithmetic(const Expr& e) {
  const auto both = [](const auto* op) { return IsArithmetic(op->a) && IsArithmetic(op->b); };
  const auto quotient = [](const auto* op) {
    return IsArithmetic(op->a) && AsInt(op->b).value_or(0) != 0;
  };
  if (AsInt(e) || e.as<VarNode>()) return true;
  if (const auto* op = e.as<CastNode>()) return IsArithmetic(op->value);
  if (const auto* op = e.as<AddNode>()) return both(op);
  if (const auto* op = e.as<SubNode>()) return both(op);
  if (const auto* op = e.as<MulNode>()) return both(op);
  if (const auto* op = e.as<MinNode>()) return both(op);
  if (const auto* op = e.as<MaxNode>()) return both(op);
  if (const auto* op = e.as<FloorDivNode>()) return quotient(op);
  if (const auto* op = e.as<FloorModNode>()) return quotient(op);
  return false;
}

/*! The offset as a function of the nest's variables alone: others are 0. nullopt where memory or a
 * function tells it. */
std::optional<Expr> OfNest(const Expr& offset, const ParallelNest& nest) {
  if (!IsArithmetic(offset)) return std::nullopt;
  Substituter at_zero;
  for (const Var& v : VarsOf(offset)) {
    const auto is_v = [&](const Var& x) { return x.same_as(v); };
    if (std::none_of(nest.vars.begin(), nest.vars.end(), is_v)) {
      at_zero.map[v.get()] = MakeInt(v->dtype(), 0);
    }
  }
  return at_zero.Mutate(offset);
}

/*! Iterations of the first warp by register and lane, -1 where a lane has none. */
std::vector<int64_t> FirstWarp(const Fragment& layout, int64_t lanes) {
  std::vector<int64_t> out(layout->RegisterExtent() * lanes, -1);
  const std::vector<int64_t>&threads = layout->ThreadTable(), &registers = layout->Table();
  for (size_t k = 0; k < threads.size(); ++k) {
    if (threads[k] >= lanes) continue;
    const int64_t point = k / layout->replicate;
    out[registers[point] * lanes + threads[k]] = point;
  }
  return out;
}

/*! The offset at each of the iterations. */
std::vector<int64_t> OffsetsAt(const Expr& offset, const std::vector<int64_t>& points,
                               const ParallelNest& nest) {
  const std::vector<int64_t> extents = StaticExtents(nest);
  const IntProgram program(offset, {nest.vars.begin(), nest.vars.end()});
  std::vector<int64_t> out(points.size(), 0), at(extents.size());
  for (size_t k = 0; k < points.size(); ++k) {
    if (points[k] < 0) continue;
    int64_t rest = points[k];
    for (size_t d = extents.size(); d-- > 0; rest /= extents[d]) at[d] = rest % extents[d];
    out[k] = program(at.data());
  }
  return out;
}

/*! Registers whose elements lie side by side in memory, for all lanes. */
int64_t VectorWidth(const std::vector<int64_t>& points, const std::vector<int64_t>& offsets,
                    int64_t most, int64_t lanes) {
  const int64_t registers = points.size() / lanes;
  const auto fits = [&](int64_t width) {
    for (int64_t r = 0; r < registers; ++r) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const int64_t first = (r - r % width) * lanes + lane, k = r * lanes + lane;
        if ((points[first] < 0) != (points[k] < 0)) return false;
        if (points[k] < 0) continue;
        if (offsets[first] % width || offsets[k] != offsets[first] + r % width) return false;
      }
    }
    return true;
  };
  int64_t width = 1;
  while (width * 2 <= most && registers % (width * 2) == 0 && fits(width * 2)) width *= 2;
  return width;
}

}  // namespace

int64_t GlobalMemoryBits(const ParallelNest& nest, const Fragment& layout, int64_t lanes) {
  GlobalAccesses accesses;
  accesses(nest.body);
  if (accesses.found.empty()) return 0;
  const std::vector<int64_t> points = FirstWarp(layout, lanes);
  int64_t bits = 0;
  for (const GlobalAccesses::Access& access : accesses.found) {
    const auto offset = OfNest(access.offset, nest);
    if (!offset) continue;
    const std::vector<int64_t> offsets = OffsetsAt(*offset, points, nest);
    const int64_t widest = std::max<int64_t>(1, kMaxInstructionBits / access.bits);
    const int64_t most = std::min(widest, layout->ContiguousRegisters());
    const int64_t width = VectorWidth(points, offsets, most, lanes);
    std::set<std::vector<int64_t>> known;  // an element that several iterations read is read once
    for (size_t r = 0; r < points.size() / lanes; r += width) {
      std::vector<int64_t> places;
      for (size_t k = r * lanes; k < (r + 1) * lanes; ++k) {
        places.push_back(points[k] < 0 ? -1 : offsets[k]);
      }
      if (!known.insert(places).second) continue;
      std::unordered_set<int64_t> sectors;
      for (int64_t k = r * lanes; k < int64_t(r + 1) * lanes; ++k) {
        if (points[k] < 0) continue;
        const int64_t first = offsets[k] * access.bits, end = first + width * access.bits;
        for (int64_t s = first / kSectorBits; s * kSectorBits < end; ++s) sectors.insert(s);
      }
      if (sectors.empty()) continue;
      const int64_t wavefronts = (sectors.size() + kSectorsAtOnce - 1) / kSectorsAtOnce;
      bits += wavefronts * kWavefrontBits + kIssueBits;
    }
  }
  return bits;
}

}  // namespace tl
