/*! What the roles of a schedule pass on: the buffers of each pipeline, and the windows in which
 * they are filled and used. */
#include <algorithm>

#include "pipeline.h"
#include "pipeline_reads.h"
#include "scheduled_program.h"

namespace tl {
namespace {

class ChannelMaker : ScheduledProgram {
 public:
  explicit ChannelMaker(const ScheduledProgram& program) : ScheduledProgram(program) {}

  void Run() {
    FindBuffers();
    CheckMemoryOfRoles(kernel_, schedule_, roles_);
    for (size_t p = 0; p < roles_.channels.size(); ++p) MakeWindows(p);
  }

 private:
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

  /*! Finds what the sources of each pipeline write for its targets. */
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
          const bool used = AnyOf(targets, [&](const RoleNode* t) { return IsUsed(*t, v); });
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

  void MakeWindows(size_t p) {
    Channel& channel = roles_.channels[p];
    for (size_t s = 0; s < schedule_.scopes.size(); ++s) {
      std::vector<const RoleNode*> nodes;
      ForEachSync(p, [&](size_t scope, const ScheduledSync& sync) {
        if (scope != s) return;
        for (size_t op : {sync.source, sync.target}) {
          AppendRange(&nodes, nodes_of_[op]);
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
      if (node->IsLeaf() && node->role && *node->role != channel.source) AddUse(*node, &channel);
    });
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (node->IsLeaf() && node->role == channel.source) AddFill(*node, &channel);
    });
    CheckTargets(channel);
    for (const Window& w : channel.windows) CheckOrder(channel, w);
    if (channel.versions > 1) CheckVersions(channel);
    ForEachSync(p, [&](size_t, const ScheduledSync& sync) { CheckKind(sync, channel); });
  }

  static const RoleSequence* CommonBody(const std::vector<const RoleNode*>& nodes) {
    const RoleSequence* body = nodes[0]->parent;
    while (!AllOf(nodes, [&](const RoleNode* n) { return AncestorIn(body, n); })) {
      body = body->owner->parent;
    }
    return body;
  }

  static bool Writes(const RoleNode& node, const Channel& channel) {
    return AnyOf(channel.buffers, [&](const Var& v) {
      return Contains(node.use.writes, v) || Contains(node.opaque, v);
    });
  }

  /*! The window of a statement that uses the channel's buffers; nullptr for one that does not. */
  Window* WindowOf(const RoleNode& node, Channel* channel) const {
    const auto used = FindIf(channel->buffers, [&](const Var& v) { return IsUsed(node, v); });
    if (used == channel->buffers.end()) return nullptr;
    const auto window =
        FindIf(channel->windows, [&](const Window& w) { return AncestorIn(w.sequence, &node); });
    if (window == channel->windows.end()) {
      Refuse(node.stmt->span, "found " + std::string((*used)->name) + " of pipeline " +
                                  Quoted(channel->name) +
                                  " outside of the bodies in which it is passed on, wanted another "
                                  "buffer here");
    }
    return &*window;
  }

  /*! The source has the slot while it writes; where others write, too, also while it reads. */
  void AddFill(const RoleNode& node, Channel* channel) const {
    Window* const window = WindowOf(node, channel);
    if (!window) return;
    const size_t index = IndexOf(*AncestorIn(window->sequence, &node));
    window->last_use = std::max(window->last_use, index);
    if (!Writes(node, *channel) && !channel->consumer_writes) return;
    window->first_fill = std::min(window->first_fill, index);
    window->last_fill = std::max(window->last_fill, index);
  }

  void AddUse(const RoleNode& node, Channel* channel) const {
    Window* const window = WindowOf(node, channel);
    if (!window) return;
    const size_t index = IndexOf(*AncestorIn(window->sequence, &node));
    window->last_use = std::max(window->last_use, index);
    auto use = FindIf(window->uses, [&](const SlotUse& u) { return u.role == *node.role; });
    if (use == window->uses.end()) use = window->uses.insert(use, {*node.role, index, index});
    use->acquire = std::min(use->acquire, index);
    use->release = std::max(use->release, index);
    channel->consumer_writes |= Writes(node, *channel);
    // MMAs and stores may be the async proxy's.
    channel->read_by_async_proxy |= AsTileOp(node.stmt) != nullptr;
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
                 ", wanted it after all of that; change their order in the program, or give the "
                 "buffers pipelines of their own");
    }
  }

  void CheckTargets(const Channel& channel) const {
    for (size_t r = 0; r < roles_.roles.size(); ++r) {
      if (!channel.IsUsedBy(r)) continue;
      for (const Window& w : channel.windows) {
        const bool uses = w.UseBy(r) != nullptr;
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
        for (size_t reader = 0; reader <= w.last_use; ++reader) {
          const RoleNode& node = *w.sequence->nodes[reader];
          if (!Contains(node.use.reads, v) && !Contains(node.opaque, v)) continue;
          if (IsSupplied(body, reader, v, views_)) continue;
          Refuse(
              node.stmt->span,
              "found a statement that reads more of " + std::string(v->name) +
                  " than statements before it have written in the same iteration, wanted that for "
                  "the " +
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
};

}  // namespace

void MakeScheduledChannels(const ScheduledProgram& program) { ChannelMaker(program).Run(); }

}  // namespace tl
