/*!
 * ResizeBlocks: a block of products does the work of two, or half of its own, so that its tiles
 * and its share of a sum are those that a user would tune for (retiling of the grid).
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where the grid has half or twice the blocks along one axis, or half along one and
 *      twice along another one, as often as that saves time; or tiles of 192 columns along one
 *      axis, where they have 128 or 256 and at least 128 rows. Of two blocks merged along x,
 *        A[64 * y, k] -> a; B[k, 64 * x] -> b; gemm(a, b, c); c -> C[64 * y, 64 * x]
 *      becomes, with tiles b and c of twice the columns,
 *        A[64 * y, k] -> a; B[k, 128 * x] -> b2; gemm(a, b2, c2); c2 -> C[64 * y, 128 * x]
 *      A tile that neighbours have alike, a here, is loaded once for both. Blocks that add shares
 *      of one sum along K to the same elements (split K) merge into one with the shares of both,
 *      and no tile grows:
 *        for k < n: { A[.., 64 * (n * z + k)] -> a; .. }; atomic_add(C, c)
 *      becomes
 *        for k < 2 * n: { A[.., 64 * (2 * n * z + k)] -> a; .. }; atomic_add(C, c)
 *      A merged block has twice the threads where a thread would else have more than
 *      kMostAccumulators registers of accumulators. Its loops have three stages at least where
 *      these fit; they have fewer than they had where one block would else be alone on a
 *      multiprocessor. Half of a block of more than one warp group has half of the threads.
 * Establishes: few multiprocessors are idle (1024^3 by 128 x 128 has 64 blocks), and as far as
 *      other tiles have less of it, neither what a multiprocessor loads from L2 binds, nor what
 *      products read of shared memory, nor what threads unpack. L2 gives 64 bytes a clock, of which
 *      48 were measured; a step of 64 x 64 tiles multiplies for half of the time that its loads
 *      take (381 TFLOP/s at 4096^3, H200), one of 128 x 128 tiles for all of it.
 * Left alone: blocks with which the kernel has the least time by ClocksOf; and
 *      - products in loops that are no pipelines;
 *      - grids whose extents the launch decides; an axis that 2 does not divide is not merged, nor
 *        one of which merging would leave too many multiprocessors idle;
 *      - halves of tiles with fewer rows or columns than a warp group multiplies, and of blocks
 *        that read a tensor they write;
 *      - tiles of 192 columns of such blocks, where these do not divide the columns of the grid;
 *      - kernels whose statements do more than to copy, multiply, reduce and compute elements,
 *        whose tiles along the axis do not follow each other, whose loops depend on the block or on
 *        one element of its tiles, and which name threads, layouts, clusters, roles or registers.
 * Refuses nothing.
 */
#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/im2col.h"
#include "../../op/tma_reduce.h"
#include "../../op/views.h"
#include "../../target/multiprocessors.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../inline_names.h"
#include "../notes.h"
#include "axis_resizer.h"
#include "register_estimate.h"
#include "shared_estimate.h"

namespace tl {
namespace {

constexpr Ratio kThreeHalves{3, 2}, kThreeQuarters{3, 4};
constexpr int64_t kMostAccumulators = 128, kMostMergedThreads = 256;
/*! A kernel with as many blocks or fewer takes at most so much of the time of the other by
 * ClocksOf, one with more blocks so much of the time with its start: a launch, the first loads and
 * the last stores. */
constexpr double kWorthMerging = 0.97, kWorthHalving = 0.9;
/*! A merged grid has blocks for so many of the multiprocessors. */
constexpr double kBusyMultiprocessors = 0.9;

struct LaunchAxis {
  Var var;
  int64_t extent;
};

/*! The axes of a grid, and what keeps a kernel's blocks as they are. */
class GridReader : public StmtExprVisitor {
 public:
  std::vector<LaunchAxis> axes;
  bool is_refused = false;

  int64_t Blocks() const {
    int64_t blocks = 1;
    for (const LaunchAxis& axis : axes) blocks *= axis.extent;
    return blocks;
  }

