/*! A kernel and its schedule while the plan is made: what the parts of planning know. */
#pragma once
#include <algorithm>

#include "../../tvm/error.h"
#include "ws_schedule.h"

namespace tl {

inline std::string Quoted(const std::string& name) { return "'" + name + "'"; }

/*! The node of a body that has `node` in it; nullptr if it stands elsewhere. */
inline const RoleNode* AncestorIn(const RoleSequence* body, const RoleNode* node) {
  while (node && node->parent != body) node = node->parent->owner;
  return node;
}

class ScheduledProgram {
 public:
  ScheduledProgram(const KernelInfo& kernel, const Schedule& schedule, WarpRoles* roles)
      : kernel_(kernel), schedule_(schedule), roles_(*roles), views_(kernel.block->body) {}

 protected:
  [[noreturn]] static void Refuse(const Span& span, const std::string& message) {
    ThrowAt(span, "ValueError", message);
  }
  const std::string& OpName(size_t op) const { return schedule_.ops[op].name; }

  /*! The scope in whose body a sequence is. */
  std::optional<size_t> ScopeAround(const RoleSequence* sequence) const {
    for (; sequence; sequence = sequence->owner ? sequence->owner->parent : nullptr) {
      const auto it = std::find(scope_of_.begin(), scope_of_.end(), sequence);
      if (it != scope_of_.end()) return it - scope_of_.begin();
    }
    return std::nullopt;
  }

  const KernelInfo& kernel_;
  const Schedule& schedule_;
  /*! The plan, which all parts write to. */
  WarpRoles& roles_;
  Views views_;
  /*! The bodies of the scopes, and the statements of the operations. */
  std::vector<const RoleSequence*> scope_of_;
  std::vector<std::vector<RoleNode*>> nodes_of_;
};

// --- scheduled_channels.cc
/*! Channels for the pipelines, with their windows. ValueError where a sync orders nothing, roles
 * depend on each other without one, or would wait for what comes after the wait. */
void MakeScheduledChannels(const ScheduledProgram& program);

// --- scheduled_fills.cc
/*! Who makes each fill; roles that only issue copies by TMA are one thread. */
void ChooseScheduledFills(const ScheduledProgram& program);

}  // namespace tl
