/*! The plan of a program's own schedule. */
#include <algorithm>
#include <unordered_map>

#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/tile_op.h"
#include "../../tvm/disjoint.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../thread/effects.h"
#include "pipeline.h"
#include "pipeline_reads.h"
#include "ws_schedule.h"

namespace tl {
namespace {

bool IsAssumption(const Stmt& s) {
  const auto* evaluate = s.as<EvaluateNode>();
  return evaluate && IsCallTo(evaluate->value, "tirx.assume");
}

/*! Control of the program, which is that of all roles whatever its name. */
bool IsControl(const Stmt& s) { return IsBreak(s) || IsContinue(s) || IsAssumption(s); }

/*! What every role may run for itself. */
bool IsScalarStatement(const Stmt& s) {
  const auto* store = s.as<BufferStoreNode>();
  return s.as<BindNode>() || (store && IsLocal(store->buffer)) || IsControl(s);
}

/*! The statement starts copies to shared memory that it does not wait for. */
bool StartsCopies(const Stmt& s) {
  struct Finder : StmtExprVisitor {
    bool found = false;
    using StmtExprVisitor::Visit_;
    void Visit_(const CallNode* op) final {
      found |= TileOpIntAttr(op, "is_async_copy", 0) != 0;
      for (const PointerAccess& p : PointerAccesses(op)) found |= p.access == Access::kAsyncWrite;
      Default(op);
    }
  } finder;
  finder(s);
  return finder.found;
}

std::string Quoted(const std::string& name) { return "'" + name + "'"; }

/*! The node of a body that has `node` in it; nullptr if it stands elsewhere. */
const RoleNode* AncestorIn(const RoleSequence* body, const RoleNode* node) {
  while (node && node->parent != body) node = node->parent->owner;
  return node;
}

class SchedulePlanner {
 public:
  SchedulePlanner(const KernelInfo& kernel, const Schedule& schedule, WarpRoles* roles)
      : kernel_(kernel), schedule_(schedule), roles_(*roles), views_(kernel.block->body) {
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
    FindBuffers();
    CheckMemoryOfRoles(kernel_, schedule_, roles_);
    for (size_t p = 0; p < roles_.channels.size(); ++p) MakeWindows(p);
    if (const RoleNode* jump = JumpOutOfWindow(roles_)) {
      Refuse(jump->stmt->span,
             "found a jump out of a body whose roles wait for each other, wanted all of it to run; "
             "put what it skips under a condition");
    }
    ChooseFills();
    CountFills(&roles_);
    CountArrivals(&roles_);
    for (size_t r = 0; r < roles_.roles.size(); ++r) roles_.roles[r].one_thread = OnlyIssues(r);
    PlaceReleases(kernel_, views_, &roles_);
  }

 private:
  [[noreturn]] static void Refuse(const Span& span, const std::string& message) {
    ThrowAt(span, "ValueError", message);
  }
  const std::string& OpName(size_t op) const { return schedule_.ops[op].name; }

  // --- names
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

  /*! The scope in whose body a sequence is. */
  std::optional<size_t> ScopeAround(const RoleSequence* sequence) const {
    for (; sequence; sequence = sequence->owner ? sequence->owner->parent : nullptr) {
      const auto it = std::find(scope_of_.begin(), scope_of_.end(), sequence);
      if (it != scope_of_.end()) return it - scope_of_.begin();
    }
    return std::nullopt;
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
    Refuse(where, "role " + Quoted(roles_.roles[role].name) +
                      " found a statement that it has to run as well: " + why +
                      "; make it part of the one operation that needs it");
  }

  // --- channels
  template <typename F>
  void ForEachSync(size_t pipeline, F f) const {
    for (size_t s = 0; s < schedule_.scopes.size(); ++s) {
      for (const ScheduledSync& sync : schedule_.scopes[s].syncs) {
        if (sync.pipeline == pipeline) f(s, sync);
      }
    }
  }

  std::string SyncText(const ScheduledSync& sync) const {
    return "T.WSSync(" + Quoted(OpName(sync.source)) + ", " + Quoted(OpName(sync.target)) + ", " +
           Quoted(schedule_.pipelines[sync.pipeline]) + ")";
  }

  /*! Of each pipeline: what its sources write for its targets. */
  void FindBuffers() {
    for (size_t p = 0; p < schedule_.pipelines.size(); ++p) {
      Channel channel;
      channel.name = schedule_.pipelines[p];
      channel.versions = schedule_.depths[p];
      ForEachSync(p, [&](size_t, const ScheduledSync& sync) {
        channel.source = schedule_.ops[sync.source].role;
        const std::vector<Var> passed = PassedOn(sync);
        if (passed.empty()) {
          Refuse(nodes_of_[sync.target][0]->stmt->span,
                 "found " + SyncText(sync) +
                     " without shared memory that the first writes and the second uses, wanted it "
                     "to order something; leave it out");
        }
        for (const Var& v : passed) {
          if (!Contains(channel.buffers, v)) channel.buffers.push_back(v);
        }
      });
      for (const Var& v : channel.buffers) CheckOnePipeline(v, p);
      roles_.channels.push_back(std::move(channel));
    }
  }

