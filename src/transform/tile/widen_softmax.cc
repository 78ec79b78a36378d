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
 *      The loop has half of the stages, but two if it had as many.
 * Establishes: half as many steps multiply o and l, wait, signal, and find a maximum and a sum over
 *      threads: a step does that once, whether it has 64 keys or 128. Attention of heads of 128 by
 *      64 x 64 takes 840 us so, 966 as it is (2 x 32 x 4096, H200). Results differ by rounding.
 * Left alone: tiles with a layout; kernels with views; and
 *      - loops of which it is not known that the number of iterations is even, and those with an
 *        order or stages of their own;
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
/*! So many compute beside each other on a multiprocessor, of one block or of two. */
constexpr int64_t kLeastGroups = 2;

/*! Makes two iterations of a loop one. */
class StepResizer : public AxisResizer {
 public:
  StepResizer(const ForNode* loop, const AxisTiles& along, const std::vector<Var>& tiles)
      : AxisResizer(kTwice, loop->loop_var, along, tiles), loop_(loop) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    if (op != loop_) return AxisResizer::Mutate_(op);
    const int64_t stages = StagesOf(op);
    auto loop = make_object<ForNode>(*op);
    loop->extent = Analyzer().Simplify(FloorDivOf(op->extent, 2));
    loop->body = Mutate(op->body);
    loop->annotations.Set(kNumStages,
                          MakeInt(std::max(std::min<int64_t>(stages, 2), (stages + 1) / 2)));
    return For(loop);
  }

 private:
  const ForNode* const loop_;
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

bool HasEvenSteps(const ForNode* loop) {
  const Analyzer::Modular steps = Analyzer().ModularSet(loop->extent);
  return IsConst(loop->min, 0) && steps.coeff % 2 == 0 && steps.base % 2 == 0;
}

/*! The tiles of a loop whose iterations may be twice as long; nullopt for others. */
std::optional<AxisTiles> TilesOfSteps(const ForNode* loop, const KernelInfo& kernel) {
  const bool ordered = loop->annotations.count(kUserOrder) || loop->annotations.count(kUserStage);
  if (!IsPipelined(loop) || ordered || !HasEvenSteps(loop)) return std::nullopt;
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
    const Stmt wide = StepResizer(loop, *along, {buffers.begin(), buffers.end()}).Mutate(kernel);
    const KernelInfo wide_info = ReadKernelInfo(wide, f);
    if (!HasRegistersOfFragments(wide_info, kMostSoftmaxAccumulators)) return;
    const int64_t blocks = BlocksWithRoom(wide, wide_info);
    const RowLengths lengths = RowLengthsOf(loop, *along);
    const bool may_lose_blocks = lengths.scores <= lengths.carried &&
                                 blocks * info.threads >= kLeastGroups * kWarpGroupThreads;
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
    const Stmt named = NameInliner().Mutate(kernel);
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
