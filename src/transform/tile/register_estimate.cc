#include "register_estimate.h"

#include <algorithm>

#include "../../op/gemm.h"
#include "../../op/gemm_instruction.h"
#include "../../target/mma.h"
#include "../../target/multiprocessors.h"
#include "../../target/registers.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "buffer_bytes.h"
#include "ws_schedule.h"

namespace tl {

int64_t WidestAccumulators(const KernelInfo& kernel) {
  int64_t most = 0;
  ForEachIn<EvaluateNode>(kernel.block->body, [&](const EvaluateNode* op) {
    if (!IsGemm(GetRef<Stmt>(op))) return;
    const GemmPlan plan = PlanOf(AsTileOp(GetRef<Stmt>(op)), op->span);
    if (plan.UsesWgmma()) most = std::max(most, AccumulatorRegisters(plan.wgmma));
  });
  return most;
}

int64_t BlocksByRegisters(const KernelInfo& kernel, int64_t accumulators) {
  constexpr int64_t kRegisterBytes = 4;
  int64_t bytes = 0;
  for (const Var& v : kernel.block->alloc_buffers) {
    if (IsFragment(v)) bytes += BytesOfBuffer(v);
  }
  const int64_t wanted =
      bytes / kRegisterBytes / kernel.threads +
      (HasProducts(kernel.block->body) ? kFewOtherRegisters : kManyOtherRegisters);
  return BlocksWithRegisters(
      {kWarpGroupThreads, kernel.threads, kLeastRegisters, wanted, accumulators},
      kMostBlocksWithRoles);
}

bool HasRegistersOfFragments(const KernelInfo& kernel, int64_t most_accumulators) {
  constexpr int64_t kMostRegisters = 192, kRegisterBytes = 4;
  int64_t sums = 0, all = 0;
  for (const Var& v : kernel.block->alloc_buffers) {
    if (!IsFragment(v)) continue;
    const bool is_sum = HasNode<EvaluateNode>(kernel.block->body, [&](const EvaluateNode* op) {
      const Stmt s = GetRef<Stmt>(op);
      return IsGemm(s) && ParseGemm(AsTileOp(s), op->span).c.buffer.same_as(v);
    });
    all += BytesOfBuffer(v);
    if (is_sum) sums += BytesOfBuffer(v);
  }
  const int64_t each = kRegisterBytes * kernel.threads;
  return sums <= most_accumulators * each && all <= kMostRegisters * each;
}

int64_t BlocksOfGrid(const Stmt& kernel, const Target& target) {
  constexpr int64_t kMany = int64_t(1) << 30;
  const int64_t multiprocessors = std::max<int64_t>(1, MultiprocessorsOf(target).number);
  int64_t blocks = 1;
  ForEachIn<AttrStmtNode>(kernel, [&](const AttrStmtNode* op) {
    if (op->attr_key != kThreadExtent) return;
    const std::string tag = op->node.cast<IterVar>()->thread_tag;
    if (tag.rfind("blockIdx", 0) != 0) return;
    blocks = std::min(kMany, blocks * std::min(kMany, AsInt(op->value).value_or(kMany)));
  });
  return (blocks + multiprocessors - 1) / multiprocessors;
}

bool MayHaveProducer(const KernelInfo& kernel) {
  return kernel.block && kernel.is_flat && kernel.threads % kWarpGroupThreads == 0 &&
         !ScheduleOf(kernel.block, kernel.target->warp_threads) &&
         !kernel.block->annotations.count(kWsDepths);
}

}  // namespace tl
