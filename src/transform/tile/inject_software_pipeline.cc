/*!
 * InjectSoftwarePipeline: applies the schedules that PipelinePlanning left.
 *
 * In:  a tile program with `software_pipeline_*` annotations on loops; others have
 * `tl_pipeline_handshakes`.
 * Out: each such loop is a prologue of max(stage) steps, a loop, and an epilogue for computation of
 * late stages. A shared buffer that is filled in an earlier step than it is used has a leading
 * version dimension, indexed by iteration % versions. Asynchronous copies stand in an `async_copy`
 * attribute whose value is their guard, with cp_async_commit after the copies of a step and
 * cp_async_wait before their users. Where a plan has tiles in fragments between their loads and
 * their stores, `tl.schedule_barrier` stands between loads, arithmetic and stores. A loop with
 * handshakes stays as it is, on versions of tiles and
 * mbarriers (pipeline_handshakes.h). Establishes: same results as the loop without the pipeline,
 * for any number of iterations. Refuses (ValueError, pipeline_hazards.h): schedules that do not
 * keep a dependence, or would need several versions of what has one only: registers, and buffers of
 * which something else is read than what the same iteration has written. The function's
 * `tl.pipelines` tells each pipeline's plan.
 *
 * Step t runs a statement of stage s for iteration t - s where that is a valid iteration. The loop
 * has the steps in which all computation is valid, so that no branch stands in its way; copies
 * ahead of it are guarded by the end of the range instead, because the steps that they would save
 * are a tile's worth of unrolled instructions each. Every step with copies commits one group, even
 * if a guard left it empty, so groups are known by counting: at the top of a step, a user at stage
 * s of a copy at stage d may leave s - d - 1 groups in flight.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../rename.h"
#include "pipeline.h"
#include "pipeline_barriers.h"
#include "pipeline_bindings.h"
#include "pipeline_handshakes.h"
#include "pipeline_hazards.h"
#include "pipeline_reads.h"
#include "tile_copies.h"
#include "versions.h"

namespace tl {
namespace {

/*! How many versions buffers have, and in which loops an iteration has a version of its own. */
struct Versions {
  /*! Views included, which have as many versions as their buffers; the most that a pipeline needs.
   */
  std::unordered_map<const Object*, int64_t> count;
  /*! By the loop's variable. */
  std::unordered_map<const Object*, std::vector<Var>> of_loop;
  /*! mbarriers, which have all versions in their one dimension. */
  BarrierRings rings;
  /*! What gets versions in loops whose roles hand tiles over, by their variables, and the
   * iterations of these. */
  std::unordered_map<const Object*, std::pair<Handshakes, IterationCount>> handshakes;
  /*! Loops, by their variable, that run once, and alone use what TMA fills in them. */
  std::unordered_set<const Object*> fresh;
};

class VersionCollector : public StmtExprVisitor {
 public:
  explicit VersionCollector(const Views& views) : views_(views) {}
  Versions Collect(const Stmt& s) {
    function_body_ = s;
    Visit(s);
    for (const Var& view : views_.all) {
      auto it = versions_.count.find(views_.RootOf(view).get());
      if (it != versions_.count.end()) versions_.count[view.get()] = it->second;
    }
    return std::move(versions_);
  }

 protected:
  void Visit_(const ForNode* op) final {
    if (op->annotations.count(kPlannedStage)) {
      const Pipeline p = ReadPipeline(op, views_);
      const std::vector<Var> outside = ReadsOutside(function_body_, op, views_);
      for (const BufferUse& use : p.uses) {
        for (const Var& buffer : use.writes) Add(p, buffer, Contains(outside, buffer));
      }
      if (AloneUsesTiles(p)) versions_.fresh.insert(op->loop_var.get());
    }
    if (const auto handshakes = Handshakes::Of(op)) Add(op, *handshakes);
    Default(op);
  }

 private:
  void Add(const Pipeline& p, const Var& buffer, bool is_read_outside) {
    std::vector<Var>& own = versions_.of_loop[p.loop->loop_var.get()];
    if (Contains(own, buffer)) return;
    const int64_t n = VersionsOf(p, buffer, views_, is_read_outside);
    if (n == 1) return;
    if (IsBarrier(buffer)) return AddRing(p.loop, buffer, n);
    own.push_back(buffer);
    int64_t& v = versions_.count[buffer.get()];
    v = std::max(v, n);
  }

