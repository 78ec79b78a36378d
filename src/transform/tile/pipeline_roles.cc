#include "pipeline_roles.h"

#include <algorithm>

#include "../../op/gemm.h"
#include "../../op/intrinsics.h"
#include "../../op/tma_copy.h"
#include "../../op/wgmma_wait.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "pipeline.h"
#include "pipeline_barriers.h"
#include "pipeline_bindings.h"

namespace tl {
namespace {

using Kind = RoleStep::Kind;

constexpr const char* kNoRole = "it is not a T.ws, or stands around one";

/*! The threads for which a condition holds. An election holds for the first thread of each group.
 */
std::optional<ThreadSet> Where(const ThreadSet& from, const Expr& condition) {
  if (!IsCallTo(condition, kShuffleElect)) return from.Where(condition, true);
  const int64_t of = ToInt(condition.as<CallNode>()->args[0]);
  return from.Where([&](int64_t thread) { return of ? thread % of == 0 : thread == 0; });
}

/*! The body of a range of threads; another statement as it is. */
Stmt WithoutRange(const Stmt& s) {
  const auto* attr = s.as<AttrStmtNode>();
  return attr && attr->attr_key == kThreadRange ? attr->body : s;
}

/*! Appends the steps of one statement of the body to its role. */
class StepCollector {
 public:
  StepCollector(size_t statement, const Views& views, std::vector<RoleStep>* steps)
      : statement_(statement), views_(views), steps_(steps) {}
  std::string why;

  void Collect(const Stmt& s, const ThreadSet& threads) {
    const InlinedBody inlined = InlineBindings(FlatSeq(WithoutRange(s)), views_);
    if (inlined.fixed.defined()) why = inlined.reason;
    for (const Stmt& piece : inlined.body) {
      const Guarded guarded = SplitGuard(piece);
      const auto some = guarded.condition.defined() ? Where(threads, guarded.condition) : threads;
      if (guarded.condition.defined() && some) {
        Collect(guarded.body, *some);
      } else {
        Add(piece, threads);
      }
    }
  }

 private:
  void Add(const Stmt& s, const ThreadSet& threads) {
    RoleStep step{Kind::kOther, s, statement_, threads, Var(), 0, Expr()};
    const auto* evaluate = s.as<EvaluateNode>();
    const auto* call = evaluate ? evaluate->value.as<CallNode>() : nullptr;
    if (call) Note(call, &step);
    steps_->push_back(step);
  }

  void Note(const CallNode* call, RoleStep* step) {
    if (AsTileOp(step->stmt)) {
      if (!IsTmaLoad(call)) return;
      const TileRegion barrier = TileRegion::From(call->args[call->args.size() - 1]);
      At(Kind::kLoad, barrier.buffer, barrier.Mins()[0], step);
      if (TmaIssueOf(call).cluster_mask != 0) why = "a load goes to several blocks of the cluster";
      return;
    }
    const TensorLoadNode* element = BarrierOf(call);
    if (!element) return;
    const Expr e = GetRef<Expr>(call);
    const bool arrives = IsCallTo(e, kMbarrierArrive) || IsCallTo(e, kMbarrierArriveExpectTx) ||
                         IsCallTo(e, kCpAsyncMbarrierArriveNoinc);
    const Kind kind = arrives                          ? Kind::kArrive
                      : IsCallTo(e, kMbarrierExpectTx) ? Kind::kExpect
                      : IsCallTo(e, kMbarrierWait)     ? Kind::kWait
                                                       : Kind::kOther;
    if (kind == Kind::kOther) return;
    At(kind, element->source.as_or_throw<Var>(), element->indices[0], step);
    if (kind == Kind::kWait) step->parity = call->args[1];
  }

  void At(Kind kind, const Var& barrier, const Expr& index, RoleStep* step) {
    step->kind = kind;
    step->barrier = barrier;
    if (AsInt(index)) {
      step->element = ToInt(index);
    } else {
      why = "the index of mbarrier " + std::string(barrier->name) + " is no constant";
    }
  }

  const size_t statement_;
  const Views& views_;
  std::vector<RoleStep>* steps_;
};

bool StartsStore(const CallNode* call) {
  return IsCallTo(call, kTmaCopy) && !IsTmaLoad(call) && !TmaIssueOf(call).waited;
}
bool StartsMma(const CallNode* call) {
  return IsGemm(call) && TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
}

/*! Whether a statement starts an asynchronous operation, for which `starts` holds, that may still
 * read when the statement has ended. */
bool HasStart(const Stmt& s, bool (*starts)(const CallNode*)) {
  return HasNode<EvaluateNode>(s, [&](const EvaluateNode* e) {
    const CallNode* call = AsTileOp(GetRef<Stmt>(e));
    return call && starts(call);
  });
}

/*! Whether a statement is `op` with 0 groups left: it waits for all asynchronous operations. */
bool WaitsForAll(const Stmt& s, const char* op) {
  const auto* evaluate = s.as<EvaluateNode>();
  const auto* call = evaluate ? evaluate->value.as<CallNode>() : nullptr;
  return call && IsCallTo(evaluate->value, op) && IsConst(call->args[0], 0);
}

}  // namespace

const AttrStmtNode* RangeOfRole(const Stmt& s) {
  const auto* attr = SplitGuard(s).body.as<AttrStmtNode>();
  return attr && IsApart(attr) ? attr : nullptr;
}

BodyRoles SplitRoles(const std::vector<Stmt>& body, const std::vector<Axis>& threads,
                     const Views& views) {
  BodyRoles out;
  const ThreadSet block(threads);
  const auto refuse = [&](size_t statement, const std::string& why) {
    out.statement = statement;
    out.why = why;
    return out;
  };
  for (size_t i = 0; i < body.size(); ++i) {
    const AttrStmtNode* range = RangeOfRole(body[i]);
    if (!range) return refuse(i, kNoRole);
    const ThreadSet own = ThreadSet::Of(threads, ThreadRangesOf(range));
    const Expr condition = SplitGuard(body[i]).condition;
    const auto reaching = condition.defined() ? block.Where(condition, true) : block;
    if (!(reaching == own)) return refuse(i, kNoRole);
    BodyRole* role = nullptr;
    for (BodyRole& other : out.roles) {
      if (other.threads == own) {
        role = &other;
      } else if (other.threads.Where([&](int64_t t) { return own.Has(t); }).Size() > 0) {
        return refuse(i, "some of its threads, not all, run another T.ws of the loop");
      }
    }
    if (!role) role = &out.roles.emplace_back(BodyRole{own, {}});
    StepCollector collector(i, views, &role->steps);
    collector.Collect(range->body, own);
    if (!collector.why.empty()) return refuse(i, collector.why);
  }
  return out;
}

size_t EndOfReads(const std::vector<RoleStep>& steps, size_t step) {
  size_t end = step;
  for (const auto& [starts, waits] :
       {std::pair(&StartsStore, kTmaStoreWait), std::pair(&StartsMma, kWgmmaWait)}) {
    if (!HasStart(steps[step].stmt, starts)) continue;
    size_t wait = step + 1;
    while (wait < steps.size() && !WaitsForAll(steps[wait].stmt, waits)) ++wait;
    end = std::max(end, wait);
  }
  return end;
}

}  // namespace tl
