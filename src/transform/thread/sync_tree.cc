#include "sync_tree.h"

#include <algorithm>

#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/functor.h"
#include "effects.h"
#include "thread_subset.h"
#include "uniformity.h"

namespace tl {
namespace {

using Kind = SyncNode::Kind;
using Guards = std::vector<std::pair<Expr, bool>>;

/*! Adds the accesses of shared memory in an expression or a leaf statement to a node. */
class AccessCollector : public StmtExprVisitor {
 public:
  AccessCollector(SyncNode* node, const Views& views, Substituter* names, Guards* guards,
                  std::vector<Var>* opaque, int* count)
      : node_(node),
        views_(views),
        names_(names),
        guards_(guards),
        opaque_(opaque),
        count_(count) {}

 protected:
  using StmtExprVisitor::Visit_;

  void Visit_(const TensorLoadNode* op) override {
    Add(op->source.as_or_throw<Var>(), op->indices, Access::kRead, 1);
    for (const Expr& i : op->indices) Visit(i);
  }
  void Visit_(const BufferStoreNode* op) override {
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
    Add(op->buffer, op->indices, Access::kWrite, 1);
  }
  void Visit_(const CallNode* op) override {
    if (IsIfThenElse(op)) return VisitBranches(op);
    for (const PointerAccess& p : PointerAccesses(op)) {
      Add(p.buffer, p.indices, p.access, TouchedElements(op, p));
      if (IsShared(p.buffer)) Qualify(op, p.access, &node_->accesses.back());
    }
    const bool known = FindIntrinsic(op) != nullptr;
    for (const Expr& arg : op->args) {
      const TensorLoadNode* pointee = AsAddressOf(arg);
      if (!pointee) {
        Visit(arg);
        continue;
      }
      if (!known) AddWhole(pointee->source.as_or_throw<Var>());
      for (const Expr& i : pointee->indices) Visit(i);
    }
  }
  void Visit_(const AndNode* op) override {
    Visit(op->a);
    VisitUnder(op->a, true, op->b);
  }
  // A buffer outside of a load or store is a pointer that goes somewhere.
  void Visit_(const VarNode* op) override {
    if (AsBuffer(GetRef<Var>(op))) AddWhole(GetRef<Var>(op));
  }

 private:
  void VisitBranches(const CallNode* op) {
    Visit(op->args[0]);
    VisitUnder(op->args[0], true, op->args[1]);
    VisitUnder(op->args[0], false, op->args[2]);
  }
  void VisitUnder(const Expr& condition, bool value, const Expr& e) {
    guards_->emplace_back(names_->Mutate(condition), value);
    Visit(e);
    guards_->pop_back();
  }

  void Qualify(const CallNode* op, Access access, SharedAccess* a) {
    a->by_warp = IsMatrixCopy(op);
    a->announced = access == Access::kEngineWrite;
    a->waited = access == Access::kEngineFill;
    a->engine = access == Access::kEngineRead || a->announced || a->waited;
    if (IsBulkStore(op)) a->flight = SharedAccess::Flight::kBulkCopy;
    if (IsOperandOfWgmma(op, access)) a->flight = SharedAccess::Flight::kWgmma;
    if (NameBox(op, a)) return;
    if (!IsCallTo(GetRef<Expr>(op), kWgmmaDescriptor)) {
      // The element that its address names says nothing of what an engine touches.
      a->whole |= a->engine;
      return;
    }
    // Of the matrix, the last three dimensions of a swizzled buffer, the address says only where
    // it begins.
    const size_t rank = a->indices.size();
    for (size_t i = rank > 3 ? rank - 3 : 0; i < rank; ++i) {
      opaque_->push_back(MakeVar("part"));
      a->indices.Set(i, opaque_->back());
    }
  }

  /*! A box that TMA stores lies dense from its address on: where it begins with a row and is whole
   * rows, of the last two dimensions, these are what is read. */
  static bool NameBox(const CallNode* op, SharedAccess* a) {
    const int64_t elements = StoredBox(op);
    const size_t rank = a->indices.size();
    if (elements == 0 || rank < 2 || a->whole) return false;
    const auto columns = AsInt(BufferOf(a->buffer)->shape[rank - 1]);
    if (!columns || elements % *columns || !IsConst(a->indices[rank - 1], 0)) return false;
    const Axis row{MakeVar("row"), 0, elements / *columns};
    a->indices.Set(rank - 2, a->indices[rank - 2] + row.var);
    a->lanes = static_cast<int>(*columns);
    a->inner.push_back(row);
    return true;
  }

