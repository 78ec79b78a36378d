#include "pipeline_barriers.h"

#include <algorithm>
#include <set>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/tma_copy.h"
#include "../../tvm/attrs.h"
#include "pipeline.h"

namespace tl {
namespace {

const CallNode* TmaLoadOf(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  return call && IsTmaLoad(call) ? call : nullptr;
}

bool IsSignal(const CallNode* call) {
  const Expr e = GetRef<Expr>(call);
  return IsCallTo(e, kMbarrierArrive) || IsCallTo(e, kMbarrierExpectTx) ||
         IsCallTo(e, kMbarrierArriveExpectTx);
}

const CallNode* CallOf(const Stmt& s) {
  const auto* evaluate = s.as<EvaluateNode>();
  return evaluate ? evaluate->value.as<CallNode>() : nullptr;
}

/*! Finds the loops around a loop. `unknown` says why nobody can count how often it has run. */
class AroundLoop : public StmtExprVisitor {
 public:
  explicit AroundLoop(const ForNode* loop) : loop_(loop) {}
  bool found = false;
  std::vector<const ForNode*> around;
  std::string unknown;

 protected:
  void Visit_(const ForNode* op) final {
    if (found) return;
    if (op->loop_var.same_as(loop_->loop_var)) {
      found = true;
      return;
    }
    around.push_back(op);
    Default(op);
    if (!found) around.pop_back();
    if (found && HasContinue(op->body)) unknown = "a `continue` in a loop around skips iterations";
  }
  void Visit_(const WhileNode* op) final { Within("a `while` loop", op); }
  void Visit_(const IfThenElseNode* op) final {
    // A branch outside of all loops runs the loop once or not at all: the count begins at 0.
    if (found || around.empty()) return Default(op);
    Within("a branch in a loop", op);
  }
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key != kThreadRange) return Default(op);
    Within("a range of threads", op);
  }

 private:
  /*! Only a `continue` in front of the loop skips it. One behind it is refused, too. */
  static bool HasContinue(const Stmt& body) {
    struct Finder : StmtExprVisitor {
      bool found = false;
      void Visit_(const ContinueNode*) final { found = true; }
      void Visit_(const ForNode*) final {}  // a `continue` in it is its own
      void Visit_(const WhileNode*) final {}
      void Visit_(const EvaluateNode* op) final { found |= IsContinue(GetRef<Stmt>(op)); }
    } finder;
    finder(body);
    return finder.found;
  }

  void Within(const char* what, const Object* op) {
    if (found) return;
    Default(op);
    if (found && unknown.empty()) unknown = std::string("the loop is in ") + what;
  }

  const ForNode* loop_;
};

}  // namespace

bool CopiesByTma(const Stmt& s) {
  const Guarded guarded = SplitGuard(s);
  if (guarded.condition.defined() && !IsPureInteger(guarded.condition) &&
      !CollectBufferUse(MakeEvaluate(guarded.condition, Span())).reads.empty()) {
    return false;
  }
  const std::vector<Stmt> pieces = FlatSeq(guarded.body);
  return AllOf(pieces, [](const Stmt& t) {
    if (TmaLoadOf(t)) return true;
    if (SplitGuard(t).condition.defined()) return CopiesByTma(t);
    const CallNode* call = CallOf(t);
    return call && IsSignal(call);
  });
}

bool IsBlockSync(const Stmt& s) {
  const CallNode* call = CallOf(s);
  if (!call || !IsCallTo(call, kSync)) return false;
  const auto* scope = call->args[0].as<StringImmNode>();
  return scope && std::string(scope->value).rfind("shared", 0) == 0;
}

const TensorLoadNode* BarrierOf(const CallNode* call) {
  if (!FindIntrinsic(call)) return nullptr;
  for (const PointerAccess& p : PointerAccesses(call)) {
    if (p.access != Access::kBarrier) continue;
    for (const Expr& arg : call->args) {
      const TensorLoadNode* element = AsAddressOf(arg);
      if (element && element->source.same_as(p.buffer)) return element;
    }
  }
  return nullptr;
}

size_t CountMentions(const Stmt& s, const Var& buffer) {
  struct Counter : StmtExprVisitor {
    const Object* wanted;
    size_t found = 0;
    void Visit_(const TensorLoadNode* op) override { Note(op->source.get(), op); }
    void Visit_(const TensorRegionNode* op) override { Note(op->source.get(), op); }
    void Visit_(const BufferStoreNode* op) override { Note(op->buffer.get(), op); }
    void Note(const Object* buffer, const Object* op) {
      found += buffer == wanted;
      Default(op);
    }
  } counter;
  counter.wanted = buffer.get();
  counter(s);
  return counter.found;
}

Expr IterationCount::Of(const ForNode* loop) const {
  const DLDataType type = loop->loop_var->dtype();
  return CastTo(type, before) + (loop->loop_var - loop->min);
}

