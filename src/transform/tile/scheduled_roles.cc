/*! The plan of a program's own schedule: which statements its names mean, and who runs them. */
#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../tvm/attrs.h"
#include "pipeline.h"
#include "scheduled_program.h"

namespace tl {
namespace {

/*! Control of the program, which is that of all roles whatever its name. */
bool IsControl(const Stmt& s) { return IsBreak(s) || IsContinue(s) || AssumptionOf(s).defined(); }

/*! What every role may run for itself. */
bool IsScalarStatement(const Stmt& s) {
  const auto* store = s.as<BufferStoreNode>();
  const auto* evaluate = s.as<EvaluateNode>();
  // What is left of nothing.
  if (evaluate && AsInt(evaluate->value)) return true;
  return s.as<BindNode>() || (store && IsLocal(store->buffer)) || IsControl(s);
}

class SchedulePlanner : ScheduledProgram {
 public:
  SchedulePlanner(const KernelInfo& kernel, const Schedule& schedule, WarpRoles* roles)
      : ScheduledProgram(kernel, schedule, roles) {
    roles_.roles = schedule.roles;
    roles_.threads = kernel.threads;
    roles_.is_scheduled = true;
  }

  void Run() {
    if (!BuildRoleTree(kernel_, kernel_.block->body, views_, &roles_)) {
      Refuse(roles_.where, "found a statement that a schedule does not take: " + roles_.why +
                               "; leave it or the schedule out");
    }
    FindScopes();
    FindOperations();
    for (size_t r = 0; r < roles_.roles.size(); ++r) Slice(r);
    MakeScheduledChannels(*this);
    if (const RoleNode* jump = JumpOutOfWindow(roles_)) {
      Refuse(jump->stmt->span,
             "found a jump out of a body whose roles wait for each other, wanted all of it to run; "
             "put what it skips under a condition");
    }
    ChooseScheduledFills(*this);
    CountFills(&roles_);
    CountArrivals(&roles_, kernel_.target->warp_threads);
    PlaceReleases(views_, &roles_);
    RefineReleases(&roles_, kernel_.target->warp_threads);
  }

 private:
  void FindScopes() {
    scope_of_.assign(schedule_.scopes.size(), nullptr);
    if (const auto kernel = schedule_.FindScope("")) scope_of_[*kernel] = &roles_.body;
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (node->Loop() && node->Loop()->annotations.count(kUserOrder)) {
        Refuse(node->stmt->span,
               "found order and stage of T.Pipelined in a kernel with a schedule, wanted the order "
               "of the program, in which each role runs its operations; leave them out");
      }
      if (node->IsLeaf() || node->id.empty()) return;
      const auto scope = schedule_.FindScope(node->id);
      if (!scope) return CheckName(*node);
      if (scope_of_[*scope]) {
        Refuse(node->stmt->span, "found a second loop with the name " + Quoted(node->id) +
                                     ", wanted one body for a scope; name them apart");
      }
      scope_of_[*scope] = &node->body;
    });
    for (size_t s = 0; s < scope_of_.size(); ++s) {
      if (scope_of_[s] || schedule_.scopes[s].body.empty()) continue;
      Refuse(schedule_.span, "found no loop with the name " + Quoted(schedule_.scopes[s].body) +
                                 " of a scope, wanted annotations={T.WSID: " +
                                 Quoted(schedule_.scopes[s].body) + "} on one");
    }
  }

  void CheckName(const RoleNode& node) const {
    if (schedule_.FindOp(node.id)) return;
    std::string known;
    for (const ScheduledOp& op : schedule_.ops)
      known += (known.empty() ? "" : ", ") + Quoted(op.name);
    Refuse(node.stmt->span, "found the name " + Quoted(node.id) +
                                ", which the schedule does not know, wanted one of " + known +
                                "; add it to a scope");
  }

  void FindOperations() {
    nodes_of_.assign(schedule_.ops.size(), {});
    ForEachNode(roles_.body, [&](RoleNode* node) {
      if (!node->IsLeaf()) return;
      const bool has_name = !node->id.empty() && !schedule_.FindScope(node->id);
      if (has_name && !IsControl(node->stmt)) {
        CheckName(*node);
        const size_t op = *schedule_.FindOp(node->id);
        CheckPlace(*node, op);
        node->role = schedule_.ops[op].role;
        nodes_of_[op].push_back(node);
      } else if (IsFetchTile(node->stmt)) {
        Refuse(node->stmt->span,
               "found T.Persistent with counter in a kernel with a schedule, wanted tiles that "
               "every role knows by their numbers; leave counter out");
      } else if (!IsScalarStatement(node->stmt)) {
        Refuse(node->stmt->span,
               "found a statement that no role runs, wanted the name of an operation of the "
               "schedule; give it annotations={T.WSID: \"name\"}, or put it under "
               "T.ws_op(\"name\")");
      }
    });
    for (size_t op = 0; op < nodes_of_.size(); ++op) {
      if (!nodes_of_[op].empty()) continue;
      Refuse(schedule_.span, "found no statement with the name " + Quoted(OpName(op)) +
                                 " of an operation, wanted one; leave the operation out");
    }
  }

  void CheckPlace(const RoleNode& node, size_t op) const {
    const auto found = ScopeAround(node.parent);
    const size_t wanted = schedule_.ops[op].scope;
    if (found == wanted) return;
    const auto text = [&](std::optional<size_t> s) {
      if (!s) return std::string("no scope");
      const std::string& body = schedule_.scopes[*s].body;
      return body.empty() ? std::string("the kernel's scope") : "the scope of " + Quoted(body);
    };
    Refuse(node.stmt->span, "found operation " + Quoted(OpName(op)) + " in " + text(found) +
                                ", wanted it in " + text(wanted) +
                                ", which lists it; list it where it stands");
  }

  void Slice(size_t role) {
    Span where;
    const std::string why = SliceRole(kernel_, views_, role, &roles_.body, &where);
    if (why.empty()) return;
    Refuse(where, "found a statement that role " + Quoted(roles_.roles[role].name) +
                      " depends on and cannot run for itself: " + why +
                      "; make it part of the one operation that needs it");
  }
};

}  // namespace

WarpRoles PlanScheduledRoles(const KernelInfo& kernel, const Schedule& schedule) {
  WarpRoles roles;
  SchedulePlanner(kernel, schedule, &roles).Run();
  return roles;
}

}  // namespace tl
