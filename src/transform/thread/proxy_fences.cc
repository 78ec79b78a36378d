#include "proxy_fences.h"

#include "../../op/intrinsics.h"

namespace tl {
namespace {

using Kind = SyncNode::Kind;

/*! Whether other threads run the two nodes, apart, so that neither comes before the other. */
bool RunApart(const SyncNode& a, const SyncNode& b) {
  if (a.groups.IsDisjoint(b.groups)) return true;
  for (const SyncNode* n = &a; n->parent; n = n->parent) {
    const SyncNode* around = n->parent;
    if (!b.IsInside(around)) continue;
    const SyncNode* m = &b;
    while (m->parent && m->parent != around) m = m->parent;
    return around->kind == Kind::kIf && !around->uniform && m->parent == around &&
           m->in_otherwise != n->in_otherwise;
  }
  return false;
}

/*! Whether a node arrives where someone may wait who then lets the async proxy write. */
bool TellsOthers(const SyncNode& node) {
  const auto* op = node.stmt.as<EvaluateNode>();
  const auto* call = op ? op->value.as<CallNode>() : nullptr;
  const IntrinsicEffects* e = call ? EffectsOf(call) : nullptr;
  return e && (e->tells == ThreadScope::kBlock || e->tells == ThreadScope::kCluster) &&
         e->meets != ThreadScope::kBlock;
}

bool CallsAny(const SyncNode& node, std::initializer_list<const char*> ops) {
  const auto* op = node.stmt.as<EvaluateNode>();
  return op && AnyOf(ops, [&](const char* name) { return IsCallTo(op->value, name); });
}

/*! Places a fence in front of the barrier; without one, in front of the node. */
void Fence(const SyncNode& node, const SyncNode* barrier, const SharedAccess& access) {
  auto* place = const_cast<SyncNode*>(barrier ? barrier : &node);
  place->plan->fence = true;
  place->plan->tensor_fence |= access.tensor;
}

bool IsInsideAll(const SyncNode& node, const std::vector<const SyncNode*>& regions) {
  return AllOf(regions, [&](const SyncNode* r) { return node.IsInside(r); });
}

/*! Drops the accesses of the threads that pass this fence. */
void PassFence(const SyncNode& node, bool of_tensors, SyncState* state) {
  const std::vector<const SyncNode*> regions = DivergentAround(node);
  for (auto it = state->unfenced.begin(); it != state->unfenced.end();) {
    const bool is_meant = of_tensors || !it->first->tensor;
    const bool passes = is_meant && IsInsideAll(*it->first->node, regions);
    it = passes ? state->unfenced.erase(it) : std::next(it);
  }
}

}  // namespace

bool ProxyFences::AreNeeded(const SyncNode& root) {
  bool found = false;
  for (const SharedAccess& a : root.accesses) {
    found |= a.async_proxy;
    if (a.async_proxy && a.writes) filled_.push_back(a.buffer);
  }
  for (const auto* nodes : {&root.body, &root.otherwise}) {
    for (const auto& n : *nodes) found |= AreNeeded(*n);
  }
  return found;
}

void ProxyFences::NoteBarrier(const SyncNode& node, SyncState* state) {
  for (auto& [access, barriers] : state->unfenced) {
    const bool all = DivergentAround(node).empty();
    if (all || subsets_.Contains(subsets_.At(&node), subsets_.At(access->node))) {
      barriers = {&node};
    }
  }
}

void ProxyFences::NoteSyncWarp(const SyncNode& node, SyncState* state) {
  if (!CallsAny(node, {kSyncWarp})) return;
  const std::vector<const SyncNode*> regions = DivergentAround(node);
  for (auto& [access, barriers] : state->unfenced) {
    const bool all = IsInsideAll(*access->node, regions) ||
                     (subsets_.Meeting(&node) &&
                      subsets_.Contains(subsets_.At(&node), subsets_.At(access->node)));
    if (all && barriers.erase(nullptr)) barriers.insert(&node);
  }
}

void ProxyFences::Place(const SyncNode& node, SyncState* state) {
  if (TellsOthers(node)) {
    for (const auto& [access, barriers] : state->unfenced) {
      if (access->writes && barriers.count(nullptr)) told_.insert(access);
      if (access->writes) continue;
      for (const SyncNode* barrier : barriers) Fence(node, barrier, *access);
    }
  }
  if (node.plan->fence || CallsAny(node, {kFenceProxyAsync, kFenceProxyAsyncAll})) {
    PassFence(node, node.plan->tensor_fence || CallsAny(node, {kFenceProxyAsyncAll}), state);
  }
  for (const SharedAccess& a : node.accesses) {
    if (!a.async_proxy) {
      if (a.writes || IsFilled(a.buffer)) state->unfenced[&a] = {nullptr};
      continue;
    }
    for (const auto& [access, barriers] : state->unfenced) {
      for (const SyncNode* barrier : barriers) {
        if (NeedsFence(*access, !barrier, a)) Fence(node, barrier, *access);
      }
    }
    for (const SharedAccess* access : told_) {
      if (RunApart(*access->node, node) && NeedsFence(*access, true, a)) {
        Fence(node, nullptr, *access);
      }
    }
  }
}

/*! Whether the async proxy writes bytes of the buffer. */
bool ProxyFences::IsFilled(const Var& buffer) {
  const auto [it, is_new] = is_filled_.try_emplace(buffer.get());
  if (is_new) {
    it->second =
        AnyOf(filled_, [&](const Var& filled) { return conflict_.ShareBytes(buffer, filled); });
  }
  return it->second;
}

/*! Whether a proxy fence has to stand between an access of a thread and a later one of the async
 * proxy. `no_barrier` says that no barrier is between them. */
bool ProxyFences::NeedsFence(const SharedAccess& access, bool no_barrier,
                             const SharedAccess& by_proxy) {
  if (!access.writes && !by_proxy.writes) return false;
  if (!access.writes && by_proxy.node->groups.IsDisjoint(access.node->groups)) return false;
  const bool own = by_proxy.signalled && access.buffer.same_as(by_proxy.buffer);
  if (own && (access.writes || no_barrier)) return false;
  if (!conflict_.ShareBytes(access.buffer, by_proxy.buffer)) return false;
  // A barrier may be of an earlier iteration. Then versions cannot be told apart by their index.
  return !no_barrier ||
         conflict_.MayConflict(access, by_proxy, {}, SharedConflict::Between::kAccesses);
}

}  // namespace tl
