/*!
 * The plan of warp specialisation as a value, an entry of function attribute `tl.warp_roles`.
 *
 * Statements are numbered in the order of the program (ForEachNode); a *body* is the number of the
 * statement that it belongs to, -1 for the kernel, and 1 for what follows `else`, else 0. Buffers
 * have their names; of several with one name, the k-th has `#k` behind it. An entry has
 *
 *   reason, file, line   why there is no plan, "" if there is one, and the statement that is why
 *   kernel, threads      the kernel's number; threads of the block
 *   is_scheduled         the program says who does what
 *   roles                name, first thread and their number, registers (0: as the block's),
 *                        numbered_from (the thread that is 0 to its program), one_thread,
 *                        keeps_schedule, runs (the statements)
 *   statements           number, line, role; of a fill how it is made (`by`) and its channel; what
 *                        else `kernel.explain()` says of it; `split` of a fill that the blocks of a
 *                        cluster share
 *   channels             name, source and targets (roles), buffers, versions, blocks, arrivals at
 *                        `full` and `empty`, bytes by TMA in each window, consumer_writes,
 *                        read_by_async_proxy, count (in words), count_number, windows
 *   windows              body, first_fill, last_fill, last_use; uses: role, acquire, release, the
 *                        place of the release (release_at, side), is_deferred, is_waited_for,
 *                        is_implied; of a release in a loop's last iteration its place in the body
 *                        (in_loop) and the last use there (loop_use), else -1
 *   counts               loops whose variables tell the number of a fill, or the name of a variable
 *   schedules            of a loop whose MMAs overlap: statement, order, stage, chosen
 */
#include <algorithm>

#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../notes.h"
#include "pipeline.h"
#include "warp_roles.h"

namespace tl {
namespace {

using Fields = Map<String, Any>;

/*! Numbers of the statements of a tree, and of its bodies. */
class Numbering {
 public:
  explicit Numbering(const RoleSequence& body) : body_(body) {
    ForEachNode(body, [&](RoleNode* node) { nodes_.push_back(node); });
  }

  int64_t Count() const { return nodes_.size(); }
  int64_t Of(const RoleNode* node) const {
    return std::find(nodes_.begin(), nodes_.end(), node) - nodes_.begin();
  }
  int64_t OfLoop(const ForNode* loop) const {
    return FindIf(nodes_, [&](const RoleNode* n) { return n->Loop() == loop; }) - nodes_.begin();
  }
  RoleNode* Node(int64_t number) const { return nodes_.at(number); }
  Array<int64_t> Body(const RoleSequence* body) const {
    if (!body->owner) return {-1, 0};
    return {Of(body->owner), body == &body->owner->otherwise};
  }
  const RoleSequence* BodyAt(const Array<int64_t>& body) const {
    if (body[0] < 0) return &body_;
    const RoleNode* owner = Node(body[0]);
    return body[1] ? &owner->otherwise : &owner->body;
  }

