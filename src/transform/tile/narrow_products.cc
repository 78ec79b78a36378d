/*!
 * NarrowProducts: products by wgmma of fewer columns, where wide ones keep a block away.
 *
 * In:  a tile program under thread_extent attributes whose gemms have their instructions.
 * Out: the same, where a gemm of N columns is two or more wgmmas beside each other instead of one.
 *      A wgmma takes its accumulators of the registers that a thread begins with: m64n256 takes
 *      154, and two blocks of 256 threads begin with 128. So a multiprocessor would have one block
 *      whose only warp group multiplies or computes. With twice m64n128 it has two.
 * Establishes: a multiprocessor has registers for two blocks, for which it has shared memory, as
 *      far as estimates tell (shared_estimate.h, register_estimate.h).
 * Left alone: kernels without a producer of the compiler's; gemms that would get fewer than 64
 *      columns, or parts of B that begin inside of its swizzle (112 of 224 columns); those with A
 *      in shared memory, which each wgmma reads anew: 4096^3 by tiles of 64 x 256 takes 279 us so,
 *      and 226 by one block with more stages (H200).
 * Refuses nothing.
 */
#include <algorithm>

#include "../../op/gemm_instruction.h"
#include "../../target/mma.h"
#include "../../target/registers.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "register_estimate.h"
#include "shared_estimate.h"

namespace tl {
namespace {

/*! One multiplies while the other computes. A third one would have less memory for loads ahead. */
constexpr int64_t kBlocks = 2;

/*! Gives wgmmas at most so many registers of accumulators. */
class Narrower : public StmtExprMutator {
 public:
  explicit Narrower(int64_t most) : most_(most) {}
  /*! One of them cannot be as narrow. */
  bool failed = false;

 protected:
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    if (!IsGemm(s)) return s;
    GemmPlan plan = PlanOf(AsTileOp(s), op->span);
    if (!plan.UsesWgmma() || AccumulatorRegisters(plan.wgmma) <= most_) return s;
    const GemmOp gemm = ParseGemm(AsTileOp(s), op->span);
    constexpr int64_t kLeastColumns = 64;
    const int64_t least = IsShared(gemm.a.buffer) ? plan.wgmma.n : kLeastColumns;
    const int64_t all = plan.wgmma.n;
    do {
      --plan.wgmma.n;
    } while (plan.wgmma.n >= least && !(IsPart(plan.wgmma, all) && ReadsParts(plan, gemm)));
    failed |= plan.wgmma.n < least;
    return failed ? s : MakeEvaluate(WithInstruction(AsTileOp(s), gemm, plan), op->span);
  }

 private:
  bool IsPart(const GroupChoice& choice, int64_t all) const {
    return all % choice.n == 0 && choice.instruction->HasColumns(choice.n) &&
           AccumulatorRegisters(choice) <= most_;
  }
  /*! Where B has rows of N, a part of them begins where its swizzle does. An annotated layout may
   * have the widest one. */
  static bool ReadsParts(const GemmPlan& plan, const GemmOp& gemm) {
    constexpr int64_t kWidestSwizzle = 128, kBitsOfByte = 8;
    const int64_t swizzle = plan.swizzle_b ? plan.swizzle_b : kWidestSwizzle;
    const int64_t bits = plan.wgmma.n * DTypeOf(gemm.b.buffer).bits;
    return gemm.trans_b || bits % (swizzle * kBitsOfByte) == 0;
  }

  const int64_t most_;
};

std::optional<Stmt> Narrowed(const Stmt& kernel, const PrimFunc& f) {
  const KernelInfo info = ReadKernelInfo(kernel, f);
  if (!MayHaveProducer(info)) return std::nullopt;
  const int64_t threads = info.threads + kWarpGroupThreads;
  const int64_t accumulators = WidestAccumulators(info);
  const int64_t wanted =
      std::min({kBlocks, BlocksByRegisters(info, 0), BlocksOfGrid(kernel, *info.target)});
  const int64_t now = std::max(BlocksByRegisters(info, accumulators), info.min_blocks);
  if (wanted <= now) return std::nullopt;
  const int64_t loaded = SharedEstimate(GetRef<Stmt>(info.block)).LoadedBytes(kernel);
  if (loaded == 0 || info.target->BlocksThatFit(threads, loaded) < wanted) return std::nullopt;
  if (!PlanProducerConsumer(info).IsApplied()) return std::nullopt;
  Narrower narrower(RegistersAtStart(threads, wanted) / threads - kBesideAccumulators);
  const Stmt narrowed = narrower.Mutate(kernel);
  return narrower.failed ? std::nullopt : std::make_optional(narrowed);
}

PrimFunc NarrowProducts(PrimFunc f) {
  if (!TargetOf(f).Has(Feature::kTma) || DisablesWarpSpecialized()) return f;
  return ForEachKernel(f, [&](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    return Narrowed(kernel, f).value_or(kernel);
  });
}

TL_REGISTER_PASS(NarrowProducts);

}  // namespace
}  // namespace tl
