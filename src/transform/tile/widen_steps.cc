/*!
 * WidenSteps: steps of a product along K whose rows are short become one step.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where the iterations of a pipelined loop load tiles, of which one has rows along K
 *      of less than 128 bytes, and multiply them:
 *        for k < n: { A[.., 32 * k] -> a; B[32 * k, ..] -> b; gemm(a, b, c) }
 *      becomes
 *        for k < n / 2: { A[.., 64 * k] -> a2; B[64 * k, ..] -> b2; gemm(a2, b2, c) }
 *      The tiles are twice or four times as long along K, and the loop has half or a quarter of the
 *      stages, but two if it had as many. Accumulators are added to in the same order. Tiles of
 *      T.im2col widen, too, if two or four times as many columns are still channels of one tap.
 * Establishes: rows of 128 bytes, the widest swizzle, where the number of iterations allows it. A
 *      step has a wait, a signal and two copies, whatever its length, and L2 reads sectors of two
 *      rows: 4096^3 by tiles of 64 x 64 takes 453 us in steps of 32, 360 in steps of 64 (H200).
 * Left alone: loops of an odd number of iterations or of one that is not known, with an order or
 *      stages of their own, with other statements or uses of the tiles; tiles with a layout; wider
 *      tiles with which fewer blocks have room on a multiprocessor.
 * Refuses nothing.
 */
#include <algorithm>
#include <numeric>

#include "../../analysis/effects.h"
#include "../../layout/annotation.h"
#include "../../layout/index_box.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/im2col.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../notes.h"
#include "block_axis.h"
#include "pipeline_barriers.h"
#include "pipeline_bindings.h"
#include "register_estimate.h"
#include "shared_estimate.h"

namespace tl {
namespace {

constexpr int64_t kRowBytes = 128;

/*! A tile that an iteration loads and products read. */
struct LoadedTile {
  Var tile;
  /*! The dimensions of the tensor and of the tile along K. */
  size_t source_dim, dim;
  /*! A load has as many steps as divide this: all that a loop has, or the columns of a tap. */
  int64_t steps;
};

class StepWidener : public StmtExprMutator {
 public:
  explicit StepWidener(const KernelInfo& kernel)
      : kernel_(kernel), views_(kernel.block->body), shared_(GetRef<Stmt>(kernel.block)) {}

  /*! What has changed, a line for each loop. */
  Array<String> notes;

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    if (op != kernel_.block) return GetRef<Stmt>(op);
    const Stmt body = Mutate(op->body);
    if (wide_.empty()) return GetRef<Stmt>(op);
    auto block = make_object<SBlockNode>(*op);
    block->body = body;
    block->alloc_buffers = op->alloc_buffers.Map([&](const Var& v) {
      const auto it = wide_.find(v.get());
      return it == wide_.end() ? v : it->second;
    });
    return SBlock(block);
  }
  Stmt Mutate_(const ForNode* op) final {
    if (!IsPipelined(op)) return Default<Stmt>(op);
    const bool ordered = op->annotations.count(kUserOrder) || op->annotations.count(kUserStage);
    const std::optional<Axis> axis = AxisOf(op);
    const InlinedBody inlined = InlineBindings(FlatSeq(op->body), views_);
    if (ordered || !axis || inlined.fixed.defined()) return GetRef<Stmt>(op);
    const std::vector<LoadedTile> tiles = TilesOf(op, inlined.body);
    const int64_t times = TimesOf(tiles);
    if (times == 1 || !HasRoom(op, tiles, times)) return GetRef<Stmt>(op);
    return Widened(op, *axis, inlined.body, tiles, times);
  }

 private:
  /*! The tiles of a loop that loads and multiplies; none where it does more. */
  std::vector<LoadedTile> TilesOf(const ForNode* loop, const std::vector<Stmt>& body) const {
    std::vector<LoadedTile> tiles;
    std::vector<Var> sums;
    for (const Stmt& s : body) {
      if (IsTileLoad(s)) {
        if (!AddLoad(s, loop, &tiles)) return {};
      } else if (!IsGemm(s) || !ReadsAlongK(s, loop, tiles, &sums)) {
        return {};
      }
    }
    return sums.empty() ? std::vector<LoadedTile>() : tiles;
  }

  bool AddLoad(const Stmt& s, const ForNode* loop, std::vector<LoadedTile>* tiles) const {
    const CallNode* load = AsTileOp(s);
    const TileRegion to = TileRegion::From(load->args[1]);
    if (!TileOpAttrs(load).empty() || !to.IsWhole() || !IsOfLoop(to.buffer, loop)) return false;
    if (AnyOf(*tiles, [&](const LoadedTile& t) { return t.tile.same_as(to.buffer); })) return false;
    return IsCallTo(load, kIm2col) ? AddWindows(load, loop, tiles) : AddCopy(load, loop, tiles);
  }

