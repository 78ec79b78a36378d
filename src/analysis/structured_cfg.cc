#include "structured_cfg.h"

#include <algorithm>
#include <unordered_set>

#include "../op/operator.h"
#include "../op/peers.h"
#include "../op/thread_range.h"
#include "../tvm/attrs.h"
#include "../tvm/functor.h"
#include "effects.h"

namespace tl {
namespace {

/*! Collects the effects of statements and expressions. */
class EffectsReader : public StmtExprVisitor {
 public:
  explicit EffectsReader(const Views& views) : views_(views) {}
  CfgEffects effects;

 protected:
  void Visit_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = op->value.as<CallNode>();
    if (AsTileOp(s)) return TileOp(s, call);
    effects.jumps |= loops_ == 0 && (IsBreak(s) || IsContinue(s));
    if (call && !EffectsOf(call)) Tell(ThreadScope::kBlock);
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) final {
    Add(op->buffer, true);
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
  }
  void Visit_(const TensorLoadNode* op) final {
    Add(op->source.as_or_throw<Var>(), false);
    for (const Expr& i : op->indices) Visit(i);
  }
  void Visit_(const CallNode* op) final {
    const std::string name = OpOf(op) ? std::string(OpOf(op)->name) : "";
    const IntrinsicEffects* e = EffectsOf(op);
    if (name.rfind("tirx.call_extern", 0) == 0) Tell(ThreadScope::kGrid);
    effects.jumps |= name == "tirx.ret" || name == kThreadReturn;
    if (e) {
      const ThreadScope tells = IsRelaxed(op) ? ThreadScope::kThread : e->tells;
      Tell(e->StartsAsync() ? std::max(tells, ThreadScope::kLanes) : tells);
      effects.arrives |= tells >= ThreadScope::kBlock && e->meets == ThreadScope::kThread;
    }
    for (const PointerAccess& p : PointerAccesses(op)) Add(p.buffer, Writes(p.access));
    for (const Expr& arg : op->args) {
      const TensorLoadNode* pointee = AsAddressOf(arg);
      if (pointee && !e) Add(pointee->source.as_or_throw<Var>(), true);
      Visit(pointee ? Expr(GetRef<TensorLoad>(pointee)) : arg);
    }
  }
  // A buffer outside of a load or store is a pointer that goes somewhere.
  void Visit_(const VarNode* op) final {
    if (AsBuffer(GetRef<Var>(op))) Add(GetRef<Var>(op), true);
  }
  void Visit_(const BreakNode*) final { effects.jumps |= loops_ == 0; }
  void Visit_(const ContinueNode*) final { effects.jumps |= loops_ == 0; }
  void Visit_(const ForNode* op) final { Loop(op); }
  void Visit_(const WhileNode* op) final { Loop(op); }
  void Visit_(const AttrStmtNode* op) final {
    Visit(op->value);
    Visit(op->body);
  }
  void Visit_(const AllocBufferNode*) final {}
  void Visit_(const DeclBufferNode*) final {}
  void Visit_(const SBlockNode* op) final { Visit(op->body); }

 private:
  /*! A jump inside of a loop stays there. */
  template <typename N>
  void Loop(const N* op) {
    ++loops_;
    Default(op);
    --loops_;
  }

  void TileOp(const Stmt& s, const CallNode* call) {
    if (IsCallTo(call, kAcquire)) return;
    if (IsCallTo(call, kRelease)) return Release(call);
    const BufferUse use = views_.UseOf(s);
    const std::vector<Var> named = CollectBufferUse(s).writes;
    for (const Var& v : use.reads) Add(v, false);
    for (const Var& v : use.writes) {
      bool is_known = false;
      for (const Expr& arg : call->args) {
        if (!arg.as<TensorRegionNode>()) continue;
        const TileRegion r = TileRegion::From(arg);
        if (!Contains(named, r.buffer) || !views_.IsSameMemory(r.buffer, v)) continue;
        is_known = true;
        effects.accesses.push_back({v, r, true});
      }
      if (!is_known) Add(v, true);
    }
  }
  /*! Others may write the buffers from here on. */
  void Release(const CallNode* call) {
    for (const Expr& arg : call->args) {
      if (!arg.as<TensorRegionNode>()) continue;
      const TileRegion r = TileRegion::From(arg);
      effects.accesses.push_back({views_.RootOf(r.buffer), r, true});
    }
  }