 protected:
  void Visit_(const AttrStmtNode* op) final {
    is_refused |=
        op->attr_key != kThreadExtent && op->attr_key != kSwizzle && op->attr_key != kAliased;
    if (op->attr_key == kThreadExtent) {
      constexpr int64_t kMostExtent = int64_t(1) << 20;
      const IterVar axis = op->node.cast<IterVar>();
      const int64_t extent = AsInt(op->value).value_or(0);
      is_refused |= extent <= 0 || extent > kMostExtent;
      if (std::string(axis->thread_tag).rfind("blockIdx", 0) == 0) {
        axes.push_back({axis->var, extent});
      } else {
        is_refused |= Uses(op->body, axis->var);
      }
    }
    // Orders of chiplets go by the number of the block.
    is_refused |=
        op->attr_key == kSwizzle &&
        std::string(op->value.as_or_throw<StringImm>()->value).find(',') != std::string::npos;
    Visit(op->body);
  }
  void Visit_(const SBlockNode* op) final {
    is_refused |= !op->annotations.empty();
    Default(op);
  }
};

GridReader GridOf(const Stmt& kernel) {
  GridReader grid;
  grid(kernel);
  return grid;
}

/*! What a block does, in clocks of its multiprocessor at their peaks. */
class BlockWork : public StmtExprVisitor {
 public:
  explicit BlockWork(const Multiprocessors& chip) : chip_(chip) {}

  /*! Of the tensor cores; of loads of tiles; of the threads, for elements. */
  double products = 0, loads = 0, elements = 0;
  /*! Of what products read of shared memory; of additions to tensors. */
  double reads = 0, additions = 0;
  /*! Bytes of the tensors that tiles are loaded from. */
  double tensors = 0;
  /*! Each loop has a number of iterations that is known. */
  bool is_counted = true;
  /*! Products are all of 16 bits or fewer, which tensor cores make whatever the program allows. */
  bool is_of_few_bits = true;
  /*! A product's loop is no pipeline: its loads wait for the product before, of larger tiles
   * longer, and fewer blocks hide that (518 us by 128 x 128, 616 merged; 4096^3, H200). */
  bool has_plain_products = false;

 protected:
  void Visit_(const ForNode* op) final {
    if (op->kind == ForKind::kParallel) {
      double points = times_;
      ForEachIn<ForNode>(GetRef<Stmt>(op), [&](const ForNode* loop) {
        points *= double(AsInt(loop->extent).value_or(1));
      });
      elements += points / chip_.elements;
      return;
    }
    const double outside = times_;
    const bool was_plain = in_plain_loop_;
    is_counted &= AsInt(op->extent).has_value();
    times_ *= double(AsInt(op->extent).value_or(1));
    in_plain_loop_ = !IsPipelined(op);
    Visit(op->body);
    in_plain_loop_ = was_plain;
    times_ = outside;
  }
  void Visit_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    if (IsGemm(s)) {
      has_plain_products |= in_plain_loop_;
      constexpr int kFewBits = 16;
      const GemmOp gemm = ParseGemm(AsTileOp(s), op->span);
      const int bits = DTypeOf(gemm.b.buffer).bits;
      const double m = double(gemm.M()), n = double(gemm.N()), k = times_ * double(gemm.K()) * bits;
      is_of_few_bits &= bits <= kFewBits || gemm.allow_tf32;
      products += m * n * k / chip_.product_bits;
      if (bits > kFewBits && gemm.trans_a == gemm.trans_b) {
        // Threads read the operand that no descriptor reaches (register_operands.cc).
        elements += (gemm.trans_a ? m : n) * k / chip_.operand_bits;
      }
      // By wgmma of 64 rows and up to 256 columns.
      constexpr double kRows = 64, kColumns = 256, kBitsOfByte = 8;
      reads += k * (m * std::ceil(n / kColumns) + n * std::ceil(m / kRows)) /
               (kBitsOfByte * chip_.shared_bytes);
    } else if (const CallNode* call = AsTileOp(s, kAtomic);
               call && call->args[1].as<TensorRegionNode>()) {
      const Var tile = TileRegion::From(call->args[1]).buffer;
      additions += times_ * BytesAskedFor(tile) / chip_.added_bytes;
    } else if (IsTileLoad(s)) {
      const Var tensor = TileRegion::From(AsTileOp(s)->args[0]).buffer;
      loads +=
          times_ * BytesAskedFor(TileRegion::From(AsTileOp(s)->args[1]).buffer) / chip_.l2_bytes;
      if (seen_.insert(tensor.get()).second) tensors += BytesAskedFor(tensor);
    }
  }

