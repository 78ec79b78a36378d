/*! What the operations of different roles of a schedule touch together. Atomic additions of two
 * roles (or maxima, ...) to the same elements come to the same result in any order: they need no
 * synchronisation if nobody takes the old values, and are relaxed, which publishes nothing else. */
#include <algorithm>

#include "../../op/intrinsics.h"
#include "../../op/tma_reduce.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/disjoint.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "pipeline.h"
#include "ws_schedule.h"

namespace tl {
namespace {

struct Touch {
  const RoleNode* node;
  bool writes;
};

/*! The one operation by which a statement updates a buffer, of which it makes no other use. */
class UpdatesOf : public StmtExprVisitor {
 public:
  static std::string Find(const Stmt& s, const Var& memory, const Views& views) {
    UpdatesOf found(memory, views);
    found(s);
    return found.is_otherwise_used_ ? "" : found.operation_;
  }

 protected:
  void Visit_(const CallNode* op) final {
    const std::string operation = RelaxedUpdate(op);
    if (operation.empty()) return Default(op);
    const bool is_tile = IsCallTo(op, kAtomic);
    const Expr& target = op->args[is_tile ? 0 : 1];
    for (const Expr& arg : op->args) {
      if (!arg.same_as(target)) Visit(arg);
    }
    if (is_tile) return Target(TileRegion::From(target).buffer, operation);
    const TensorLoadNode* element = AsAddressOf(target);
    if (!element) return Visit(target);
    for (const Expr& index : element->indices) Visit(index);
    Target(element->source.as_or_throw<Var>(), operation);
  }
  void Visit_(const VarNode* op) final { is_otherwise_used_ |= IsMemory(GetRef<Var>(op)); }
  void Visit_(const TensorLoadNode* op) final {
    is_otherwise_used_ |= IsMemory(op->source.as_or_throw<Var>());
    Default(op);
  }
  void Visit_(const TensorRegionNode* op) final {
    is_otherwise_used_ |= IsMemory(op->source.as_or_throw<Var>());
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) final {
    is_otherwise_used_ |= IsMemory(op->buffer);
    Default(op);
  }

 private:
  UpdatesOf(const Var& memory, const Views& views) : memory_(memory), views_(views) {}

  bool IsMemory(const Var& v) const { return views_.IsSameMemory(v, memory_); }

  /*! An operation on elements of a type: of a float, it is another one than of an integer that has
   * the same bytes. */
  void Target(const Var& buffer, const std::string& name) {
    if (!IsMemory(buffer)) return;
    const std::string operation = name + " of " + DTypeName(DTypeOf(buffer));
    is_otherwise_used_ |= !operation_.empty() && operation_ != operation;
    operation_ = operation;
  }

  /*! "add" of tl.tileop.atomic(.., "add", "relaxed") and of tl.atomic_add("tl::relaxed", ..). */
  static std::string RelaxedUpdate(const CallNode* op) {
    if (IsCallTo(op, kAtomic)) {
      return ToString(op->args[3]) == "relaxed" ? ToString(op->args[2]) : "";
    }
    const IntrinsicEffects* effects = EffectsOf(op);
    if (!effects || !*effects->update || effects->result == CallResult::kOfThread) return "";
    return ToString(op->args[0]) == "tl::relaxed" ? effects->update : "";
  }

  const Var& memory_;
  const Views& views_;
  std::string operation_;
  bool is_otherwise_used_ = false;
};

/*! An expression as another iteration evaluates it: loop variables, names and loads become unknown
 * values. */
class Later : public Substituter {
 public:
  explicit Later(const RoleSequence& body) {
    ForEachNode(body, [&](const RoleNode* node) {
      if (const ForNode* loop = node->Loop()) Rename(loop->loop_var);
      const auto* bind = node->stmt.as<BindNode>();
      if (bind && LoopAround(*node)) Rename(bind->var);
    });
  }

 protected:
  Expr Mutate_(const TensorLoadNode* op) final { return MakeVar("element", op->dtype()); }

 private:
  void Rename(const Var& v) { map[v.get()] = MakeVar(v->name, v->dtype()); }
};

class MemoryChecker {
 public:
  MemoryChecker(const KernelInfo& kernel, const Schedule& schedule, const WarpRoles& roles)
      : kernel_(kernel), schedule_(schedule), roles_(roles), views_(kernel.block->body) {}

  void Run() {
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (node->IsLeaf() && node->role) Note(node);
    });
    for (const auto& [memory, touches] : touched_) Check(memory, touches);
  }

 private:
  void Note(const RoleNode* node) {
    std::vector<Var> all = node->use.writes;
    AppendRange(&all, node->opaque);
    const size_t writes = all.size();
    AppendRange(&all, node->use.reads);
    for (size_t i = 0; i < all.size(); ++i) {
      auto it = FindIf(touched_, [&](const auto& entry) {
        return entry.first.same_as(all[i]) || (IsAliased(entry.first) && IsAliased(all[i]));
      });
      if (it == touched_.end()) it = touched_.insert(it, {all[i], {}});
      it->second.push_back({node, i < writes});
    }
  }