  void Add(const Var& buffer, bool writes) {
    const Var memory = views_.RootOf(buffer);
    if (known_.emplace(memory.get(), writes).second) {
      effects.accesses.push_back({memory, std::nullopt, writes});
    }
  }
  /*! An atomic operation that by itself is no release (PTX ISA, Release and Acquire Patterns). A
   * fence in front of it makes it one, and is what tells. */
  static bool IsRelaxed(const CallNode* op) {
    const auto* order = op->args.empty() ? nullptr : op->args[0].as<StringImmNode>();
    return order && std::string(order->value).rfind("tl::relaxed", 0) == 0;
  }
  void Tell(ThreadScope scope) { effects.tells = std::max(effects.tells, scope); }

  struct Hash {
    size_t operator()(const std::pair<const Object*, bool>& p) const {
      return std::hash<const Object*>()(p.first) ^ static_cast<size_t>(p.second);
    }
  };
  const Views& views_;
  int loops_ = 0;
  std::unordered_set<std::pair<const Object*, bool>, Hash> known_;
};

bool AnyNode(const CfgNode& node, bool (*holds)(const CfgNode&)) {
  const auto below = [&](const auto& nodes) {
    return AnyOf(nodes, [&](const auto& n) { return AnyNode(*n, holds); });
  };
  return holds(node) || below(node.body) || below(node.otherwise);
}

/*! Builds the tree of one kernel. */
class CfgBuilder {
 public:
  CfgBuilder(const Stmt& kernel, const Views& views, Analyzer* analyzer, CfgReader* reader)
      : views_(views), analyzer_(analyzer), reader_(reader), uniformity_(kernel) {}

  std::unique_ptr<CfgNode> Build(const Stmt& s) {
    auto node = std::make_unique<CfgNode>();
    node->stmt = s;
    if (const auto* attr = s.as<AttrStmtNode>(); attr && BuildAttr(attr, node.get())) return node;
    if (const auto* op = s.as<SBlockRealizeNode>()) {
      node->kind = CfgNode::Kind::kSequence;
      node->body = Sequence(op->block->body);
    } else if (s.as<SeqStmtNode>()) {
      node->kind = CfgNode::Kind::kSequence;
      node->body = Sequence(s);
    } else if (const auto* op = s.as<ForNode>(); op && IsInstances(op)) {
      // A range of threads, without a way back.
      analyzer_->BindLoop(op);
      OfThreads(op->body, node.get());
    } else if (const auto* op = s.as<ForNode>(); op && op->kind != ForKind::kParallel) {
      analyzer_->BindLoop(op);
      Loop(op->body, uniformity_.IsUniform(op), {op->min, op->extent}, node.get());
    } else if (const auto* op = s.as<WhileNode>()) {
      Loop(op->body, uniformity_.IsUniform(op), {op->condition}, node.get());
    } else if (const auto* op = s.as<IfThenElseNode>()) {
      Branch(op, node.get());
    } else {
      Leaf(node.get());
    }
    return node;
  }

 private:
  std::vector<std::unique_ptr<CfgNode>> Sequence(const Stmt& body) {
    std::vector<std::unique_ptr<CfgNode>> nodes;
    for (const Stmt& s : FlatSeq(body)) nodes.push_back(Build(s));
    return nodes;
  }

  /*! False for an attribute around a leaf. */
  bool BuildAttr(const AttrStmtNode* op, CfgNode* node) {
    if (op->attr_key == kAsyncCopy || op->attr_key == kStoreWait) return false;
    if (op->attr_key == kThreadExtent) analyzer_->BindThread(op);
    const auto* loop = op->body.as<ForNode>();
    if (op->attr_key == kThreadRange && !(loop && IsInstances(loop))) {
      OfThreads(op->body, node);
      return true;
    }
    node->kind = CfgNode::Kind::kSequence;
    node->body = Sequence(op->body);
    return true;
  }

  void OfThreads(const Stmt& body, CfgNode* node) {
    node->kind = CfgNode::Kind::kRange;
    node->effects = EffectsOfStmt(node->stmt, views_);
    NoteMemory(node->effects, node);
    const bool outside = together_;
    together_ = true;
    node->body = Sequence(body);
    together_ = outside;
  }

