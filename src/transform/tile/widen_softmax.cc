/*!
 * WidenSoftmax: steps of an online softmax over tiles of few keys become one step.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where two iterations of a pipelined loop that carries maxima, and sums relative to
 *      these, are one over tiles of twice the keys:
 *        for k < n: { K[64 * k, ..] -> a; gemm(q, a, s); m' = max(m, s); p = exp(s - m');
 *                     r = exp(m - m'); l = l * r + sum(p); V[64 * k, ..] -> b;
 *                     o = o * r; gemm(p, b, o); m = m' }
 *        for k < n / 2: { K[128 * k, ..] -> a2; .. }
 *      The loop has half of the stages, but two if it had as many. Where n may be odd, the last
 *      step stands behind the loop, with tiles of its own: if n % 2 { K[64 * (n - 1), ..] -> a; ..
 * } Establishes: half as many steps multiply o and l, wait, signal, and find a maximum and a sum
 * over threads: a step does that once, whether it has 64 keys or 128. Attention of heads of 128 by
 *      64 x 64 takes 840 us so, 966 as it is (2 x 32 x 4096, H200). Results differ by rounding.
 * Left alone: tiles with a layout; kernels with views; and
 *      - loops with an order or stages of their own, and those of a few iterations and one;
 *      - loops whose iterations carry something else (running_sums.h);
 *      - wider tiles for which a thread has no registers, or with which a multiprocessor has room
 *        for fewer blocks; unless two warp groups still compute there, and rows of scores are no
 *        longer than those of o.
 * Refuses nothing.
 */
#include <algorithm>

#include "../../layout/annotation.h"
#include "../../op/gemm.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../inline_names.h"
#include "../notes.h"
#include "../rename.h"
#include "axis_resizer.h"
#include "buffer_bytes.h"
#include "register_estimate.h"
#include "running_sums.h"
#include "shared_estimate.h"

namespace tl {
namespace {

/*! Of heads of 64, 256 keys take 777 us, 128 take 582, 64 take 689 (2 x 32 x 4096, H200). */
constexpr int64_t kMostKeys = 128;
/*! Registers of a thread: heads of 256 and 64 keys have as many, and nothing is spilled. */
constexpr int64_t kMostSoftmaxAccumulators = 160;
/*! Three warp groups beside a producer have 160 registers each: 192 rows by 64 keys, heads of 128,
 * take 884 us, by 128 keys, whose products ptxas serialises, 948. */
constexpr int64_t kMostSoftmaxThreads = 256;
/*! Of so many steps, one more than the pairs costs little. */
constexpr int64_t kFewSteps = 9;
/*! So many compute beside each other on a multiprocessor, of one block or of two. */
constexpr int64_t kLeastGroups = 2;

bool HasEvenSteps(const ForNode* loop) {
  const Analyzer::Modular steps = Analyzer().ModularSet(loop->extent);
  return steps.coeff % 2 == 0 && steps.base % 2 == 0;
}

/*! Makes two iterations of a loop one. */
class StepResizer : public AxisResizer {
 public:
  /*! `leaves_last`: an odd number of steps leaves out the last one. */
  StepResizer(const ForNode* loop, const AxisTiles& along, const std::vector<Var>& tiles,
              bool leaves_last)
      : AxisResizer(kTwice, loop->loop_var, along, tiles), loop_(loop), along_(along) {
    has_last_ = !leaves_last && !HasEvenSteps(loop);
  }

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    SBlock block = AxisResizer::Mutate_(op).as_or_throw<SBlock>();
    if (!has_last_) return block;
    for (const Var& v : op->alloc_buffers) {
      if (along_.dims.count(v.get())) block.CopyOnWrite()->alloc_buffers.push_back(v);
    }
    return block;
  }
  Stmt Mutate_(const ForNode* op) final {
    if (op != loop_) return AxisResizer::Mutate_(op);
    return has_last_ ? MakeSeq({Widened(op), LastStep(op)}) : Widened(op);
  }

 private:
  /*! The step that pairs leave, a loop of one iteration or none: what it loads is loaded ahead. */
  static For LastStep(const ForNode* op) {
    const auto number = [&](int64_t n) { return MakeInt(op->extent->dtype(), n); };
    auto loop = make_object<ForNode>(*op);
    loop->loop_var = MakeVar(op->loop_var->name, op->loop_var->dtype());
    // A loop may end in front of its beginning.
    const Expr steps = MaxOf(op->extent, number(0));
    loop->extent = Analyzer().Simplify(FloorModOf(steps, number(2)));
    loop->annotations.Set(kNumStages, number(1));
    BindingRenamer last;
    last.map[op->loop_var.get()] = op->extent - number(1) + loop->loop_var;
    loop->body = last.Mutate(op->body);
    return For(loop);
  }
  For Widened(const ForNode* op) {
    const int64_t stages = StagesOf(op);
    auto loop = make_object<ForNode>(*op);
    loop->extent = Analyzer().Simplify(FloorDivOf(op->extent, 2));
    loop->body = Mutate(op->body);
    loop->annotations.Set(kNumStages,
                          MakeInt(std::max(std::min<int64_t>(stages, 2), (stages + 1) / 2)));
    return For(loop);
  }

