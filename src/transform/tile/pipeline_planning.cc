/*!
 * PipelinePlanning: decides the schedule of T.Pipelined loops.
 *
 * In:  a tile program. Its pipelined loops have `num_stages` >= 1, or `tl_pipeline_order` and
 * `tl_pipeline_stage`.
 * Out: these loops have `software_pipeline_stage`, `software_pipeline_order` (an entry for
 * each statement of the body, in source order) and `software_pipeline_async_stages`. A statement
 * of stage s works on iteration i - s in step i. Its order is its place in a step. Scalar
 * bindings of the body are substituted into their users. If roles of the program pass tiles on
 * by mbarriers (pipeline_handshakes.h), the loop has `tl_pipeline_handshakes` and no schedule:
 * its statements stay where they are. Copies that the program wants by TMA
 * (`prefer_instruction="tma"`) and that can run ahead become tl.tileop.tma_copy by an elected
 * thread, with an mbarrier and the wait for it.
 * Establishes: an automatic plan keeps every dependence of the source order.
 * InjectSoftwarePipeline checks a user's plan. `software_pipeline_reasons` and the function's
 * `tl.pipelines` say why statements and loops stay as they are.
 * Refuses (ValueError): a user's schedule that does not fit the body, and one in which -1 stands
 * for a statement that cannot run ahead. In a loop with a schedule of the user it also refuses
 * names for values that have to be computed once, jumps, signals between ranks, T.tma_copy, and
 * an order that moves a statement at an mbarrier past an access of shared memory. Without such a
 * schedule, a loop with one of these stays a plain loop, and so does one in which nothing can be
 * prefetched.
 *
 * On a target without asynchronous copies of threads, a copy that runs ahead is two statements,
 * a load to a fragment and a store (pipeline_staging.h). `software_pipeline_least_versions` is
 * the number of versions that the stores need.
 *
 * The automatic plan. Copies from global to shared memory have stage 0. Everything else has one
 * stage more for each step that the copies run ahead. With two stages or more, the copies open
 * the step: the slot that they fill was freed in the step before. With one stage there is one
 * slot, so they follow its last user. A statement that a user's plan leaves to the compiler runs
 * as far ahead of its own first user.
 */
#include <algorithm>
#include <numeric>
#include <set>

#include "../../analysis/effects.h"
#include "../../op/copy_instruction.h"
#include "../../op/intrinsics.h"
#include "../../op/rank_intrinsics.h"
#include "../../op/tma_copy.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "pipeline.h"
#include "pipeline_barriers.h"
#include "pipeline_bindings.h"
#include "pipeline_handshakes.h"
#include "pipeline_reads.h"
#include "pipeline_staging.h"
#include "pipeline_tma.h"
#include "pipeline_user_schedule.h"

namespace tl {
namespace {

struct PipelineSchedule {
  std::vector<int64_t> stage;
  std::vector<int64_t> order;
  std::vector<int64_t> async_stages = {0};
  Array<String> reasons;
  int64_t least_versions = 1;
  std::vector<Var> held_ahead = {};
};

/*! Iterations that a copy runs ahead of its users. */
int64_t StepsAhead(int64_t num_stages) { return num_stages >= 2 ? num_stages - 1 : num_stages; }

/*! Finds what leaves an iteration of a loop: a jump of its own, or the end of the thread. */
class JumpFinder : public StmtExprVisitor {
 public:
  Stmt found;

 protected:
  void Visit_(const BreakNode* op) final { Note(op); }
  void Visit_(const ContinueNode* op) final { Note(op); }
  void Visit_(const EvaluateNode* op) final { Note(op); }
  void Visit_(const ForNode* op) final { Inside(op); }
  void Visit_(const WhileNode* op) final { Inside(op); }