  std::vector<Var> PassedOn(const ScheduledSync& sync) const {
    std::vector<Var> passed;
    for (const RoleNode* source : nodes_of_[sync.source]) {
      for (const auto* list : {&source->use.writes, &source->opaque}) {
        for (const Var& v : *list) {
          const auto& targets = nodes_of_[sync.target];
          const bool used = std::any_of(targets.begin(), targets.end(),
                                        [&](const RoleNode* t) { return IsUsed(*t, v); });
          if (IsShared(v) && used && !Contains(passed, v)) passed.push_back(v);
        }
      }
    }
    return passed;
  }

  void CheckOnePipeline(const Var& buffer, size_t pipeline) const {
    for (const Channel& other : roles_.channels) {
      if (!Contains(other.buffers, buffer)) continue;
      Refuse(schedule_.span, "found " + std::string(buffer->name) + " in the pipelines " +
                                 Quoted(other.name) + " and " +
                                 Quoted(schedule_.pipelines[pipeline]) +
                                 ", wanted one; write what the second role makes of it to another "
                                 "buffer");
    }
  }

  // --- windows
  void MakeWindows(size_t p) {
    Channel& channel = roles_.channels[p];
    for (size_t s = 0; s < schedule_.scopes.size(); ++s) {
      std::vector<const RoleNode*> nodes;
      ForEachSync(p, [&](size_t scope, const ScheduledSync& sync) {
        if (scope != s) return;
        for (size_t op : {sync.source, sync.target}) {
          nodes.insert(nodes.end(), nodes_of_[op].begin(), nodes_of_[op].end());
        }
      });
      if (nodes.empty()) continue;
      const RoleSequence* body = CommonBody(nodes);
      if (ScopeAround(body) != s) {
        Refuse(nodes[0]->stmt->span,
               "found " + Quoted(nodes[0]->id) + " and what pipeline " + Quoted(channel.name) +
                   " connects it with in another body than that of the scope which lists the "
                   "T.WSSync; list it in the scope that has both");
      }
      channel.windows.push_back({body, SIZE_MAX, 0, 0, {}});
      CheckApart(channel);
    }
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (node->IsLeaf() && node->role) Extend(*node, &channel);
    });
    CheckTargets(channel);
    for (const Window& w : channel.windows) CheckOrder(channel, w);
    if (channel.versions > 1) CheckVersions(channel);
    ForEachSync(p, [&](size_t, const ScheduledSync& sync) { CheckKind(sync, channel); });
  }

  static const RoleSequence* CommonBody(const std::vector<const RoleNode*>& nodes) {
    const RoleSequence* body = nodes[0]->parent;
    while (!std::all_of(nodes.begin(), nodes.end(),
                        [&](const RoleNode* n) { return AncestorIn(body, n); })) {
      body = body->owner->parent;
    }
    return body;
  }

  /*! Counts a statement that uses the channel's buffers into its window. */
  void Extend(const RoleNode& node, Channel* channel) {
    const auto used = std::find_if(channel->buffers.begin(), channel->buffers.end(),
                                   [&](const Var& v) { return IsUsed(node, v); });
    if (used == channel->buffers.end()) return;
    const auto window =
        std::find_if(channel->windows.begin(), channel->windows.end(),
                     [&](const Window& w) { return AncestorIn(w.sequence, &node); });
    if (window == channel->windows.end()) {
      Refuse(node.stmt->span, "found " + std::string((*used)->name) + " of pipeline " +
                                  Quoted(channel->name) +
                                  " outside of the bodies in which it is passed on, wanted another "
                                  "buffer here");
    }
    const size_t index = IndexOf(*AncestorIn(window->sequence, &node));
    window->last_use = std::max(window->last_use, index);
    if (*node.role == channel->source) {
      window->first_fill = std::min(window->first_fill, index);
      window->last_fill = std::max(window->last_fill, index);
      return;
    }
    auto use = std::find_if(window->uses.begin(), window->uses.end(),
                            [&](const SlotUse& u) { return u.role == *node.role; });
    if (use == window->uses.end()) use = window->uses.insert(use, {*node.role, index, index});
    use->acquire = std::min(use->acquire, index);
    use->release = std::max(use->release, index);
    for (const Var& v : channel->buffers) {
      channel->consumer_writes |= Contains(node.use.writes, v) || Contains(node.opaque, v);
    }
    // Products and stores may be an engine's.
    channel->read_by_engine |= AsTileOp(node.stmt) != nullptr;
  }