  const ForNode* const loop_;
  const AxisTiles& along_;
  bool has_last_;
};

/*! Loops of stages that begin elsewhere begin at 0. */
class FirstStepShifter : public Substituter {
 protected:
  Stmt Mutate_(const ForNode* op) final {
    if (!IsPipelined(op) || IsConst(op->min, 0)) return Default<Stmt>(op);
    auto loop = make_object<ForNode>(*op);
    loop->loop_var = MakeVar(op->loop_var->name, op->loop_var->dtype());
    loop->min = MakeInt(op->min->dtype(), 0);
    map[op->loop_var.get()] = Mutate(op->min) + loop->loop_var;
    loop->extent = Mutate(op->extent);
    loop->body = Mutate(op->body);
    return For(loop);
  }
};

/*! Elements of rows of an iteration's products: of scores, and of what is carried. */
struct RowLengths {
  int64_t scores = 0, carried = 0;
};

RowLengths RowLengthsOf(const ForNode* loop, const AxisTiles& along) {
  RowLengths lengths;
  ForEachIn<EvaluateNode>(loop->body, [&](const EvaluateNode* op) {
    const Stmt s = GetRef<Stmt>(op);
    if (!IsGemm(s)) return;
    const Var product = ParseGemm(AsTileOp(s), op->span).c.buffer;
    const auto it = along.dims.find(product.get());
    int64_t& length = it != along.dims.end() ? lengths.scores : lengths.carried;
    const size_t dim = it != along.dims.end() ? it->second : 1;
    length = std::max(length, ToInt(BufferOf(product)->shape[dim]));
  });
  return lengths;
}

bool HasTooFewSteps(const ForNode* loop) {
  return !HasEvenSteps(loop) && AsInt(loop->extent).value_or(kFewSteps) < kFewSteps;
}

/*! The tiles of a loop whose iterations may be twice as long; nullopt for others. */
std::optional<AxisTiles> TilesOfSteps(const ForNode* loop, const KernelInfo& kernel) {
  const bool ordered = loop->annotations.count(kUserOrder) || loop->annotations.count(kUserStage);
  if (!IsPipelined(loop) || !IsConst(loop->min, 0) || ordered || HasTooFewSteps(loop)) {
    return std::nullopt;
  }
  const auto along = TilesAlongLoop(loop);
  if (!along) return std::nullopt;
  const int64_t keys = RowLengthsOf(loop, *along).scores;
  if (keys == 0 || 2 * keys > kMostKeys) return std::nullopt;
  for (const auto& [tile, layout] : GetLayoutMap(kernel.block->annotations)) {
    if (along->dims.count(tile.get())) return std::nullopt;
  }
  if (!CarriesSoftmax(loop, *along, kernel.block->body)) return std::nullopt;
  return along;
}

/*! Blocks that a multiprocessor has room for, and gets of the grid. */
int64_t BlocksWithRoom(const Stmt& kernel, const KernelInfo& info) {
  const int64_t threads = info.threads + kWarpGroupThreads;
  return std::min({SharedEstimate(kernel).BlocksThatFit(*info.target, threads),
                   BlocksByRegisters(info, 0), BlocksOfGrid(kernel, *info.target)});
}

/*! The kernel with longer steps of one loop; nullopt where none may have them. */
std::optional<Stmt> WithLongerSteps(const Stmt& kernel, const PrimFunc& f, Array<String>* notes) {
  const KernelInfo info = ReadKernelInfo(kernel, f);
  if (info.threads > kMostSoftmaxThreads) return std::nullopt;
  const auto& buffers = info.block->alloc_buffers;
  std::optional<Stmt> found;
  ForEachIn<ForNode>(info.block->body, [&](const ForNode* loop) {
    if (found) return;
    const auto along = TilesOfSteps(loop, info);
    if (!along) return;
    const std::vector<Var> tiles(buffers.begin(), buffers.end());
    // Its last step takes registers that the loop has left.
    const Stmt steps = StepResizer(loop, *along, tiles, true).Mutate(kernel);
    const Stmt wide = StepResizer(loop, *along, tiles, false).Mutate(kernel);
    if (!HasRegistersOfFragments(ReadKernelInfo(steps, f), kMostSoftmaxAccumulators)) return;
    const int64_t blocks = BlocksWithRoom(wide, ReadKernelInfo(wide, f));
    const RowLengths lengths = RowLengthsOf(loop, *along);
    // A last step of its own overlaps with nothing but other blocks.
    const int64_t counted = HasEvenSteps(loop) ? blocks : std::min<int64_t>(blocks, 1);
    const bool may_lose_blocks = lengths.scores <= lengths.carried &&
                                 counted * info.threads >= kLeastGroups * kWarpGroupThreads;
    if (blocks == 0 || (!may_lose_blocks && blocks < BlocksWithRoom(kernel, info))) return;
    notes->push_back(Where(loop->span) + ": T.Pipelined: two steps of its softmax are one");
    found = wide;
  });
  return found;
}

PrimFunc WidenSoftmax(PrimFunc f) {
  const Target& target = TargetOf(f);
  if (!target.Has(Feature::kTma) || !target.Has(Feature::kWgmma)) return f;
  if (DisablesWarpSpecialized() || PassConfigFlag(kSpareShared, false)) return f;
  Array<String> notes;
  const PrimFunc out = ForEachKernel(f, [&](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    if (!MayHaveProducer(ReadKernelInfo(kernel, f))) return kernel;
    const Stmt named = FirstStepShifter().Mutate(NameInliner().Mutate(kernel));
    Stmt wide = named;
    while (const auto wider = WithLongerSteps(wide, f, &notes)) wide = *wider;
    return wide.same_as(named) ? kernel : wide;
  });
  if (notes.empty()) return f;
  return WithAttr(WithNotes(out, notes), kTakesShared, MakeInt(1));
}

TL_REGISTER_PASS(WidenSoftmax);

}  // namespace
}  // namespace tl