 private:
  const Multiprocessors chip_;
  double times_ = 1;
  bool in_plain_loop_ = false;
  std::unordered_set<const Object*> seen_;
};

/*! Clocks that the grid takes: of the multiprocessor with most blocks, or of the memory. Of tiles
 * that load alike, wide ones are faster (128 x 256 178 us, 256 x 128 190): half of the clocks in
 * which products read adds up. */
double ClocksOf(const BlockWork& work, int64_t blocks, const Multiprocessors& chip) {
  constexpr double kOfReads = 0.5;
  const double waves = double((blocks + chip.number - 1) / chip.number);
  // Loads write shared memory.
  const double shared = work.reads + work.loads * chip.l2_bytes / chip.shared_bytes;
  const double of_tiles = std::max(
      {work.products / chip.product_share, work.loads / chip.l2_share, shared / chip.shared_share});
  const double of_block = of_tiles + work.elements + work.additions + kOfReads * work.reads;
  const double of_memory = work.is_counted ? work.tensors / chip.memory_bytes : 0;
  return std::max(waves * of_block, of_memory);
}

BlockWork WorkOf(const Stmt& kernel, const Multiprocessors& chip) {
  BlockWork work(chip);
  work(kernel);
  return work;
}

/*! Gives a block longer or shorter tiles along an axis, and the axis as many fewer or more blocks.
 */
class BlockResizer : public AxisResizer {
 public:
  BlockResizer(Ratio ratio, const LaunchAxis& axis, const AxisTiles& along,
               const std::vector<Var>& tiles, int64_t threads)
      : AxisResizer(ratio, axis.var, along, tiles), axis_(axis), threads_(threads) {}

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key != kThreadExtent) return Default<Stmt>(op);
    const IterVar axis = op->node.cast<IterVar>();
    int64_t extent = ToInt(op->value);
    if (axis->var.same_as(axis_.var)) extent = extent * ratio().parts / ratio().times;
    if (std::string(axis->thread_tag) == "threadIdx.x") extent = threads_;
    auto attr = make_object<AttrStmtNode>(*op);
    attr->value = MakeInt(op->value->dtype(), extent);
    const Range range = MakeRange(MakeInt(op->value->dtype(), 0), attr->value);
    attr->node =
        TL_GLOBAL("tirx.IterVar")(range, axis->var, axis->iter_type, axis->thread_tag, nullptr);
    attr->body = Mutate(op->body);
    return AttrStmt(attr);
  }

 private:
  const LaunchAxis axis_;
  const int64_t threads_;
};

/*! Gives pipelined loops their stages or kLeastStages, but no more than some. */
class StageChanger : public StmtExprMutator {
 public:
  static constexpr int64_t kLeastStages = 3;
  explicit StageChanger(int64_t most) : most_(most) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    const bool ordered = op->annotations.count(kUserOrder) || op->annotations.count(kUserStage);
    if (!IsPipelined(op) || ordered) return loop;
    const int64_t stages = std::min(most_, std::max(StagesOf(op), kLeastStages));
    loop.CopyOnWrite()->annotations.Set(kNumStages, MakeInt(stages));
    return loop;
  }

 private:
  const int64_t most_;
};

/*! The kernel with as many stages as let two blocks share a multiprocessor, or one where two have
 * no registers; else with as many as let one have it. nullopt where none has room. */
std::optional<Stmt> WithRoom(const Stmt& kernel, const PrimFunc& f) {
  constexpr int64_t kMostStages = 8;
  const KernelInfo info = ReadKernelInfo(kernel, f);
  const int64_t threads = info.threads + kWarpGroupThreads;
  const int64_t wanted = std::min<int64_t>(2, BlocksByRegisters(info, 0));
  std::optional<Stmt> one;
  for (int64_t stages = kMostStages; stages > 1; --stages) {
    const Stmt changed = StageChanger(stages).Mutate(kernel);
    const int64_t blocks = SharedEstimate(changed).BlocksThatFit(*info.target, threads);
    if (blocks >= wanted && stages >= StageChanger::kLeastStages) return changed;
    if (blocks > 0 && !one) one = changed;
  }
  return one;
}

/*! The kernel with other tiles along an axis, by so many threads. */
Stmt Resized(Ratio ratio, const LaunchAxis& axis, const AxisTiles& along, const KernelInfo& info,
             const Stmt& kernel, int64_t threads) {
  const auto& buffers = info.block->alloc_buffers;
  return BlockResizer(ratio, axis, along, {buffers.begin(), buffers.end()}, threads).Mutate(kernel);
}

/*! A kernel with other blocks. */
struct Tiling {
  Stmt kernel;
  /*! Its blocks have other tiles, not larger shares of sums. */
  bool has_other_tiles;
  /*! Of 192 columns. */
  bool has_192_columns = false;
};