 private:
  void Inside(const StmtNode* loop) {
    ++loops_;
    Default(loop);
    --loops_;
  }
  void Note(const StmtNode* op) {
    const Stmt s = GetRef<Stmt>(op);
    const auto* call = s.as<EvaluateNode>();
    const bool returns = call && IsCallTo(call->value, kThreadReturn);
    if (returns || (loops_ == 0 && (IsBreak(s) || IsContinue(s)))) found = s;
  }
  int loops_ = 0;
};

/*! Whether the program itself issues MMAs by descriptors, or loads by TMA. Their order is that of
 * the program's waits and barriers. They name one version of a buffer. */
bool KeepsOwnOrder(const Stmt& s) {
  return HasNode<CallNode>(s, [&](const CallNode* op) {
    const IntrinsicEffects* e = EffectsOf(op);
    return e && (e->queue == AsyncQueue::kTmaLoad || e->queue == AsyncQueue::kWgmma);
  });
}

/*! Whether a statement signals other ranks, or waits for them. Nothing says which accesses such a
 * statement orders. */
bool SignalsRanks(const Stmt& s) {
  return HasNode<CallNode>(s, [&](const CallNode* op) { return OrdersRanks(op); });
}

/*! The statement that keeps a loop from being a pipeline, and why. */
struct Obstacle {
  Stmt statement;
  std::string found;
  std::string reason;
};

class StagePlanner : public StmtExprMutator {
 public:
  explicit StagePlanner(const PrimFunc& f)
      : function_body_(f->body), views_(f->body), target_(TargetOf(f)) {}

  /*! What is said of loops that the program wants pipelined and that stay plain. */
  Array<Any> plain;

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    const std::vector<Axis> around = threads_;
    if (op->attr_key == kThreadExtent && threads_.empty()) {
      threads_ = ThreadAxesOf(GetRef<Stmt>(op));
    }
    const Stmt attr = scope_.Within(op, [&] { return Default<Stmt>(op); });
    threads_ = around;
    return attr;
  }

  Stmt Mutate_(const SBlockNode* op) final {
    block_ = op;
    SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    for (const Var& barrier : barriers_) AllocateBarrier(barrier, block.CopyOnWrite());
    barriers_.clear();
    return WithBuffers(block, std::exchange(fragments_, {}));
  }

  Stmt Mutate_(const ForNode* op) final {
    const int64_t num_stages = IntAnnotation(op->annotations, kNumStages).value_or(0);
    const std::vector<Stmt> source = FlatSeq(op->body);
    const auto user = ReadUserSchedule(op, source);
    if (num_stages < 1 && !user) return Plain(op);

    const InlinedBody inlined = InlineBindings(source, views_);
    const Obstacle obstacle = FindObstacle(source, inlined);
    if (obstacle.statement.defined()) {
      if (user) {
        ThrowAt(obstacle.statement->span, "ValueError",
                "T.Pipelined: found " + obstacle.found + ", but " + obstacle.reason +
                    "; leave out order and stage");
      }
      return Plain(op, source, ReasonAt(source, obstacle));
    }
    PipelineSchedule plan;
    FoundHandshakes roles;
    if (!user && block_ && HasRoles(inlined.body)) {
      const LoopPlace place{function_body_, op, views_, threads_, block_};
      roles = FindHandshakes(place, inlined.body, num_stages);
      if (roles.handshakes) return WithHandshakes(op, *roles.handshakes);
    }
    if (user) {
      plan = UserSchedule(op, source, *user, inlined.body, num_stages);
    } else if (const auto loads = LoadsAhead(op, inlined.body, num_stages, &plan)) {
      barriers_.push_back(loads->barrier);
      return Annotated(op, loads->body, plan);
    } else if (!AutoSchedule(op, inlined.body, num_stages, &plan)) {
      if (!roles.why.empty()) return OneVersion(op, inlined.body, roles);
      return Plain(op, inlined.body, plan.reasons);
    }
    if (!user) return Annotated(op, StagedInRegisters(op, inlined.body, num_stages, &plan), plan);
    For loop = Annotated(op, inlined.body, plan);
    if (user && !op->annotations.count(kChosen)) {
      PipelineSchedule automatic;
      AutoSchedule(op, inlined.body, num_stages, &automatic);
      loop.CopyOnWrite()->annotations.Set(kDefaultStage, ToAnnotation(automatic.stage));
      loop.CopyOnWrite()->annotations.Set(kDefaultOrder, ToAnnotation(automatic.order));
    }
    return loop;
  }

