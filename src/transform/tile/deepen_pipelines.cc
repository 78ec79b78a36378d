/*!
 * DeepenPipelines: loops whose loads are too few bytes to hide the latency of memory get more
 * stages than the program asks for, where a multiprocessor has shared memory left.
 *
 * In:  a tile program under thread_extent attributes whose copies have their candidates; pipelined
 *      loops annotated as the user wrote them.
 * Out: the same with larger `num_stages`.
 * Establishes: a multiprocessor has `pipelined_bytes` of loads under way (multiprocessors.h), as
 * far as its shared memory goes. It has room for as many blocks as before, or for three of four, or
 * for all that the grid has for it.
 * Loops of several products that also compute get two stages at most: with one, a step waits for
 * its loads, and products of two iterations do not overlap. What later passes need may still be too
 * much (shared_estimate.h).
 * Left alone: loops without stages, with an order or stages of their own, with few iterations;
 * kernels without a producer of the compiler's, unless they have no products and load by cp.async;
 * kernels with pipeline depths of the program's.
 * Refuses nothing.
 */
#include <algorithm>

#include "../../op/call_attrs.h"
#include "../../target/mma.h"
#include "../../target/multiprocessors.h"
#include "../../target/registers.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "register_estimate.h"
#include "shared_estimate.h"

namespace tl {
namespace {

constexpr int64_t kMostStages = 8;
/*! Slots of so many bytes begin at a whole swizzle of TMA if the first one does. */
constexpr int64_t kSlotBytes = 1024;
/*! Those of a row, which no swizzle permutes (PTX ISA, cp.async.bulk). */
constexpr int64_t kBulkBytes = 16;

bool IsRow(const Var& tile) { return BufferOf(tile)->shape.size() == 1; }

/*! The tiles that an iteration of the loop loads. */
std::vector<Var> LoadedTiles(const ForNode* loop) {
  std::vector<Var> tiles;
  const auto note = [&](const Var& tile) {
    if (!Contains(tiles, tile)) tiles.push_back(tile);
  };
  ForEachIn<EvaluateNode>(loop->body, [&](const EvaluateNode* op) {
    const Stmt s = GetRef<Stmt>(op);
    if (IsTileLoad(s)) note(TileRegion::From(AsTileOp(s)->args[1]).buffer);
  });
  ForEachIn<ForNode>(loop->body, [&](const ForNode* op) {
    if (!IsElementCopy(GetRef<Stmt>(op))) return;
    ForEachIn<BufferStoreNode>(op->body, [&](const BufferStoreNode* s) { note(s->buffer); });
  });
  return tiles;
}

/*! An iteration computes elements beside what it loads and multiplies. */
bool Computes(const ForNode* loop) {
  const auto is_element_loop = [](const ForNode* op) {
    return op->kind == ForKind::kParallel && !IsElementCopy(GetRef<Stmt>(op));
  };
  return HasNode<ForNode>(loop->body, is_element_loop) ||
         HasNode<EvaluateNode>(loop->body, [](const EvaluateNode* op) {
           const Stmt s = GetRef<Stmt>(op);
           return AsTileOp(s) && !IsTileLoad(s) && !IsGemm(s);
         });
}

/*! Gives loops the stages that they want, at most `most`, where `blocks` share a multiprocessor. */
class Deepener : public StmtExprMutator {
 public:
  /*! A block has `ahead` bytes of loads under way, beside the steps that it uses and the one that
   * it is about to give up. */
  Deepener(int64_t most, int64_t ahead) : most_(most), ahead_(ahead) {}
  bool changed = false;

 protected:
  Stmt Mutate_(const ForNode* op) final {
    const int64_t stages = IntAnnotation(op->annotations, kNumStages).value_or(0);
    if (stages < 1) return Default<Stmt>(op);
    const bool is_ordered = op->annotations.count(kUserOrder) || op->annotations.count(kUserStage);
    const int64_t wanted = StagesFor(op, stages);
    if (is_ordered || wanted <= stages) return GetRef<Stmt>(op);
    changed = true;
    For loop = GetRef<For>(op);
    loop.CopyOnWrite()->annotations.Set(kNumStages, MakeInt(wanted));
    return loop;
  }