  /*! The columns of a convolution's matrix one behind the other. */
  static bool AddWindows(const CallNode* load, const ForNode* loop,
                         std::vector<LoadedTile>* tiles) {
    const Im2col windows = Im2col::From(load);
    Array<Expr> others = load->args;
    others.Set(Im2col::kColumnBlock, MakeInt(0));
    Analyzer analyzer;
    const Analyzer::Modular channels = analyzer.ModularSet(windows.Channels());
    const int64_t divisor = std::gcd(channels.coeff, channels.base);
    const int64_t columns = AsInt(windows.columns).value_or(0);
    if (Uses(others, loop->loop_var) || windows.whole_taps || windows.tile.ranges.size() != 2 ||
        columns == 0 || divisor % columns || !IsConst(loop->min, 0) ||
        !analyzer.CanProveEqual(load->args[Im2col::kColumnBlock], loop->loop_var)) {
      return false;
    }
    tiles->push_back({windows.tile.buffer, 0, 1, divisor / columns});
    return true;
  }

  static bool AddCopy(const CallNode* load, const ForNode* loop, std::vector<LoadedTile>* tiles) {
    const TileRegion from = TileRegion::From(load->args[0]), to = TileRegion::From(load->args[1]);
    const auto source_dim = MovingDim(from, loop->loop_var);
    if (!IsCallTo(load, kCopy) || !source_dim) return false;
    // Dimensions of one element may be left out.
    const auto is_long = [](const Range& range) { return !IsConst(range->extent, 1); };
    const auto& source = from.ranges;
    const auto& tile = to.ranges;
    if (tile.size() != 2 || !AllOf(tile, is_long)) return false;
    if (CountIf(source, is_long) != 2) return false;
    const size_t dim = std::count_if(source.begin(), source.begin() + *source_dim, is_long);
    tiles->push_back({to.buffer, *source_dim, dim, ToInt(loop->extent)});
    return true;
  }

  /*! Nothing but the loop names the tile. */
  bool IsOfLoop(const Var& tile, const ForNode* loop) const {
    for (const Var& view : views_.all) {
      if (views_.IsSameMemory(view, tile)) return false;
    }
    return !views_.IsView(tile) && !GetLayoutMap(kernel_.block->annotations).count(tile) &&
           CountMentions(kernel_.block->body, tile) == CountMentions(loop->body, tile);
  }

  /*! A product of two tiles, along K, whose accumulators are cleared in the first iteration or
   * never, and are no other product's. */
  static bool ReadsAlongK(const Stmt& s, const ForNode* loop, const std::vector<LoadedTile>& tiles,
                          std::vector<Var>* sums) {
    const GemmOp op = ParseGemm(AsTileOp(s), s->span);
    if (op.asynchronous || op.IsSparse() || op.IsScaled() || op.packed) return false;
    if (Contains(*sums, op.c.buffer) || Uses(op.c.ToExpr(), loop->loop_var)) return false;
    sums->push_back(op.c.buffer);
    const Expr later = Substitute(op.clear_accum, loop->loop_var,
                                  loop->min + loop->loop_var + MakeInt(loop->loop_var->dtype(), 1));
    Analyzer analyzer;
    analyzer.BindConst(loop->loop_var, ToInt(loop->extent));
    const bool goes_on = IsConst(analyzer.Simplify(later), 0);
    const auto is_along = [&](const TileRegion& region, size_t dim) {
      return region.IsWhole() && AnyOf(tiles, [&](const auto& t) {
               return t.tile.same_as(region.buffer) && t.dim == dim;
             });
    };
    return goes_on && is_along(op.a, op.trans_a ? 0 : 1) && is_along(op.b, op.trans_b ? 1 : 0);
  }

  /*! Steps to be one: the rows along K of the tile with the shortest ones have 128 bytes then. */
  static int64_t TimesOf(const std::vector<LoadedTile>& tiles) {
    const int64_t row = RowBytes(tiles);
    if (row == 0 || kRowBytes % row) return 1;
    int64_t times = kRowBytes / row;
    const auto is_whole = [&](const LoadedTile& t) { return t.steps % times == 0; };
    while (!AllOf(tiles, is_whole)) times /= 2;
    return times;
  }

  /*! Of the shortest rows along K; those of a swizzle where there are none. */
  static int64_t RowBytes(const std::vector<LoadedTile>& tiles) {
    int64_t least = kRowBytes;
    for (const LoadedTile& t : tiles) {
      if (t.dim + 1 != BufferOf(t.tile)->shape.size()) continue;
      const int64_t bits = DTypeOf(t.tile).bits;
      least = std::min(least, ToInt(BufferOf(t.tile)->shape[t.dim]) * bits / 8);
    }
    return least;
  }

