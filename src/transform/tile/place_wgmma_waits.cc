/*!
 * PlaceWgmmaWaits: products of warp groups run while the program goes on.
 *
 * In:  a tile program, pipelines expanded, layouts of the user on its blocks. A T.gemm is complete
 * when the next statement begins.
 * Out: the same, where a T.gemm that is a wgmma, decidably so, waits for nobody (`wg_wait` is -1)
 * and `tl.tileop.wgmma_wait(n, C..)` stands before the first statement that needs it: that touches
 * its C (further products into the same C do not), writes an operand, gives up the slot of one, or
 * hands anything to other threads. At most n groups are in flight then, the C.. are complete. A
 * T.wait_wgmma gets the C.. that are complete after it.
 * Establishes: what every statement finds is what it found before.
 * Refuses: nothing. Where T.wgmma_gemm or T.wait_wgmma stands in a kernel, the program counts groups
 * itself, and each T.gemm waits at once.
 *
 * The plan: walk the program with the queues of groups in flight on every way (wgmma_groups.h),
 * loops until nothing is new. Threads that run a branch alone start and end it with nothing in
 * flight, and a statement whose inside not all threads run is one piece.
 */
#include <algorithm>
#include <memory>

#include "../../layout/annotation.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/wgmma_wait.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../thread/effects.h"
#include "kernel_scope.h"
#include "wgmma_groups.h"

namespace tl {
namespace {

/*! A statement with what is planned before it. */
struct Node {
  enum class Kind { kLeaf, kSequence, kScope, kLoop, kIf, kAlone, kWait };
  Kind kind = Kind::kLeaf;
  Stmt stmt;
  TouchedMemory touched;  // of a leaf, or of a loop's or if's own expressions
  std::unique_ptr<WgmmaIssue> issue;
  std::vector<std::unique_ptr<Node>> body, otherwise;

  std::optional<size_t> wait;        // groups that may stay in flight
  std::optional<size_t> final_wait;  // at the end of the body
  /*! Accumulators that a wait leaves complete on some way, and in flight on some way. */
  std::vector<const WgmmaIssue*> complete, pending;
};

bool HasAccumulator(const std::vector<const WgmmaIssue*>& list, const WgmmaIssue& issue) {
  return std::any_of(list.begin(), list.end(), [&](const WgmmaIssue* other) {
    return other->op.c.buffer.same_as(issue.op.c.buffer);
  });
}

bool UsesAny(const Expr& e, const std::vector<Var>& vars) {
  return std::any_of(vars.begin(), vars.end(), [&](const Var& v) { return Uses(e, v); });
}

/*! Builds the tree of one kernel. */
class TreeBuilder {
 public:
  TreeBuilder(const Stmt& kernel, const Views* views, Analyzer* analyzer, int arch)
      : views_(views), conflicts_(views, analyzer), analyzer_(analyzer), arch_(arch) {
    struct ByHand : StmtExprVisitor {
      bool found = false;
      using StmtExprVisitor::Visit_;
      void Visit_(const EvaluateNode* op) override {
        const CallNode* call = AsTileOp(GetRef<Stmt>(op));
        if (!call) return;
        found |= IsTileOp(call, kWgmmaWait) || TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
      }
    } by_hand;
    by_hand(kernel);
    by_hand_ = by_hand.found;
  }

  std::unique_ptr<Node> Build(const Stmt& s) {
    auto node = std::make_unique<Node>();
    node->stmt = s;
    if (const auto* op = s.as<AttrStmtNode>(); op && op->attr_key != kAsyncCopy) {
      BuildAttr(op, node.get());
    } else if (const auto* op = s.as<SBlockRealizeNode>()) {
      for (auto [buffer, layout] : GetLayoutMap(op->block->annotations)) {
        annotated_.Set(buffer, layout);
      }
      BuildBody(op->block->body, Node::Kind::kScope, node.get());
    } else if (s.as<SeqStmtNode>()) {
      BuildBody(s, Node::Kind::kSequence, node.get());
    } else if (const auto* op = s.as<ForNode>(); op && IsLoop(op)) {
      analyzer_->BindLoop(op);
      BuildBody(op->body, Node::Kind::kLoop, node.get());
    } else if (const auto* op = s.as<WhileNode>(); op && IsUniform(op->condition)) {
      BuildBody(op->body, Node::Kind::kAlone, node.get());
    } else if (const auto* op = s.as<IfThenElseNode>()) {
      BuildIf(op, node.get());
    } else {
      BuildLeaf(s, node.get());
    }
    return node;
  }

 private:
  void BuildBody(const Stmt& body, Node::Kind kind, Node* node) {
    node->kind = kind;
    for (const Stmt& s : FlatSeq(body)) node->body.push_back(Build(s));
  }

