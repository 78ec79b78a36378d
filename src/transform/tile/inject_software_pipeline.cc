/*!
 * InjectSoftwarePipeline: applies the schedules that PipelinePlanning left.
 *
 * In:  a tile program with `software_pipeline_*` annotations on loops.
 * Out: each such loop is a prologue of max(stage) steps and a loop whose early stages are guarded
 * by the end of the range. A shared buffer that is filled at an earlier stage than it is used has a
 * leading version dimension, indexed by iteration % versions. Asynchronous copies stand in an
 * `async_copy` attribute whose value is their guard, with cp_async_commit after the copies of a
 * step and cp_async_wait before their users. Establishes: same results as the loop without the
 * pipeline. Refuses: schedules that would need several versions of a fragment or of thread memory,
 * or of a buffer of which something else is read than what the same iteration has written
 * (ValueError). The function's `tl.pipelines` tells each pipeline's plan.
 *
 * Step t runs a statement of stage s for iteration t - s where that is a valid iteration. Every
 * step commits one group, even if a guard left it empty, so groups are known by counting: at the
 * top of a step, a user at stage s of a copy at stage d may leave s - d - 1 groups in flight. There
 * is no separate epilogue: the body of the loop, a tile's worth of unrolled instructions, is
 * emitted once.
 */
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "../../layout/annotation.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/views.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "pipeline.h"
#include "pipeline_reads.h"

namespace tl {
namespace {

struct Pipeline {
  const ForNode* loop;
  std::vector<Stmt> body;
  std::vector<BufferUse> uses;
  std::vector<int64_t> stage;
  /*! Statement numbers by their order in a step. */
  std::vector<size_t> by_order;
  std::vector<bool> async;
  int64_t max_stage = 0;
};

bool WantsSync(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  if (!call) return false;
  Any prefer = TileOpAttr(call, "prefer_instruction");
  return prefer != nullptr && prefer.cast<String>() == "sync";
}

Pipeline ReadPipeline(const ForNode* loop, const Views& views) {
  Pipeline p;
  p.loop = loop;
  p.body = FlatSeq(loop->body);
  p.stage = *ListAnnotation(loop->annotations, kPlannedStage);
  const std::vector<int64_t> order = *ListAnnotation(loop->annotations, kPlannedOrder);
  const std::vector<int64_t> async_stages = *ListAnnotation(loop->annotations, kAsyncStages);
  p.by_order.resize(p.body.size());
  std::iota(p.by_order.begin(), p.by_order.end(), 0);
  std::sort(p.by_order.begin(), p.by_order.end(),
            [&](size_t a, size_t b) { return order[a] < order[b]; });
  for (size_t i = 0; i < p.body.size(); ++i) {
    p.uses.push_back(views.UseOf(p.body[i]));
    p.max_stage = std::max(p.max_stage, p.stage[i]);
    const BufferUse& use = p.uses.back();
    const bool fills_shared = !use.writes.empty() &&
                              std::all_of(use.writes.begin(), use.writes.end(), IsShared) &&
                              std::all_of(use.reads.begin(), use.reads.end(), IsGlobal);
    const bool in_stage = std::count(async_stages.begin(), async_stages.end(), p.stage[i]) > 0;
    p.async.push_back(in_stage && fills_shared && !WantsSync(p.body[i]));
  }
  return p;
}

/*! Slots that a buffer needs so that no step overwrites what a later step of an earlier iteration
 * reads. */
int64_t VersionsOf(const Pipeline& p, const Var& buffer) {
  std::vector<size_t> place(p.body.size());
  for (size_t k = 0; k < p.by_order.size(); ++k) place[p.by_order[k]] = k;
  int64_t versions = 1;
  for (size_t w = 0; w < p.body.size(); ++w) {
    if (!Contains(p.uses[w].writes, buffer)) continue;
    for (size_t u = 0; u < p.body.size(); ++u) {
      if (!Contains(p.uses[u].reads, buffer) && !Contains(p.uses[u].writes, buffer)) continue;
      versions = std::max(versions, p.stage[u] - p.stage[w] + (place[w] < place[u] ? 1 : 0));
    }
  }
  return versions;
}

/*! The versioned buffers of all pipelines of a function; a buffer of several pipelines gets the
 * most that one needs. */
class VersionCollector : public StmtExprVisitor {
 public:
  explicit VersionCollector(const Views& views) : views_(views) {}
  /*! Views included, which have as many versions as their buffers. */
  std::unordered_map<const Object*, int64_t> Collect(const Stmt& s) {
    function_body_ = s;
    Visit(s);
    for (const Var& view : views_.all) {
      auto it = versions_.find(views_.RootOf(view).get());
      if (it != versions_.end()) versions_[view.get()] = it->second;
    }
    return versions_;
  }

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const ForNode* op) final {
    if (op->annotations.count(kPlannedStage)) {
      const Pipeline p = ReadPipeline(op, views_);
      for (const BufferUse& use : p.uses) {
        for (const Var& buffer : use.writes) Add(p, buffer);
      }
    }
    Default(op);
  }

