#include "memory_cost.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <unordered_set>

#include "../layout/int_program.h"
#include "../layout/swizzle.h"
#include "../target/access_width.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"

namespace tl {
namespace {

constexpr int64_t kSectorsAtOnce = 4;
/*! Costs of an instruction whose lanes move 32 bits each, and of issuing one. */
constexpr int64_t kWavefrontBits = 32, kIssueBits = 8;
/*! A swizzle's addresses take instructions: it pays where it divides the conflicts by so much. */
constexpr int64_t kWorthwhile = 2;
/*! A stride that nobody knows. */
constexpr int64_t kLongRow = 4096;

/*! The offsets in row-major order of accesses of global memory, or of one tile, in elements. */
struct Accesses : StmtExprVisitor {
  struct Access {
    Expr offset;
    int bits;
  };
  explicit Accesses(Var of_tile = Var()) : tile(std::move(of_tile)) {}
  Var tile;
  std::vector<Access> found;

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
    if (tile.defined() ? !buffer.same_as(tile) : !IsGlobal(buffer)) return;
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
std::optional<IntProgram> OfNest(const Expr& offset, const ParallelNest& nest) {
  if (!IsArithmetic(offset)) return std::nullopt;
  Substituter at_zero;
  for (const Var& v : VarsOf(offset)) {
    const auto is_v = [&](const Var& x) { return x.same_as(v); };
    if (NoneOf(nest.vars, is_v)) {
      at_zero.map[v.get()] = MakeInt(v->dtype(), 0);
    }
  }
  return IntProgram(at_zero.Mutate(offset), {nest.vars.begin(), nest.vars.end()});
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
std::vector<int64_t> OffsetsAt(const IntProgram& offset, const std::vector<int64_t>& points,
                               const ParallelNest& nest) {
  const std::vector<int64_t> extents = StaticExtents(nest);
  std::vector<int64_t> out(points.size(), 0), at(extents.size());
  for (size_t k = 0; k < points.size(); ++k) {
    if (points[k] < 0) continue;
    int64_t rest = points[k];
    for (size_t d = extents.size(); d-- > 0; rest /= extents[d]) at[d] = rest % extents[d];
    out[k] = offset(at.data());
  }
  return out;
}

/*! An access of a tile: the iterations of the first warp, and the number in row-major order of the
 * element that each of them names. */
struct TileAccess {
  std::vector<int64_t> points, elements;
};

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

/*! The times that instructions take the banks, and those that their words take in any layout. */
struct Wavefronts {
  int64_t found = 0, least = 0;
};

/*! Adds those of an instruction: lanes whose words are others of one bank wait for each other. Of 8
 * and 16 bytes a lane, half and a quarter of the lanes are served at once (NVIDIA Nsight Compute,
 * Memory Tables). */
void Add(const std::vector<int64_t>& first_bytes, int64_t bytes, Wavefronts* sum) {
  const int64_t of_lane = std::max<int64_t>(1, bytes / kBankBytes);
  const size_t at_once = std::max<size_t>(1, first_bytes.size() / of_lane);
  std::vector<int64_t> words;
  for (size_t begin = 0; begin < first_bytes.size(); begin += at_once) {
    words.clear();
    for (size_t k = begin; k < std::min(begin + at_once, first_bytes.size()); ++k) {
      if (first_bytes[k] < 0) continue;
      for (int64_t w = 0; w < of_lane; ++w) words.push_back(first_bytes[k] / kBankBytes + w);
    }
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::array<int64_t, kBanks> of_bank{};
    for (int64_t word : words) ++of_bank[word % kBanks];
    sum->found += *std::max_element(of_bank.begin(), of_bank.end());
    sum->least += (static_cast<int64_t>(words.size()) + kBanks - 1) / kBanks;
  }
}

/*! Those of all of a nest's accesses, where elements lie at `addresses`. */
Wavefronts WavefrontsOf(const std::vector<TileAccess>& accesses,
                        const std::vector<int64_t>& addresses, int bits, int64_t most,
                        int64_t lanes) {
  Wavefronts sum;
  for (const TileAccess& access : accesses) {
    std::vector<int64_t> offsets;
    for (int64_t element : access.elements) offsets.push_back(addresses[element]);
    const int64_t width = VectorWidth(access.points, offsets, most, lanes);
    std::set<std::vector<int64_t>> known;  // an element that several iterations read is read once
    for (size_t r = 0; r < access.points.size() / lanes; r += width) {
      std::vector<int64_t> first_bytes;
      for (size_t k = r * lanes; k < (r + 1) * lanes; ++k) {
        first_bytes.push_back(access.points[k] < 0 ? -1 : offsets[k] * bits / 8);
      }
      if (known.insert(first_bytes).second) Add(first_bytes, width * bits / 8, &sum);
    }
  }
  return sum;
}

/*! The offsets of a nest's accesses of a tile, but those that memory tells. */
std::vector<IntProgram> OffsetsOf(const Var& tile, const ParallelNest& nest) {
  Accesses accesses(tile);
  accesses(nest.body);
  std::vector<IntProgram> offsets;
  for (const Accesses::Access& access : accesses.found) {
    if (auto offset = OfNest(access.offset, nest)) offsets.push_back(std::move(*offset));
  }
  return offsets;
}

std::vector<TileAccess> AccessesAt(const std::vector<IntProgram>& offsets, int64_t size,
                                   const ParallelNest& nest, const Fragment& layout,
                                   int64_t lanes) {
  std::vector<TileAccess> found;
  for (const IntProgram& offset : offsets) {
    TileAccess in_tile{FirstWarp(layout, lanes), {}};
    in_tile.elements = OffsetsAt(offset, in_tile.points, nest);
    for (size_t k = 0; k < in_tile.points.size(); ++k) {
      int64_t& element = in_tile.elements[k];
      if (element >= 0 && element < size) continue;
      in_tile.points[k] = -1;  // a condition leaves it out
      element = 0;
    }
    found.push_back(std::move(in_tile));
  }
  return found;
}

/*! MakeBankSwizzle of 8 chunks, whose number is xored with the row's number divided by 8, too: then
 * rows that are a multiple of 8 apart lie in different banks as well. Rows and columns are the last
 * two dimensions. */
Layout MakeFoldedSwizzle(const std::vector<int64_t>& shape, int bits) {
  const Layout swizzle = MakeBankSwizzle(shape, bits, 8);
  const Expr eights = FloorModOf(FloorDivOf(swizzle->vars[shape.size() - 2], 8), 8);
  Array<Expr> index = swizzle->index;
  // The chunk is above the elements of 16 bytes, and below the row of the eight.
  index.Set(index.size() - 1, XorOf(index.back(), eights * (128 / bits)));
  return MakeLayout(swizzle->vars, shape, index);
}

/*! Layouts that leave 16 bytes of a row together. */
std::vector<Layout> ChunkSwizzles(const std::vector<int64_t>& shape, int bits) {
  std::vector<Layout> swizzles;
  for (int chunks : {8, 4, 2}) {
    if (shape.back() % (chunks * 128 / bits)) continue;
    swizzles.push_back(MakeBankSwizzle(shape, bits, chunks));
    if (chunks == 8) swizzles.push_back(MakeFoldedSwizzle(shape, bits));
  }
  return swizzles;
}

/*! The swizzle of a tile of this shape with fewest conflicts, undefined where none pays. */
Layout ChooseSwizzle(const std::vector<TileAccess>& accesses, const std::vector<int64_t>& shape,
                     int bits, const Fragment& layout, int64_t lanes) {
  const int64_t most =
      std::min<int64_t>(std::max(1, kMaxInstructionBits / bits), layout->ContiguousRegisters());
  const auto count = [&](const std::vector<int64_t>& addresses) {
    return WavefrontsOf(accesses, addresses, bits, most, lanes);
  };
  std::vector<int64_t> in_order(Product(shape));
  std::iota(in_order.begin(), in_order.end(), 0);
  const Wavefronts linear = count(in_order);
  // No layout has longer vectors, so none has fewer words to move.
  if (linear.found < kWorthwhile * linear.least) return Layout();
  int64_t fewest = linear.found / kWorthwhile;
  Layout best;
  for (const Layout& swizzled : ChunkSwizzles(shape, bits)) {
    const int64_t found = count(swizzled->Addresses()).found;
    if (found >= fewest + !best.defined()) continue;
    fewest = found;
    best = swizzled;
  }
  return best;
}

/*! The swizzles that were chosen last, by the threads' layout and what else they depend on: many
 * copies of a program differ in their tensors' offsets alone. */
class RecentSwizzles {
 public:
  using Key = std::vector<int64_t>;
  template <typename Choose>
  Layout Find(const Fragment& threads, const Key& key, const Choose& choose) {
    const std::pair at(threads.get(), key);
    if (const auto known = chosen_.find(at); known != chosen_.end()) return known->second.swizzle;
    if (chosen_.size() == kMost) chosen_.clear();
    return chosen_.emplace(at, Chosen{threads, choose()}).first->second.swizzle;
  }

 private:
  static constexpr size_t kMost = 256;
  struct Chosen {
    Fragment threads;  // which holds its address, so that no other has it
    Layout swizzle;
  };
  std::map<std::pair<const FragmentNode*, Key>, Chosen> chosen_;
};

}  // namespace

Layout FewestConflicts(const ParallelNest& nest, const Fragment& layout, const Var& tile,
                       int64_t lanes) {
  const std::vector<int64_t> shape = ConstShape(tile);
  const int bits = DTypeOf(tile).bits;
  if (shape.size() < 2 || shape[shape.size() - 2] % 8 || bits < 8) return Layout();
  const std::vector<IntProgram> offsets = OffsetsOf(tile, nest);
  if (offsets.empty()) return Layout();
  static thread_local RecentSwizzles recent;
  RecentSwizzles::Key key{lanes, bits};
  for (const std::vector<int64_t>& sizes : {shape, StaticExtents(nest)}) {
    key.push_back(static_cast<int64_t>(sizes.size()));
    AppendRange(&key, sizes);
  }
  for (const IntProgram& offset : offsets) offset.AppendKey(&key);
  return recent.Find(layout, key, [&] {
    const auto accesses = AccessesAt(offsets, Product(shape), nest, layout, lanes);
    return ChooseSwizzle(accesses, shape, bits, layout, lanes);
  });
}

int64_t GlobalMemoryBits(const ParallelNest& nest, const Fragment& layout, int64_t lanes) {
  Accesses accesses;
  accesses(nest.body);
  if (accesses.found.empty()) return 0;
  const std::vector<int64_t> points = FirstWarp(layout, lanes);
  int64_t bits = 0;
  for (const Accesses::Access& access : accesses.found) {
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