  /*! ldmatrix and stmatrix: each lane gives the address of a row, whose elements all lanes have. */
  static bool IsMatrixCopy(const CallNode* op) {
    const std::string name = FindIntrinsic(op)->op;
    return name.rfind("tl.ptx_stmatrix", 0) == 0 || name.rfind("tl.ptx_ldmatrix", 0) == 0;
  }

  /*! Elements behind a pointer of an atomic operation, an asynchronous copy or a matrix's row; 0
   * for other intrinsics, whose table does not say. */
  static int TouchedElements(const CallNode* op, const PointerAccess& p) {
    if (p.access == Access::kAtomic) return 1;
    const Expr call = GetRef<Expr>(op);
    const DLDataType type = BufferOf(p.buffer)->dtype->dtype;
    if (IsMatrixCopy(op)) return 128 / (type.bits * type.lanes);
    if (!IsCallTo(call, kCpAsync) && !IsCallTo(call, kCpAsyncConditional)) return 0;
    return static_cast<int>(ToInt(op->args[0]) * 8 / (type.bits * type.lanes));
  }

  void Add(const Var& buffer, const Array<Expr>& indices, Access access, int lanes) {
    if (!IsShared(buffer)) return;
    // A view's elements are compared with nothing: another name may have other ones.
    const bool view = views_.IsView(buffer);
    SharedAccess a{views_.RootOf(buffer),
                   {},
                   lanes,
                   view,
                   Writes(access),
                   access == Access::kAsyncWrite ? SharedAccess::Flight::kCpAsync
                                                 : SharedAccess::Flight::kNone,
                   access == Access::kAtomic,
                   *guards_,
                   node_,
                   (*count_)++};
    for (size_t i = 0; i < indices.size() && !view; ++i) {
      Expr index = indices[i];
      const auto* ramp = index.as<RampNode>();
      if (ramp && i + 1 == indices.size() && IsConst(ramp->stride, 1)) {
        a.lanes *= index->dtype().lanes;
        index = ramp->base;
      }
      a.whole |= index->dtype().lanes != 1;
      a.indices.push_back(names_->Mutate(index));
    }
    node_->accesses.push_back(std::move(a));
  }
  void AddWhole(const Var& buffer) {
    if (!IsShared(buffer)) return;
    node_->accesses.push_back({views_.RootOf(buffer),
                               {},
                               0,
                               true,
                               true,
                               SharedAccess::Flight::kNone,
                               false,
                               *guards_,
                               node_,
                               (*count_)++});
  }

  SyncNode* node_;
  const Views& views_;
  Substituter* names_;
  Guards* guards_;
  std::vector<Var>* opaque_;
  int* count_;
};

class TreeBuilder {
 public:
  explicit TreeBuilder(const Stmt& body) : uniformity_(body), views_(body) {}

  std::unique_ptr<SyncNode> Build(const Stmt& s, SyncNode* parent) {
    auto node = std::make_unique<SyncNode>();
    node->stmt = s;
    node->parent = parent;
    node->depth = parent ? parent->depth + 1 : 0;
    node->kind = Kind::kLeaf;
    if (parent) EnterRange(parent, node.get());
    if (const auto* op = s.as<AttrStmtNode>()) {
      BuildScope(op->body, node.get());
    } else if (const auto* op = s.as<SBlockRealizeNode>()) {
      BuildScope(op->block->body, node.get());
    } else if (s.as<SeqStmtNode>()) {
      BuildScope(s, node.get());
    } else if (const auto* op = s.as<ForNode>()) {
      node->kind = Kind::kLoop;
      node->uniform = uniformity_.IsUniform(op);
      Collect(op->min, node.get());
      Collect(op->extent, node.get());
      node->body = BuildSequence(op->body, node.get());
    } else if (const auto* op = s.as<WhileNode>()) {
      node->kind = Kind::kLoop;
      Collect(op->condition, node.get());
      // There is no place for a barrier between the body's last statement and the condition's next
      // evaluation.
      node->uniform = uniformity_.IsUniform(op) && node->accesses.empty();
      node->body = BuildSequence(op->body, node.get());
    } else if (const auto* op = s.as<IfThenElseNode>()) {
      BuildIf(op, node.get());
    } else {
      BuildLeaf(s, node.get());
    }
    return node;
  }