 private:
  void Add(const Pipeline& p, const Var& buffer) {
    const int64_t n = VersionsOf(p, buffer);
    if (n == 1) return;
    if (!IsShared(buffer)) {
      ThrowAt(
          p.loop->span, "ValueError",
          "T.Pipelined: found " + std::string(buffer->name) + " (" + ScopeOf(buffer) +
              ") written at one stage and used at a later one, wanted shared memory or one stage; "
              "give both statements the same stage");
    }
    CheckReaders(p, buffer);
    int64_t& v = versions_[buffer.get()];
    v = std::max(v, n);
  }

  /*! Each version holds what one iteration has written: what else is read of the buffer would be
   * another version's. */
  void CheckReaders(const Pipeline& p, const Var& buffer) const {
    const Stmt* reader = nullptr;
    for (size_t w = 0; w < p.body.size(); ++w) {
      if (!Contains(p.uses[w].writes, buffer)) continue;
      for (size_t u = 0; u < p.body.size(); ++u) {
        const bool reads = Contains(p.uses[u].reads, buffer);
        if (reads && !Supplies(p.body[w], p.body[u], buffer, views_)) reader = &p.body[u];
      }
    }
    const bool outside = Contains(ReadsOutside(function_body_, p.loop, views_), buffer);
    if (!reader && !outside) return;
    ThrowAt(reader ? (*reader)->span : p.loop->span, "ValueError",
            "T.Pipelined: found " + std::string(buffer->name) +
                " written at one stage and used at a later one, which takes several versions of "
                "it, and read " +
                (reader ? "here beyond what the same iteration has certainly written"
                        : "outside of the loop") +
                ", wanted the iteration's own values; give both statements the same stage");
  }

  const Views& views_;
  Stmt function_body_;
  std::unordered_map<const Object*, int64_t> versions_;
};

/*! Points every access of a versioned buffer at one version. */
class VersionSelector : public StmtExprMutator {
 public:
  std::unordered_map<const Object*, Var> versioned;
  /*! Iteration that the statement works on; version 0 where undefined. */
  Expr iteration;

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const BufferStoreNode* op) final {
    auto it = versioned.find(op->buffer.get());
    if (it == versioned.end()) return Default<Stmt>(op);
    return MakeStore(it->second, Mutate(op->value), Prepend(it->second, op->indices), op->span);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    auto it = versioned.find(op->source.get());
    if (it == versioned.end()) return Default<Expr>(op);
    return LoadOf(it->second, Prepend(it->second, op->indices));
  }
  Expr Mutate_(const TensorRegionNode* op) final {
    auto it = versioned.find(op->source.get());
    if (it == versioned.end()) return Default<Expr>(op);
    auto one = make_object<RangeNode>();
    one->min = Slot(it->second);
    one->extent = MakeInt(1);
    auto n = make_object<TensorRegionNode>(*op);
    n->source = it->second;
    n->region = {Range(one)};
    for (const Range& r : op->region) n->region.push_back(Mutate(r));
    return TensorRegion(n);
  }

 private:
  Expr Slot(const Var& buffer) const {
    return iteration.defined() ? FloorModOf(iteration, ToInt(BufferOf(buffer)->shape[0]))
                               : Expr(MakeInt(0));
  }
  Array<Expr> Prepend(const Var& buffer, const Array<Expr>& indices) {
    Array<Expr> out = {Slot(buffer)};
    for (const Expr& e : indices) out.push_back(Mutate(e));
    return out;
  }
};

