#include "ws_schedule.h"

#include "../../op/call_attrs.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "pipeline.h"

namespace tl {
namespace {

using Fields = Map<String, Any>;

std::string FieldText(const Fields& fields, const char* key) {
  return std::string(fields.at(key).cast<String>());
}

int64_t FieldInt(const Fields& fields, const char* key) { return *IntAnnotation(fields, key); }

std::vector<Fields> List(const Fields& fields, const char* key) {
  std::vector<Fields> out;
  for (const Any& entry : fields.at(key).cast<Array<Any>>()) out.push_back(entry.cast<Fields>());
  return out;
}

template <typename T, typename Name>
std::optional<size_t> Find(const std::vector<T>& list, const std::string& wanted, Name name) {
  const auto it = FindIf(list, [&](const T& entry) { return name(entry) == wanted; });
  if (it == list.end()) return std::nullopt;
  return it - list.begin();
}

Role ReadRole(const Fields& fields, int64_t warp_threads) {
  Role role;
  role.name = FieldText(fields, "name");
  const int64_t first = FieldInt(fields, "warps_lo"), end = FieldInt(fields, "warps_hi");
  role.range = {first * warp_threads, (end - first) * warp_threads};
  if (const int64_t registers = FieldInt(fields, "max_nreg")) role.registers = registers;
  return role;
}

/*! Entries of T.annotate_ws_pipeline_depth. */
std::vector<Fields> DepthsOf(const SBlockNode* block) {
  const auto it = block->annotations.find(kWsDepths);
  std::vector<Fields> out;
  if (it == block->annotations.end()) return out;
  for (const Any& entry : (*it).second.cast<Array<Any>>()) out.push_back(entry.cast<Fields>());
  return out;
}

bool IsFor(const Fields& depth, const Var& buffer) {
  const Any key = depth.at("buffer");
  const auto name = key.try_cast<String>();
  return name ? *name == buffer->name : key.cast<Var>().same_as(buffer);
}

std::string ResolvedName(const Any& value, const Span& span) {
  const auto name = value.try_cast<String>();
  if (name) return std::string(*name);
  ThrowAt(span, "TypeError", "found T.WSID that is no string, wanted the name of an operation");
}

class NameRemover : public StmtExprMutator {
 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    return op->annotations.count(kWsSchedule) ? GetRef<Stmt>(op) : Default<Stmt>(op);
  }
  Stmt Mutate_(const AttrStmtNode* op) final {
    return op->attr_key == kWsOp ? Mutate(op->body) : Default<Stmt>(op);
  }
  Stmt Mutate_(const ForNode* op) final {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    if (op->annotations.count(kWsId)) loop.CopyOnWrite()->annotations.erase(kWsId);
    return loop;
  }
  Expr Mutate_(const CallNode* op) final {
    Map<String, Any> attrs = TileOpAttrs(op);
    if (!attrs.count(kWsId)) return Default<Expr>(op);
    attrs.erase(kWsId);
    return WithTileOpAttrs(op, attrs);
  }
};

/*! For schedules by roles, which the front end compares (ws_roles.py). */
Registration ws_schedule_registration([] {
  RegisterFunction("SubstituteVars", [](Expr e, Map<Var, Expr> values) {
    Substituter s;
    for (const auto& [v, value] : values) s.map[v.get()] = value;
    return s.Mutate(e);
  });
});

}  // namespace

std::optional<size_t> Schedule::FindOp(const std::string& name) const {
  return Find(ops, name, [](const ScheduledOp& op) { return op.name; });
}

std::optional<size_t> Schedule::FindScope(const std::string& body) const {
  return Find(scopes, body, [](const ScheduledScope& scope) { return scope.body; });
}

std::optional<Schedule> ScheduleOf(const SBlockNode* block, int64_t warp_threads) {
  const auto it = block->annotations.find(kWsSchedule);
  if (it == block->annotations.end()) return std::nullopt;
  const Fields fields = (*it).second.cast<Fields>();
  Schedule s;
  s.span = fields.at("span").cast<Span>();
  for (const Fields& role : List(fields, "roles")) s.roles.push_back(ReadRole(role, warp_threads));
  for (const Fields& pipeline : List(fields, "pipelines")) {
    s.pipelines.push_back(FieldText(pipeline, "name"));
    s.depths.push_back(FieldInt(pipeline, "depth"));
  }
  const std::vector<Fields> scopes = List(fields, "scopes");
  for (const Fields& scope : scopes) {
    for (const Fields& op : List(scope, "ops")) {
      const auto role = Find(s.roles, FieldText(op, "role"), [](const Role& r) { return r.name; });
      s.ops.push_back({FieldText(op, "name"), *role, s.scopes.size()});
    }
    s.scopes.push_back({FieldText(scope, "body"), {}});
  }
  for (size_t i = 0; i < scopes.size(); ++i) {
    for (const Fields& sync : List(scopes[i], "syncs")) {
      const auto pipeline =
          Find(s.pipelines, FieldText(sync, "pipeline"), [](auto p) { return p; });
      s.scopes[i].syncs.push_back({*s.FindOp(FieldText(sync, "source")),
                                   *s.FindOp(FieldText(sync, "target")), *pipeline,
                                   FieldText(sync, "kind") == "full"});
    }
  }
  return s;
}

std::optional<int64_t> DepthOf(const SBlockNode* block, const Var& buffer) {
  std::optional<int64_t> depth;
  for (const Fields& entry : DepthsOf(block)) {
    if (IsFor(entry, buffer)) depth = FieldInt(entry, "depth");
  }
  return depth;
}

void WarnOfDepths(const SBlockNode* block, const std::vector<Var>& loaded, const std::string& why) {
  for (const Fields& entry : DepthsOf(block)) {
    const Span span = entry.at("span").cast<Span>();
    const auto is_it = [&](const Var& v) { return IsFor(entry, v); };
    if (AnyOf(loaded, is_it)) continue;
    const auto buffer = FindIf(block->alloc_buffers, is_it);
    if (buffer == block->alloc_buffers.end()) {
      ThrowAt(span, "ValueError",
              "found T.annotate_ws_pipeline_depth for a name that no buffer of the kernel has, "
              "wanted that of a T.alloc_shared");
    }
    LogAt(LogLevel::kWarning, span,
          "T.annotate_ws_pipeline_depth has no effect on " + std::string((*buffer)->name) + ": " +
              (why.empty() ? "no producer loads it" : why) + "; leave it out");
  }
}

std::string NameOf(const Stmt& s) {
  if (const auto* loop = s.as<ForNode>()) {
    const auto it = loop->annotations.find(kWsId);
    return it == loop->annotations.end() ? "" : ResolvedName((*it).second, s->span);
  }
  const CallNode* op = AsTileOp(s);
  const Any value = op ? TileOpAttr(op, kWsId) : Any(nullptr);
  return value == nullptr ? "" : ResolvedName(value, s->span);
}

Stmt WithoutNames(const Stmt& s) { return NameRemover().Mutate(s); }

}  // namespace tl
