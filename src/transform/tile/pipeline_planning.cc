/*!
 * PipelinePlanning: decides the schedule of T.Pipelined loops.
 *
 * In:  a tile program whose pipelined loops have `num_stages` >= 1, or `tl_pipeline_order` and
 * `tl_pipeline_stage`. Out: those loops have `software_pipeline_stage` and
 * `software_pipeline_order` (one entry a statement of the body, in source order) and
 * `software_pipeline_async_stages`; scalar bindings of the body are substituted into their users.
 *      A statement of stage s works on iteration i - s in step i; order is its place in a step.
 * Establishes: a plan that keeps every dependence of the source order.
 * `software_pipeline_reasons` and the function's `tl.pipelines` say why statements and loops stay
 * as they are. Refuses: user schedules of the wrong length, or whose order is no permutation
 * (ValueError), and with them names for values of calls that write. A loop in which nothing can be
 * prefetched, or with such a name, becomes a plain loop.
 *
 * The automatic plan is: copies from global to shared memory at stage 0, everything else one step
 * later for each stage of prefetch. With two stages or more the copies open the step (the slot that
 * they fill was freed a step ago); with one stage they follow its last user, because there is one
 * slot only.
 */
#include <algorithm>

#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "pipeline.h"
#include "pipeline_reads.h"

namespace tl {

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

bool Contains(const std::vector<Var>& list, const Var& v) {
  return std::any_of(list.begin(), list.end(), [&](const Var& u) { return u.same_as(v); });
}

Map<String, Any> DescribeLoop(const ForNode* loop, const std::vector<Stmt>& body,
                              const Array<String>& reasons) {
  Array<Any> statements;
  for (size_t i = 0; i < body.size(); ++i) {
    const int64_t line = body[i]->span.defined() ? body[i]->span->line : 0;
    const String reason = i < reasons.size() ? reasons[i] : String("");
    statements.push_back(Map<String, Any>{{"line", line}, {"reason", reason}});
  }
  const bool known = loop->span.defined();
  return {{"file", known ? loop->span->source_name->name : String("")},
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

namespace {

struct Schedule {
  std::vector<int64_t> stage;
  std::vector<int64_t> order;
  Array<String> reasons;
};

class Planner : public StmtExprMutator {
 public:
  Planner(const Stmt& function_body, int arch)
      : function_body_(function_body), views_(function_body), arch_(arch) {}

  /*! Loops that were to be pipelines, and are not. */
  Array<Any> plain;

 protected:
  using StmtExprMutator::Mutate_;

  Stmt Mutate_(const ForNode* op) final {
    const int64_t num_stages = IntAnnotation(op->annotations, kNumStages).value_or(0);
    auto user_order = ListAnnotation(op->annotations, kUserOrder);
    auto user_stage = ListAnnotation(op->annotations, kUserStage);
    if (num_stages < 1 && !user_order) return Plain(op);

    std::vector<Stmt> source = FlatSeq(op->body);
    const Stmt once = BindingThatRunsOnce(source);
    if (once.defined() && !user_order) {
      Array<String> reasons;
      for (const Stmt& s : source) reasons.push_back(s.same_as(once) ? kRunsOnce : "");
      plain.push_back(DescribeLoop(op, source, reasons));
      return Plain(op);
    }
    if (once.defined()) {
      ThrowAt(once->span, "ValueError",
              std::string("T.Pipelined: found a name for a value, but ") + kRunsOnce +
                  ", wanted values that each user may compute; leave out order and stage");
    }
    const std::vector<Stmt> body = InlineBindings(source);
    Schedule plan;
    if (user_order || user_stage) {
      plan = UserSchedule(op, source, user_order, user_stage);
    } else if (!AutoSchedule(op, body, num_stages, &plan)) {
      plain.push_back(DescribeLoop(op, body, plan.reasons));
      return Plain(op);
    }
    For loop = GetRef<For>(op);
    ForNode* n = loop.CopyOnWrite();
    n->body = MakeSeq(body);
    for (const char* key : {kNumStages, kUserOrder, kUserStage}) n->annotations.erase(key);
    n->annotations.Set(kPlannedStage, ToAnnotation(plan.stage));
    n->annotations.Set(kPlannedOrder, ToAnnotation(plan.order));
    if (!plan.reasons.empty()) n->annotations.Set(kReasons, plan.reasons);
    const bool async = arch_ >= 80 && PassConfigFlag("tl.enable_async_copy", true);
    n->annotations.Set(kAsyncStages,
                       ToAnnotation(async ? std::vector<int64_t>{0} : std::vector<int64_t>{}));
    return loop;
  }

 private:
  Stmt Plain(const ForNode* op) {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    for (const char* key : {kNumStages, kUserOrder, kUserStage}) {
      if (loop->annotations.count(key)) loop.CopyOnWrite()->annotations.erase(key);
    }
    return loop;
  }

  static constexpr const char* kRunsOnce =
      "the call that gives the value does something, and a pipeline would repeat it";

  /*! The first binding whose value comes from a call with an effect; undefined if there is none. */
  static Stmt BindingThatRunsOnce(const std::vector<Stmt>& source) {
    struct Finder : StmtExprVisitor {
      bool found = false;
      using StmtExprVisitor::Visit_;
      void Visit_(const CallNode* op) override {
        for (const PointerAccess& access : PointerAccesses(op)) {
          found |= Writes(access.access);
        }
        found |= IsCallTo(GetRef<Expr>(op), "tirx.call_extern");
        Default(op);
      }
    };
    for (const Stmt& s : source) {
      const auto* bind = s.as<BindNode>();
      if (!bind) continue;
      Finder finder;
      finder(bind->value);
      if (finder.found) return s;
    }
    return Stmt();
  }

  /*! Bindings are pure; a user at another stage needs the value of its own iteration, so each user
   * computes it. */
  static std::vector<Stmt> InlineBindings(const std::vector<Stmt>& source) {
    Substituter inliner;
    std::vector<Stmt> out;
    for (const Stmt& s : source) {
      if (const auto* bind = s.as<BindNode>()) {
        inliner.map[bind->var.get()] = inliner.Mutate(bind->value);
      } else {
        out.push_back(inliner.map.empty() ? s : inliner.Mutate(s));
      }
    }
    return out;
  }

  static Schedule UserSchedule(const ForNode* op, const std::vector<Stmt>& source,
                               std::optional<std::vector<int64_t>> order,
                               std::optional<std::vector<int64_t>> stage) {
    if (!order || !stage) {
      ThrowAt(op->span, "ValueError",
              "T.Pipelined: found one of order and stage, wanted both or neither");
    }
    if (order->size() != source.size() || stage->size() != source.size()) {
      ThrowAt(op->span, "ValueError",
              "T.Pipelined: found " + std::to_string(order->size()) + " order and " +
                  std::to_string(stage->size()) + " stage entries, wanted one for each of the " +
                  std::to_string(source.size()) + " statements of the body");
    }
    Schedule plan;
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i].as<BindNode>()) continue;
      plan.stage.push_back((*stage)[i]);
      plan.order.push_back((*order)[i]);
    }
    // Entries of bindings are gone; what is left keeps its relative order.
    std::vector<int64_t> sorted = plan.order;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() ||
        std::any_of(plan.stage.begin(), plan.stage.end(), [](int64_t s) { return s < 0; })) {
      ThrowAt(op->span, "ValueError",
              "T.Pipelined: wanted order to be a permutation and every stage to be 0 or more");
    }
    for (int64_t& o : plan.order) {
      o = std::lower_bound(sorted.begin(), sorted.end(), o) - sorted.begin();
    }
    return plan;
  }

