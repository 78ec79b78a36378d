/*!
 * PlanWarpRoles: decides which warps of a kernel do what.
 *
 * In:  a tile program under thread_extent attributes whose copies have their candidates; pipelined
 *      loops annotated as the user wrote them.
 * Out: the same with function attribute `tl.warp_roles`: an entry for each kernel with its plan, or
 *      with the reason why there is none (role_plan.cc has the fields). Names of statements are
 *      gone from kernels without a schedule.
 * Establishes: the plan holds all that ProducerConsumerWarpSpecialized emits: the roles with their
 *      threads and statements, the channels with buffers, versions, arrivals, and the places where
 *      slots are acquired and released. Plans of the compiler are made by warp_roles.cc, those of
 *      T.annotate_ws_schedule by scheduled_roles.cc. Targets without TMA have no plans.
 * Refuses (ValueError): schedules that the program does not fit. A kernel that the compiler's own
 *      plan does not understand stays an ordinary pipeline.
 */
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "warp_roles.h"
#include "ws_schedule.h"

namespace tl {
namespace {

[[noreturn]] void RefuseTarget(const Schedule& schedule, const Target& target) {
  ThrowAt(schedule.span, "ValueError",
          "found T.annotate_ws_schedule for " + target.arch + ", wanted " +
              TargetsWith(Feature::kMbarrier) +
              ", whose warps pass on tiles by mbarriers; leave it out");
}

/*! The plan of a kernel on a target that has TMA. */
Map<String, Any> PlanOfKernel(const KernelInfo& kernel, const std::optional<Schedule>& schedule) {
  const WarpRoles roles =
      schedule ? PlanScheduledRoles(kernel, *schedule) : PlanProducerConsumer(kernel);
  std::vector<Var> loaded;
  for (const Channel& c : roles.channels) {
    if (!schedule && roles.IsApplied()) {
      AppendRange(&loaded, c.buffers);
    }
  }
  WarnOfDepths(
      kernel.block, loaded,
      schedule ? "the kernel has a schedule, whose pipelines have their depth" : roles.why);
  return DescribeRoles(kernel, roles);
}

PrimFunc PlanWarpRoles(PrimFunc f) {
  f = WithBody(f, WithoutNames(f->body));
  const Target& target = TargetOf(f);
  Array<Any> plans;
  int64_t number = 0;
  ForEachKernel(f, [&](const AttrStmtNode* op) -> Stmt {
    const Stmt same = GetRef<Stmt>(op);
    const KernelInfo kernel = ReadKernelInfo(same, f);
    const int64_t own = number++;
    if (!kernel.block) return same;
    const auto schedule = ScheduleOf(kernel.block, target.warp_threads);
    if (!target.Has(Feature::kTma)) {
      if (schedule) RefuseTarget(*schedule, target);
      WarnOfDepths(kernel.block, {}, "the chip has no TMA");
      return same;
    }
    Map<String, Any> plan = PlanOfKernel(kernel, schedule);
    plan.Set("kernel", own);
    plans.push_back(plan);
    return same;
  });
  return target.Has(Feature::kTma) ? WithAttr(std::move(f), kWarpRoles, plans) : f;
}

TL_REGISTER_PASS(PlanWarpRoles);

}  // namespace
}  // namespace tl