 private:
  static Obstacle FindObstacle(const std::vector<Stmt>& source, const InlinedBody& inlined) {
    if (inlined.fixed.defined()) return {inlined.fixed, "a name for a value", inlined.reason};
    for (const Stmt& s : source) {
      JumpFinder jumps;
      jumps(s);
      if (jumps.found.defined()) {
        return {s, "a jump out of an iteration", "a step works on several iterations"};
      }
      if (KeepsOwnOrder(s)) {
        return {s, "a product or a load of TMA by hand",
                "its order with other statements is the program's"};
      }
      if (SignalsRanks(s)) {
        return {s, "a signal between ranks", "copies may not run ahead of it"};
      }
    }
    return {};
  }

  /*! The body with loads by TMA in the place of copies, and its plan. nullopt if one of the loads
   * cannot run ahead. */
  std::optional<TmaLoads> LoadsAhead(const ForNode* op, const std::vector<Stmt>& body,
                                     int64_t num_stages, PipelineSchedule* plan) const {
    if (!block_) return std::nullopt;
    const auto loads = LoadByTma(function_body_, op, body, target_, scope_, views_);
    PipelineSchedule with_loads;
    if (!loads || !AutoSchedule(op, loads->body, num_stages, &with_loads)) return std::nullopt;
    const LoopBarriers barriers(function_body_, op, loads->body, views_);
    for (size_t i = 0; i < loads->body.size(); ++i) {
      const bool fills = Contains(barriers.Of(i), loads->barrier) && !barriers.Waits(i);
      if (fills && !with_loads.reasons[i].empty()) return std::nullopt;
    }
    *plan = with_loads;
    return loads;
  }

  static Array<String> ReasonAt(const std::vector<Stmt>& source, const Obstacle& obstacle) {
    Array<String> reasons;
    for (const Stmt& s : source) {
      reasons.push_back(s.same_as(obstacle.statement) ? obstacle.reason : "");
    }
    return reasons;
  }

  Stmt Plain(const ForNode* op) {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    for (const char* key : {kNumStages, kUserOrder, kUserStage, kUserGroup}) {
      if (loop->annotations.count(key)) loop.CopyOnWrite()->annotations.erase(key);
    }
    return loop;
  }
  Stmt Plain(const ForNode* op, const std::vector<Stmt>& body, const Array<String>& reasons) {
    plain.push_back(DescribeLoop(op, body, reasons));
    WarnOfNothingAhead(op, body, reasons);
    return Plain(op);
  }

  /*! The statements stay where they are. InjectSoftwarePipeline gives them their versions. */
  Stmt WithHandshakes(const ForNode* op, const Handshakes& handshakes) {
    For loop = Plain(op).as_or_throw<For>();
    loop.CopyOnWrite()->annotations.Set(kHandshakes, handshakes.ToAnnotation());
    return loop;
  }

  /*! A loop with roles of the program for which the proof of pipeline_handshakes.h fails: its tiles
   * keep one version. */
  Stmt OneVersion(const ForNode* op, const std::vector<Stmt>& body, const FoundHandshakes& roles) {
    plain.push_back(DescribeLoop(op, body, ReasonAt(body, {body[roles.statement], "", roles.why})));
    const int64_t num_stages = IntAnnotation(op->annotations, kNumStages).value_or(0);
    if (num_stages < 2) return Plain(op);
    LogAt(LogLevel::kWarning, op->span,
          "T.Pipelined: found num_stages=" + std::to_string(num_stages) +
              ", but what the loop's T.ws share stays as it is, without versions (" + roles.why +
              "); wanted a wait for the phase before at `empty`, a fill and an arrival at `full` "
              "in one T.ws, and a wait at `full`, all uses and an arrival at `empty` in the other; "
              "see \"Pipelines\" in docs/design.md");
    return Plain(op);
  }