  /*!
   * Why a statement cannot run ahead; empty for one that only fills shared memory from global
   * memory which the loop does not write, before anyone reads it; with several versions of it, all
   * that its readers read.
   */
  std::string WhyNotAhead(size_t index, const std::vector<Stmt>& body,
                          const std::vector<BufferUse>& uses, const std::vector<Var>& outside,
                          bool versions) const {
    const BufferUse& own = uses[index];
    if (own.writes.empty()) return "it writes no buffer";
    for (const Var& v : own.writes) {
      const std::string name = v->name;
      if (!IsShared(v)) return "it writes " + name + ", which is not shared memory";
      if (Contains(outside, v)) return name + " is read after the loop";
      bool is_read = false;
      for (size_t i = 0; i < uses.size(); ++i) {
        if (i == index) continue;
        const bool reads = Contains(uses[i].reads, v);
        is_read |= reads;
        if (Contains(uses[i].writes, v)) return "another statement writes " + name;
        if (i < index && reads) return name + " is read before it";
        if (versions && reads && !Supplies(body[index], body[i], v, views_)) {
          return "more of " + name + " is read than it writes";
        }
      }
      if (!is_read) return "nothing in the loop reads " + name;
    }
    for (const Var& v : own.reads) {
      const std::string name = v->name;
      if (!IsGlobal(v)) return "it reads " + name + ", which is not global memory";
      for (const BufferUse& other : uses) {
        if (Contains(other.writes, v)) return "the loop writes " + name + ", which it reads";
      }
    }
    return "";
  }

  bool AutoSchedule(const ForNode* op, const std::vector<Stmt>& body, int64_t num_stages,
                    Schedule* plan) {
    std::vector<BufferUse> uses;
    for (const Stmt& s : body) uses.push_back(views_.UseOf(s));
    const std::vector<Var> outside = ReadsOutside(function_body_, op, views_);
    const bool copies_first = num_stages >= 2;
    std::vector<bool> prefetch;
    for (size_t i = 0; i < body.size(); ++i) {
      plan->reasons.push_back(WhyNotAhead(i, body, uses, outside, copies_first));
      prefetch.push_back(plan->reasons.back().empty());
    }
    const int64_t copies = std::count(prefetch.begin(), prefetch.end(), true);
    const int64_t users = static_cast<int64_t>(body.size()) - copies;
    if (copies == 0 || users == 0) return false;

    int64_t next_copy = copies_first ? 0 : users, next_user = copies_first ? copies : 0;
    for (size_t i = 0; i < body.size(); ++i) {
      plan->stage.push_back(prefetch[i] ? 0 : copies_first ? num_stages - 1 : num_stages);
      plan->order.push_back(prefetch[i] ? next_copy++ : next_user++);
    }
    return true;
  }

  Stmt function_body_;
  Views views_;
  int arch_;
};

PrimFunc PipelinePlanning(PrimFunc f) {
  Planner planner(f->body, TargetArch(f));
  Stmt body = planner.Mutate(f->body);
  return WithPipelines(WithBody(std::move(f), body), planner.plain);
}

Registration registration([] { RegisterPass("PipelinePlanning", PipelinePlanning); });

}  // namespace
}  // namespace tl
