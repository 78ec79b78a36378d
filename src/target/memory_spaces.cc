/*! The table, and the questions about a buffer's memory that src/tvm/build.h declares. */
#include "memory_spaces.h"

#include "../tvm/error.h"
#include "../tvm/registry.h"

namespace tl {
namespace {

const std::vector<MemorySpaceRow>& MemorySpaceRows() {
  using Owner = MemoryOwner;
  static const std::vector<MemorySpaceRow> rows = {
      {"global", Owner::kLaunch, true, true, Feature::kNone, MemorySpace::kGlobal},
      {"shared.dyn", Owner::kBlock, true, true, Feature::kNone, MemorySpace::kShared},
      {"shared", Owner::kBlock, true, true, Feature::kNone, MemorySpace::kShared},
      {"shared.barrier", Owner::kBarriers, true, true, Feature::kMbarrier, {}},
      // Those of the blocks of a cluster.
      {"shared.cluster_barrier", Owner::kBarriers, false, true, Feature::kCluster, {}},
      {"local.fragment", Owner::kDistributed, true, false, Feature::kNone, MemorySpace::kRegisters},
      {"local.reducer", Owner::kReducer, false, false, Feature::kNone, {}},
      {"local", Owner::kThread, true, true, Feature::kNone, {}},
      {"local.var", Owner::kThread, true, true, Feature::kNone, {}},
      {"local.descriptor.wgmma", Owner::kThread, false, true, Feature::kWgmma, {}},
  };
  return rows;
}

bool IsOwnedBy(const Var& buffer, MemoryOwner owner) {
  const MemorySpaceRow* row = FindMemorySpace(ScopeOf(buffer));
  return row && row->owner == owner;
}

Registration memory_spaces_registration([] {
  RegisterFunction("target.UserScopes", [] {
    Array<String> scopes;
    for (const MemorySpaceRow& row : MemorySpaceRows()) {
      if (row.is_for_users) scopes.push_back(row.scope);
    }
    return scopes;
  });
});

}  // namespace

const MemorySpaceRow* FindMemorySpace(const std::string& scope) {
  for (const MemorySpaceRow& row : MemorySpaceRows()) {
    if (row.scope == scope) return &row;
  }
  return nullptr;
}

bool HasMemorySpace(const Var& buffer, const Target& target) {
  const MemorySpaceRow* row = FindMemorySpace(ScopeOf(buffer));
  return row && target.Has(row->feature);
}

void RefuseMemorySpace(const Var& buffer, const Target& target, const Span& span) {
  const MemorySpaceRow* row = FindMemorySpace(ScopeOf(buffer));
  ThrowAt(span, "ValueError",
          "found " + std::string(buffer->name) + " in memory '" + ScopeOf(buffer) + "' for " +
              target.arch + ", wanted " +
              (row ? TargetsWith(row->feature)
                   : "a memory that targets have, such as 'shared.dyn' or 'local'") +
              "; allocate it elsewhere, or compile for another target");
}

bool IsShared(const Var& buffer) { return IsOwnedBy(buffer, MemoryOwner::kBlock); }
bool IsBarrier(const Var& buffer) { return IsOwnedBy(buffer, MemoryOwner::kBarriers); }
bool IsFragment(const Var& buffer) { return IsOwnedBy(buffer, MemoryOwner::kDistributed); }
bool IsGlobal(const Var& buffer) { return IsOwnedBy(buffer, MemoryOwner::kLaunch); }
bool IsLocal(const Var& buffer) { return IsOwnedBy(buffer, MemoryOwner::kThread); }
bool IsReducer(const Var& buffer) { return IsOwnedBy(buffer, MemoryOwner::kReducer); }

}  // namespace tl