/*! Writes out the steps of one pipeline. */
class StepEmitter {
 public:
  StepEmitter(const Pipeline& p, VersionSelector* select) : p_(p), select_(select) {
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
    const Expr n = p_.loop->extent;
    const int64_t S = p_.max_stage;
    std::vector<Stmt> out;
    for (int64_t t = 0; t < S; ++t) Step(MakeInt(n->dtype(), t), t, &out);
    Var k = MakeVar(p_.loop->loop_var->name, n->dtype());
    std::vector<Stmt> body;
    Step(k + S, std::nullopt, &body);
    out.push_back(MakeFor(k, n, p_.loop->kind, MakeSeq(body), p_.loop->span, Annotations()));
    // Copies ahead of the end may still be writing their zeros, and the buffers may get another
    // use.
    if (!user_.empty()) out.push_back(Wait(0));
    return MakeSeq(out);
  }

 private:
  void NoteUser(size_t user, int64_t in_flight) {
    user_.resize(p_.body.size(), kNoWait);
    user_[user] = std::min(user_[user], in_flight);
  }

  Map<String, Any> Annotations() const {
    Map<String, Any> kept = p_.loop->annotations;
    for (const char* key : {kPlannedStage, kPlannedOrder, kAsyncStages, kReasons}) kept.erase(key);
    return kept;
  }

  Stmt Wait(int64_t in_flight) const {
    return MakeEvaluate(CallOp(kCpAsyncWait, {MakeInt(in_flight)}), p_.loop->span);
  }

  /*! One step, number `step`; `prologue` is the same number in the steps before the loop. */
  void Step(const Expr& step, std::optional<int64_t> prologue, std::vector<Stmt>* out) {
    const Expr n = p_.loop->extent;
    std::vector<Stmt> stmts;
    int64_t in_flight = kNoWait;
    size_t last_async = p_.body.size();
    for (size_t i : p_.by_order) {
      if (p_.async[i]) last_async = i;
    }
    for (size_t i : p_.by_order) {
      const int64_t s = p_.stage[i];
      if (!prologue || *prologue >= s) {
        if (!user_.empty() && user_[i] < 0) {
          // Copied in this very step: nothing may be left in flight.
          stmts.push_back(Wait(0));
        } else if (!user_.empty()) {
          in_flight = std::min(in_flight, user_[i]);
        }
        Expr iteration = step - MakeInt(n->dtype(), s);
        // The loop runs once for each iteration of the last stage; earlier stages are ahead of it
        // and end sooner.
        const bool ahead = prologue || s < p_.max_stage;
        Append(i, ahead ? iteration < n : Expr(MakeInt(kBool, 1)), iteration, &stmts);
      }
      if (i == last_async) stmts.push_back(MakeEvaluate(CallOp(kCpAsyncCommit, {}), p_.loop->span));
    }
    // Waiting before the copies of the step lets one barrier serve their users and the slot that
    // the copies overwrite.
    if (in_flight != kNoWait) out->push_back(Wait(in_flight));
    out->insert(out->end(), stmts.begin(), stmts.end());
  }

  /*! Appends statement i for one iteration, if that is one: a slot that a copy ahead of the end
   * fills is never read. */
  void Append(size_t i, const Expr& guard, const Expr& iteration, std::vector<Stmt>* out) {
    if (IsConst(guard, 0)) return;
    Stmt s = Instance(i, iteration);
    if (p_.async[i]) {
      out->push_back(MakeAttr(Any(0), kAsyncCopy, guard, s));
      return;
    }
    out->push_back(MakeIf(guard, s, p_.body[i]->span));
  }

  Stmt Instance(size_t i, const Expr& iteration) {
    select_->iteration = iteration;
    Stmt s = select_->Mutate(p_.body[i]);
    select_->iteration = Expr();
    return Substitute(s, p_.loop->loop_var, p_.loop->min + iteration);
  }

  static constexpr int64_t kNoWait = INT64_MAX;
  const Pipeline& p_;
  VersionSelector* select_;
  /*! Groups that may be in flight when statement i runs, at the top of its step; empty if nothing
   * is asynchronous. */
  std::vector<int64_t> user_;
};

