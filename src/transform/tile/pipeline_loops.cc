/*!
 * PipelineLoops: serial loops that load tiles and compute with them become pipelines.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where such a loop has `num_stages` of two:
 *        for k in serial(n): { A[.., 32 * k] -> a; B[32 * k, ..] -> b; gemm(a, b, c) }
 *      Passes behind this one treat it as a loop that the program wants pipelined.
 * Establishes: the tiles are loaded ahead, by a producer, as PlanProducerConsumer says of the
 *      program with the stages, or by cp.async, and a block has room on a multiprocessor.
 * Left alone:
 *      - loops with an annotation, as `T.Pipelined(n, num_stages=0)` has: the program has chosen;
 *      - kernels without products whose grid gives a multiprocessor more blocks than have room with
 *        a producer: these load beside each other, and a producer takes the place of some
 *        (docs/measurements.md);
 *      - loops of few iterations, that load no tile themselves, that write tensors, that leave an
 *        iteration early, and copies with keywords;
 *      - kernels with a pipelined loop: their author has chosen;
 *      - kernels in which something beside data orders what happens or shows it: barriers, atomic
 *        operations that do more than to add, waits, signals, text, functions of the user's;
 *      - kernels with tensors of which several may be one.
 * Refuses nothing.
 */
#include <unordered_set>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/im2col.h"
#include "../../op/intrinsics.h"
#include "../../op/tma_reduce.h"
#include "../../op/views.h"
#include "../../target/mma.h"
#include "../../target/multiprocessors.h"
#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../notes.h"
#include "register_estimate.h"
#include "select_instructions.h"
#include "shared_estimate.h"
#include "shift_rows.h"

namespace tl {
namespace {

constexpr int64_t kPipelineStages = 2;
/*! Iterations for which a producer's barriers are set up. */
constexpr int64_t kFewIterations = 3;
/*! So many blocks of a multiprocessor hide each other's loads if these are as many bytes together
 * as memory brings in its latency: sums and log-sum-exps of rows are as fast without stages then,
 * or faster (H200, docs/measurements.md). */
constexpr int64_t kHidingBlocks = 4;

/*! An atomic operation without an order, which combines numbers and gives none back. */
bool OnlyCombines(const CallNode* call) {
  const bool is_relaxed = AnyOf(call->args, [](const Expr& e) {
    const auto* text = e.as<StringImmNode>();
    return text && std::string(text->value).find("relaxed") != std::string::npos;
  });
  if (IsTileOp(call)) return is_relaxed;
  const IntrinsicEffects* effects = EffectsOf(call);
  return is_relaxed && *effects->update && effects->result == CallResult::kOfOperands;
}

/*! The call orders memory beside what data do, or somebody sees when it happens. */
bool OrdersOrShows(const CallNode* call) {
  if (IsTileOp(call)) {
    static const std::unordered_set<std::string> of_data = {
        kCopy, kFill, kReduce, kScan, kTranspose, kReducerInit, kReducerFinalize, kIm2col, kGemm};
    const std::string name(OpOf(call)->name);
    if (name == kAtomic) return !OnlyCombines(call);
    if (name == kGemm) return ParseGemm(call, Span()).asynchronous;
    return !of_data.count(name);
  }
  if (const IntrinsicEffects* effects = EffectsOf(call)) {
    return !effects->IsPlain() && !OnlyCombines(call);
  }
  return HasEffect(call) && !IsCallTo(call, "tirx.assume");
}

/*! Nothing but data order what the kernel does, and no loop is a pipeline. */
bool IsOrderedByData(const Stmt& kernel) {
  return !HasNode<WhileNode>(kernel, [](const WhileNode*) { return true; }) &&
         !HasNode<ForNode>(kernel, IsPipelined) && !HasNode<CallNode>(kernel, OrdersOrShows);
}

/*! Gives stages to the innermost loops that load tiles. */
class Pipeliner : public StmtExprMutator {
 public:
  explicit Pipeliner(const Stmt& kernel) : views_(kernel), has_products_(HasProducts(kernel)) {}
  /*! The loops, where the program has them. */
  std::vector<Span> found;