IterationCount CountIterations(const Stmt& function_body, const ForNode* loop) {
  AroundLoop finder(loop);
  finder(function_body);
  IterationCount count;
  count.around = finder.around;
  count.unknown = finder.unknown;
  const DLDataType type = loop->loop_var->dtype();
  count.before = MakeInt(type, 0);
  std::vector<const ForNode*> nest = finder.around;
  nest.push_back(loop);
  for (size_t l = 0; l < nest.size(); ++l) {
    const Expr& extent = nest[l]->extent;
    bool is_fixed = IsPureInteger(extent) && IsPureInteger(nest[l]->min);
    for (size_t o = 0; o < l; ++o) is_fixed &= !Uses(extent, nest[o]->loop_var);
    if (!is_fixed && l > 0 && count.unknown.empty()) {
      count.unknown = "the number of iterations changes from one run of the loop to the next";
    }
    if (l == 0) {
      if (nest.size() > 1) count.before = CastTo(type, nest[0]->loop_var - nest[0]->min);
      continue;
    }
    count.before = count.before * CastTo(type, extent);
    if (l + 1 < nest.size()) {
      count.before = count.before + CastTo(type, nest[l]->loop_var - nest[l]->min);
    }
  }
  return count;
}

LoopBarriers::LoopBarriers(const Stmt& function_body, const ForNode* loop,
                           const std::vector<Stmt>& body, const Views& views)
    : function_body_(function_body),
      loop_(loop),
      body_(body),
      views_(views),
      count_(CountIterations(function_body, loop)) {
  for (size_t i = 0; i < body.size(); ++i) Collect(body[i], i, false);
}

void LoopBarriers::Collect(const Stmt& s, size_t statement, bool conditional) {
  for (const Stmt& piece : FlatSeq(s)) {
    if (const Guarded guarded = SplitGuard(piece); guarded.condition.defined()) {
      Collect(guarded.body, statement, true);
    } else if (const CallNode* load = TmaLoadOf(piece)) {
      const TileRegion barrier = TileRegion::From(load->args[load->args.size() - 1]);
      events_.push_back({statement, Kind::kLoad, barrier.buffer, barrier.Mins()[0], Expr(),
                         views_.RootOf(TileRegion::From(load->args[1]).buffer)});
    } else if (const CallNode* call = CallOf(piece)) {
      Note(call, statement, conditional);
    }
  }
}

void LoopBarriers::Note(const CallNode* call, size_t statement, bool conditional) {
  const TensorLoadNode* element = BarrierOf(call);
  if (!element) return;
  const Var barrier = element->source.as_or_throw<Var>();
  if (IsSignal(call)) {
    events_.push_back({statement, Kind::kSignal, barrier, element->indices[0], Expr(), Var()});
  } else if (IsCallTo(call, kMbarrierWait)) {
    events_.push_back({statement, Kind::kWait, barrier, element->indices[0],
                       conditional ? Expr() : call->args[1], Var()});
  }
}

std::vector<Var> LoopBarriers::Of(size_t statement) const {
  std::vector<Var> barriers;
  for (const Event& e : events_) {
    if (e.statement == statement && !Contains(barriers, e.barrier)) barriers.push_back(e.barrier);
  }
  return barriers;
}

bool LoopBarriers::Touches(size_t statement) const { return !Of(statement).empty(); }

bool LoopBarriers::Waits(size_t statement) const {
  return AnyOf(events_,
               [&](const Event& e) { return e.statement == statement && e.kind == Kind::kWait; });
}

std::string LoopBarriers::WhyNotAhead(size_t statement) const {
  if (Waits(statement)) return "it waits for an mbarrier";
  if (!CopiesByTma(body_[statement])) return "it does more than to load by TMA and to arrive";
  for (const Var& barrier : Of(statement)) {
    const std::string why = WhyOneVersion(barrier);
    if (!why.empty()) return "mbarrier " + std::string(barrier->name) + " has one version: " + why;
  }
  return "";
}

std::string LoopBarriers::WhyOneVersion(const Var& barrier) const {
  if (!count_.unknown.empty()) return count_.unknown;
  if (ScopeOf(barrier) == "shared.cluster_barrier") return "other blocks of the cluster use it";
  std::vector<Event> own;
  std::set<int64_t> elements;
  for (const Event& e : events_) {
    if (!e.barrier.same_as(barrier)) continue;
    if (!AsInt(e.index)) return "its index is no constant";
    own.push_back(e);
    elements.insert(ToInt(e.index));
  }
  if (CountMentions(function_body_, barrier) > own.size()) return "it is used elsewhere too";
  for (int64_t element : elements) {
    std::vector<Event> events;
    for (const Event& e : own) {
      if (IsConst(e.index, element)) events.push_back(e);
    }
    std::string why = WhyOnePhase(events);
    if (why.empty()) why = WhyUnordered(events);
    if (!why.empty()) return why;
  }
  return "";
}

