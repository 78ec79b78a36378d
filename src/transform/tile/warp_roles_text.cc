#include "../notes.h"
#include "pipeline.h"
#include "warp_roles.h"

namespace tl {
namespace {

int64_t LineOf(const Stmt& s) { return s->span.defined() ? int64_t(s->span->line) : 0; }

String NameOf(CopyKind fill) {
  switch (fill) {
    case CopyKind::kTma:
      return "tma";
    case CopyKind::kCpAsync:
      return "cp.async";
    case CopyKind::kThreads:
      return "threads";
    case CopyKind::kFetchTile:
      return "fetch";
    case CopyKind::kNothing:
      return "";
  }
  return "";
}

/*! Fills, what the producer runs as well, and what stands beside them in pipelined loops. */
Array<Any> DescribeStatements(const WarpRoles& roles, const String& file) {
  Array<Any> statements;
  ForEachNode(roles.body, [&](const RoleNode* node) {
    if (!node->IsLeaf()) return;
    const bool fills = node->fill != CopyKind::kNothing;
    const bool both = !fills && node->IsRunBy(kProducer);
    const bool told = roles.is_scheduled ? node->role.has_value()
                                         : fills || both || PipelineOf(*node->parent) != nullptr;
    if (!told && !node->is_repeated) return;
    const std::string role = node->role ? roles.roles[*node->role].name
                             : both     ? "both"
                                        : "consumer";
    Map<String, Any> entry = {
        {"line", LineOf(node->stmt)}, {"role", String(role)}, {"by", NameOf(node->fill)}};
    AddFile(&entry, node->stmt, file);
    if (fills) entry.Set("channel", int64_t(node->channel));
    if (fills && node->fill != CopyKind::kTma && !node->why.empty())
      entry.Set("reason", String(node->why));
    if (node->split) entry.Set("blocks", roles.channels[node->channel].blocks);
    if (node->is_repeated) entry.Set("repeated", true);
    if (!node->why_own.empty()) entry.Set("why_own", String(node->why_own));
    statements.push_back(entry);
  });
  return statements;
}

String CountText(const WarpRoles& roles, const Channel& c) {
  const FillCount& count = roles.counts[c.count];
  if (count.variable.defined()) return "a running count";
  if (count.loops.empty()) return "once";
  std::string text = count.loops.back()->loop_var->name;
  for (size_t i = count.loops.size() - 1; i-- > 0;) {
    const ForNode* loop = count.loops[i];
    if (i + 2 < count.loops.size()) text = "(" + text + ")";
    text += " * " + std::to_string(ToInt(loop->extent)) + " + " + std::string(loop->loop_var->name);
  }
  return text;
}

Array<String> TargetsOf(const WarpRoles& roles, const Channel& c) {
  Array<String> names;
  for (size_t r = 0; r < roles.roles.size(); ++r) {
    if (c.IsUsedBy(r)) names.push_back(roles.roles[r].name);
  }
  return names;
}

}  // namespace

Map<String, Any> DescribeRoles(const WarpRoles& roles) {
  Map<String, Any> entry = {
      {"reason", String(roles.why)}, {"file", String("")}, {"line", int64_t(0)}};
  if (roles.where.defined()) {
    entry.Set("file", roles.where->source_name->name);
    entry.Set("line", int64_t(roles.where->line));
  }
  if (!roles.IsApplied()) return entry;
  String file;
  ForEachNode(roles.body, [&](const RoleNode* node) {
    const Span& span = node->stmt->span;
    if (file.empty() && span.defined()) file = span->source_name->name;
  });
  entry.Set("file", file);
  Array<Any> channels;
  for (const Channel& c : roles.channels) {
    Array<String> buffers;
    for (const Var& v : c.buffers) buffers.push_back(v->name);
    Array<Any> bytes;
    for (const Window& w : c.windows) bytes.push_back(w.tma_bytes);
    channels.push_back(Map<String, Any>{{"name", String(c.name)},
                                        {"source", String(roles.roles[c.source].name)},
                                        {"targets", TargetsOf(roles, c)},
                                        {"buffers", buffers},
                                        {"versions", c.versions},
                                        {"bytes", bytes},
                                        {"full", c.full_arrivals},
                                        {"empty", c.empty_arrivals},
                                        {"count", CountText(roles, c)}});
  }
  Array<Any> described;
  for (const Role& role : roles.roles) {
    described.push_back(Map<String, Any>{{"name", String(role.name)},
                                         {"first", role.range.first},
                                         {"threads", role.range.threads},
                                         {"registers", role.registers.value_or(0)}});
  }
  entry.Set("roles", described);
  entry.Set("is_scheduled", int64_t(roles.is_scheduled));
  entry.Set("statements", DescribeStatements(roles, file));
  entry.Set("channels", channels);
  return entry;
}

}  // namespace tl