  std::vector<Var> opaque;
  int accesses = 0;

 private:
  std::vector<std::unique_ptr<SyncNode>> BuildSequence(const Stmt& s, SyncNode* parent) {
    std::vector<std::unique_ptr<SyncNode>> out;
    for (const Stmt& t : FlatSeq(s)) out.push_back(Build(t, parent));
    return out;
  }

  static void EnterRange(const SyncNode* parent, SyncNode* node) {
    const auto* attr = parent->stmt.as<AttrStmtNode>();
    const std::optional<WarpGroups> groups = attr ? WarpGroups::Of(attr) : std::nullopt;
    node->range = groups ? parent : parent->range;
    node->groups = groups ? *groups : parent->groups;
  }

  void BuildScope(const Stmt& body, SyncNode* node) {
    node->kind = Kind::kScope;
    node->body = BuildSequence(body, node);
  }

  void BuildIf(const IfThenElseNode* op, SyncNode* node) {
    node->kind = Kind::kIf;
    node->uniform = uniformity_.IsUniform(op->condition);
    Collect(op->condition, node);
    node->condition = names_.Mutate(op->condition);
    guards_.emplace_back(node->condition, true);
    node->body = BuildSequence(op->then_case, node);
    guards_.back().second = false;
    if (op->else_case) node->otherwise = BuildSequence(*op->else_case, node);
    for (const auto& n : node->otherwise) n->in_otherwise = true;
    guards_.pop_back();
  }

  void BuildLeaf(const Stmt& s, SyncNode* node) {
    if (const auto* bind = s.as<BindNode>()) {
      if (IsPureInteger(bind->value)) {
        names_.map[bind->var.get()] = names_.Mutate(bind->value);
      } else {
        opaque.push_back(bind->var);
      }
    } else if (const auto* evaluate = s.as<EvaluateNode>()) {
      const auto* call = evaluate->value.as<CallNode>();
      if (call && IsCallTo(evaluate->value, kSync)) {
        const auto* scope = call->args[0].as<StringImmNode>();
        const bool block = scope && std::string(scope->value).rfind("shared", 0) == 0;
        if (block) node->kind = Kind::kBarrier;
      } else if (call && IsCallTo(evaluate->value, kSyncPartial)) {
        node->kind = Kind::kBarrier;
        node->named = SyncNode::Named{static_cast<int>(ToInt(call->args[0])),
                                      static_cast<int>(ToInt(call->args[1]))};
      } else if (call) {
        node->returns = IsCallTo(evaluate->value, kThreadReturn);
        NoteGroups(call, node);
      }
    }
    if (IsBreak(s)) node->kind = Kind::kBreak;
    if (IsContinue(s)) node->kind = Kind::kContinue;
    if (!s.as<AllocBufferNode>() && !s.as<DeclBufferNode>()) Collect(s, node);
  }

  /*! Commits of groups and waits for them. */
  static void NoteGroups(const CallNode* call, SyncNode* node) {
    using Flight = SharedAccess::Flight;
    static constexpr struct {
      const char *commit, *wait;
      Flight engine;
    } kEngines[] = {{kCpAsyncCommit, kCpAsyncWait, Flight::kCpAsync},
                    {kTmaStoreArrive, kTmaStoreWait, Flight::kBulkCopy},
                    {kWarpgroupCommit, kWarpgroupWait, Flight::kWgmma}};
    for (const auto& e : kEngines) {
      const bool waits = IsCallTo(GetRef<Expr>(call), e.wait);
      if (!waits && !IsCallTo(GetRef<Expr>(call), e.commit)) continue;
      node->kind = waits ? Kind::kWait : Kind::kCommit;
      node->engine = e.engine;
      if (waits) node->in_flight = ToInt(call->args[0]);
    }
  }

  void Collect(const ObjectRef& n, SyncNode* node) {
    AccessCollector(node, views_, &names_, &guards_, &opaque, &accesses)(n);
  }