std::string LoopBarriers::WhyOnePhase(const std::vector<Event>& events) const {
  bool has_load = false, has_signal = false, has_wait = false;
  for (const Event& e : events) {
    has_load |= e.kind == Kind::kLoad;
    has_signal |= e.kind == Kind::kSignal;
    has_wait |= e.kind == Kind::kWait;
    if (e.kind != Kind::kWait) {
      if (!CopiesByTma(body_[e.statement])) return "a statement does more than to load and arrive";
      continue;
    }
    if (!e.parity.defined()) return "a wait is under a condition";
    if (!IsParityOfIteration(e.parity)) {
      return "a wait's parity is not that of the number of iterations before";
    }
  }
  if (!has_load) return "no T.tma_copy in the loop is about it";
  if (!has_signal) return "nothing in the loop arrives at it";
  if (!has_wait) return "nothing in the loop waits for it";
  return "";
}

std::string LoopBarriers::WhyUnordered(const std::vector<Event>& events) const {
  size_t last_fill = 0, first_wait = body_.size();
  for (const Event& e : events) {
    if (e.kind == Kind::kWait) {
      first_wait = std::min(first_wait, e.statement);
    } else {
      last_fill = std::max(last_fill, e.statement);
    }
  }
  if (first_wait < last_fill) return "a wait stands in front of what it waits for";
  for (const Event& e : events) {
    if (e.kind != Kind::kLoad) continue;
    for (size_t i = 0; i < first_wait; ++i) {
      if (Contains(views_.UseOf(body_[i]).reads, e.tile)) {
        return std::string(e.tile->name) + " is read in front of the wait";
      }
    }
  }
  return "";
}

bool LoopBarriers::IsParityOfIteration(const Expr& parity) const {
  Expr p = parity;
  if (const auto* bits = p.as<BitwiseAndNode>(); bits && IsConst(bits->b, 1)) p = bits->a;
  if (!IsPureInteger(p)) return false;
  Analyzer analyzer;
  for (const ForNode* outer : count_.around) analyzer.BindLoop(outer);
  analyzer.BindLoop(loop_);
  const Expr count = CastTo(p->dtype(), count_.Of(loop_));
  return analyzer.CanProveEqual(FloorModOf(p, 2), FloorModOf(count, 2));
}

void RepeatArrivals(const BarrierRings& rings, Map<String, Any>* annotations) {
  const auto found = annotations->find(kBarrierInit);
  if (rings.empty() || found == annotations->end()) return;
  Map<Var, Array<IntImm>> out;
  for (auto [barrier, arrivals] : (*found).second.cast<Map<Var, Array<IntImm>>>()) {
    const auto it = rings.find(barrier.get());
    if (it == rings.end()) {
      out.Set(barrier, arrivals);
      continue;
    }
    Array<IntImm> all;
    for (int64_t v = 0; v < it->second.versions; ++v) {
      for (const IntImm& n : arrivals) all.push_back(n);
    }
    out.Set(it->second.barrier, all);
  }
  annotations->Set(kBarrierInit, out);
}

Expr BarrierSelector::IndexOf(const BarrierRing& ring, const Var& one, const Expr& index) {
  const Expr slot = FloorModOf(ring.count.Of(loop), ring.versions);
  const Expr i = Mutate(index);
  return CastTo(kInt32, slot) * ToInt(BufferOf(one)->shape[0]) + CastTo(kInt32, i);
}

Expr BarrierSelector::Mutate_(const TensorLoadNode* op) {
  const auto it = rings.find(op->source.get());
  if (it == rings.end()) return Default<Expr>(op);
  const Var one = op->source.as_or_throw<Var>();
  return LoadOf(it->second.barrier, {IndexOf(it->second, one, op->indices[0])});
}

Expr BarrierSelector::Mutate_(const TensorRegionNode* op) {
  const auto it = rings.find(op->source.get());
  if (it == rings.end()) return Default<Expr>(op);
  auto range = make_object<RangeNode>(*op->region[0].get());
  range->min = IndexOf(it->second, op->source.as_or_throw<Var>(), range->min);
  auto n = make_object<TensorRegionNode>(*op);
  n->source = it->second.barrier;
  n->region = {Range(range)};
  return TensorRegion(n);
}

Expr BarrierSelector::Mutate_(const CallNode* op) {
  const Expr e = GetRef<Expr>(op);
  if (!IsCallTo(e, kMbarrierWait)) return Default<Expr>(op);
  const TensorLoadNode* element = AsAddressOf(op->args[0]);
  const auto it = rings.find(element->source.get());
  if (it == rings.end()) return Default<Expr>(op);
  const Expr phase = FloorDivOf(it->second.count.Of(loop), it->second.versions);
  Expr parity = CastTo(op->args[1]->dtype(), FloorModOf(phase, 2));
  const auto index = AsInt(element->indices[0]);
  if (index && it->second.phase_before.count(*index)) {
    parity = XorOf(parity, MakeInt(parity->dtype(), 1));
  }
  return CallOp(kMbarrierWait, {Mutate(op->args[0]), parity});
}

}  // namespace tl