  void Loop(const Stmt& body, bool uniform, const std::vector<Expr>& head, CfgNode* node) {
    const CfgEffects whole = EffectsOfStmt(node->stmt, views_);
    if (loops_.empty()) NoteMemory(whole, node);
    const bool outside = together_;
    together_ &= uniform;
    loops_.push_back(node);
    node->kind = CfgNode::Kind::kLoop;
    node->body = Sequence(body);
    loops_.pop_back();
    together_ = outside;
    if (!AnyNode(*node, ActsOnQueue)) return MakeLeaf(whole, node);
    node->effects = EffectsOfExprs(head);
    if (!loops_.empty()) {
      auto& bound = loops_.back()->bound;
      AppendRange(&bound, node->bound);
    }
  }

  void Branch(const IfThenElseNode* op, CfgNode* node) {
    const bool outside = together_, uniform = uniformity_.IsUniform(op->condition);
    const CfgEffects head = EffectsOfExprs({op->condition});
    if (loops_.empty()) NoteMemory(uniform ? head : EffectsOfStmt(node->stmt, views_), node);
    together_ &= uniform;
    node->kind = CfgNode::Kind::kIf;
    node->body = Sequence(op->then_case);
    if (op->else_case) node->otherwise = Sequence(*op->else_case);
    together_ = outside;
    if (!uniform && !AnyNode(*node, ActsOnQueue)) {
      return MakeLeaf(EffectsOfStmt(node->stmt, views_), node);
    }
    node->effects = head;
  }

  static bool ActsOnQueue(const CfgNode& node) { return node.issue || node.wait; }

  static void MakeLeaf(const CfgEffects& effects, CfgNode* node) {
    node->kind = CfgNode::Kind::kLeaf;
    node->body.clear();
    node->otherwise.clear();
    node->effects = effects;
  }

  void Leaf(CfgNode* node) {
    const Stmt& s = node->stmt;
    if (const auto* bind = s.as<BindNode>()) Bind(bind);
    node->wait = reader_->WaitOf(s);
    if (!node->wait) node->issue = reader_->IssueOf(s, together_);
    node->effects = EffectsOfStmt(s, views_);
    if (node->issue) Issue(node);
    for (MemoryAccess& a : node->effects.accesses) Rename(&a);
    if (loops_.empty()) NoteMemory(node->effects, node);
  }

  /*! The effects of a leaf that starts an operation are what the operation says of its memory. */
  void Issue(CfgNode* node) {
    AsyncIssue* issue = node->issue.get();
    issue->order = issues_++;
    issue->span = node->stmt->span;
    issue->loops.assign(loops_.begin(), loops_.end());
    std::vector<MemoryAccess>& accesses = node->effects.accesses;
    for (auto* list : {&issue->sources, &issue->destinations}) {
      for (MemoryAccess& own : *list) {
        const auto is_own = [&](const MemoryAccess& a) { return a.memory.same_as(own.memory); };
        accesses.erase(std::remove_if(accesses.begin(), accesses.end(), is_own), accesses.end());
      }
    }
    for (auto* list : {&issue->sources, &issue->destinations}) {
      for (MemoryAccess& own : *list) {
        Rename(&own);
        accesses.push_back(own);
      }
    }
  }

  /*! A name of arithmetic is what it is a name of; others have another value in each iteration. */
  void Bind(const BindNode* bind) {
    if (IsPureInteger(bind->value)) {
      names_.map[bind->var.get()] = names_.Mutate(bind->value);
    } else if (!loops_.empty()) {
      loops_.back()->bound.push_back(bind->var);
    }
  }
  void Rename(MemoryAccess* access) {
    if (!access->region) return;
    Array<Range> ranges;
    for (const Range& r : access->region->ranges) {
      ranges.push_back(MakeRange(names_.Mutate(r->min), r->extent));
    }
    access->region->ranges = ranges;
  }

  void NoteMemory(const CfgEffects& effects, CfgNode* node) {
    for (const MemoryAccess& a : effects.accesses) {
      if (IsShared(a.memory)) node->uses_new_memory |= seen_.insert(a.memory.get()).second;
    }
  }

  CfgEffects EffectsOfExprs(const std::vector<Expr>& exprs) const {
    EffectsReader reader(views_);
    for (const Expr& e : exprs) reader(e);
    return std::move(reader.effects);
  }

