#include "sync_tree.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "../../analysis/effects.h"
#include "../../analysis/structured_cfg.h"
#include "../../analysis/uniformity.h"
#include "../../op/intrinsics.h"
#include "../../op/rank_intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "like_accesses.h"
#include "sync_instances.h"
#include "thread_subset.h"

namespace tl {
namespace {

using Kind = SyncNode::Kind;
using Guards = std::vector<std::pair<Expr, bool>>;

/*! The tensors that a kernel writes: those whose accesses have an order. Parameters that a call may
 * give one tensor (T.annotate_restrict_buffers) are one, and so are a symmetric tensor and those of
 * other ranks, of which one may be this rank's. */
class WrittenTensors {
 public:
  WrittenTensors(const Stmt& kernel, const Views& views) : views_(views) {
    ForEachIn<AttrStmtNode>(kernel, [&](const AttrStmtNode* op) {
      const auto* name = op->value.as<StringImmNode>();
      if (!name || op->attr_key != kAliased) return;
      const auto group = op->node.try_cast<String>();
      groups_[std::string(name->value)] = group ? std::string(*group) : "";
    });
    for (const Object* v : WrittenBuffers(kernel)) {
      const Var root = views.RootOf(GetRef<Var>(static_cast<const VarNode*>(v)));
      if (!IsGlobal(root)) continue;
      written_.insert(root.get());
      if (const auto it = groups_.find(root->name); it != groups_.end()) {
        is_written_.insert(it->second);
      }
    }
  }

  /*! The memory that a tensor is; undefined where the kernel does not write it. */
  Var MemoryOf(const Var& buffer) {
    const Var root = views_.RootOf(buffer);
    if (!IsGlobal(root)) return Var(nullptr);
    const auto group = groups_.find(root->name);
    if (group != groups_.end() && is_written_.count(group->second)) {
      return memory_of_.emplace(group->second, root).first->second;
    }
    return written_.count(root.get()) ? root : Var(nullptr);
  }

 private:
  const Views& views_;
  std::unordered_set<const Object*> written_;
  /*! What each aliased tensor is one with, by name; which groups are written, and the tensor that
   * stands for each. */
  std::map<std::string, std::string> groups_;
  std::set<std::string> is_written_;
  std::map<std::string, Var> memory_of_;
};

/*! Gives the variables in indices of tensors names. */
class ScalarNames : public StmtExprMutator {
 public:
  ScalarNames(const Uniformity& uniformity, std::vector<Var>* opaque)
      : uniformity_(uniformity), opaque_(opaque) {}
  std::vector<SyncScalar> scalars;

  /*! A name that a statement binds to one value in all threads. */
  void NoteBinding(const Var& name, const SyncNode* node) {
    scalars.push_back({name, name, {node}});
  }

  void NoteWriters(const SyncNode& node) {
    if (node.kind == Kind::kLeaf && !scalars.empty()) {
      const std::unordered_set<const Object*> written = WrittenBuffers(node.stmt);
      for (SyncScalar& s : scalars) {
        if (written.count(s.buffer.get())) s.writers.push_back(&node);
      }
    }
    for (const auto& n : node.body) NoteWriters(*n);
    for (const auto& n : node.otherwise) NoteWriters(*n);
  }

 protected:
  Expr Mutate_(const TensorLoadNode* op) override {
    const Var buffer = op->source.as_or_throw<Var>();
    const Expr load = GetRef<Expr>(op);
    if (ScopeOf(buffer) != "local.var" || !uniformity_.IsUniform(load)) return load;
    for (const SyncScalar& s : scalars) {
      if (s.buffer.same_as(buffer)) return s.value;
    }
    scalars.push_back({buffer, MakeVar(buffer->name, op->dtype())});
    opaque_->push_back(scalars.back().value);
    return scalars.back().value;
  }

 private:
  const Uniformity& uniformity_;
  std::vector<Var>* opaque_;
};

/*! Adds the accesses of memory that threads share in an expression or a leaf statement to a node.
 */
class AccessCollector : public StmtExprVisitor {
 public:
  AccessCollector(SyncNode* node, const Views& views, WrittenTensors* tensors, ScalarNames* scalars,
                  Substituter* names, Guards* guards, std::vector<Var>* opaque, int* count)
      : node_(node),
        views_(views),
        tensors_(tensors),
        scalars_(scalars),
        names_(names),
        guards_(guards),
        opaque_(opaque),
        count_(count) {}