class Injector : public StmtExprMutator {
 public:
  Injector(std::unordered_map<const Object*, int64_t> versions, const Views& views)
      : versions_(std::move(versions)), views_(views) {}

  Array<Any> pipelines;

 protected:
  using StmtExprMutator::Mutate_;

  Stmt Mutate_(const SBlockNode* op) final {
    Array<Var> allocs;
    for (const Var& buffer : op->alloc_buffers) allocs.push_back(Versioned(buffer));
    Stmt body = Mutate(op->body);
    // What is left outside pipelines uses version 0.
    body = select_.Mutate(body);
    auto n = make_object<SBlockNode>(*op);
    VersionLayouts(&n->annotations);
    n->alloc_buffers = allocs;
    n->body = body;
    return SBlock(n);
  }

  Stmt Mutate_(const DeclBufferNode* op) final {
    auto it = select_.versioned.find(views_.RootOf(op->buffer).get());
    if (it == select_.versioned.end()) return GetRef<Stmt>(op);
    return DeclareView(Versioned(op->buffer), it->second, op->span);
  }

  Stmt Mutate_(const ForNode* op) final {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    if (!loop->annotations.count(kPlannedStage)) return loop;
    const Pipeline p = ReadPipeline(loop.get(), views_);
    Describe(p);
    return StepEmitter(p, &select_).Emit();
  }

 private:
  void Describe(const Pipeline& p) {
    Array<String> reasons;
    auto given = p.loop->annotations.find(kReasons);
    if (given != p.loop->annotations.end()) reasons = (*given).second.cast<Array<String>>();
    Map<String, Any> entry = DescribeLoop(p.loop, p.body, reasons);
    std::vector<int64_t> order(p.body.size()), async;
    for (size_t k = 0; k < p.by_order.size(); ++k) order[p.by_order[k]] = int64_t(k);
    Map<String, Any> versions;
    for (size_t i = 0; i < p.body.size(); ++i) {
      async.push_back(p.async[i]);
      for (const Var& v : p.uses[i].writes) {
        if (auto it = versions_.find(v.get()); it != versions_.end()) {
          versions.Set(v->name, it->second);
        }
      }
    }
    entry.Set("stage", ToAnnotation(p.stage));
    entry.Set("order", ToAnnotation(order));
    entry.Set("async", ToAnnotation(async));
    entry.Set("versions", versions);
    pipelines.push_back(entry);
  }

  /*! The layout that the user gave to a buffer holds for each of its versions. */
  void VersionLayouts(Annotations* annotations) const {
    const Map<Var, Layout> layouts = GetLayoutMap(*annotations);
    if (layouts.empty()) return;
    Map<Var, Layout> out;
    for (auto [buffer, layout] : layouts) {
      auto it = select_.versioned.find(buffer.get());
      if (it == select_.versioned.end()) {
        out.Set(buffer, layout);
      } else {
        out.Set(it->second, ExpandLayout(layout, {ToInt(BufferOf(it->second)->shape[0])}));
      }
    }
    SetLayoutMap(annotations, out);
  }

  Var Versioned(const Var& buffer) {
    auto it = versions_.find(buffer.get());
    if (it == versions_.end()) return buffer;
    const BufferTypeNode* type = BufferOf(buffer);
    Array<Expr> shape = {MakeInt(it->second)};
    for (const Expr& e : type->shape) shape.push_back(e);
    Var v = MakeBuffer(buffer->name, type->dtype->dtype, shape, type->storage_scope);
    select_.versioned[buffer.get()] = v;
    return v;
  }

  std::unordered_map<const Object*, int64_t> versions_;
  const Views& views_;
  VersionSelector select_;
};

PrimFunc InjectSoftwarePipeline(PrimFunc f) {
  const Views views(f->body);
  Injector injector(VersionCollector(views).Collect(f->body), views);
  Stmt body = injector.Mutate(f->body);
  return WithPipelines(WithBody(std::move(f), body), injector.pipelines);
}

Registration registration([] { RegisterPass("InjectSoftwarePipeline", InjectSoftwarePipeline); });

}  // namespace
}  // namespace tl