  const Views& views_;
  Analyzer* analyzer_;
  CfgReader* reader_;
  const Uniformity uniformity_;
  /*! All threads of the range run what is read. */
  bool together_ = true;
  std::vector<CfgNode*> loops_;
  Substituter names_;
  std::unordered_set<const Object*> seen_;
  int issues_ = 0;
};

/*! A symmetric tensor and those of other ranks are one memory, since one of them may be this
 * rank's.
 */
void OfOneMemory(CfgNode* node, const Peers& peers) {
  const auto rename = [&](std::vector<MemoryAccess>* accesses) {
    for (MemoryAccess& a : *accesses) a.memory = peers.TensorOf(a.memory);
  };
  rename(&node->effects.accesses);
  if (node->issue) {
    rename(&node->issue->sources);
    rename(&node->issue->destinations);
  }
  for (const auto& n : node->body) OfOneMemory(n.get(), peers);
  for (const auto& n : node->otherwise) OfOneMemory(n.get(), peers);
}

/*! Writes the statements of a tree with their waits. */
class Writer {
 public:
  using Emit = std::function<Stmt(const AsyncWait&, const Span&)>;
  explicit Writer(const Emit& emit) : emit_(emit) {}

  Stmt Write(const CfgNode& node) const {
    if (node.wait) return emit_(*node.wait, node.stmt->span);
    const bool is_leaf = node.kind == CfgNode::Kind::kLeaf;
    std::vector<Stmt> body = {is_leaf ? (node.issue ? node.issue->issue : node.stmt)
                                      : Nodes(node.body)};
    Append(node.at_end, node.stmt->span, &body);
    const Stmt all = MakeSeq(body);
    if (is_leaf) return all;
    std::vector<Stmt> otherwise = {Nodes(node.otherwise)};
    Append(node.at_other_end, node.stmt->span, &otherwise);
    return WithBodies(node.stmt, all, MakeSeq(otherwise));
  }

 private:
  Stmt Nodes(const std::vector<std::unique_ptr<CfgNode>>& nodes) const {
    std::vector<Stmt> out;
    for (const auto& n : nodes) {
      Append(n->before, n->stmt->span, &out);
      out.push_back(n->behind.empty() ? Write(*n) : WithWaitsBehind(*n));
    }
    return MakeSeq(out);
  }
  /*! A loop and its waits, in a branch that a loop without iterations does not take. */
  Stmt WithWaitsBehind(const CfgNode& node) const {
    const ForNode* loop = node.stmt.as<ForNode>();
    std::vector<Stmt> out = {Write(node)};
    Append(node.behind, loop->span, &out);
    return MakeIf(loop->extent >= MakeInt(loop->extent->dtype(), 1), MakeSeq(out), loop->span);
  }
  void Append(const std::vector<AsyncWait>& waits, const Span& span, std::vector<Stmt>* out) const {
    for (const AsyncWait& w : waits) out->push_back(emit_(w, span));
  }

  const Emit& emit_;
};

template <typename R, typename N>
Stmt WithBodyOf(const N* op, const Stmt& body) {
  R copy = GetRef<R>(op);
  copy.CopyOnWrite()->body = body;
  return copy;
}

}  // namespace

Stmt WithBodies(const Stmt& s, const Stmt& body, const Stmt& otherwise) {
  if (const auto* op = s.as<AttrStmtNode>()) return WithBodyOf<AttrStmt>(op, body);
  if (const auto* op = s.as<ForNode>()) return WithBodyOf<For>(op, body);
  if (const auto* op = s.as<WhileNode>()) return WithBodyOf<While>(op, body);
  if (const auto* op = s.as<SBlockRealizeNode>()) {
    return With(op, &SBlockRealizeNode::block,
                WithBodyOf<SBlock>(op->block.get(), body).as_or_throw<SBlock>());
  }
  if (const auto* op = s.as<IfThenElseNode>()) {
    auto branch = make_object<IfThenElseNode>(*op);
    branch->then_case = body;
    if (op->else_case) branch->else_case = otherwise;
    return IfThenElse(branch);
  }
  return body;
}

CfgEffects EffectsOfStmt(const Stmt& s, const Views& views) {
  EffectsReader reader(views);
  reader(s);
  return std::move(reader.effects);
}

std::unique_ptr<CfgNode> BuildCfg(const Stmt& kernel, const Views& views, Analyzer* analyzer,
                                  CfgReader* reader) {
  auto root = CfgBuilder(kernel, views, analyzer, reader).Build(kernel);
  OfOneMemory(root.get(), Peers(kernel));
  return root;
}

bool HasIssue(const CfgNode& node) {
  return AnyNode(node, [](const CfgNode& n) { return n.issue != nullptr; });
}

Stmt WithWaits(const CfgNode& root,
               const std::function<Stmt(const AsyncWait&, const Span&)>& emit) {
  return Writer(emit).Write(root);
}

}  // namespace tl