 protected:
  Stmt Mutate_(const ForNode* op) final {
    if (!LoadsAndComputes(op)) return Default<Stmt>(op);
    found.push_back(op->span);
    For loop = GetRef<For>(op);
    loop.CopyOnWrite()->annotations.Set(kNumStages, MakeInt(kPipelineStages));
    return loop;
  }

 private:
  bool LoadsAndComputes(const ForNode* op) const {
    if (op->kind != ForKind::kSerial || !op->annotations.empty()) return false;
    if (AsInt(op->extent).value_or(kFewIterations) < kFewIterations) return false;
    bool loads = false, computes = false;
    for (const Stmt& s : FlatSeq(op->body)) {
      const bool is_load = IsTileLoad(s);
      loads |= is_load;
      computes |= has_products_ ? IsGemm(s) : !is_load;
      if (is_load && !TileOpAttrs(AsTileOp(s)).empty()) return false;
      if (!is_load && !ComputesOnly(s)) return false;
    }
    return loads && computes;
  }

  /*! It changes no tensor and loads no tile, and runs to its end. */
  bool ComputesOnly(const Stmt& s) const {
    const std::vector<Var> writes = views_.UseOf(s).writes;
    return NoneOf(writes, IsGlobal) && !LeavesEarly(s) &&
           !HasNode<EvaluateNode>(
               s, [](const EvaluateNode* e) { return IsTileLoad(GetRef<Stmt>(e)); });
  }

  const Views views_;
  const bool has_products_;
};

/*! A kernel with stages, of which `tried` has the instructions, is one that loads ahead. */
bool LoadsAhead(const Stmt& kernel, const PrimFunc& tried) {
  const KernelInfo info = ReadKernelInfo(kernel, tried);
  const SharedEstimate shared(GetRef<Stmt>(info.block));
  const int64_t room = shared.BlocksThatFit(*info.target, info.threads + kWarpGroupThreads);
  if (HasProducts(kernel)) return room > 0 && PlanProducerConsumer(info).IsApplied();
  // Blocks load beside each other as well, and none of them may lose its place.
  const int64_t blocks = BlocksOfGrid(kernel, *info.target);
  const int64_t at_once = blocks * shared.LoadedBytes(kernel) / kPipelineStages;
  return blocks <= std::min(room, BlocksByRegisters(info, 0)) &&
         (blocks < kHidingBlocks || at_once < MultiprocessorsOf(*info.target).hiding_bytes) &&
         (PlanProducerConsumer(info).IsApplied() || LoadsByCpAsync(kernel));
}

PrimFunc PipelineLoops(PrimFunc f) {
  if (!TargetOf(f).Has(Feature::kTma) || DisablesWarpSpecialized()) return f;
  if (PassConfigFlag(kSpareShared, false)) return f;
  std::vector<Stmt> kernels;
  std::vector<std::vector<Span>> loops;
  const PrimFunc asked = ForEachKernel(f, [&](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    const KernelInfo info = ReadKernelInfo(kernel, f);
    Pipeliner pipeliner(kernel);
    const bool may = MayHaveProducer(info) && info.aliased.empty() && IsOrderedByData(kernel);
    kernels.push_back(may ? pipeliner.Mutate(kernel) : kernel);
    loops.push_back(pipeliner.found);
    return kernels.back();
  });
  if (AllOf(loops, [](const auto& l) { return l.empty(); })) return f;
  const PrimFunc tried = SelectInstructions(ShiftRows(asked));
  std::vector<bool> ahead;
  ForEachKernel(tried, [&](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    ahead.push_back(!loops[ahead.size()].empty() && LoadsAhead(kernel, tried));
    return kernel;
  });
  Array<String> notes;
  size_t number = 0;
  const PrimFunc out = ForEachKernel(f, [&](const AttrStmtNode* op) {
    const size_t i = number++;
    if (!ahead[i]) return GetRef<Stmt>(op);
    for (const Span& span : loops[i]) {
      notes.push_back(Where(span) +
                      ": the loop is a pipeline, as T.Pipelined(.., num_stages=2) makes one; with "
                      "num_stages=0 it stays plain");
    }
    return kernels[i];
  });
  if (notes.empty()) return f;
  return WithAttr(WithNotes(out, notes), kTakesShared, MakeInt(1));
}

TL_REGISTER_PASS(PipelineLoops);

}  // namespace
}  // namespace tl