 protected:
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
    // It names the memory, and touches nothing there.
    if (IsCallTo(op, kPeer)) return;
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (Add(p.buffer, p.indices, p.access, TouchedElements(op, p))) {
        SharedAccess* a = &node_->accesses.back();
        a->tensor ? QualifyTensor(op, a) : Qualify(op, p.access, a);
        if (a->atomic) a->update = UpdateOf(op);
      }
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

  static std::string UpdateOf(const CallNode* op) { return EffectsOf(op)->update; }

  static void QualifyTensor(const CallNode* op, SharedAccess* a) {
    const AsyncQueue queue = EffectsOf(op)->queue;
    a->async_proxy = queue == AsyncQueue::kTmaLoad || queue == AsyncQueue::kTmaStore;
    // Its address names the first element of what a box or a piece of memory is.
    a->whole |= a->async_proxy;
    if (IsCpAsync(op)) a->queue = AsyncQueue::kCpAsync;
  }

  void Qualify(const CallNode* op, Access access, SharedAccess* a) {
    a->by_warp = IsMatrixCopy(op);
    a->signalled = access == Access::kAsyncProxyWrite;
    a->waited = access == Access::kAsyncProxyWriteWaited;
    a->async_proxy = access == Access::kAsyncProxyRead || a->signalled || a->waited;
    if (IsBulkStore(op)) a->queue = AsyncQueue::kTmaStore;
    if (IsOperandOfWgmma(op, access)) a->queue = AsyncQueue::kWgmma;
    if (NameBox(op, a)) return;
    if (!IsCallTo(op, kWgmmaDescriptor)) {
      // The element that its address names says nothing of what the async proxy touches.
      a->whole |= a->async_proxy;
      return;
    }
    // The address says only where the matrix begins, which is in the last three dimensions of a
    // swizzled buffer.
    const size_t rank = a->indices.size();
    for (size_t i = rank > 3 ? rank - 3 : 0; i < rank; ++i) {
      opaque_->push_back(MakeVar("part"));
      a->indices.Set(i, opaque_->back());
    }
  }

  /*! A box that TMA stores lies dense from its address on. */
  static bool NameBox(const CallNode* op, SharedAccess* a) {
    const int64_t elements = StoredBox(op);
    return elements != 0 && NameRows(elements, a);
  }

  /*! Names the rows, of the last dimensions, that elements are which follow each other in memory,
   * where these begin with a row and are whole rows. */
  static bool NameRows(int64_t elements, SharedAccess* a) {
    const size_t rank = a->indices.size();
    if (rank < 2 || a->whole) return false;
    const auto columns = AsInt(BufferOf(a->name)->shape[rank - 1]);
    if (!columns || elements % *columns || !IsConst(a->indices[rank - 1], 0)) return false;
    Array<Expr> indices = a->indices;
    std::vector<Axis> axes;
    int64_t rows = elements / *columns;
    for (size_t d = rank - 2; rows > 1; --d) {
      // All of this dimension, if they are more than it has.
      const auto extent = AsInt(BufferOf(a->name)->shape[d]);
      const bool within = extent && rows <= *extent;
      if (!within && (!extent || d == 0 || rows % *extent || !IsConst(indices[d], 0))) return false;
      axes.push_back({MakeVar("row"), 0, within ? rows : *extent});
      indices.Set(d, indices[d] + axes.back().var);
      rows /= axes.back().extent;
    }
    a->indices = indices;
    a->lanes = static_cast<int>(*columns);
    a->inner.insert(a->inner.end(), axes.begin(), axes.end());
    return true;
  }

  /*! Lanes may run on into the next rows: such an access is of all these rows, or of all. Lanes
   * begin at a multiple of their number, so where that divides a row they stay in one. */
  static void NameLanes(SharedAccess* a) {
    if (a->whole || a->lanes <= 1 || a->indices.empty()) return;
    const auto columns = AsInt(BufferOf(a->name)->shape[a->indices.size() - 1]);
    if (!columns || *columns % a->lanes == 0) return;
    a->whole = !NameRows(a->lanes, a);
  }