  bool AloneUsesTiles(const Pipeline& p) const {
    const IterationCount count = CountIterations(function_body_, p.loop);
    if (!count.around.empty() || !count.unknown.empty()) return false;
    for (size_t i = 0; i < p.body.size(); ++i) {
      if (!p.tma[i]) continue;
      for (const Var& v : p.uses[i].writes) {
        const bool has_view =
            AnyOf(views_.all, [&](const Var& u) { return views_.IsSameMemory(u, v); });
        if (has_view || CountMentions(function_body_, v) != CountMentions(p.loop->body, v)) {
          return false;
        }
      }
    }
    return true;
  }

  void Add(const ForNode* loop, const Handshakes& handshakes) {
    versions_.handshakes[loop->loop_var.get()] = {handshakes,
                                                  CountIterations(function_body_, loop)};
    if (handshakes.versions == 1) return;
    for (const Var& tile : handshakes.tiles) {
      versions_.count[tile.get()] = handshakes.versions;
      versions_.of_loop[loop->loop_var.get()].push_back(tile);
    }
    for (const Var& barrier : handshakes.barriers) {
      AddRing(loop, barrier, handshakes.versions);
      const auto before = handshakes.phase_before.find(barrier);
      if (before == handshakes.phase_before.end()) continue;
      for (const IntImm& element : (*before).second) {
        versions_.rings.at(barrier.get()).phase_before.insert(ToInt(element));
      }
    }
  }

  void AddRing(const ForNode* loop, const Var& barrier, int64_t n) {
    if (versions_.rings.count(barrier.get())) return;
    const BufferTypeNode* type = BufferOf(barrier);
    const Var ring =
        MakeBuffer(barrier->name, type->dtype->dtype, {type->shape[0] * n}, type->storage_scope);
    versions_.rings[barrier.get()] = {ring, n, CountIterations(function_body_, loop)};
  }

  const Views& views_;
  Stmt function_body_;
  Versions versions_;
};

/*! Writes out the steps of one pipeline. */
class StepEmitter {
 public:
  StepEmitter(const Pipeline& p, VersionSelector* select, BarrierSelector* barriers,
              TileCopier* copies, bool tiles_are_fresh)
      : p_(p),
        select_(select),
        barriers_(barriers),
        copies_(copies),
        tiles_are_fresh_(tiles_are_fresh) {
    compute_stage_ = p.max_stage;
    for (size_t i = 0; i < p.body.size(); ++i) {
      if (!p.fills[i]) compute_stage_ = std::min(compute_stage_, p.stage[i]);
    }
    syncs_ = !ProgramSyncs();
    const bool any_async = std::count(p.async.begin(), p.async.end(), true) > 0;
    if (!any_async) return;
    for (size_t u = 0; u < p.body.size(); ++u) {
      for (size_t w = 0; w < p.body.size(); ++w) {
        if (!p.async[w]) continue;
        for (const Var& v : p.uses[w].writes) {
          if (Contains(p.uses[u].reads, v)) NoteUser(u, p.stage[u] - p.stage[w] - 1);
        }
      }
    }
  }

  Stmt Emit() {
    std::vector<Stmt> out;
    trips_ = p_.loop->extent;
    if (!IsPureInteger(trips_)) out.push_back(BindTrips());
    for (int64_t t = 0; t < p_.max_stage; ++t) {
      // The first steps fill one version after another.
      first_of_tiles_ = t == 0 ? tiles_are_fresh_ : true;
      Prologue(t, &out);
    }
    first_of_tiles_ = false;
    out.push_back(Loop());
    for (int64_t t = 0; t < Peeled(); ++t) out.push_back(Epilogue(t));
    // Copies ahead of the end may still be writing their zeros, and the buffers may get another
    // use.
    if (!user_.empty()) out.push_back(Wait(0));
    return MakeSeq(out);
  }

 private:
  /*! What a statement does in a step; nullopt where it has no iteration. */
  struct Instance {
    Expr iteration;
    Expr guard;
  };
  using InstanceOf = std::function<std::optional<Instance>(int64_t stage)>;

  bool IsTmaAhead(size_t i) const { return p_.tma[i] && p_.stage[i] < compute_stage_; }