  /*! Warns if the program wants stages and loads tiles, and no load can run ahead. */
  void WarnOfNothingAhead(const ForNode* op, const std::vector<Stmt>& body,
                          const Array<String>& reasons) const {
    std::string why;
    for (size_t i = 0; i < body.size(); ++i) {
      if (reasons[i].empty() || !LoadsTile(body[i])) continue;
      const Span& span = body[i]->span;
      why += (why.empty() ? "" : "; ") +
             (span.defined() ? "line " + std::to_string(span->line) + ": " : std::string()) +
             std::string(reasons[i]);
    }
    if (why.empty()) return;
    LogAt(LogLevel::kWarning, op->span,
          "T.Pipelined: found num_stages=" +
              std::to_string(IntAnnotation(op->annotations, kNumStages).value_or(0)) +
              ", but no copy runs ahead of its use (" + why +
              "); kernel.explain() has the reason for each statement");
  }

  bool LoadsTile(const Stmt& s) const {
    const BufferUse use = views_.UseOf(SplitGuard(s).body);
    return AnyOf(use.reads, IsGlobal) && AnyOf(use.writes, IsShared);
  }

  For Annotated(const ForNode* op, const std::vector<Stmt>& body, const PipelineSchedule& plan) {
    For loop = GetRef<For>(op);
    ForNode* n = loop.CopyOnWrite();
    n->body = Mutate(MakeSeq(body));
    for (const char* key : {kNumStages, kUserOrder, kUserStage, kUserGroup}) {
      n->annotations.erase(key);
    }
    n->annotations.Set(kPlannedStage, ToAnnotation(plan.stage));
    n->annotations.Set(kPlannedOrder, ToAnnotation(plan.order));
    if (!plan.reasons.empty()) n->annotations.Set(kReasons, plan.reasons);
    if (!plan.held_ahead.empty()) {
      n->annotations.Set(kHeldAhead, Array<Var>(plan.held_ahead.begin(), plan.held_ahead.end()));
    }
    if (plan.least_versions > 1) n->annotations.Set(kLeastVersions, plan.least_versions);
    const bool async = MayBeAsync(body) && EnablesAsyncCopy();
    n->annotations.Set(kAsyncStages,
                       ToAnnotation(async ? plan.async_stages : std::vector<int64_t>{}));
    return loop;
  }

  /*! What fills shared memory may be asynchronous copies of threads; where these have an order of
   * lanes, none but those of T.copy are. */
  bool MayBeAsync(const std::vector<Stmt>& body) const {
    const CopyInstruction* row = target_.ThreadCopy();
    if (!row || !row->in_lane_order) return row;
    return AnyOf(body, [](const Stmt& s) {
      const CallNode* call = AsTileOp(SplitGuard(s).body);
      return call && IsCopy(call) && ChoiceOf(call).AsyncByThreads();
    });
  }

  /*! The body whose copies that run ahead go through registers, and the plan of that body. */
  std::vector<Stmt> StagedInRegisters(const ForNode* op, const std::vector<Stmt>& body,
                                      int64_t num_stages, PipelineSchedule* plan) {
    PlannedBody staged = StageInRegisters(body, plan->reasons, StagesOf(op, num_stages));
    if (staged.fragments.empty()) return body;
    plan->stage = staged.stage;
    plan->order = staged.order;
    plan->reasons = staged.reasons;
    plan->least_versions = staged.versions;
    plan->held_ahead = staged.fragments;
    AppendRange(&fragments_, staged.fragments);
    return staged.body;
  }

  static bool IsTmaCopy(const Stmt& s) { return AsTileOp(s, kTmaCopy) != nullptr; }