  void BuildAttr(const AttrStmtNode* op, Node* node) {
    if (scope_.Enter(op)) {
      const std::string tag = op->node.cast<IterVar>()->thread_tag;
      if (tag.rfind("threadIdx", 0) == 0) varying_.push_back(op->node.cast<IterVar>()->var);
      analyzer_->BindThread(op);
    }
    const int64_t outside = range_threads_;
    const bool alone = op->attr_key == kThreadRange;
    if (alone) range_threads_ = ToInt(op->node.cast<Array<Expr>>()[1]);
    BuildBody(op->body, alone ? Node::Kind::kAlone : Node::Kind::kScope, node);
    range_threads_ = outside;
  }

  /*! Iterations that all threads go through together. */
  bool IsLoop(const ForNode* op) const {
    return op->kind != ForKind::kParallel && IsUniform(op->min) && IsUniform(op->extent);
  }

  /*! Of the same value in all threads, as far as is seen here. */
  bool IsUniform(const Expr& e) const {
    struct Loads : StmtExprVisitor {
      bool found = false;
      using StmtExprVisitor::Visit_;
      void Visit_(const TensorLoadNode* op) override {
        const Var buffer = op->source.as_or_throw<Var>();
        found |= !IsGlobal(buffer) && !IsShared(buffer);
        Default(op);
      }
    } loads;
    loads(e);
    return !loads.found && !UsesAny(e, varying_);
  }

  void BuildIf(const IfThenElseNode* op, Node* node) {
    const auto* range = op->then_case.as<AttrStmtNode>();
    if (range && range->attr_key == kThreadRange && !op->else_case) {
      BuildBody(op->then_case, Node::Kind::kAlone, node);
      return;
    }
    if (!IsUniform(op->condition)) return BuildLeaf(node->stmt, node);
    BuildBody(op->then_case, Node::Kind::kIf, node);
    if (op->else_case) {
      for (const Stmt& s : FlatSeq(*op->else_case)) node->otherwise.push_back(Build(s));
    }
    node->touched = conflicts_.Touched(MakeEvaluate(op->condition, op->span));
  }

  void BuildLeaf(const Stmt& s, Node* node) {
    if (const auto* bind = s.as<BindNode>(); bind && !IsUniform(bind->value)) {
      varying_.push_back(bind->var);
    }
    const CallNode* call = AsTileOp(s);
    if (IsTileOp(call, kWgmmaWait)) {
      node->kind = Node::Kind::kWait;
      return;
    }
    if (IsTileOp(call, kGemm)) node->issue = IssueOf(call, s->span);
    if (!node->issue) node->touched = conflicts_.Touched(s);
    // What a loop leaves early has other groups in flight than its end.
    if (IsBreak(s) || IsContinue(s) || s.as<WhileNode>()) node->touched.everything = true;
  }

  std::unique_ptr<WgmmaIssue> IssueOf(const CallNode* call, const Span& span) {
    GemmOp op = ParseGemm(call, span);
    if (by_hand_ && !op.asynchronous) return nullptr;
    GemmContext context{range_threads_ ? range_threads_ : scope_.NumThreads(), arch_,
                        LayoutOf(op.a.buffer), LayoutOf(op.b.buffer),
                        views_->IsView(op.a.buffer) || views_->IsView(op.b.buffer)};
    const GemmPlan plan = PlanGemm(op, context);
    if (!plan.UsesWgmma()) return nullptr;
    return std::make_unique<WgmmaIssue>(
        WgmmaIssue{issues_++, op, call->args[2], plan.wgmma, op.asynchronous});
  }

  Layout LayoutOf(const Var& buffer) const {
    auto it = annotated_.find(buffer);
    return it == annotated_.end() ? Layout() : (*it).second;
  }

  const Views* views_;
  WgmmaConflicts conflicts_;
  Analyzer* analyzer_;
  int arch_;
  bool by_hand_;
  int issues_ = 0;
  int64_t range_threads_ = 0;
  KernelScope scope_;
  std::vector<Var> varying_;
  Map<Var, Layout> annotated_;
};

/*! Walks a kernel's tree and notes the waits. */
class Planner {
 public:
  Planner(const Views* views, Analyzer* analyzer) : conflicts_(views, analyzer) {}

  void Plan(Node* kernel) {
    while (kernel->body.size() == 1 && kernel->body[0]->kind == Node::Kind::kScope) {
      kernel = kernel->body[0].get();
    }
    WgmmaState state = {WgmmaQueue()};
    Alone(kernel, &state);
  }

 private:
  /*! More ways than this are not worth telling apart. */
  static constexpr size_t kMaxQueues = 32;

  void Sequence(std::vector<std::unique_ptr<Node>>& nodes, WgmmaState* state) {
    for (const auto& n : nodes) Visit(n.get(), state);
  }