/*! The kernel with tiles of `ratio` along an axis, by threads that have registers and in stages
 * that have room; nullopt where there are none. */
std::optional<Tiling> WithLongerTiles(Ratio ratio, const LaunchAxis& axis, const AxisTiles& along,
                                      const Stmt& kernel, const PrimFunc& f) {
  const KernelInfo info = ReadKernelInfo(kernel, f);
  for (int64_t threads = info.threads; threads <= kMostMergedThreads; threads *= 2) {
    const Stmt longer = Resized(ratio, axis, along, info, kernel, threads);
    if (!HasRegistersOfFragments(ReadKernelInfo(longer, f), kMostAccumulators)) continue;
    const std::optional<Stmt> with_room = WithRoom(longer, f);
    if (!with_room) return std::nullopt;
    return Tiling{*with_room, !along.dims.empty()};
  }
  return std::nullopt;
}

/*! Half of the blocks along an axis; nullopt where that is not possible. */
std::optional<Tiling> MergedAlong(const LaunchAxis& axis, const Stmt& kernel, const PrimFunc& f) {
  if (axis.extent % kTwice.times) return std::nullopt;
  const auto along = TilesAlong(ReadKernelInfo(kernel, f).block, axis.var);
  if (!along) return std::nullopt;
  return WithLongerTiles(kTwice, axis, *along, kernel, f);
}

/*! Tiles and loops along an axis have so many equal parts. Windows have none: they are blocks of
 * rows, whose number a part would have to be a multiple of. */
bool HasParts(int64_t parts, const KernelInfo& info, const AxisTiles& along) {
  bool has_parts = !along.dims.empty() && !HasNode<CallNode>(info.block->body, [](const auto* op) {
    return IsCallTo(op, kIm2col);
  });
  for (const Var& v : info.block->alloc_buffers) {
    const auto it = along.dims.find(v.get());
    if (it != along.dims.end()) has_parts &= ToInt(BufferOf(v)->shape[it->second]) % parts == 0;
  }
  ForEachIn<ForNode>(info.block->body, [&](const ForNode* op) {
    if (along.loops.count(op->loop_var.get())) has_parts &= ToInt(op->extent) % parts == 0;
  });
  return has_parts;
}

/*! Halves of products along an axis have rows for a warp group's instruction. */
bool HasHalves(const KernelInfo& info, const AxisTiles& along) {
  constexpr int64_t kLeastRows = 64;
  bool has_halves = HasParts(kHalf.parts, info, along);
  ForEachIn<EvaluateNode>(info.block->body, [&](const EvaluateNode* op) {
    const Stmt s = GetRef<Stmt>(op);
    if (!IsGemm(s)) return;
    const GemmOp gemm = ParseGemm(AsTileOp(s), op->span);
    const auto it = along.dims.find(gemm.c.buffer.get());
    if (it == along.dims.end()) return;
    has_halves &= (it->second == 0 ? gemm.M() : gemm.N()) >= 2 * kLeastRows;
  });
  return has_halves;
}

/*! A tensor is read and written. A block may read all that it needs before it writes; of two that
 * share its work, one would write what the other has yet to read. */
bool ReadsWhatIsWritten(const Stmt& kernel) {
  const Views views(kernel);
  std::vector<Var> read, written;
  const auto note = [&](const Stmt& s) {
    const BufferUse use = views.UseOf(s);
    written.insert(written.end(), use.writes.begin(), use.writes.end());
    // What is added is not seen.
    if (!AsTileOp(s, kAtomic)) read.insert(read.end(), use.reads.begin(), use.reads.end());
  };
  ForEachIn<EvaluateNode>(kernel, [&](const EvaluateNode* op) { note(GetRef<Stmt>(op)); });
  ForEachIn<BufferStoreNode>(kernel, [&](const BufferStoreNode* op) { note(GetRef<Stmt>(op)); });
  ForEachIn<BindNode>(kernel, [&](const BindNode* op) { note(GetRef<Stmt>(op)); });
  const bool is_aliased = HasNode<AttrStmtNode>(
      kernel, [](const AttrStmtNode* op) { return op->attr_key == kAliased; });
  return is_aliased ||
         AnyOf(written, [&](const Var& v) { return IsGlobal(v) && Contains(read, v); });
}

/*! Blocks of a grid along y or z; there may be more along x (CUDA Programming Guide, "Compute
 * Capabilities"). */
constexpr int64_t kMostExtent = 65535;