  /*! The user's plan, completed by places for the copies that it leaves to the compiler. */
  PipelineSchedule UserSchedule(const ForNode* op, const std::vector<Stmt>& source,
                                const std::vector<std::optional<UserPlace>>& places,
                                const std::vector<Stmt>& body, int64_t num_stages) const {
    std::vector<std::optional<UserPlace>> given;
    for (size_t i = 0; i < source.size(); ++i) {
      if (!source[i].as<BindNode>()) given.push_back(places[i]);
    }
    std::vector<BufferUse> uses;
    for (const Stmt& s : body) uses.push_back(views_.UseOf(s));
    const std::vector<Var> outside = ReadsOutside(function_body_, op, views_);
    const LoopBarriers barriers(function_body_, op, body, views_);
    const int64_t ahead = StepsAhead(num_stages);

    PipelineSchedule plan;
    // The first number is 1 for statements that the user ordered, 0 in front of these, 2 behind.
    std::vector<std::pair<int64_t, int64_t>> order;
    for (size_t i = 0; i < body.size(); ++i) {
      if (IsTmaCopy(body[i])) {
        ThrowAt(body[i]->span, "ValueError",
                "found T.tma_copy in a T.Pipelined loop with order and stage, where the program "
                "says by mbarriers when things happen, wanted T.copy; or use T.serial");
      }
      if (given[i]) {
        plan.stage.push_back(given[i]->stage + ahead);
        order.emplace_back(1, given[i]->order);
        continue;
      }
      const std::string reason = WhyNotAhead(i, body, uses, outside, barriers, num_stages >= 2);
      const std::optional<int64_t> first = FirstUserStage(uses[i], uses, given);
      if (!reason.empty() || !first || ahead == 0) {
        ThrowAt(
            body[i]->span, "ValueError",
            "T.Pipelined: found order -1, which leaves the place to the compiler, wanted it for "
            "a copy that can run ahead, but " +
                (!reason.empty() ? reason
                 : ahead == 0    ? "num_stages is 0"
                                 : "nothing that has an order reads what it writes") +
                "; give it an order and a stage");
      }
      plan.stage.push_back(*first);
      order.emplace_back(num_stages >= 2 ? 0 : 2, 0);
    }
    FirstStageIsZero(&plan);
    plan.async_stages = AsyncStages(plan.stage, body, uses);
    std::vector<size_t> by_order(body.size());
    std::iota(by_order.begin(), by_order.end(), 0);
    std::stable_sort(by_order.begin(), by_order.end(),
                     [&](size_t a, size_t b) { return order[a] < order[b]; });
    plan.order.resize(body.size());
    for (size_t k = 0; k < by_order.size(); ++k) plan.order[by_order[k]] = int64_t(k);
    CheckOrderAtBarriers(body, uses, barriers, plan);
    return plan;
  }

  /*! The program alone knows which accesses an mbarrier orders. So a statement at an mbarrier may
   * not move past an access of shared memory. */
  static void CheckOrderAtBarriers(const std::vector<Stmt>& body,
                                   const std::vector<BufferUse>& uses, const LoopBarriers& barriers,
                                   const PipelineSchedule& plan) {
    for (size_t b = 0; b < body.size(); ++b) {
      if (!barriers.Touches(b)) continue;
      for (size_t i = 0; i < body.size(); ++i) {
        const auto is_shared = [](const Var& v) { return IsShared(v) || IsBarrier(v); };
        const bool shares = AnyOf(uses[i].reads, is_shared) || AnyOf(uses[i].writes, is_shared);
        const bool kept =
            plan.stage[i] == plan.stage[b] && (i < b) == (plan.order[i] < plan.order[b]);
        if (i == b || !shares || kept) continue;
        const int64_t line = body[i]->span.defined() ? int64_t(body[i]->span->line) : 0;
        ThrowAt(body[b]->span, "ValueError",
                "T.Pipelined: found a statement at an mbarrier that order and stage move past "
                "line " +
                    std::to_string(line) +
                    ", which uses shared memory, wanted both in one stage and in the order of the "
                    "body; give them that, or leave out order and stage");
      }
    }
  }

  /*! The earliest of the stages that the user gave to the readers of what `own` writes. */
  static std::optional<int64_t> FirstUserStage(const BufferUse& own,
                                               const std::vector<BufferUse>& uses,
                                               const std::vector<std::optional<UserPlace>>& given) {
    std::optional<int64_t> first;
    for (size_t u = 0; u < uses.size(); ++u) {
      if (given[u] && ReadsFrom(uses[u], own))
        first = std::min(first.value_or(given[u]->stage), given[u]->stage);
    }
    return first;
  }

  static void FirstStageIsZero(PipelineSchedule* plan) {
    const int64_t first = *std::min_element(plan->stage.begin(), plan->stage.end());
    for (int64_t& s : plan->stage) s -= first;
  }