  bool IsAliased(const Var& v) const {
    const auto& names = kernel_.aliased;
    return IsGlobal(v) &&
           std::find(names.begin(), names.end(), std::string(v->name)) != names.end();
  }

  void Check(const Var& memory, const std::vector<Touch>& touches) {
    for (size_t i = 0; i < touches.size(); ++i) {
      for (size_t j = i + 1; j < touches.size(); ++j) {
        const Touch &a = touches[i], &b = touches[j];
        if (*a.node->role == *b.node->role) continue;
        if (!a.writes && !b.writes) continue;
        if (IsShared(memory) && IsSynced(memory, *a.node, *b.node)) continue;
        if (IsGlobal(memory) && AreApart(memory, *a.node, *b.node)) continue;
        if (IsGlobal(memory) && AreSameUpdates(memory, *a.node, *b.node)) continue;
        Refuse(memory, a, b);
      }
    }
  }

  bool IsSynced(const Var& memory, const RoleNode& a, const RoleNode& b) const {
    for (const ScheduledScope& scope : schedule_.scopes) {
      for (const ScheduledSync& sync : scope.syncs) {
        if (!Contains(roles_.channels[sync.pipeline].buffers, memory)) continue;
        const std::string &source = schedule_.ops[sync.source].name,
                          &target = schedule_.ops[sync.target].name;
        if (source == a.id && target == b.id) return true;
        if (source == b.id && target == a.id) return true;
      }
    }
    return false;
  }

  bool AreSameUpdates(const Var& memory, const RoleNode& a, const RoleNode& b) const {
    const std::string update = UpdatesOf::Find(a.stmt, memory, views_);
    return !update.empty() && update == UpdatesOf::Find(b.stmt, memory, views_);
  }

  /*! Two tile operators touch elements that are others in any two iterations. */
  bool AreApart(const Var& memory, const RoleNode& a, const RoleNode& b) const {
    const auto first = Regions(memory, a), second = Regions(memory, b);
    if (!first || !second) return false;
    Later later(roles_.body);
    return AllOf(*first, [&](const TileRegion& x) {
      return AllOf(*second, [&](const TileRegion& y) { return AreApart(x, y, &later); });
    });
  }

  std::optional<std::vector<TileRegion>> Regions(const Var& memory, const RoleNode& node) const {
    const CallNode* op = AsTileOp(node.stmt);
    if (!op || Contains(node.opaque, memory)) return std::nullopt;
    std::vector<TileRegion> out;
    for (const Expr& arg : op->args) {
      if (!arg.as<TensorRegionNode>()) continue;
      const TileRegion region = TileRegion::From(arg);
      if (region.buffer.same_as(memory)) out.push_back(region);
      if (!region.buffer.same_as(memory) && views_.IsSameMemory(region.buffer, memory)) {
        return std::nullopt;
      }
    }
    // Another name of the memory, or an element in an index.
    if (out.empty()) return std::nullopt;
    return out;
  }

  static bool AreApart(const TileRegion& x, const TileRegion& y, Later* later) {
    Analyzer analyzer;
    for (size_t d = 0; d < x.ranges.size(); ++d) {
      const auto nx = AsInt(x.ranges[d]->extent), ny = AsInt(y.ranges[d]->extent);
      if (!nx || !ny) continue;
      const Expr from = x.ranges[d]->min, to = later->Mutate(y.ranges[d]->min);
      if (AreDisjoint(from, *nx, to, *ny, &analyzer)) return true;
      const Analyzer::Modular m = analyzer.ModularSet(to - from);
      if (m.coeff < 1) continue;
      const int64_t ahead = (m.base % m.coeff + m.coeff) % m.coeff;
      if (ahead >= *nx && m.coeff - ahead >= *ny) return true;
    }
    return false;
  }

  [[noreturn]] void Refuse(const Var& memory, const Touch& a, const Touch& b) const {
    const std::string repair =
        IsShared(memory)   ? "a T.WSSync between them, or one role for both"
        : IsGlobal(memory) ? "one role for both, or regions that are provably apart"
                           : "one role for both: threads have registers of their own; pass it on "
                             "in shared memory";
    ThrowAt(b.node->stmt->span, "ValueError",
            "found " + Name(b) + (b.writes ? " writing " : " reading ") +
                std::string(memory->name) + ", which " + Name(a) +
                (a.writes ? " writes" : " reads") + " at " + Where(a.node->stmt->span) +
                ", wanted " + repair);
  }

  std::string Name(const Touch& t) const {
    return "operation '" + t.node->id + "' of role '" + roles_.roles[*t.node->role].name + "'";
  }

  const KernelInfo& kernel_;
  const Schedule& schedule_;
  const WarpRoles& roles_;
  Views views_;
  std::vector<std::pair<Var, std::vector<Touch>>> touched_;
};

}  // namespace

void CheckMemoryOfRoles(const KernelInfo& kernel, const Schedule& schedule,
                        const WarpRoles& roles) {
  MemoryChecker(kernel, schedule, roles).Run();
}

}  // namespace tl