  /*! A number of fills takes one window after the other. */
  void CheckApart(const Channel& channel) const {
    const Window& w = channel.windows.back();
    for (const Window& other : channel.windows) {
      if (&other == &w) continue;
      const auto is_inside = [](const Window& inner, const Window& outer) {
        return inner.sequence->owner && AncestorIn(outer.sequence, inner.sequence->owner);
      };
      if (!is_inside(w, other) && !is_inside(other, w)) continue;
      Refuse(w.sequence->nodes[0]->stmt->span,
             "found pipeline " + Quoted(channel.name) +
                 " in a body and in one inside of it, wanted bodies apart; give each a pipeline of "
                 "its own");
    }
  }

  /*! Roles wait for what stands before the wait in the program, or nobody could go on. */
  void CheckOrder(const Channel& channel, const Window& w) const {
    for (const SlotUse& use : w.uses) {
      if (w.last_fill < use.acquire) continue;
      Refuse(w.sequence->nodes[use.acquire]->stmt->span,
             "found role " + Quoted(roles_.roles[use.role].name) + " using a buffer of pipeline " +
                 Quoted(channel.name) + ", which role " +
                 Quoted(roles_.roles[channel.source].name) + " fills at " +
                 Where(w.sequence->nodes[w.last_fill]->stmt->span) +
                 ", wanted it after all of that; change their order in the program");
    }
  }

  void CheckTargets(const Channel& channel) const {
    for (size_t r = 0; r < roles_.roles.size(); ++r) {
      if (!channel.IsUsedBy(r)) continue;
      for (const Window& w : channel.windows) {
        const bool uses = std::any_of(w.uses.begin(), w.uses.end(),
                                      [&](const SlotUse& use) { return use.role == r; });
        const bool fills = w.first_fill != SIZE_MAX;
        if (uses && fills) continue;
        Refuse(w.sequence->nodes[0]->stmt->span,
               "found pipeline " + Quoted(channel.name) + " here without " +
                   (fills ? "a use by role " + Quoted(roles_.roles[r].name)
                          : std::string("anything that fills it")) +
                   ", wanted the same roles in each of its scopes; give this one a pipeline of its "
                   "own");
      }
    }
  }

  /*! With several versions an iteration sees nothing but what it has written itself. */
  void CheckVersions(const Channel& channel) const {
    for (const Window& w : channel.windows) {
      std::vector<Stmt> body;
      for (const auto& node : w.sequence->nodes) body.push_back(node->stmt);
      for (const Var& v : channel.buffers) {
        for (size_t reader = w.first_fill; reader <= w.last_use; ++reader) {
          const RoleNode& node = *w.sequence->nodes[reader];
          if (!Contains(node.use.reads, v) && !Contains(node.opaque, v)) continue;
          bool supplied = false;
          for (size_t writer = w.first_fill; writer < reader && !supplied; ++writer) {
            const bool writes = Contains(w.sequence->nodes[writer]->use.writes, v);
            supplied = writes && Supplies(body, writer, reader, v, views_);
          }
          if (supplied) continue;
          Refuse(node.stmt->span,
                 "found a statement that reads more of " + std::string(v->name) +
                     " than one statement before it has written in the same iteration, wanted that "
                     "for the " +
                     std::to_string(channel.versions) + " versions of pipeline " +
                     Quoted(channel.name) + "; give it depth=1");
        }
      }
    }
  }

  void CheckKind(const ScheduledSync& sync, const Channel& channel) const {
    const bool once = channel.windows.size() == 1 && !IsRepeated(*channel.windows[0].sequence);
    if (!sync.full_only || once) return;
    Refuse(nodes_of_[sync.source][0]->stmt->span,
           "found " + SyncText(sync) +
               " of kind FULL where its source runs several times, wanted FULL_EMPTY: the source "
               "would overwrite what the target reads; leave the kind out");
  }