  /*! The body has a barrier of its own behind all readers of what TMA fills ahead. */
  bool ProgramSyncs() const {
    size_t last_reader = 0, last_sync = 0;
    for (size_t i = 0; i < p_.body.size(); ++i) {
      if (IsBlockSync(p_.body[i])) last_sync = i;
      for (size_t w = 0; w < p_.body.size(); ++w) {
        if (!IsTmaAhead(w)) continue;
        for (const Var& v : p_.uses[w].writes) {
          if (IsShared(v) && Contains(p_.uses[i].reads, v)) last_reader = i;
        }
      }
    }
    return last_sync > last_reader;
  }

  /*! Steps after the loop, in which computation of the last iterations is left. */
  int64_t Peeled() const { return p_.max_stage - compute_stage_; }

  void NoteUser(size_t user, int64_t in_flight) {
    user_.resize(p_.body.size(), kNoWait);
    user_[user] = std::min(user_[user], in_flight);
  }

  /*! A number of iterations that is read from memory is read once. */
  Stmt BindTrips() {
    const Var v = MakeVar(std::string(p_.loop->loop_var->name) + "_trips", trips_->dtype());
    return MakeBind(v, std::exchange(trips_, v), p_.loop->span);
  }

  Map<String, Any> Annotations() const {
    Map<String, Any> kept = p_.loop->annotations;
    for (const char* key : {kPlannedStage, kPlannedOrder, kAsyncStages, kReasons, kDefaultStage,
                            kDefaultOrder, kChosen, kRewrites, kLeastVersions, kHeldAhead}) {
      kept.erase(key);
    }
    return kept;
  }

  Stmt Wait(int64_t in_flight) const {
    return MakeEvaluate(CallOp(kCpAsyncWait, {MakeInt(in_flight)}), p_.loop->span);
  }
  Stmt Commit() const { return MakeEvaluate(CallOp(kCpAsyncCommit, {}), p_.loop->span); }
  Expr Number(int64_t v) const { return MakeInt(trips_->dtype(), v); }

  void Prologue(int64_t t, std::vector<Stmt>* out) {
    Step(
        [&](int64_t s) -> std::optional<Instance> {
          if (s > t) return std::nullopt;
          return Instance{Number(t - s), Number(t - s) < trips_};
        },
        out);
  }

  Stmt Loop() {
    Var k = MakeVar(p_.loop->loop_var->name, trips_->dtype());
    std::vector<Stmt> body;
    Step(
        [&](int64_t s) -> std::optional<Instance> {
          const Expr iteration = k + (p_.max_stage - s);
          // Computation has an iteration in every step of the loop, copies may be ahead of the end.
          const bool ahead = s < compute_stage_;
          return Instance{iteration, ahead ? iteration < trips_ : Expr(MakeInt(kBool, 1))};
        },
        &body);
    // Unsigned numbers do not get below 0.
    const bool is_unsigned = trips_->dtype().code == kDLUInt;
    const Expr most = is_unsigned ? MaxOf(trips_, Number(Peeled())) : trips_;
    return MakeFor(k, most - Number(Peeled()), p_.loop->kind, MakeSeq(body), p_.loop->span,
                   Annotations());
  }

  /*! Step t after the loop; where there are less iterations than steps ahead, the prologue has
   * done the first of these steps. */
  Stmt Epilogue(int64_t t) {
    std::vector<Stmt> body;
    const bool commits = Step(
        [&](int64_t s) -> std::optional<Instance> {
          const int64_t behind = s - compute_stage_ - t;
          if (behind <= 0) return std::nullopt;
          return Instance{trips_ - Number(behind), MakeInt(kBool, 1)};
        },
        &body);
    if (!commits) ++without_group_;
    return MakeIf(trips_ >= Number(Peeled() - t), copies_->Copy(MakeSeq(body)), p_.loop->span);
  }

  /*! Between loads ahead and arithmetic, and between that and their stores: the device's compiler
   * would move loads to where their values are used, and stores in front of the arithmetic. */
  static bool IsBetweenParts(const std::string& before, const std::string& behind) {
    return (before == "load" && behind.empty()) || (before.empty() && behind == "store");
  }