  /*! The stages whose copies may be asynchronous: stage 0, and each stage whose copies have their
   * readers in later stages. A reader of the same stage would have to wait for all copies. */
  std::vector<int64_t> AsyncStages(const std::vector<int64_t>& stage, const std::vector<Stmt>& body,
                                   const std::vector<BufferUse>& uses) const {
    std::set<int64_t> early, late;
    for (size_t w = 0; w < uses.size(); ++w) {
      if (!FillsShared(body[w], views_)) continue;
      bool is_read_now = false;
      for (size_t u = 0; u < uses.size(); ++u) {
        is_read_now |= stage[u] <= stage[w] && ReadsFrom(uses[u], uses[w]);
      }
      (is_read_now ? late : early).insert(stage[w]);
    }
    std::vector<int64_t> stages = {0};
    for (int64_t s : early) {
      if (s > 0 && !late.count(s)) stages.push_back(s);
    }
    return stages;
  }

  static bool ReadsFrom(const BufferUse& reader, const BufferUse& writer) {
    return AnyOf(writer.writes, [&](const Var& v) { return Contains(reader.reads, v); });
  }

  /*!
   * Why a statement cannot run ahead; "" if it can. It can if it only fills shared memory, before
   * any reader in the body, from sources that the loop does not write. If the buffer gets several
   * versions, it also has to write all that the readers read.
   */
  std::string WhyNotAhead(size_t index, const std::vector<Stmt>& body,
                          const std::vector<BufferUse>& uses, const std::vector<Var>& outside,
                          const LoopBarriers& barriers, bool versions) const {
    const BufferUse& own = uses[index];
    if (barriers.Touches(index)) {
      if (const std::string why = barriers.WhyNotAhead(index); !why.empty()) return why;
    }
    if (own.writes.empty()) return "it writes no buffer";
    if (std::any_of(body.begin(), body.begin() + index,
                    [](const Stmt& s) { return HasCall(s, {kPdlSync}); })) {
      return "what it loads may be there behind T.pdl_sync only";
    }
    const std::vector<Var> at = barriers.Of(index);
    for (const Var& v : own.writes) {
      const std::string name = v->name;
      if (IsBarrier(v) && Contains(at, v)) continue;
      if (IsBarrier(v)) return "it uses mbarrier " + name + " in a loop or a range of threads";
      if (!IsShared(v)) return "it writes " + name + ", which is not shared memory";
      if (Contains(outside, v)) return name + " is read after the loop";
      bool is_read = false;
      bool in_pieces = false;
      for (size_t i = 0; i < uses.size(); ++i) {
        if (i == index) continue;
        const bool reads = Contains(uses[i].reads, v);
        is_read |= reads;
        if (Contains(uses[i].writes, v) && !in_pieces) {
          in_pieces = IsFilledInPieces(body, uses, v);
          if (!in_pieces) return "another statement writes " + name;
        }
        if (i < index && reads) return name + " is read before it";
        if (versions && reads && !IsSupplied(body, i, v, views_)) {
          return "more of " + name + " is read than " + (in_pieces ? "the loop" : "it") + " writes";
        }
      }
      // Such as a loop, which may be a pipeline of its own.
      if (!is_read && Contains(own.reads, v)) return "it reads " + name + " itself";
      if (!is_read) return "nothing in the loop reads " + name;
    }
    const std::vector<Var> source = views_.UseOf(SplitGuard(body[index]).body).reads;
    for (const Var& v : own.reads) {
      const std::string name = v->name;
      if (!IsCopySource(v) && Contains(source, v))
        return "it reads " + name + ", which is not global memory";
      for (const BufferUse& other : uses) {
        if (Contains(other.writes, v)) return "the loop writes " + name + ", which it reads";
      }
    }
    return "";
  }

  /*! Whether several copies write the buffer, each to elements of its own. */
  bool IsFilledInPieces(const std::vector<Stmt>& body, const std::vector<BufferUse>& uses,
                        const Var& buffer) const {
    int64_t writers = 0;
    for (size_t i = 0; i < body.size(); ++i) {
      if (!Contains(uses[i].writes, buffer)) continue;
      ++writers;
      if (!FillsShared(body[i], views_)) return false;
    }
    return writers > 1 && WriteApart(body, buffer, views_);
  }

