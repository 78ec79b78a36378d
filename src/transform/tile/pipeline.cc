#include "pipeline.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "../../op/copy_instruction.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../notes.h"
#include "pipeline_barriers.h"

namespace tl {
namespace {

/*! A copy that threads do not make asynchronously. */
bool IsSynchronous(const Stmt& s) {
  const CallNode* call = AsTileOp(SplitGuard(s).body);
  return call && IsCopy(call) && !ChoiceOf(call).AsyncByThreads();
}

}  // namespace

Guarded SplitGuard(const Stmt& s) {
  const auto* branch = s.as<IfThenElseNode>();
  if (!branch || branch->else_case) return {Expr(), s};
  return {branch->condition, branch->then_case};
}

bool FillsShared(const Stmt& s, const Views& views) {
  const BufferUse use = views.UseOf(SplitGuard(s).body);
  return !use.writes.empty() && AllOf(use.writes, IsShared) && AllOf(use.reads, IsCopySource);
}

bool IsCopySource(const Var& buffer) { return IsGlobal(buffer) || ScopeOf(buffer) == "local.var"; }

bool Pipeline::HoldsAhead() const {
  return AnyOf(part, [](const std::string& s) { return !s.empty(); });
}

Pipeline ReadPipeline(const ForNode* loop, const Views& views) {
  Pipeline p;
  p.loop = loop;
  p.body = FlatSeq(loop->body);
  p.stage = *ListAnnotation(loop->annotations, kPlannedStage);
  p.order = *ListAnnotation(loop->annotations, kPlannedOrder);
  const std::vector<int64_t> async_stages = *ListAnnotation(loop->annotations, kAsyncStages);
  p.least_versions = IntAnnotation(loop->annotations, kLeastVersions).value_or(1);
  p.by_order.resize(p.body.size());
  std::iota(p.by_order.begin(), p.by_order.end(), 0);
  std::sort(p.by_order.begin(), p.by_order.end(),
            [&](size_t a, size_t b) { return p.order[a] < p.order[b]; });
  Array<Var> held;
  if (loop->annotations.count(kHeldAhead)) {
    held = loop->annotations.at(kHeldAhead).cast<Array<Var>>();
  }
  const auto has_held = [&](const std::vector<Var>& buffers) {
    return AnyOf(held, [&](const Var& v) { return Contains(buffers, v); });
  };
  for (size_t i = 0; i < p.body.size(); ++i) {
    p.uses.push_back(views.UseOf(p.body[i]));
    p.part.push_back(has_held(p.uses[i].writes)  ? "load"
                     : has_held(p.uses[i].reads) ? "store"
                                                 : "");
    p.max_stage = std::max(p.max_stage, p.stage[i]);
    p.tma.push_back(CopiesByTma(p.body[i]));
    p.fills.push_back(p.tma.back() || FillsShared(p.body[i], views));
    const bool in_stage = std::count(async_stages.begin(), async_stages.end(), p.stage[i]) > 0;
    p.async.push_back(in_stage && p.fills.back() && !p.tma.back() && !IsSynchronous(p.body[i]));
  }
  return p;
}

std::optional<std::vector<int64_t>> ListAnnotation(const Map<String, Any>& annotations,
                                                   const char* key) {
  auto it = annotations.find(key);
  if (it == annotations.end()) return std::nullopt;
  std::vector<int64_t> out;
  for (const Any& v : (*it).second.cast<Array<Any>>()) {
    auto i = v.as<int64_t>();
    out.push_back(i ? *i : ToInt(v.cast<Expr>()));
  }
  return out;
}

Array<Any> ToAnnotation(const std::vector<int64_t>& values) {
  Array<Any> out;
  for (int64_t v : values) out.push_back(v);
  return out;
}

/*! The lines of a statement and of those in it: a loop becomes what its body does. */
Array<int64_t> LinesOf(const Stmt& s) {
  std::set<int64_t> lines;
  const auto add = [&](const StmtNode* op) {
    if (op->span.defined()) lines.insert(op->span->line);
  };
  add(s.get());
  ForEachIn<EvaluateNode>(s, add);
  ForEachIn<BufferStoreNode>(s, add);
  return Array<int64_t>(lines.begin(), lines.end());
}

Map<String, Any> DescribeLoop(const ForNode* loop, const std::vector<Stmt>& body,
                              const Array<String>& reasons) {
  const bool known = loop->span.defined();
  const String file = known ? loop->span->source_name->name : String("");
  Array<Any> statements;
  for (size_t i = 0; i < body.size(); ++i) {
    const int64_t line = body[i]->span.defined() ? body[i]->span->line : 0;
    const String reason = i < reasons.size() ? reasons[i] : String("");
    Map<String, Any> entry = {{"line", line}, {"lines", LinesOf(body[i])}, {"reason", reason}};
    AddFile(&entry, body[i], file);
    statements.push_back(entry);
  }
  return {{"file", file},
          {"line", known ? int64_t(loop->span->line) : int64_t(0)},
          {"variable", loop->loop_var->name},
          {"statements", statements}};
}

PrimFunc WithPipelines(PrimFunc f, const Array<Any>& entries) {
  if (entries.empty()) return f;
  Array<Any> all;
  if (const Any known = GetAttr(f, kPipelines); known != nullptr) all = known.cast<Array<Any>>();
  for (const Any& entry : entries) all.push_back(entry);
  return WithAttr(std::move(f), kPipelines, all);
}

}  // namespace tl