  /*! Appends one step; true if it commits a group. */
  bool Step(const InstanceOf& instance_of, std::vector<Stmt>* out) {
    std::vector<Stmt> stmts;
    int64_t in_flight = kNoWait;
    bool is_open = false, synced = first_of_tiles_ || !syncs_;
    size_t last_async = p_.body.size();
    std::optional<size_t> before;
    for (size_t i : p_.by_order) {
      if (p_.async[i] && instance_of(p_.stage[i])) last_async = i;
    }
    for (size_t i : p_.by_order) {
      const auto instance = instance_of(p_.stage[i]);
      if (!instance) continue;
      if (!user_.empty() && user_[i] < 0) {
        // Copied in this very step: nothing may be left in flight, nor out of a group.
        if (is_open) stmts.push_back(Commit());
        stmts.push_back(Wait(0));
        is_open = false;
      } else if (!user_.empty()) {
        in_flight = std::min(in_flight, user_[i]);
      }
      if (before && IsBetweenParts(p_.part[*before], p_.part[i])) {
        stmts.push_back(MakeEvaluate(CallOp(kScheduleBarrier, {}), p_.body[i]->span));
      }
      before = i;
      if (IsTmaAhead(i) && !synced) {
        // All threads are done with the version that the loads overwrite.
        stmts.push_back(MakeEvaluate(CallOp(kSync, {StringOf("shared")}), p_.body[i]->span));
        synced = true;
      }
      Append(i, *instance, &stmts);
      is_open = i != last_async && (is_open || p_.async[i]);
      if (i == last_async) stmts.push_back(Commit());
    }
    // Waiting before the copies of the step lets one barrier serve their users and the slot that
    // the copies overwrite.
    if (in_flight != kNoWait) {
      out->push_back(Wait(std::max<int64_t>(in_flight - without_group_, 0)));
    }
    AppendRange(out, stmts);
    return last_async < p_.body.size();
  }

  /*! Appends statement i for one iteration, if that is one: a slot that a copy ahead of the end
   * fills is never read. */
  void Append(size_t i, const Instance& instance, std::vector<Stmt>* out) {
    if (IsConst(instance.guard, 0)) return;
    Stmt s = At(i, instance.iteration);
    const bool conditional = SplitGuard(s).condition.defined();
    if (p_.async[i]) {
      // A condition may only be asked in an iteration of the loop.
      const Expr predicate = conditional ? Expr(MakeInt(kBool, 1)) : instance.guard;
      if (!conditional && !IsConst(predicate, 1)) s = GuardTables(s, predicate);
      const Stmt copy = MakeAttr(Any(0), kAsyncCopy, predicate, s);
      out->push_back(conditional ? MakeIf(instance.guard, copy, p_.body[i]->span) : copy);
      return;
    }
    const auto* before = out->empty() ? nullptr : out->back().as<IfThenElseNode>();
    const bool is_same = before && before->condition.same_as(last_guard_) &&
                         ffi::StructuralEqual()(instance.guard, last_guard_);
    if (is_same) {
      out->back() = MakeIf(last_guard_, MakeSeq({before->then_case, s}), before->span);
      return;
    }
    last_guard_ = instance.guard;
    out->push_back(MakeIf(instance.guard, s, p_.body[i]->span));
  }

  Stmt At(size_t i, const Expr& iteration) {
    select_->iteration = iteration;
    Stmt s = barriers_->Mutate(select_->Mutate(p_.body[i]));
    select_->iteration = Expr();
    BindingRenamer rename;
    rename.map[p_.loop->loop_var.get()] = p_.loop->min + iteration;
    return rename.Mutate(s);
  }

  static constexpr int64_t kNoWait = INT64_MAX;
  const Pipeline& p_;
  VersionSelector* select_;
  BarrierSelector* barriers_;
  TileCopier* copies_;
  /*! Nobody has used what TMA fills ahead before the loop starts. */
  const bool tiles_are_fresh_;
  /*! In this step the loads fill versions that nobody has used in the loop. */
  bool first_of_tiles_ = false;
  /*! A barrier of all threads has to stand in front of the loads of a step. */
  bool syncs_ = true;
  /*! Number of iterations. */
  Expr trips_;
  /*! The earliest stage of a statement that does more than to fill shared memory. */
  int64_t compute_stage_;
  /*! Groups that may be in flight when statement i runs, at the top of its step; empty if nothing
   * is asynchronous. */
  std::vector<int64_t> user_;
  /*! Steps of the epilogue that had no copies left. */
  int64_t without_group_ = 0;
  /*! Condition of the branch that was written last. */
  Expr last_guard_;
};