  /*! ldmatrix and its like: each lane gives the address of a row, whose elements other lanes have.
   */
  static bool IsMatrixCopy(const CallNode* op) { return EffectsOf(op)->row_bytes > 0; }

  /*! Elements behind a pointer of an atomic operation, an asynchronous copy or a matrix's row; 0
   * for other intrinsics, whose table does not say. */
  static int TouchedElements(const CallNode* op, const PointerAccess& p) {
    const DLDataType type = DTypeOf(p.buffer);
    if (IsBulkStore(op)) return 0;  // bulk_reduce_add's third operand is no value
    if (p.access == Access::kAtomic) {
      const bool has_value = op->args.size() > 2;
      return has_value ? op->args[2]->dtype().lanes / type.lanes : 1;
    }
    if (IsMatrixCopy(op)) return EffectsOf(op)->row_bytes * 8 / (type.bits * type.lanes);
    if (!IsCpAsync(op)) return 0;
    return static_cast<int>(ToInt(op->args[0]) * 8 / (type.bits * type.lanes));
  }

  static bool IsCpAsync(const CallNode* op) {
    const IntrinsicEffects* e = EffectsOf(op);
    return e->queue == AsyncQueue::kCpAsync && e->step == QueueStep::kIssue;
  }

  /*! The memory that threads share, undefined for other buffers. */
  Var MemoryOf(const Var& buffer) const {
    return IsShared(buffer) ? views_.RootOf(buffer) : tensors_->MemoryOf(buffer);
  }

  /*! False if the memory is nothing that threads share. */
  bool Add(const Var& buffer, const Array<Expr>& indices, Access access, int lanes) {
    const Var memory = MemoryOf(buffer);
    if (!memory.defined()) return false;
    const bool tensor = !IsShared(buffer);
    SharedAccess a{memory,
                   {},
                   lanes,
                   false,
                   Writes(access),
                   access == Access::kAsyncWrite ? AsyncQueue::kCpAsync : AsyncQueue::kNone,
                   access == Access::kAtomic,
                   *guards_,
                   node_,
                   (*count_)++};
    a.tensor = tensor;
    a.name = buffer;
    for (size_t i = 0; i < indices.size(); ++i) {
      Expr index = indices[i];
      const auto* ramp = index.as<RampNode>();
      if (ramp && i + 1 == indices.size() && IsConst(ramp->stride, 1)) {
        a.lanes *= index->dtype().lanes;
        index = ramp->base;
      }
      a.whole |= index->dtype().lanes != 1;
      index = names_->Mutate(index);
      a.indices.push_back(tensor ? scalars_->Mutate(index) : index);
    }
    NameLanes(&a);
    node_->accesses.push_back(std::move(a));
    return true;
  }
  void AddWhole(const Var& buffer) {
    const Var memory = MemoryOf(buffer);
    if (!memory.defined()) return;
    node_->accesses.push_back(
        {memory, {}, 0, true, true, AsyncQueue::kNone, false, *guards_, node_, (*count_)++});
    node_->accesses.back().tensor = !IsShared(buffer);
  }

  SyncNode* node_;
  const Views& views_;
  WrittenTensors* tensors_;
  ScalarNames* scalars_;
  Substituter* names_;
  Guards* guards_;
  std::vector<Var>* opaque_;
  int* count_;
};

class TreeBuilder {
 public:
  TreeBuilder(const Stmt& body, int64_t warp_threads)
      : uniformity_(body, Uniformity::Asked::kSurely, warp_threads),
        views_(body),
        tensors_(body, views_),
        scalars_(uniformity_, &opaque) {}

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
      node->uniform = uniformity_.IsUniform(op);
      node->body = BuildSequence(op->body, node.get());
      if (!node->accesses.empty()) node->body.push_back(BuildNextCondition(op, node.get()));
    } else if (const auto* op = s.as<IfThenElseNode>()) {
      BuildIf(op, node.get());
    } else {
      BuildLeaf(s, node.get());
    }
    node->is_inert = IsInert(*node);
    node->has_range = !node->is_inert && HasRange(*node);
    return node;
  }