  // --- fills
  void ChooseFills() {
    std::vector<RoleGemm> gemms;
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (!node->IsLeaf() || !IsGemm(node->stmt)) return;
      gemms.push_back({node->stmt, roles_.roles[*node->role].range.threads});
    });
    const Placements placed = DictatedLayouts(kernel_, views_, gemms);
    const std::vector<Var> written = WrittenGlobals(kernel_, roles_.body);
    ForEachNode(roles_.body, [&](RoleNode* node) {
      if (!node->IsLeaf() || !node->role) return;
      for (size_t c = 0; c < roles_.channels.size(); ++c) {
        Channel& channel = roles_.channels[c];
        const bool fills =
            channel.source == *node->role &&
            std::any_of(channel.buffers.begin(), channel.buffers.end(), [&](const Var& v) {
              return Contains(node->use.writes, v) || Contains(node->opaque, v);
            });
        if (!fills) continue;
        node->channel = c;
        node->fill = KindOf(node, channel, placed, written);
        channel.by_cp_async |= node->fill == FillBy::kCpAsync;
        channel.by_threads |= node->fill == FillBy::kThreads;
      }
    });
  }

  FillBy KindOf(RoleNode* node, const Channel& channel, const Placements& placed,
                const std::vector<Var>& written) const {
    const BufferUse& use = node->use;
    if (StartsCopies(node->stmt)) {
      Refuse(node->stmt->span, "found copies in operation " + Quoted(node->id) +
                                   " that the program waits for itself, where pipeline " +
                                   Quoted(channel.name) +
                                   " is to announce them, wanted T.copy; it waits where it has to");
    }
    const bool direct = std::any_of(channel.windows.begin(), channel.windows.end(),
                                    [&](const Window& w) { return w.sequence == node->parent; });
    if (!IsTileLoad(node->stmt)) {
      node->why.clear();
    } else if (!direct) {
      node->why = "it stands in a loop or a branch of its own";
    } else if (!IsOnlyFilled(*node, use.writes)) {
      node->why = "its role uses the tile itself, or writes some of it twice";
    } else if (PassConfigFlag("tl.disable_tma_lower", false)) {
      node->why = "tl.disable_tma_lower";
    } else if (std::any_of(use.reads.begin(), use.reads.end(), [&](const Var& v) {
                 return Contains(written, v) || !(IsGlobal(v) || IsLocal(v));
               })) {
      node->why = "what it loads depends on memory that the kernel writes";
    } else {
      KernelInfo of_role = kernel_;
      of_role.threads = roles_.roles[*node->role].range.threads;
      const FillBy kind = KindOfFill(node->stmt, of_role, placed, channel.versions, &node->why);
      if (kind != FillBy::kNothing) return kind;
      Refuse(node->stmt->span, "found a copy for pipeline " + Quoted(channel.name) + " that " +
                                   Quoted(node->id) + " cannot make: " + node->why +
                                   "; use T.copy without prefer_instruction");
    }
    const CallNode* op = AsTileOp(node->stmt);
    const Any prefer = op ? TileOpAttr(op, "prefer_instruction") : Any(nullptr);
    if (prefer != nullptr && prefer.cast<String>() == "tma") {
      Refuse(node->stmt->span,
             "found prefer_instruction=\"tma\" in operation " + Quoted(node->id) +
                 ", where TMA makes no copy: " +
                 (node->why.empty() ? "it loads no tile of a tensor" : node->why) +
                 "; leave it out");
    }
    return FillBy::kThreads;
  }

  /*! The role does nothing with the buffers but load parts of them that have nothing in common:
   * the loads of one fill may end in any order, and nobody in the role waits for them. */
  bool IsOnlyFilled(const RoleNode& node, const std::vector<Var>& buffers) const {
    bool only = true;
    ForEachNode(roles_.body, [&](const RoleNode* other) {
      if (other == &node || !other->IsLeaf() || other->role != node.role) return;
      if (!AncestorIn(node.parent, other)) return;
      for (const Var& v : buffers) {
        if (!IsUsed(*other, v)) continue;
        only &= IsTileLoad(other->stmt) && !Contains(other->use.reads, v) &&
                AreApart(TileOf(node), TileOf(*other));
      }
    });
    return only;
  }

  static TileRegion TileOf(const RoleNode& load) {
    return TileRegion::From(AsTileOp(load.stmt)->args[1]);
  }

  static bool AreApart(const TileRegion& a, const TileRegion& b) {
    if (!a.buffer.same_as(b.buffer)) return false;
    Analyzer analyzer;
    for (size_t d = 0; d < a.ranges.size(); ++d) {
      const auto na = AsInt(a.ranges[d]->extent), nb = AsInt(b.ranges[d]->extent);
      if (na && nb && AreDisjoint(a.ranges[d]->min, *na, b.ranges[d]->min, *nb, &analyzer)) {
        return true;
      }
    }
    return false;
  }

  /*! All that the role does is issue copies by TMA. */
  bool OnlyIssues(size_t role) const {
    bool only = true;
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (node->role == role) only &= node->fill == FillBy::kTma;
    });
    return only;
  }

  const KernelInfo& kernel_;
  const Schedule& schedule_;
  WarpRoles& roles_;
  Views views_;
  /*! The bodies of the scopes, and the statements of the operations. */
  std::vector<const RoleSequence*> scope_of_;
  std::vector<std::vector<RoleNode*>> nodes_of_;
};

}  // namespace

WarpRoles PlanScheduledRoles(const KernelInfo& kernel, const Schedule& schedule) {
  WarpRoles roles;
  SchedulePlanner(kernel, schedule, &roles).Run();
  return roles;
}

}  // namespace tl