  /*! If several statements fill a buffer and one cannot run ahead, the others cannot either. */
  static void KeepTogether(const std::vector<BufferUse>& uses, Array<String>* reasons) {
    bool changed = true;
    while (changed) {
      changed = false;
      for (size_t i = 0; i < uses.size(); ++i) {
        if ((*reasons)[i].empty()) continue;
        for (size_t j = 0; j < uses.size(); ++j) {
          if (!(*reasons)[j].empty()) continue;
          for (const Var& v : uses[j].writes) {
            if (!IsShared(v) || !Contains(uses[i].writes, v)) continue;
            reasons->Set(
                j, "another statement that fills " + std::string(v->name) + " cannot run ahead");
            changed = true;
            break;
          }
        }
      }
    }
  }

  /*! If several statements signal one mbarrier and one cannot run ahead, the others cannot either.
   */
  static void KeepTogether(const LoopBarriers& barriers, Array<String>* reasons) {
    bool changed = true;
    while (changed) {
      changed = false;
      for (size_t i = 0; i < reasons->size(); ++i) {
        if ((*reasons)[i].empty() || barriers.Waits(i)) continue;
        for (const Var& barrier : barriers.Of(i)) {
          for (size_t j = 0; j < reasons->size(); ++j) {
            if (!(*reasons)[j].empty() || !Contains(barriers.Of(j), barrier)) continue;
            reasons->Set(j, "another statement at mbarrier " + std::string(barrier->name) +
                                " cannot run ahead");
            changed = true;
          }
        }
      }
    }
  }

  /*! The number of stages, at most the number of iterations: further slots are never filled. */
  static int64_t StagesOf(const ForNode* loop, int64_t num_stages) {
    const auto trips = AsInt(loop->extent);
    return trips ? std::min(num_stages, std::max<int64_t>(*trips, 1)) : num_stages;
  }

  bool AutoSchedule(const ForNode* op, const std::vector<Stmt>& body, int64_t num_stages,
                    PipelineSchedule* plan) const {
    if (num_stages < 1) return false;
    num_stages = StagesOf(op, num_stages);
    std::vector<BufferUse> uses;
    for (const Stmt& s : body) uses.push_back(views_.UseOf(s));
    const std::vector<Var> outside = ReadsOutside(function_body_, op, views_);
    const bool copies_first = num_stages >= 2;
    const LoopBarriers barriers(function_body_, op, body, views_);
    for (size_t i = 0; i < body.size(); ++i) {
      plan->reasons.push_back(WhyNotAhead(i, body, uses, outside, barriers, copies_first));
    }
    KeepTogether(barriers, &plan->reasons);
    KeepTogether(uses, &plan->reasons);
    std::vector<bool> prefetch;
    for (const String& reason : plan->reasons) prefetch.push_back(reason.empty());
    const int64_t copies = std::count(prefetch.begin(), prefetch.end(), true);
    const int64_t users = static_cast<int64_t>(body.size()) - copies;
    if (copies == 0 || users == 0) return false;

    int64_t next_copy = copies_first ? 0 : users, next_user = copies_first ? copies : 0;
    for (size_t i = 0; i < body.size(); ++i) {
      plan->stage.push_back(prefetch[i] ? 0 : StepsAhead(num_stages));
      plan->order.push_back(prefetch[i] ? next_copy++ : next_user++);
    }
    return true;
  }

  Stmt function_body_;
  Views views_;
  const Target& target_;
  const SBlockNode* block_ = nullptr;
  KernelScope scope_;
  /*! The thread axes of the kernel. */
  std::vector<Axis> threads_;
  /*! mbarriers and fragments that loops of a block have got, and that the block allocates. */
  std::vector<Var> barriers_, fragments_;
};

PrimFunc PipelinePlanning(PrimFunc f) {
  StagePlanner planner(f);
  Stmt body = planner.Mutate(f->body);
  return WithPipelines(WithBody(std::move(f), body), planner.plain);
}

TL_REGISTER_PASS(PipelinePlanning);

}  // namespace
}  // namespace tl