/*! The kernel with twice the blocks along an axis; nullopt where that is not possible. */
std::optional<Stmt> HalvedAlong(const LaunchAxis& axis, const Stmt& kernel, const PrimFunc& f) {
  if (2 * axis.extent > kMostExtent || ReadsWhatIsWritten(kernel)) return std::nullopt;
  const KernelInfo info = ReadKernelInfo(kernel, f);
  const auto along = TilesAlong(info.block, axis.var);
  if (!along || !HasHalves(info, *along)) return std::nullopt;
  const int64_t threads = info.threads > kWarpGroupThreads ? info.threads / 2 : info.threads;
  return Resized(kHalf, axis, *along, info, kernel, threads);
}

/*! All products have columns along the axis, which become 192, and kLeastRows or more: such tiles
 * were measured. */
bool Has192Columns(Ratio ratio, const KernelInfo& info, const AxisTiles& along) {
  // Three swizzles of 128 bytes of 16-bit elements. Of other numbers between 64 and 256 nothing is
  // gained that doubling and halving do not gain.
  constexpr int64_t kColumns = 192, kLeastRows = 128;
  bool has_columns = HasParts(ratio.parts, info, along);
  ForEachIn<EvaluateNode>(info.block->body, [&](const EvaluateNode* op) {
    const Stmt s = GetRef<Stmt>(op);
    if (!IsGemm(s)) return;
    const GemmOp gemm = ParseGemm(AsTileOp(s), op->span);
    const auto it = along.dims.find(gemm.c.buffer.get());
    has_columns &= it != along.dims.end() && it->second == 1 && gemm.M() >= kLeastRows &&
                   gemm.N() * ratio.times == kColumns * ratio.parts;
  });
  return has_columns;
}

/*! The kernel with tiles of 192 columns along an axis; nullopt where that is not possible. */
std::optional<Tiling> With192Columns(Ratio ratio, const LaunchAxis& axis, const Stmt& kernel,
                                     const PrimFunc& f) {
  const int64_t extent = axis.extent * ratio.parts / ratio.times;
  if (axis.extent % ratio.times || extent > kMostExtent) return std::nullopt;
  const KernelInfo info = ReadKernelInfo(kernel, f);
  const auto along = TilesAlong(info.block, axis.var);
  if (!along || !Has192Columns(ratio, info, *along) || ReadsWhatIsWritten(kernel))
    return std::nullopt;
  std::optional<Tiling> tiling = WithLongerTiles(ratio, axis, *along, kernel, f);
  if (tiling) tiling->has_192_columns = true;
  return tiling;
}

/*! Kernels of which one axis has other tiles, or two, of which one has longer and one shorter
 * ones. */
std::vector<Tiling> OtherTilings(const Stmt& kernel, const PrimFunc& f) {
  const double busy = kBusyMultiprocessors * MultiprocessorsOf(TargetOf(f)).number;
  const GridReader now = GridOf(kernel);
  std::vector<Tiling> found;
  const auto merge = [&](const Stmt& s, size_t d) {
    const GridReader grid = GridOf(s);
    if (grid.Blocks() / 2 < busy) return;
    if (const auto merged = MergedAlong(grid.axes[d], s, f)) found.push_back(*merged);
  };
  for (size_t d = 0; d < now.axes.size(); ++d) {
    merge(kernel, d);
    for (const Ratio ratio : {kThreeHalves, kThreeQuarters}) {
      const auto tiling = With192Columns(ratio, now.axes[d], kernel, f);
      if (tiling) found.push_back(*tiling);
    }
    const auto halved = HalvedAlong(now.axes[d], kernel, f);
    if (!halved) continue;
    found.push_back({*halved, true});
    for (size_t other = 0; other < now.axes.size(); ++other) {
      if (other != d) merge(*halved, other);
    }
  }
  return found;
}

/*! Of the first operator. */
Span FirstPlace(const Stmt& kernel) {
  Span place;
  ForEachIn<EvaluateNode>(kernel, [&](const EvaluateNode* op) {
    if (!place.defined()) place = op->span;
  });
  return place;
}