  /*! What the tree knows of variables. */
  std::vector<SyncScalar> Scalars(const SyncNode& root) {
    scalars_.NoteWriters(root);
    return std::move(scalars_.scalars);
  }

  std::vector<Var> opaque;
  int accesses = 0;

 private:
  std::vector<std::unique_ptr<SyncNode>> BuildSequence(const Stmt& s, SyncNode* parent) {
    std::vector<std::unique_ptr<SyncNode>> out;
    for (const Stmt& t : FlatSeq(s)) out.push_back(Build(t, parent));
    return out;
  }

  static bool HasRange(const SyncNode& node) {
    const auto any = [&](const std::vector<std::unique_ptr<SyncNode>>& nodes) {
      return AnyOf(nodes, [&](const auto& n) { return n->range == &node || n->has_range; });
    };
    return any(node.body) || any(node.otherwise);
  }

  static bool IsInert(const SyncNode& node) {
    const auto are_inert = [](const std::vector<std::unique_ptr<SyncNode>>& nodes) {
      return AllOf(nodes, [](const auto& n) { return n->is_inert; });
    };
    if (!node.accesses.empty()) return false;
    if (node.kind != Kind::kLeaf) {
      const bool has_bodies =
          node.kind == Kind::kScope || node.kind == Kind::kLoop || node.kind == Kind::kIf;
      return has_bodies && are_inert(node.body) && are_inert(node.otherwise);
    }
    return !node.stmt.as<EvaluateNode>() &&
           !HasIntrinsic(node.stmt, [](const IntrinsicEffects& e) { return !e.IsPlain(); });
  }

  static void EnterRange(const SyncNode* parent, SyncNode* node) {
    const auto* attr = parent->stmt.as<AttrStmtNode>();
    const bool apart = attr && IsApart(attr);
    const std::optional<WarpSet> groups = apart ? WarpSet::Of(attr) : std::nullopt;
    node->range = groups ? parent : parent->range;
    node->groups = groups ? *groups : parent->groups;
    const auto* instance = apart ? attr->body.as<AttrStmtNode>() : nullptr;
    const bool is_instance = instance && instance->attr_key == kInstances;
    node->instances = is_instance ? static_cast<int>(ToInt(instance->value)) : parent->instances;
    node->is_copy = is_instance ? !instance->node.as<For>() : parent->is_copy;
  }

  void BuildScope(const Stmt& body, SyncNode* node) {
    node->kind = Kind::kScope;
    node->body = BuildSequence(body, node);
    const auto* attr = node->stmt.as<AttrStmtNode>();
    if (!attr || !IsApart(attr)) return;
    node->body.push_back(BuildEnd(node));
    node->body.back()->is_inert = true;
  }

  std::unique_ptr<SyncNode> BuildEnd(SyncNode* parent) {
    auto node = Build(MakeEvaluate(MakeInt(0), parent->stmt->span), parent);
    node->is_end = true;
    return node;
  }

