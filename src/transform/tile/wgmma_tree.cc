#include "wgmma_tree.h"

#include <algorithm>

#include "../../analysis/effects.h"
#include "../../analysis/uniformity.h"
#include "../../layout/annotation.h"
#include "../../op/gemm_instruction.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/wgmma_wait.h"
#include "../../tvm/functor.h"
#include "kernel_scope.h"

namespace tl {
namespace {

/*! Builds the tree of one kernel. */
class TreeBuilder {
 public:
  TreeBuilder(const Stmt& kernel, const Views* views, Analyzer* analyzer, const Target& target)
      : views_(views),
        conflicts_(views, analyzer),
        analyzer_(analyzer),
        target_(target),
        uniformity_(kernel) {
    struct ByHand : StmtExprVisitor {
      bool found = false;
      using StmtExprVisitor::Visit_;
      void Visit_(const EvaluateNode* op) override {
        found |= IsCallTo(op->value, kWarpgroupCommit);
        const CallNode* call = AsTileOp(GetRef<Stmt>(op));
        if (!call) return;
        found |= IsTileOp(call, kWgmmaWait) || TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
      }
    } by_hand;
    by_hand(kernel);
    by_hand_ = by_hand.found;
  }

  std::unique_ptr<WgmmaNode> Build(const Stmt& s) {
    auto node = std::make_unique<WgmmaNode>();
    node->stmt = s;
    if (const auto* op = s.as<AttrStmtNode>(); op && op->attr_key != kAsyncCopy) {
      BuildAttr(op, node.get());
    } else if (const auto* op = s.as<SBlockRealizeNode>()) {
      BuildBody(op->block->body, WgmmaNode::Kind::kScope, node.get());
    } else if (s.as<SeqStmtNode>()) {
      BuildBody(s, WgmmaNode::Kind::kSequence, node.get());
    } else if (const auto* op = s.as<ForNode>(); op && IsLoop(op)) {
      analyzer_->BindLoop(op);
      BuildBody(op->body, WgmmaNode::Kind::kLoop, node.get());
      if (IsPlain(*node)) {
        node = std::make_unique<WgmmaNode>();
        node->stmt = s;
        BuildLeaf(s, node.get());
      }
    } else if (const auto* op = s.as<WhileNode>(); op && uniformity_.IsUniform(op)) {
      BuildBody(op->body, WgmmaNode::Kind::kAlone, node.get());
    } else if (const auto* op = s.as<IfThenElseNode>()) {
      BuildIf(op, node.get());
    } else {
      BuildLeaf(s, node.get());
    }
    return node;
  }

 private:
  /*! A loop in which nothing starts or waits is one statement: a wait in it would be one of its
   * first iteration. */
  static bool IsPlain(const WgmmaNode& node) {
    const auto all_plain = [](const auto& nodes) {
      return std::all_of(nodes.begin(), nodes.end(), [](const auto& n) { return IsPlain(*n); });
    };
    return !node.issue && !node.touched.everything && node.kind != WgmmaNode::Kind::kAlone &&
           node.kind != WgmmaNode::Kind::kWait && all_plain(node.body) && all_plain(node.otherwise);
  }

  void BuildBody(const Stmt& body, WgmmaNode::Kind kind, WgmmaNode* node) {
    node->kind = kind;
    for (const Stmt& s : FlatSeq(body)) node->body.push_back(Build(s));
  }

  void BuildAttr(const AttrStmtNode* op, WgmmaNode* node) {
    if (op->attr_key == "thread_extent") analyzer_->BindThread(op);
    const bool alone = op->attr_key == kThreadRange;
    scope_.Within(op, [&] {
      BuildBody(op->body, alone ? WgmmaNode::Kind::kAlone : WgmmaNode::Kind::kScope, node);
    });
  }

  /*! Iterations that all threads go through together. */
  bool IsLoop(const ForNode* op) const {
    return op->kind != ForKind::kParallel && uniformity_.IsUniform(op);
  }

  void BuildIf(const IfThenElseNode* op, WgmmaNode* node) {
    const bool then = IsRange(op->then_case);
    if (then && !op->else_case) {
      BuildBody(op->then_case, WgmmaNode::Kind::kAlone, node);
      return;
    }
    if (op->else_case && (then || IsRange(*op->else_case))) {
      node->kind = WgmmaNode::Kind::kIf;
      node->body.push_back(BuildBranch(op->then_case));
      node->otherwise.push_back(BuildBranch(*op->else_case));
      return;
    }
    if (!uniformity_.IsUniform(op->condition)) return BuildLeaf(node->stmt, node);
    BuildBody(op->then_case, WgmmaNode::Kind::kIf, node);
    if (op->else_case) {
      for (const Stmt& s : FlatSeq(*op->else_case)) node->otherwise.push_back(Build(s));
    }
    node->touched = conflicts_.Touched(MakeEvaluate(op->condition, op->span));
  }