/*! What became of the blocks: a text of their tiles, one of their shares of a sum. */
std::vector<std::string> ResizeTexts(const Stmt& before, const Stmt& after, const PrimFunc& f) {
  const std::vector<LaunchAxis> was = GridOf(before).axes, is = GridOf(after).axes;
  const KernelInfo info = ReadKernelInfo(before, f);
  int64_t merged = 1, halved = 1, shares = 1;
  std::vector<std::string> texts;
  for (size_t d = 0; d < was.size(); ++d) {
    if (was[d].extent == is[d].extent) continue;
    if (was[d].extent % is[d].extent && is[d].extent % was[d].extent) {
      const int64_t common = std::gcd(was[d].extent, is[d].extent);
      texts.push_back("tiles along " + was[d].var->name + " are " +
                      std::to_string(was[d].extent / common) + "/" +
                      std::to_string(is[d].extent / common) +
                      " as long, which leaves fewer multiprocessors idle in the last wave");
      continue;
    }
    const bool has_tiles = !TilesAlong(info.block, was[d].var)->dims.empty();
    (has_tiles ? merged : shares) *= std::max<int64_t>(1, was[d].extent / is[d].extent);
    halved *= std::max<int64_t>(1, is[d].extent / was[d].extent);
  }
  const std::string as_one = " neighbouring blocks are one, which ";
  if (merged > halved) {
    texts.push_back(std::to_string(merged / halved) + as_one + "loads what they share once");
  } else if (merged < halved) {
    texts.push_back(std::to_string(halved / merged) +
                    " blocks do what one did, on idle multiprocessors");
  } else if (merged > 1) {
    texts.push_back(
        "blocks have as many elements in tiles of other sides, which load or make less");
  }
  if (shares > 1) {
    texts.push_back(std::to_string(shares) + as_one +
                    "adds the products of all their shares of a sum");
  }
  return texts;
}

/*! The kernel with the blocks that take the least time; nullopt where none take less. Shares become
 * larger where tiles stay: the loads of larger tiles are fewer. */
std::optional<Stmt> BetterTiling(const Stmt& kernel, const PrimFunc& f) {
  const Multiprocessors chip = MultiprocessorsOf(TargetOf(f));
  const auto clocks_of = [&](const Stmt& s) {
    return ClocksOf(WorkOf(s, chip), GridOf(s).Blocks(), chip);
  };
  const double now = clocks_of(kernel);
  const int64_t blocks = GridOf(kernel).Blocks();
  double least_of_tiles = now, least_of_shares = now;
  std::optional<Stmt> of_tiles, of_shares;
  for (const Tiling& other : OtherTilings(kernel, f)) {
    const double clocks = clocks_of(other.kernel);
    const bool has_more = GridOf(other.kernel).Blocks() > blocks;
    const double most = has_more || other.has_192_columns
                            ? kWorthHalving * (now + chip.start_clocks) - chip.start_clocks
                            : kWorthMerging * now;
    double& least = other.has_other_tiles ? least_of_tiles : least_of_shares;
    if (clocks >= std::min(least, most)) continue;
    least = clocks;
    (other.has_other_tiles ? of_tiles : of_shares) = other.kernel;
  }
  return of_tiles ? of_tiles : of_shares;
}

Stmt WithOtherBlocks(const Stmt& kernel, const PrimFunc& f, Array<String>* notes) {
  if (GridOf(kernel).is_refused) return kernel;
  const BlockWork work = WorkOf(kernel, MultiprocessorsOf(TargetOf(f)));
  if (work.products == 0 || !work.is_of_few_bits || work.has_plain_products) return kernel;
  if (!MayHaveProducer(ReadKernelInfo(kernel, f))) return kernel;
  const Stmt named = NameInliner().Mutate(kernel);
  Stmt best = named;
  while (const std::optional<Stmt> better = BetterTiling(best, f)) best = *better;
  if (best.same_as(named)) return kernel;
  for (const std::string& text : ResizeTexts(named, best, f)) {
    notes->push_back(Where(FirstPlace(kernel)) + ": T.Kernel: " + text);
  }
  return best;
}

PrimFunc ResizeBlocks(PrimFunc f) {
  const Target& target = TargetOf(f);
  if (!target.Has(Feature::kTma) || !target.Has(Feature::kWgmma)) return f;
  if (DisablesWarpSpecialized() || PassConfigFlag(kSpareShared, false)) return f;
  Array<String> notes;
  const PrimFunc out = ForEachKernel(
      f, [&](const AttrStmtNode* op) { return WithOtherBlocks(GetRef<Stmt>(op), f, &notes); });
  if (notes.empty()) return f;
  return WithAttr(WithNotes(out, notes), kTakesShared, MakeInt(1));
}

TL_REGISTER_PASS(ResizeBlocks);

}  // namespace
}  // namespace tl
