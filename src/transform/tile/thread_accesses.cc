#include "thread_accesses.h"

#include "../../op/launch_sized.h"
#include "../../op/memory_cost.h"

namespace tl {

void ThreadAccesses::Note(const BufferStoreNode* op) {
  statements_.push_back(names_.Mutate(GetRef<Stmt>(op)));
}

void ThreadAccesses::Note(const BindNode* op) {
  const Expr value = names_.Mutate(op->value);
  if (value->dtype().code == kDLInt) names_.map[op->var.get()] = value;
  statements_.push_back(MakeEvaluate(value, op->span));
}

void ThreadAccesses::InferSwizzle(const std::vector<Var>& buffers, const KernelScope& kernel,
                                  Placements* placed) const {
  ParallelNest nest;
  int64_t threads = 1;
  for (const auto& [thread, extent] : kernel.ThreadAxes()) {
    nest.vars.push_back(thread);
    nest.extents.push_back(extent);
    threads *= ToInt(extent);
  }
  if (statements_.empty() || nest.vars.empty() || placed->target->banks != kBanks) return;
  nest.body = MakeSeq(statements_);
  for (const Var& tile : buffers) {
    if (!IsShared(tile) || IsSizedAtLaunch(tile) || placed->Find(tile).defined()) continue;
    if (placed->IsPointedTo(tile)) continue;
    const Layout layout =
        FewestConflicts(nest, PlanPartition(nest, 1, threads), tile, placed->target->warp_threads);
    if (layout.defined()) placed->SetLayout(tile, layout, statements_[0]->span);
  }
}

}  // namespace tl