  std::unique_ptr<SyncNode> BuildNextCondition(const WhileNode* op, SyncNode* parent) {
    auto node = BuildEnd(parent);
    Collect(op->condition, node.get());
    node->is_inert = false;
    return node;
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
        if (uniformity_.IsUniform(bind->value)) scalars_.NoteBinding(bind->var, node);
      }
    } else if (const auto* evaluate = s.as<EvaluateNode>()) {
      const auto* call = evaluate->value.as<CallNode>();
      if (call && IsCallTo(evaluate->value, kSync)) {
        const auto* scope = call->args[0].as<StringImmNode>();
        const bool block = scope && std::string(scope->value).rfind("shared", 0) == 0;
        if (block) node->kind = Kind::kBarrier;
        node->of_role = block && (IsInRole(*node) || (node->range && IsOfRange(call)));
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
    if (node->kind == Kind::kBreak || node->kind == Kind::kContinue) {
      const auto* loop = LoopOf(*node).stmt.as<WhileNode>();
      // A `while` evaluates its condition next.
      if (loop && node->kind == Kind::kContinue) Collect(loop->condition, node);
    }
    if (node->kind == Kind::kLeaf) NoteMeetings(node);
    if (!s.as<AllocBufferNode>() && !s.as<DeclBufferNode>()) Collect(s, node);
  }

  static void NoteMeetings(SyncNode* leaf) {
    ForEachIn<CallNode>(leaf->stmt, [&](const CallNode* call) {
      const IntrinsicEffects* effects = EffectsOf(call);
      if (!effects || effects->meets < ThreadScope::kBlock) return;
      leaf->meets = true;
      leaf->meets_in_order |= effects->orders;
    });
  }

  /*! The loop that a jump leaves or goes on with. */
  static const SyncNode& LoopOf(const SyncNode& jump) {
    const SyncNode* loop = jump.parent;
    while (loop && loop->kind != Kind::kLoop) loop = loop->parent;
    if (loop) return *loop;
    const std::string name = jump.kind == Kind::kBreak ? "break" : "continue";
    ThrowAt(jump.stmt->span, "ValueError",
            "found a " + name +
                " outside of loops, wanted it in the loop that it is of; guard "
                "statements with `if`");
  }

  static bool IsOfRange(const CallNode* barrier) {
    const auto* word = barrier->args.size() > 1 ? barrier->args[1].as<StringImmNode>() : nullptr;
    return word && std::string(word->value) == kOfRange;
  }

  /*! In a role of the compiler's own plan, whose threads were the block's? */
  static bool IsInRole(const SyncNode& node) {
    for (const SyncNode* n = node.parent; n; n = n->parent) {
      const auto* attr = n->stmt.as<AttrStmtNode>();
      if (attr && attr->attr_key == kWarpRole) return true;
    }
    return false;
  }

  /*! Commits of groups and waits for them. */
  static void NoteGroups(const CallNode* call, SyncNode* node) {
    const IntrinsicEffects* e = EffectsOf(call);
    if (!e || e->queue == AsyncQueue::kNone) return;
    const bool waits = e->step == QueueStep::kWait;
    if (!waits && e->step != QueueStep::kCommit) return;
    node->kind = waits ? Kind::kWait : Kind::kCommit;
    node->queue = e->queue;
    if (waits) node->in_flight = ToInt(call->args[0]);
  }

  void Collect(const ObjectRef& n, SyncNode* node) {
    AccessCollector(node, views_, &tensors_, &scalars_, &names_, &guards_, &opaque, &accesses)(n);
  }

  Uniformity uniformity_;
  Views views_;
  WrittenTensors tensors_;
  ScalarNames scalars_;
  Substituter names_;
  Guards guards_;
};

Stmt Rebuild(const SyncNode& node);

Stmt BarrierBefore(const SyncNode& node) {
  const Span& span = node.stmt->span;
  if (node.plan->mark == SyncNode::Mark::kBlock) {
    return MakeEvaluate(CallOp(kSync, {StringOf("shared")}), span);
  }
  return MakeEvaluate(
      CallOp(kSyncPartial, {node.plan->barrier.id, MakeInt(node.plan->barrier.threads)}), span);
}

Stmt RebuildSequence(const std::vector<std::unique_ptr<SyncNode>>& nodes) {
  std::vector<Stmt> stmts;
  for (const auto& n : nodes) {
    if (n->plan->fence) {
      const char* fence = n->plan->tensor_fence ? kFenceProxyAsyncAll : kFenceProxyAsync;
      stmts.push_back(MakeEvaluate(CallOp(fence, {}), n->stmt->span));
    }
    if (n->plan->mark != SyncNode::Mark::kNone) stmts.push_back(BarrierBefore(*n));
    if (!n->is_end && !n->of_role) stmts.push_back(Rebuild(*n));
  }
  return MakeSeq(stmts);
}

/*! A wait for products of wgmma, or a call that fences their registers, with no barrier. */
bool IsAboutProducts(const SyncNode& node) {
  const auto* op = node.stmt.as<EvaluateNode>();
  const auto* call = op ? op->value.as<CallNode>() : nullptr;
  const IntrinsicEffects* e = call ? EffectsOf(call) : nullptr;
  return e && e->queue == AsyncQueue::kWgmma && node.plan->mark == SyncNode::Mark::kNone &&
         node.accesses.empty() && (e->step == QueueStep::kWait || e->step == QueueStep::kFence);
}

