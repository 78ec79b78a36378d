/*!
 * PipelineLoops: serial loops that load tiles and multiply them become pipelines.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where such a loop has `num_stages` of two:
 *        for k in serial(n): { A[.., 32 * k] -> a; B[32 * k, ..] -> b; gemm(a, b, c) }
 *      Passes behind this one treat it as a loop that the program wants pipelined.
 * Establishes: a producer loads the tiles, as PlanProducerConsumer says of the program with the
 *      stages, and a block has room on a multiprocessor.
 * Left alone:
 *      - loops with an annotation, as `T.Pipelined(n, num_stages=0)` has: the program has chosen;
 *      - loops without products: where many blocks share a multiprocessor, they load beside each
 *        other, and a producer takes their place (docs/measurements.md);
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

namespace tl {
namespace {

constexpr int64_t kPipelineStages = 2;
/*! Iterations for which a producer's barriers are set up. */
constexpr int64_t kFewIterations = 3;

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
  explicit Pipeliner(const Stmt& kernel) : views_(kernel) {}
  /*! The loops, where the program has them. */
  std::vector<Span> found;

 protected:
  Stmt Mutate_(const ForNode* op) final {
    if (!LoadsAndMultiplies(op)) return Default<Stmt>(op);
    found.push_back(op->span);
    For loop = GetRef<For>(op);
    loop.CopyOnWrite()->annotations.Set(kNumStages, MakeInt(kPipelineStages));
    return loop;
  }

 private:
  bool LoadsAndMultiplies(const ForNode* op) const {
    if (op->kind != ForKind::kSerial || !op->annotations.empty()) return false;
    if (AsInt(op->extent).value_or(kFewIterations) < kFewIterations) return false;
    bool loads = false, multiplies = false;
    for (const Stmt& s : FlatSeq(op->body)) {
      const bool is_load = IsTileLoad(s);
      loads |= is_load;
      multiplies |= IsGemm(s);
      if (is_load && !TileOpAttrs(AsTileOp(s)).empty()) return false;
      if (!is_load && !ComputesOnly(s)) return false;
    }
    return loads && multiplies;
  }

  /*! It changes no tensor and loads no tile, and runs to its end. */
  bool ComputesOnly(const Stmt& s) const {
    const std::vector<Var> writes = views_.UseOf(s).writes;
    return NoneOf(writes, IsGlobal) && !LeavesEarly(s) &&
           !HasNode<EvaluateNode>(
               s, [](const EvaluateNode* e) { return IsTileLoad(GetRef<Stmt>(e)); });
  }

  const Views views_;
};

/*! A kernel with stages, of which `tried` has the instructions, is one that loads ahead. */
bool LoadsAhead(const Stmt& kernel, const PrimFunc& tried) {
  const KernelInfo info = ReadKernelInfo(kernel, tried);
  const SharedEstimate shared(GetRef<Stmt>(info.block));
  return shared.BlocksThatFit(*info.target, info.threads + kWarpGroupThreads) > 0 &&
         PlanProducerConsumer(info).IsApplied();
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
  const PrimFunc tried = SelectInstructions(asked);
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