  static int64_t StagesOfWide(const ForNode* loop, int64_t times) {
    const int64_t stages = StagesOf(loop);
    return std::max(std::min<int64_t>(stages, 2), (stages + times - 1) / times);
  }

  /*! For as many blocks as before. */
  bool HasRoom(const ForNode* loop, const std::vector<LoadedTile>& tiles, int64_t times) const {
    if (!shared_.bytes) return false;
    int64_t more = 0;
    for (const LoadedTile& t : tiles) {
      more += BytesOfBuffer(t.tile) * (times * StagesOfWide(loop, times) - StagesOf(loop));
    }
    const int64_t threads = kernel_.threads + kWarpGroupThreads;
    const auto blocks = [&](int64_t bytes) {
      return std::min(kernel_.target->BlocksThatFit(threads, bytes), BlocksByRegisters(kernel_, 0));
    };
    const int64_t wide = blocks(*shared_.bytes + more);
    return wide > 0 && wide >= blocks(*shared_.bytes);
  }

  Stmt Widened(const ForNode* op, const Axis& axis, const std::vector<Stmt>& narrow,
               const std::vector<LoadedTile>& tiles, int64_t times) {
    const Var& k = op->loop_var;
    for (const LoadedTile& t : tiles) wide_[t.tile.get()] = Wide(t, times);
    notes.push_back(Where(op->span) + ": T.Pipelined: " + std::to_string(times) +
                    " steps along K are one, whose rows have " +
                    std::to_string(times * RowBytes(tiles)) + " bytes");
    Substituter at;
    at.map[k.get()] = MakeInt(k->dtype(), axis.min) + k * MakeInt(k->dtype(), times);
    std::vector<Stmt> body;
    for (const Stmt& s : narrow) {
      const CallNode* call = AsTileOp(s);
      const Expr wide = IsGemm(s) ? Product(call, s->span) : Load(call, tiles, times);
      body.push_back(MakeEvaluate(at.Mutate(wide), s->span));
    }
    auto loop = make_object<ForNode>(*op);
    loop->min = MakeInt(k->dtype(), 0);
    loop->extent = MakeInt(k->dtype(), axis.extent / times);
    loop->body = MakeSeq(body);
    loop->annotations.Set(kNumStages, MakeInt(StagesOfWide(op, times)));
    return For(loop);
  }

  static Var Wide(const LoadedTile& t, int64_t times) {
    Array<Expr> shape = BufferOf(t.tile)->shape;
    shape.Set(t.dim, MakeInt(ToInt(shape[t.dim]) * times));
    return MakeBuffer(t.tile->name, DTypeOf(t.tile), shape, ScopeOf(t.tile));
  }

  Expr Load(const CallNode* call, const std::vector<LoadedTile>& tiles, int64_t times) const {
    TileRegion from = TileRegion::From(call->args[0]);
    const Var tile = TileRegion::From(call->args[1]).buffer;
    auto load = make_object<CallNode>(*call);
    load->args.Set(1, TileRegion::Whole(wide_.at(tile.get())).ToExpr());
    if (IsCallTo(call, kIm2col)) {
      // Of `times * k`, when the loop's variable is that.
      const Expr block = call->args[Im2col::kColumnBlock];
      load->args.Set(Im2col::kColumnBlock, FloorDivOf(block, MakeInt(block->dtype(), times)));
      return Call(load);
    }
    for (const LoadedTile& t : tiles) {
      if (!t.tile.same_as(tile)) continue;
      const Range& range = from.ranges[t.source_dim];
      from.ranges.Set(t.source_dim, MakeRange(range->min, MakeInt(ToInt(range->extent) * times)));
    }
    load->args.Set(0, from.ToExpr());
    return Call(load);
  }

  Expr Product(const CallNode* call, const Span& span) const {
    GemmOp op = ParseGemm(call, span);
    for (TileRegion* region : {&op.a, &op.b}) {
      *region = TileRegion::Whole(wide_.at(region->buffer.get()));
    }
    return WithOperands(call, op);
  }

  const KernelInfo& kernel_;
  const Views views_;
  const SharedEstimate shared_;
  std::unordered_map<const Object*, Var> wide_;
};

PrimFunc WidenSteps(PrimFunc f) {
  if (!TargetOf(f).Has(Feature::kTma) || !TargetOf(f).Has(Feature::kWgmma)) return f;
  if (DisablesWarpSpecialized()) return f;
  Array<String> notes;
  const PrimFunc out = ForEachKernel(f, [&](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    const KernelInfo info = ReadKernelInfo(kernel, f);
    if (!MayHaveProducer(info)) return kernel;
    StepWidener widener(info);
    const Stmt wide = widener.Mutate(kernel);
    for (const String& note : widener.notes) notes.push_back(note);
    return wide;
  });
  return WithNotes(out, notes);
}

TL_REGISTER_PASS(WidenSteps);

}  // namespace
}  // namespace tl