  Uniformity uniformity_;
  Views views_;
  Substituter names_;
  Guards guards_;
};

Stmt Rebuild(const SyncNode& node);

Stmt BarrierBefore(const SyncNode& node) {
  const Span& span = node.stmt->span;
  if (node.mark == SyncNode::Mark::kBlock) {
    return MakeEvaluate(CallOp(kSync, {StringOf("shared")}), span);
  }
  return MakeEvaluate(CallOp(kSyncPartial, {node.barrier.id, MakeInt(node.barrier.threads)}), span);
}

Stmt RebuildSequence(const std::vector<std::unique_ptr<SyncNode>>& nodes) {
  std::vector<Stmt> stmts;
  for (const auto& n : nodes) {
    if (n->fence) stmts.push_back(MakeEvaluate(CallOp(kFenceProxyAsync, {}), n->stmt->span));
    if (n->mark != SyncNode::Mark::kNone) stmts.push_back(BarrierBefore(*n));
    stmts.push_back(Rebuild(*n));
  }
  return MakeSeq(stmts);
}

bool HasMarks(const std::vector<std::unique_ptr<SyncNode>>& nodes) {
  for (const auto& n : nodes) {
    if (n->mark != SyncNode::Mark::kNone || n->fence) return true;
    if (HasMarks(n->body) || HasMarks(n->otherwise)) return true;
  }
  return false;
}

Stmt Rebuild(const SyncNode& node) {
  if (!HasMarks(node.body) && !HasMarks(node.otherwise)) return node.stmt;
  const Stmt body = RebuildSequence(node.body);
  if (const auto* op = node.stmt.as<AttrStmtNode>()) {
    auto n = make_object<AttrStmtNode>(*op);
    n->body = body;
    return AttrStmt(n);
  }
  if (const auto* op = node.stmt.as<SBlockRealizeNode>()) {
    auto block = make_object<SBlockNode>(*op->block.get());
    block->body = body;
    auto n = make_object<SBlockRealizeNode>(*op);
    n->block = SBlock(block);
    return SBlockRealize(n);
  }
  if (const auto* op = node.stmt.as<ForNode>()) {
    auto n = make_object<ForNode>(*op);
    n->body = body;
    return For(n);
  }
  if (const auto* op = node.stmt.as<WhileNode>()) {
    auto n = make_object<WhileNode>(*op);
    n->body = body;
    return While(n);
  }
  if (const auto* op = node.stmt.as<IfThenElseNode>()) {
    auto n = make_object<IfThenElseNode>(*op);
    n->then_case = body;
    if (op->else_case) n->else_case = RebuildSequence(node.otherwise);
    return IfThenElse(n);
  }
  return body;
}

}  // namespace

bool SyncNode::IsInside(const SyncNode* other) const {
  const SyncNode* n = this;
  while (n->depth > other->depth) n = n->parent;
  return n == other;
}

SyncTree BuildSyncTree(const Stmt& body) {
  TreeBuilder builder(body);
  SyncTree tree;
  tree.root = builder.Build(body, nullptr);
  tree.opaque = std::move(builder.opaque);
  tree.accesses = builder.accesses;
  return tree;
}

SharedAccess EndOf(const SharedAccess& copy, const SyncNode* wait) {
  SharedAccess end = copy;
  end.node = wait;
  end.flight = SharedAccess::Flight::kNone;
  for (const SyncNode* n = copy.node; !wait->IsInside(n); n = n->parent) {
    const auto* loop = n->stmt.as<ForNode>();
    if (const std::optional<Axis> axis = loop ? AxisOf(loop) : std::nullopt) {
      end.inner.push_back(*axis);
    }
  }
  const std::optional<std::vector<Axis>> threads = ThreadAxes(wait);
  const auto is_known = [&](const Expr& e, const std::vector<Axis>& others) {
    const std::vector<Var> vars = VarsOf(e);
    const auto is_among = [](const std::vector<Axis>& axes, const Var& v) {
      return std::any_of(axes.begin(), axes.end(), [&](const Axis& a) { return a.var.same_as(v); });
    };
    return std::all_of(vars.begin(), vars.end(), [&](const Var& v) {
      return (threads && is_among(*threads, v)) || is_among(others, v);
    });
  };
  end.guards.clear();
  for (const auto& guard : copy.guards) {
    if (is_known(guard.first, {})) end.guards.push_back(guard);
  }
  end.whole |= copy.flight != SharedAccess::Flight::kBulkCopy ||
               !std::all_of(end.indices.begin(), end.indices.end(), [&](const Expr& e) {
                 return IsPureInteger(e) && is_known(e, end.inner);
               });
  return end;
}

Stmt WithBarriers(const SyncNode& root) { return Rebuild(root); }

}  // namespace tl