 private:
  const RoleSequence& body_;
  std::vector<RoleNode*> nodes_;
};

String NameAmong(const Array<Var>& buffers, const Var& buffer) {
  int64_t same = 0, own = 0;
  for (const Var& v : buffers) {
    if (v.same_as(buffer)) own = same;
    same += v->name == buffer->name;
  }
  const std::string name = buffer->name;
  return same < 2 ? name : name + "#" + std::to_string(own);
}

Var FindBuffer(const Array<Var>& buffers, const String& name) {
  for (const Var& v : buffers) {
    if (NameAmong(buffers, v) == name) return v;
  }
  ThrowBug(Span(), "ReadRoles", "no buffer of the kernel is " + std::string(name));
}

int64_t LineNumber(const Stmt& s) { return s->span.defined() ? int64_t(s->span->line) : 0; }

struct KindName {
  CopyKind kind;
  const char* name;
};
constexpr KindName kKinds[] = {{CopyKind::kNothing, ""},          {CopyKind::kTma, "tma"},
                               {CopyKind::kCpAsync, "cp.async"},  {CopyKind::kThreads, "threads"},
                               {CopyKind::kElements, "elements"}, {CopyKind::kFetchTile, "fetch"}};

String NameOfCopy(CopyKind kind) {
  for (const KindName& row : kKinds) {
    if (row.kind == kind) return row.name;
  }
  return "";
}

CopyKind KindOf(const String& name) {
  for (const KindName& row : kKinds) {
    if (name == row.name) return row.kind;
  }
  ThrowBug(Span(), "ReadRoles", "nothing fills a buffer by " + std::string(name));
}

/*! Fills, what the producer runs as well, and what stands beside them in pipelined loops. */
Array<Any> DescribeStatements(const WarpRoles& roles, const String& file) {
  Array<Any> statements;
  int64_t number = -1;
  ForEachNode(roles.body, [&](const RoleNode* node) {
    ++number;
    if (!node->IsLeaf()) return;
    const bool fills = node->fill != CopyKind::kNothing;
    const bool both = !fills && node->IsRunBy(kProducer);
    const bool told = roles.is_scheduled ? node->role.has_value()
                                         : fills || both || PipelineOf(*node->parent) != nullptr;
    if (!told && !node->is_repeated) return;
    const std::string role = node->role ? roles.roles[*node->role].name
                             : both     ? "both"
                                        : "consumer";
    Fields entry = {{"number", number},
                    {"line", LineNumber(node->stmt)},
                    {"role", String(role)},
                    {"by", NameOfCopy(node->fill)}};
    AddFile(&entry, node->stmt, file);
    if (fills) entry.Set("channel", int64_t(node->channel));
    if (fills && node->fill != CopyKind::kTma && !node->why.empty())
      entry.Set("reason", String(node->why));
    if (node->split) {
      entry.Set("blocks", roles.channels[node->channel].blocks);
      entry.Set("split", int64_t(*node->split));
    }
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

Array<Any> DescribeRunners(const WarpRoles& roles) {
  Array<Any> described;
  for (size_t r = 0; r < roles.roles.size(); ++r) {
    const Role& role = roles.roles[r];
    Array<int64_t> runs;
    int64_t number = 0;
    ForEachNode(roles.body, [&](const RoleNode* node) {
      if (node->IsRunBy(r)) runs.push_back(number);
      ++number;
    });
    described.push_back(Fields{{"name", String(role.name)},
                               {"first", role.range.first},
                               {"threads", role.range.threads},
                               {"registers", role.registers.value_or(0)},
                               {"numbered_from", role.first_number},
                               {"one_thread", int64_t(role.one_thread)},
                               {"keeps_schedule", int64_t(role.keeps_schedule)},
                               {"runs", runs}});
  }
  return described;
}

Any DescribeWindow(const WarpRoles& roles, const Window& w, const Numbering& numbers) {
  Array<Any> uses;
  for (const SlotUse& use : w.uses) {
    uses.push_back(Fields{{"role", String(roles.roles[use.role].name)},
                          {"acquire", int64_t(use.acquire)},
                          {"release", int64_t(use.release)},
                          {"release_at", int64_t(use.release_at)},
                          {"side", int64_t(use.release_side)},
                          {"is_deferred", int64_t(use.is_deferred)},
                          {"in_loop", use.in_loop ? int64_t(use.in_loop->at) : -1},
                          {"loop_use", use.in_loop ? int64_t(use.in_loop->last_use) : -1},
                          {"is_waited_for", int64_t(use.is_waited_for)},
                          {"is_implied", int64_t(use.is_implied)}});
  }
  return Fields{{"body", numbers.Body(w.sequence)},
                {"first_fill", int64_t(w.first_fill)},
                {"last_fill", int64_t(w.last_fill)},
                {"last_use", int64_t(w.last_use)},
                {"uses", uses}};
}

Any DescribeChannel(const KernelInfo& kernel, const WarpRoles& roles, const Channel& c,
                    const Numbering& numbers) {
  Array<String> buffers;
  for (const Var& v : c.buffers) buffers.push_back(NameAmong(kernel.block->alloc_buffers, v));
  Array<Any> bytes, windows;
  for (const Window& w : c.windows) {
    bytes.push_back(w.tma_bytes);
    windows.push_back(DescribeWindow(roles, w, numbers));
  }
  return Fields{{"name", String(c.name)},
                {"source", String(roles.roles[c.source].name)},
                {"targets", TargetsOf(roles, c)},
                {"buffers", buffers},
                {"versions", c.versions},
                {"blocks", c.blocks},
                {"bytes", bytes},
                {"full", c.full_arrivals},
                {"empty", c.empty_arrivals},
                {"consumer_writes", int64_t(c.consumer_writes)},
                {"read_by_async_proxy", int64_t(c.read_by_async_proxy)},
                {"count", CountText(roles, c)},
                {"count_number", int64_t(c.count)},
                {"windows", windows}};
}

Any DescribeCount(const FillCount& count, const Numbering& numbers) {
  if (count.variable.defined()) return Fields{{"variable", String(count.variable->name)}};
  Array<int64_t> loops;
  for (const ForNode* loop : count.loops) loops.push_back(numbers.OfLoop(loop));
  return Fields{{"loops", loops}};
}

/*! Loops that planning has given order and stage. */
Array<Any> DescribeSchedules(const Numbering& numbers) {
  Array<Any> schedules;
  for (int64_t n = 0; n < numbers.Count(); ++n) {
    const ForNode* loop = numbers.Node(n)->Loop();
    if (!loop || !loop->annotations.count(kChosen)) continue;
    schedules.push_back(Fields{{"statement", n},
                               {"order", loop->annotations.at(kUserOrder)},
                               {"stage", loop->annotations.at(kUserStage)},
                               {"chosen", loop->annotations.at(kChosen)}});
  }
  return schedules;
}

/*! Reads a plan into the tree of its kernel. */
class PlanReader {
 public:
  PlanReader(const KernelInfo& kernel, const Fields& plan, WarpRoles* roles)
      : buffers_(kernel.block->alloc_buffers), plan_(plan), roles_(*roles), numbers_(roles->body) {}

  void Run() {
    roles_.threads = Int(plan_, "threads");
    roles_.is_scheduled = Int(plan_, "is_scheduled");
    for (const Fields& schedule : List(plan_, "schedules")) Reschedule(schedule);
    for (const Fields& role : List(plan_, "roles")) AddRole(role);
    for (const Fields& count : List(plan_, "counts")) AddCount(count);
    for (const Fields& channel : List(plan_, "channels")) AddChannel(channel);
    for (const Fields& statement : List(plan_, "statements")) ReadStatement(statement);
  }

 private:
  static int64_t Int(const Fields& fields, const char* key) {
    return fields.at(key).cast<int64_t>();
  }
  static std::string Text(const Fields& fields, const char* key) {
    return fields.at(key).cast<String>();
  }
  static Array<Fields> List(const Fields& fields, const char* key) {
    return fields.at(key).cast<Array<Fields>>();
  }
  static Array<int64_t> Ints(const Fields& fields, const char* key) {
    return fields.at(key).cast<Array<int64_t>>();
  }

  void Reschedule(const Fields& schedule) {
    RoleNode* node = numbers_.Node(Int(schedule, "statement"));
    For loop = GetRef<For>(node->Loop());
    Map<String, Any>* notes = &loop.CopyOnWrite()->annotations;
    notes->Set(kUserOrder, schedule.at("order"));
    notes->Set(kUserStage, schedule.at("stage"));
    notes->Set(kChosen, schedule.at("chosen"));
    node->stmt = loop;
  }

  void AddRole(const Fields& fields) {
    const int64_t registers = Int(fields, "registers");
    for (const int64_t number : Ints(fields, "runs")) {
      numbers_.Node(number)->run_by |= 1u << roles_.roles.size();
    }
    roles_.roles.push_back({Text(fields, "name"),
                            {Int(fields, "first"), Int(fields, "threads")},
                            Int(fields, "numbered_from"),
                            Int(fields, "one_thread") != 0,
                            Int(fields, "keeps_schedule") != 0,
                            registers ? std::optional(registers) : std::nullopt});
  }

  size_t RoleOf(const Fields& fields, const char* key) const {
    const std::string name = Text(fields, key);
    return FindIf(roles_.roles, [&](const Role& role) { return role.name == name; }) -
           roles_.roles.begin();
  }

  void AddCount(const Fields& fields) {
    FillCount count;
    if (fields.count("variable")) {
      count.variable = MakeCountVariable(Text(fields, "variable"));
    } else {
      for (const int64_t n : Ints(fields, "loops")) {
        count.loops.push_back(numbers_.Node(n)->Loop());
      }
    }
    roles_.counts.push_back(count);
  }

  void AddChannel(const Fields& fields) {
    Channel c;
    c.name = Text(fields, "name");
    c.source = RoleOf(fields, "source");
    for (const String& name : fields.at("buffers").cast<Array<String>>()) {
      c.buffers.push_back(FindBuffer(buffers_, name));
    }
    c.versions = Int(fields, "versions");
    c.blocks = Int(fields, "blocks");
    c.full_arrivals = Int(fields, "full");
    c.empty_arrivals = Int(fields, "empty");
    c.consumer_writes = Int(fields, "consumer_writes");
    c.read_by_async_proxy = Int(fields, "read_by_async_proxy");
    c.count = Int(fields, "count_number");
    for (const Fields& window : List(fields, "windows")) c.windows.push_back(ReadWindow(window));
    const Array<int64_t> bytes = Ints(fields, "bytes");
    for (size_t w = 0; w < bytes.size(); ++w) c.windows[w].tma_bytes = bytes[w];
    // Channels of one count have windows in the same bodies.
    FillCount& count = roles_.counts[c.count];
    count.sequences.clear();
    for (const Window& w : c.windows) count.sequences.push_back(w.sequence);
    roles_.channels.push_back(std::move(c));
  }

  Window ReadWindow(const Fields& fields) const {
    Window w{numbers_.BodyAt(Ints(fields, "body")),
             size_t(Int(fields, "first_fill")),
             size_t(Int(fields, "last_fill")),
             size_t(Int(fields, "last_use")),
             {}};
    for (const Fields& use : List(fields, "uses")) {
      std::optional<SlotUse::InLoop> in_loop;
      if (const int64_t at = Int(use, "in_loop"); at >= 0) {
        in_loop = {size_t(at), size_t(Int(use, "loop_use"))};
      }
      w.uses.push_back({RoleOf(use, "role"), size_t(Int(use, "acquire")),
                        size_t(Int(use, "release")), size_t(Int(use, "release_at")),
                        int(Int(use, "side")), Int(use, "is_deferred") != 0, in_loop,
                        Int(use, "is_waited_for") != 0, Int(use, "is_implied") != 0});
    }
    return w;
  }

  void ReadStatement(const Fields& fields) {
    RoleNode* node = numbers_.Node(Int(fields, "number"));
    node->fill = KindOf(fields.at("by").cast<String>());
    if (node->fill == CopyKind::kNothing) return;
    node->channel = Int(fields, "channel");
    if (fields.count("split")) node->split = Int(fields, "split");
    Channel& c = roles_.channels[node->channel];
    c.AddKind(node->fill);
  }

  const Array<Var>& buffers_;
  const Fields& plan_;
  WarpRoles& roles_;
  Numbering numbers_;
};

}  // namespace

Map<String, Any> DescribeRoles(const KernelInfo& kernel, const WarpRoles& roles) {
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
  const Numbering numbers(roles.body);
  Array<Any> channels, counts;
  for (const Channel& c : roles.channels) {
    channels.push_back(DescribeChannel(kernel, roles, c, numbers));
  }
  for (const FillCount& c : roles.counts) counts.push_back(DescribeCount(c, numbers));
  entry.Set("threads", roles.threads);
  entry.Set("is_scheduled", int64_t(roles.is_scheduled));
  entry.Set("roles", DescribeRunners(roles));
  entry.Set("statements", DescribeStatements(roles, file));
  entry.Set("channels", channels);
  entry.Set("counts", counts);
  entry.Set("schedules", DescribeSchedules(numbers));
  return entry;
}

WarpRoles ReadRoles(const KernelInfo& kernel, const Views& views, const Map<String, Any>& plan) {
  WarpRoles roles;
  if (!BuildRoleTree(kernel, kernel.block->body, views, &roles)) {
    ThrowBug(roles.where, "ReadRoles", "the program is not the one of the plan: " + roles.why);
  }
  PlanReader(kernel, plan, &roles).Run();
  return roles;
}

}  // namespace tl