  static bool IsRange(const Stmt& s) {
    const auto* attr = s.as<AttrStmtNode>();
    return attr && attr->attr_key == kThreadRange;
  }

  /*! Of a condition that divides the block: a range, or what single threads do. */
  std::unique_ptr<WgmmaNode> BuildBranch(const Stmt& s) {
    if (IsRange(s)) return Build(s);
    auto leaf = std::make_unique<WgmmaNode>();
    leaf->stmt = s;
    BuildLeaf(s, leaf.get());
    return leaf;
  }

  void BuildLeaf(const Stmt& s, WgmmaNode* node) {
    const CallNode* call = AsTileOp(s);
    if (IsTileOp(call, kWgmmaWait)) {
      node->kind = WgmmaNode::Kind::kWait;
      return;
    }
    if (call && IsGemm(call)) node->issue = IssueOf(call, s->span);
    if (!node->issue) node->touched = conflicts_.Touched(s);
    // What a loop leaves early has other groups in flight than its end.
    const auto* evaluate = s.as<EvaluateNode>();
    const bool returns = evaluate && IsCallTo(evaluate->value, kThreadReturn);
    if (IsBreak(s) || IsContinue(s) || returns || s.as<WhileNode>()) {
      node->touched.everything = true;
    }
  }

  std::unique_ptr<WgmmaIssue> IssueOf(const CallNode* call, const Span& span) {
    GemmOp op = ParseGemm(call, span);
    if (by_hand_ && !op.asynchronous) return nullptr;
    const GemmPlan plan = PlanOf(call, span);
    if (!plan.UsesWgmma()) return nullptr;
    return std::make_unique<WgmmaIssue>(
        WgmmaIssue{issues_++, op, AccumulatorOf(call), plan.wgmma, op.asynchronous});
  }

  const Views* views_;
  WgmmaConflicts conflicts_;
  Analyzer* analyzer_;
  const Target& target_;
  bool by_hand_;
  int issues_ = 0;
  KernelScope scope_;
  const Uniformity uniformity_;
};

Stmt WaitStatement(size_t groups, const WgmmaNode& node) {
  Array<Expr> args = {MakeInt(static_cast<int64_t>(groups))};
  for (const WgmmaIssue* issue : node.complete) {
    if (!HasAccumulator(node.pending, *issue)) args.push_back(issue->accumulator);
  }
  return MakeEvaluate(CallOp(kWgmmaWait, args), node.stmt->span);
}

Stmt Rebuild(const WgmmaNode& node);

Stmt RebuildSequence(const std::vector<std::unique_ptr<WgmmaNode>>& nodes) {
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

Stmt Rebuild(const WgmmaNode& node) {
  if (node.kind == WgmmaNode::Kind::kWait) {
    return WaitStatement(ToInt(AsTileOp(node.stmt)->args[0]), node);
  }
  if (node.issue) return WithoutWait(node.stmt.as<EvaluateNode>());
  if (node.kind == WgmmaNode::Kind::kLeaf) return node.stmt;
  Stmt body = RebuildSequence(node.body);
  if (node.final_wait) {
    body = MakeSeq({body, MakeEvaluate(CallOp(kWgmmaWait, {MakeInt(0)}), node.stmt->span)});
  }
  ReplaceBody replace;
  replace.body = body;
  if (!node.otherwise.empty()) replace.otherwise = RebuildSequence(node.otherwise);
  return replace.Mutate(node.stmt);
}

}  // namespace

bool HasAccumulator(const std::vector<const WgmmaIssue*>& list, const WgmmaIssue& issue) {
  return std::any_of(list.begin(), list.end(), [&](const WgmmaIssue* other) {
    return other->op.c.buffer.same_as(issue.op.c.buffer);
  });
}

std::unique_ptr<WgmmaNode> BuildWgmmaTree(const Stmt& kernel, const Views* views,
                                          Analyzer* analyzer, const Target& target) {
  return TreeBuilder(kernel, views, analyzer, target).Build(kernel);
}

Stmt WithWaits(const WgmmaNode& root) { return Rebuild(root); }

}  // namespace tl