class Injector : public StmtExprMutator {
 public:
  Injector(const Versions& versions, const Views& views, const Stmt& function_body)
      : maker_(versions.count),
        of_loop_(versions.of_loop),
        rings_(versions.rings),
        handshakes_(versions.handshakes),
        fresh_(versions.fresh),
        views_(views),
        function_body_(function_body) {}

  Array<Any> pipelines;

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    Array<Var> allocs;
    for (const Var& buffer : op->alloc_buffers) {
      const auto ring = rings_.find(buffer.get());
      allocs.push_back(ring == rings_.end() ? maker_.Versioned(buffer) : ring->second.barrier);
    }
    Stmt body = Mutate(op->body);
    // What is left outside pipelines uses version 0.
    VersionSelector select;
    select.versioned = maker_.made;
    body = select.Mutate(body);
    auto n = make_object<SBlockNode>(*op);
    maker_.ExpandLayouts(&n->annotations);
    AddCopies(&allocs, &n->annotations);
    RepeatArrivals(rings_, &n->annotations);
    n->alloc_buffers = allocs;
    n->body = body;
    return SBlock(n);
  }

  Stmt Mutate_(const DeclBufferNode* op) final { return maker_.Declare(op, views_); }

  Stmt Mutate_(const ForNode* op) final {
    if (handshakes_.count(op->loop_var.get())) return WithHandshakes(op);
    if (!op->annotations.count(kPlannedStage)) return Repeated(op);
    Pipeline p = ReadPipeline(op, views_);
    Describe(p);
    VersionSelector select = TilesOf(op);
    BarrierSelector barriers = BarriersOf(op);
    const bool fresh = fresh_.count(op->loop_var.get()) > 0;
    TileCopier copies(p.HoldsAhead() ? TilesOfIteration(p, function_body_, views_, VersionedIn(op))
                                     : std::vector<Var>());
    for (Stmt& s : p.body) s = Mutate(s);
    const Stmt steps = StepEmitter(p, &select, &barriers, &copies, fresh).Emit();
    AppendRange(&copies_, copies.made);
    return Rewriting(p, steps);
  }
  Stmt Mutate_(const WhileNode* op) final { return Repeated(op); }

 private:
  /*! What the steps behind loops have for themselves, laid out as what it stands for. */
  void AddCopies(Array<Var>* allocs, Annotations* annotations) {
    Map<Var, Layout> layouts = GetLayoutMap(*annotations);
    for (const auto& [tile, copy] : copies_) {
      allocs->push_back(copy);
      if (layouts.count(tile)) layouts.Set(copy, layouts.at(tile));
    }
    if (!layouts.empty()) SetLayoutMap(annotations, layouts);
    copies_.clear();
  }

  VersionSelector TilesOf(const ForNode* loop) const {
    VersionSelector select;
    for (const Var& buffer : VersionedIn(loop)) {
      select.versioned[buffer.get()] = maker_.made.at(buffer.get());
    }
    return select;
  }
  BarrierSelector BarriersOf(const ForNode* loop) const {
    BarrierSelector barriers;
    barriers.rings = rings_;
    barriers.loop = loop;
    return barriers;
  }

  /*! The body for the versions of its iteration. The tiles' slots follow those of the barriers,
   * which count what the kernel has run. */
  Stmt WithHandshakes(const ForNode* op) {
    const auto& [handshakes, count] = handshakes_.at(op->loop_var.get());
    Map<String, Any> entry = DescribeLoop(op, FlatSeq(op->body), {});
    Map<String, Any> versions;
    for (const std::vector<Var>& buffers : {handshakes.tiles, handshakes.barriers}) {
      if (handshakes.versions == 1) break;
      for (const Var& v : buffers) versions.Set(v->name, handshakes.versions);
    }
    entry.Set("versions", versions);
    if (handshakes.slots > 1) {
      Map<String, Any> slots;
      for (const std::vector<Var>& buffers : {handshakes.tiles, handshakes.barriers}) {
        for (const Var& v : buffers) slots.Set(v->name, handshakes.slots);
      }
      entry.Set("slots", slots);
      entry.Set("late", handshakes.late);
    }
    pipelines.push_back(entry);
    For loop = Repeated(op).as_or_throw<For>();
    VersionSelector select = TilesOf(op);
    select.iteration = count.Of(op);
    ForNode* n = loop.CopyOnWrite();
    n->body = BarriersOf(op).Mutate(select.Mutate(n->body));
    n->annotations.erase(kHandshakes);
    return loop;
  }

  template <typename Loop>
  Stmt Repeated(const Loop* op) {
    ++loops_;
    const Stmt loop = Default<Stmt>(op);
    --loops_;
    return loop;
  }

  /*! In a loop, the steps say that they want nothing of what their buffers' versions held. */
  Stmt Rewriting(const Pipeline& p, const Stmt& steps) const {
    Array<Var> rewritten;
    const auto known = p.loop->annotations.find(kRewrites);
    if (known != p.loop->annotations.end()) rewritten = (*known).second.cast<Array<Var>>();
    if (auto it = of_loop_.find(p.loop->loop_var.get()); it != of_loop_.end() && loops_ > 0) {
      for (const Var& v : it->second) {
        if (IsShared(v)) rewritten.push_back(maker_.made.at(v.get()));
      }
    }
    return rewritten.empty() ? steps : MakeAttr(rewritten, kRewrites, MakeInt(1), steps);
  }

  void Describe(const Pipeline& p) {
    Array<String> reasons;
    auto given = p.loop->annotations.find(kReasons);
    if (given != p.loop->annotations.end()) reasons = (*given).second.cast<Array<String>>();
    Map<String, Any> entry = DescribeLoop(p.loop, p.body, reasons);
    const std::vector<int64_t> async(p.async.begin(), p.async.end());
    Map<String, Any> versions;
    if (auto it = of_loop_.find(p.loop->loop_var.get()); it != of_loop_.end()) {
      for (const Var& v : it->second) versions.Set(v->name, maker_.counts.at(v.get()));
    }
    for (const BufferUse& use : p.uses) {
      for (const Var& v : use.writes) {
        const auto ring = rings_.find(v.get());
        if (ring != rings_.end()) versions.Set(v->name, ring->second.versions);
      }
    }
    entry.Set("stage", ToAnnotation(p.stage));
    entry.Set("order", ToAnnotation(p.order));
    entry.Set("async", ToAnnotation(async));
    entry.Set("versions", versions);
    Array<String> parts;
    for (const std::string& part : p.part) parts.push_back(part);
    entry.Set("parts", parts);
    for (const auto& [key, name] :
         {std::pair(kDefaultStage, "default_stage"), std::pair(kDefaultOrder, "default_order"),
          std::pair(kChosen, "chosen")}) {
      auto it = p.loop->annotations.find(key);
      if (it != p.loop->annotations.end()) entry.Set(name, (*it).second);
    }
    pipelines.push_back(entry);
  }

  /*! The buffers, and their views, of which each iteration of the loop has a version. Others belong
   * to a loop around this one, or have their one value in version 0. */
  std::vector<Var> VersionedIn(const ForNode* loop) const {
    auto it = of_loop_.find(loop->loop_var.get());
    if (it == of_loop_.end()) return {};
    std::vector<Var> all = it->second;
    for (const Var& view : views_.all) {
      if (Contains(it->second, views_.RootOf(view))) all.push_back(view);
    }
    return all;
  }

  VersionMaker maker_;
  std::unordered_map<const Object*, std::vector<Var>> of_loop_;
  const BarrierRings rings_;
  const std::unordered_map<const Object*, std::pair<Handshakes, IterationCount>> handshakes_;
  const std::unordered_set<const Object*> fresh_;
  const Views& views_;
  const Stmt function_body_;
  /*! Tiles of the block, and those of steps behind loops. */
  std::vector<std::pair<Var, Var>> copies_;
  int loops_ = 0;  // around
};

PrimFunc InjectSoftwarePipeline(PrimFunc f) {
  const Views views(f->body);
  Injector injector(VersionCollector(views).Collect(f->body), views, f->body);
  Stmt body = injector.Mutate(f->body);
  return WithPipelines(WithBody(std::move(f), body), injector.pipelines);
}

TL_REGISTER_PASS(InjectSoftwarePipeline);

}  // namespace
}  // namespace tl