 private:
  /*! Loops that compute between products wait for one of them in a step, and use two stages:
   * attention is as fast with three. With one, nothing is loaded while the step runs, and no
   * product of two iterations overlaps (mma_overlap.cc). Loops that only load and multiply are
   * faster with more: two products of 128 x 128 x 64 of a gated layer take 528 us in two stages,
   * 383 in three (4096^3, H200). */
  int64_t StagesFor(const ForNode* loop, int64_t stages) const {
    int64_t products = 0, step = 0;
    ForEachIn<EvaluateNode>(loop->body,
                            [&](const EvaluateNode* op) { products += IsGemm(GetRef<Stmt>(op)); });
    bool has_slots = true;
    for (const Var& tile : LoadedTiles(loop)) {
      step += BytesOfBuffer(tile);
      has_slots &= BytesOfBuffer(tile) % (IsRow(tile) ? kBulkBytes : kSlotBytes) == 0;
    }
    // What the program says of its only slot, a copy by TMA, may not hold for a second one.
    if (stages == 1 && !has_slots) return stages;
    if (step == 0) return stages;
    const bool waits = products > 1 && Computes(loop);
    const int64_t ahead = waits ? 0 : (ahead_ + step - 1) / step;
    const int64_t wanted = std::min(most_, 2 + ahead);
    return std::min(wanted, std::max<int64_t>(1, Analyzer().ConstBound(loop->extent).max));
  }

  const int64_t most_, ahead_;
};

/*! The kernel with the most stages, `least` and more, for which so many blocks have room. */
std::optional<Stmt> WithStages(const Stmt& kernel, const PrimFunc& f, int64_t least,
                               int64_t blocks) {
  const KernelInfo info = ReadKernelInfo(kernel, f);
  for (int64_t most = kMostStages; most >= least; --most) {
    Deepener deepener(most, MultiprocessorsOf(*info.target).pipelined_bytes / blocks);
    const Stmt deeper = deepener.Mutate(kernel);
    if (!deepener.changed) return std::nullopt;
    const SharedEstimate shared(GetRef<Stmt>(ReadKernelInfo(deeper, f).block));
    if (shared.BlocksThatFit(*info.target, info.threads + kWarpGroupThreads) < blocks) continue;
    if (!PlanProducerConsumer(ReadKernelInfo(deeper, f)).IsApplied() &&
        (HasProducts(kernel) || !LoadsByCpAsync(kernel))) {
      return std::nullopt;
    }
    return deeper;
  }
  return std::nullopt;
}

/*! Four blocks of two stages each take longer than three of three: 430 us, 360 (4096^3 by tiles of
 * 64 x 64 x 64, H200). */
std::optional<Stmt> Deepened(const Stmt& kernel, const PrimFunc& f) {
  const KernelInfo info = ReadKernelInfo(kernel, f);
  if (!MayHaveProducer(info)) return std::nullopt;
  // Other tiles may share bytes with those of the loops.
  const int64_t loaded = SharedEstimate(GetRef<Stmt>(info.block)).LoadedBytes(kernel);
  const int64_t at_once = std::min(
      {info.target->BlocksThatFit(info.threads + kWarpGroupThreads, loaded),
       BlocksByRegisters(info, WidestAccumulators(info)), BlocksOfGrid(kernel, *info.target)});
  const int64_t blocks = std::max(at_once, info.min_blocks);
  constexpr int64_t kFewStages = 2;
  if (const auto deeper = WithStages(kernel, f, kFewStages + 1, blocks)) return deeper;
  if (blocks == kMostBlocksWithRoles && info.min_blocks < blocks) {
    if (const auto deeper = WithStages(kernel, f, kFewStages + 1, blocks - 1)) return deeper;
  }
  return WithStages(kernel, f, kFewStages, blocks);
}

PrimFunc DeepenPipelines(PrimFunc f) {
  if (!TargetOf(f).Has(Feature::kTma) || DisablesWarpSpecialized()) return f;
  if (PassConfigFlag(kSpareShared, false)) return f;
  bool takes_shared = false;
  const PrimFunc out = ForEachKernel(f, [&](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    const auto deeper = Deepened(kernel, f);
    takes_shared |= deeper.has_value();
    return deeper.value_or(kernel);
  });
  return takes_shared ? WithAttr(out, kTakesShared, MakeInt(1)) : out;
}

TL_REGISTER_PASS(DeepenPipelines);

}  // namespace
}  // namespace tl
