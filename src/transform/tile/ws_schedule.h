/*! What a program says of its warp specialisation: T.annotate_ws_schedule, names of statements, and
 * T.annotate_ws_pipeline_depth (tilelang/language/ws_schedule.py). */
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "warp_roles.h"

namespace tl {

struct ScheduledOp {
  std::string name;
  size_t role, scope;
};

struct ScheduledSync {
  size_t source, target, pipeline;
  /*! The source waits for nobody. */
  bool full_only;
};

struct ScheduledScope {
  /*! Name of the loop, "" for the kernel's body. */
  std::string body;
  std::vector<ScheduledSync> syncs;
};

struct Schedule {
  Span span;
  std::vector<Role> roles;
  std::vector<std::string> pipelines;
  std::vector<int64_t> depths;
  std::vector<ScheduledOp> ops;
  std::vector<ScheduledScope> scopes;

  std::optional<size_t> FindOp(const std::string& name) const;
  std::optional<size_t> FindScope(const std::string& body) const;
};

std::optional<Schedule> ScheduleOf(const SBlockNode* block, int64_t warp_threads);
/*! The versions that the program gives to a buffer, with the name of T.annotate_ws_pipeline_depth.
 */
std::optional<int64_t> DepthOf(const SBlockNode* block, const Var& buffer);
/*! Warns of versions of buffers that no producer loads: all but `loaded`, for which `why` is the
 * cause if there is one. ValueError for a name that no buffer has. */
void WarnOfDepths(const SBlockNode* block, const std::vector<Var>& loaded, const std::string& why);

/*! The name that a loop or an operator has itself, "" without one. TypeError for one that is no
 * string. */
std::string NameOf(const Stmt& s);
/*! The statement without names; kernels that have a schedule are left as they are. */
Stmt WithoutNames(const Stmt& s);

// --- scheduled_roles.cc
/*! The plan of a schedule. ValueError where the program does not fit it. */
WarpRoles PlanScheduledRoles(const KernelInfo& kernel, const Schedule& schedule);

// --- scheduled_memory.cc
/*! Refuses roles that depend on each other by other memory than what syncs pass on: two operations
 * of two roles that touch one buffer, one of them writing. */
void CheckMemoryOfRoles(const KernelInfo& kernel, const Schedule& schedule, const WarpRoles& roles);

}  // namespace tl