  void Visit(Node* node, WgmmaState* state) {
    if (state->size() > kMaxQueues) Wait(node, 0, state);
    switch (node->kind) {
      case Node::Kind::kLeaf:
        return Leaf(node, state);
      case Node::Kind::kSequence:
      case Node::Kind::kScope:
        return Sequence(node->body, state);
      case Node::Kind::kIf: {
        Before(node, state);
        WgmmaState otherwise = *state;
        Sequence(node->body, state);
        Sequence(node->otherwise, &otherwise);
        state->insert(otherwise.begin(), otherwise.end());
        return;
      }
      case Node::Kind::kLoop:
        return Loop(node, state);
      case Node::Kind::kAlone:
        Wait(node, 0, state);
        return Alone(node, state);
      case Node::Kind::kWait: {
        const CallNode* call = AsTileOp(node->stmt);
        return Retire(ToInt(call->args[0]), state, node);
      }
    }
  }

  /*! A body at whose end nothing is in flight. */
  void Alone(Node* node, WgmmaState* state) {
    const bool again = node->stmt.as<WhileNode>() != nullptr;
    for (size_t known = 0; known != state->size();) {
      known = state->size();
      WgmmaState end = *state;
      Sequence(node->body, &end);
      if (!std::all_of(end.begin(), end.end(), Idle)) {
        node->final_wait = 0;
        end = {WgmmaQueue()};
      }
      if (!again) {
        *state = std::move(end);
        return;
      }
      state->insert(end.begin(), end.end());
    }
  }
  /*! Groups that the program itself waits for do not count. */
  static bool Idle(const WgmmaQueue& q) {
    auto by_hand = [](const WgmmaGroup& g) { return g.issue->by_hand; };
    return std::all_of(q.older.begin(), q.older.end(), by_hand) &&
           std::all_of(q.recent.begin(), q.recent.end(), by_hand);
  }

  void Leaf(Node* node, WgmmaState* state) {
    Before(node, state);
    if (!node->issue) return;
    WgmmaGroup group{node->issue.get(), {}};
    for (const ForNode* loop : loops_) group.age[loop] = 0;
    WgmmaState after;
    for (WgmmaQueue q : *state) {
      q.Push(group);
      after.insert(q);
    }
    *state = std::move(after);
  }

  /*! The wait that a statement needs. */
  void Before(Node* node, WgmmaState* state) {
    const auto most = MayStay(*state, [&](const WgmmaGroup& g) {
      return node->issue ? conflicts_.Conflicts(*node->issue, g)
                         : conflicts_.Conflicts(node->touched, g);
    });
    if (most) Wait(node, *most, state);
  }

  void Wait(Node* node, size_t groups, WgmmaState* state) {
    const bool idle = std::all_of(state->begin(), state->end(), Idle);
    if (idle) return;
    node->wait = std::min(groups, node->wait.value_or(groups));
    Retire(*node->wait, state, node);
  }

  static void Retire(size_t groups, WgmmaState* state, Node* node) {
    WgmmaState after;
    for (WgmmaQueue q : *state) {
      for (const WgmmaGroup& g : q.Retire(groups)) AddOnce(g.issue, &node->complete);
      for (const WgmmaGroup& g : q.recent) AddOnce(g.issue, &node->pending);
      after.insert(q);
    }
    *state = std::move(after);
  }

  static void AddOnce(const WgmmaIssue* issue, std::vector<const WgmmaIssue*>* list) {
    if (!HasAccumulator(*list, *issue)) list->push_back(issue);
  }

  void Loop(Node* node, WgmmaState* state) {
    const auto* loop = node->stmt.as<ForNode>();
    const auto extent = AsInt(loop->extent);
    loops_.push_back(loop);
    WgmmaState head = *state, exits;
    for (size_t known = 0; known != head.size();) {
      known = head.size();
      WgmmaState end = head;
      Sequence(node->body, &end);
      exits = end;
      const WgmmaState next = Aged(end, loop, 1);
      head.insert(next.begin(), next.end());
    }
    loops_.pop_back();
    const WgmmaState after = Aged(exits, loop, WgmmaGroup::kUnknown);
    if (extent && *extent > 0) {
      *state = after;
    } else {
      state->insert(after.begin(), after.end());
    }
  }