bool HasMarks(const std::vector<std::unique_ptr<SyncNode>>& nodes) {
  for (const auto& n : nodes) {
    if (n->plan->mark != SyncNode::Mark::kNone || n->plan->fence) return true;
    if (HasMarks(n->body) || HasMarks(n->otherwise)) return true;
  }
  return false;
}

Stmt Rebuild(const SyncNode& node) {
  if (!HasMarks(node.body) && !HasMarks(node.otherwise)) return node.stmt;
  return WithBodies(node.stmt, RebuildSequence(node.body), RebuildSequence(node.otherwise));
}

}  // namespace

bool SyncNode::IsInside(const SyncNode* other) const {
  const SyncNode* n = this;
  while (n->depth > other->depth) n = n->parent;
  return n == other;
}

std::vector<const SyncNode*> DivergentAround(const SyncNode& node) {
  std::vector<const SyncNode*> regions;
  for (const SyncNode* n = node.parent; n; n = n->parent) {
    if (!n->uniform) regions.push_back(n);
  }
  std::reverse(regions.begin(), regions.end());
  return regions;
}

SyncTree BuildSyncTree(const Stmt& body, int64_t warp_threads) {
  TreeBuilder builder(body, warp_threads);
  SyncTree tree;
  tree.root = builder.Build(body, nullptr);
  LinkLikeAccesses(tree.root.get());
  ShareInstancePlans(tree.root.get());
  tree.scalars = builder.Scalars(*tree.root);
  tree.opaque = std::move(builder.opaque);
  tree.accesses = builder.accesses;
  return tree;
}

SharedAccess EndOf(const SharedAccess& copy, const SyncNode* wait) {
  SharedAccess end = copy;
  end.node = wait;
  end.queue = AsyncQueue::kNone;
  end.like = nullptr;
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
      return AnyOf(axes, [&](const Axis& a) { return a.var.same_as(v); });
    };
    return AllOf(vars, [&](const Var& v) {
      return (threads && is_among(*threads, v)) || is_among(others, v);
    });
  };
  // A loop around the wait that has the variable of one around the copy: two values of one name.
  bool is_ambiguous = false;
  for (const SyncNode* n = wait; n; n = n->parent) {
    const auto* loop = n->stmt.as<ForNode>();
    is_ambiguous |= loop && AnyOf(end.inner, [&](const Axis& axis) {
                      return axis.var.same_as(loop->loop_var);
                    });
  }
  end.guards.clear();
  for (const auto& guard : copy.guards) {
    if (is_known(guard.first, {})) end.guards.push_back(guard);
  }
  // What a bulk copy writes to shared memory is any other thread's at the wait. A thread that waits
  // for its own cp.async has written their elements itself.
  const bool acts_where_issued =
      copy.queue == AsyncQueue::kTmaStore || copy.queue == AsyncQueue::kCpAsync || copy.tensor;
  end.whole |= !acts_where_issued || is_ambiguous || !AllOf(end.indices, [&](const Expr& e) {
    return IsPureInteger(e) && is_known(e, end.inner);
  });
  return end;
}

void MoveFencesBeforeWaits(SyncNode* root) {
  for (auto* nodes : {&root->body, &root->otherwise}) {
    for (size_t i = 0; i < nodes->size(); ++i) {
      SyncNode* node = (*nodes)[i].get();
      MoveFencesBeforeWaits(node);
      if (!node->plan->fence || node->plan->mark != SyncNode::Mark::kNone) continue;
      SyncNode* place = node;
      for (size_t k = i; k-- > 0 && IsAboutProducts(*(*nodes)[k]);) {
        if ((*nodes)[k]->kind == Kind::kWait) place = (*nodes)[k].get();
      }
      if (place == node) continue;
      place->plan->fence = true;
      place->plan->tensor_fence |= std::exchange(node->plan->tensor_fence, false);
      node->plan->fence = false;
    }
  }
}

Stmt WithBarriers(const SyncNode& root) { return Rebuild(root); }

}  // namespace tl