  /*! The groups as a later iteration, or what follows the loop, sees them. */
  static WgmmaState Aged(const WgmmaState& state, const ForNode* loop, int by) {
    auto older = [&](WgmmaGroup g) {
      auto it = g.age.find(loop);
      if (it == g.age.end() || it->second == WgmmaGroup::kUnknown) return g;
      const bool known = by != WgmmaGroup::kUnknown && it->second < WgmmaGroup::kMaxAge;
      it->second = known ? it->second + by : WgmmaGroup::kUnknown;
      return g;
    };
    WgmmaState out;
    for (const WgmmaQueue& q : state) {
      WgmmaQueue aged;
      for (const WgmmaGroup& g : q.older) aged.older.insert(older(g));
      for (const WgmmaGroup& g : q.recent) aged.recent.push_back(older(g));
      out.insert(aged);
    }
    return out;
  }

  WgmmaConflicts conflicts_;
  std::vector<const ForNode*> loops_;
};

// --- the program again

Stmt WaitStatement(size_t groups, const Node& node) {
  Array<Expr> args = {MakeInt(static_cast<int64_t>(groups))};
  for (const WgmmaIssue* issue : node.complete) {
    if (!HasAccumulator(node.pending, *issue)) args.push_back(issue->accumulator);
  }
  return MakeEvaluate(CallOp(kWgmmaWait, args), node.stmt->span);
}

Stmt Rebuild(const Node& node);

Stmt RebuildSequence(const std::vector<std::unique_ptr<Node>>& nodes) {
  std::vector<Stmt> out;
  for (const auto& n : nodes) {
    if (n->wait) out.push_back(WaitStatement(*n->wait, *n));
    out.push_back(Rebuild(*n));
  }
  return MakeSeq(out);
}

Stmt WithoutWait(const EvaluateNode* gemm) {
  Call call = gemm->value.as_or_throw<Call>();
  Map<String, Any> attrs = TileOpAttrs(call.get());
  attrs.Set(kWgWait, kNobodyWaits);
  auto dict = make_object<DictAttrsNode>();
  dict->__dict__ = attrs;
  call.CopyOnWrite()->attrs = DictAttrs(dict);
  return MakeEvaluate(call, gemm->span);
}

/*! The outermost statement with another body. */
class ReplaceBody : public StmtExprMutator {
 public:
  Stmt body, otherwise;

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const AttrStmtNode* op) final { return WithBody<AttrStmt>(op); }
  Stmt Mutate_(const ForNode* op) final { return WithBody<For>(op); }
  Stmt Mutate_(const WhileNode* op) final { return WithBody<While>(op); }
  Stmt Mutate_(const SBlockNode* op) final { return WithBody<SBlock>(op); }
  Stmt Mutate_(const SeqStmtNode*) final { return body; }
  Stmt Mutate_(const IfThenElseNode* op) final {
    IfThenElse branch = GetRef<IfThenElse>(op);
    branch.CopyOnWrite()->then_case = body;
    if (op->else_case) branch.CopyOnWrite()->else_case = otherwise;
    return branch;
  }

 private:
  template <typename R, typename N>
  Stmt WithBody(const N* op) const {
    R copy = GetRef<R>(op);
    copy.CopyOnWrite()->body = body;
    return copy;
  }
};

Stmt Rebuild(const Node& node) {
  if (node.kind == Node::Kind::kWait) {
    return WaitStatement(ToInt(AsTileOp(node.stmt)->args[0]), node);
  }
  if (node.issue) return WithoutWait(node.stmt.as<EvaluateNode>());
  if (node.kind == Node::Kind::kLeaf) return node.stmt;
  Stmt body = RebuildSequence(node.body);
  if (node.final_wait) {
    body = MakeSeq({body, MakeEvaluate(CallOp(kWgmmaWait, {MakeInt(0)}), node.stmt->span)});
  }
  ReplaceBody replace;
  replace.body = body;
  if (!node.otherwise.empty()) replace.otherwise = RebuildSequence(node.otherwise);
  return replace.Mutate(node.stmt);
}

bool Issues(const Node& node) {
  auto any = [](const auto& nodes) {
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return Issues(*n); });
  };
  return node.issue || any(node.body) || any(node.otherwise);
}

class PerKernel : public StmtExprMutator {
 public:
  explicit PerKernel(int arch) : arch_(arch) {}

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key != "thread_extent") return Default<Stmt>(op);
    const Stmt kernel = GetRef<Stmt>(op);
    const Views views(kernel);
    Analyzer analyzer;
    const std::unique_ptr<Node> tree =
        TreeBuilder(kernel, &views, &analyzer, arch_).Build(kernel);
    if (!Issues(*tree)) return kernel;
    Planner(&views, &analyzer).Plan(tree.get());
    return Rebuild(*tree);
  }

 private:
  int arch_;
};

PrimFunc PlaceWgmmaWaits(PrimFunc f) {
  Stmt body = PerKernel(TargetArch(f)).Mutate(f->body);
  return WithBody(std::move(f), body);
}

Registration registration([] { RegisterPass("PlaceWgmmaWaits", PlaceWgmmaWaits); });

}  // namespace
}  // namespace tl
