#include <algorithm>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/rank_intrinsics.h"
#include "../../op/tma_copy.h"
#include "../../op/wgmma_wait.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"
#include "pipeline.h"
#include "role_signals.h"
#include "warp_roles.h"
#include "ws_schedule.h"

namespace tl {
namespace {

/*! A call that cannot be given to one role: threads outside of it would have to make it too, or it
 * shows that the program specialises its warps itself. */
bool IsForBlock(const std::string& op) {
  if (const Intrinsic* row = FindIntrinsic(op)) {
    return row->effects.schedules || row->effects.meets >= ThreadScope::kBlock;
  }
  static const std::unordered_set<std::string> names = {kSync,         kThreadReturn, kTmaCopy,
                                                        kWgmmaWait,    kSourceKernel, kSignalOp,
                                                        kSignalWaitOp, kSyncRanksOp};
  return names.count(op);
}

/*! A barrier of the block, or a trigger, which any thread gives for its block, outside of pipelined
 * loops, whose statements other passes move. */
bool IsForConsumerBesidePipelines(const RoleNode& node) {
  const auto* evaluate = node.stmt.as<EvaluateNode>();
  if (!evaluate) return false;
  const Expr& e = evaluate->value;
  if (!IsCallTo(e, kSync) && !IsCallTo(e, kPdlTrigger)) return false;
  for (const RoleNode* n = node.parent->owner; n; n = n->parent->owner) {
    if (n->Loop() && IsPipelined(n->Loop())) return false;
  }
  return true;
}

/*! What a leaf does beside reading and writing elements. */
class LeafFacts : public StmtExprVisitor {
 public:
  std::vector<Var> opaque;
  std::string explicit_sync;

 protected:
  void Visit_(const TensorRegionNode* op) final {
    for (const Range& r : op->region) {
      Visit(r->min);
      Visit(r->extent);
    }
  }
  void Visit_(const TensorLoadNode* op) final {
    for (const Expr& i : op->indices) Visit(i);
  }
  void Visit_(const BufferStoreNode* op) final {
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
  }
  void Visit_(const CallNode* op) final {
    const OpNode* callee = OpOf(op);
    const std::string name = callee ? std::string(callee->name) : "";
    const Intrinsic* row = FindIntrinsic(op);
    bool barrier = IsForBlock(name);
    if (row) barrier |= std::count(row->access.begin(), row->access.end(), Access::kBarrier) > 0;
    if (barrier) explicit_sync = name;
    for (const Expr& arg : op->args) {
      const TensorLoadNode* pointee = AsAddressOf(arg);
      if (pointee && !row) opaque.push_back(pointee->source.as_or_throw<Var>());
      Visit(pointee ? Expr(GetRef<TensorLoad>(pointee)) : arg);
    }
  }
  void Visit_(const VarNode* op) final {
    if (AsBuffer(GetRef<Var>(op))) opaque.push_back(GetRef<Var>(op));
  }
};

class TreeBuilder {
 public:
  TreeBuilder(const KernelInfo& kernel, const Views& views, WarpRoles* roles)
      : views_(views),
        peers_(kernel.block->body),
        roles_(roles),
        named_(kernel.block->annotations.count(kWsSchedule) != 0) {}

  void Build(const Stmt& s, RoleSequence* to) {
    for (const Stmt& t : FlatSeq(s)) {
      // What an attribute says of the rest of a kernel holds for both roles, and goes around them.
      const auto* attr = t.as<AttrStmtNode>();
      if (attr && attr->attr_key == kWsOp) {
        Named(std::string(attr->node.cast<String>()), [&] { Build(attr->body, to); });
        continue;
      }
      // A peer's other name goes around the roles, too (UnderPeerNames).
      const bool names_peer = attr && attr->attr_key == kAliased && !named_;
      if (attr &&
          ((!to->owner && names_.empty() && attr->attr_key != kThreadRange) || names_peer)) {
        Build(attr->body, to);
        continue;
      }
      // Views are declared in front of both roles.
      const auto* view = t.as<DeclBufferNode>();
      if (view && ViewedBy(view).defined()) continue;
      // As is a wait for the kernel before this one where nothing else comes first.
      if (!to->owner && to->nodes.empty() && !named_ && IsWaitForKernel(t)) continue;
      to->nodes.push_back(std::make_unique<RoleNode>());
      Node(t, to->nodes.back().get(), to);
    }
  }

 private:
  /*! Gives a name to the leaves that `build` finds, unless they have their own. */
  template <typename F>
  void Named(const std::string& name, F build) {
    names_.push_back(name);
    build();
    names_.pop_back();
  }

  void Node(const Stmt& s, RoleNode* node, RoleSequence* parent) {
    node->stmt = named_ ? WithoutNames(s) : s;
    const std::string own = named_ ? NameOf(s) : "";
    node->parent = parent;
    const auto* bind = s.as<BindNode>();
    // The address of a peer names the memory, and touches nothing there.
    const bool is_address = bind && IsCallTo(bind->value, kPeer);
    node->use = is_address ? BufferUse() : views_.UseOf(s);
    node->body.owner = node->otherwise.owner = node;
    if (!seen_.insert(s.get()).second) Refuse(s, "it stands in the program twice");
    const auto* loop = s.as<ForNode>();
    if (loop && loop->kind != ForKind::kParallel) {
      node->kind = RoleNode::Kind::kFor;
      node->id = own;
      if (own.empty()) return Build(loop->body, &node->body);
      Named(own, [&] { Build(loop->body, &node->body); });
    } else if (const auto* repeat = s.as<WhileNode>()) {
      node->kind = RoleNode::Kind::kWhile;
      Build(repeat->body, &node->body);
    } else if (const auto* branch = s.as<IfThenElseNode>()) {
      node->kind = RoleNode::Kind::kIf;
      Build(branch->then_case, &node->body);
      if (branch->else_case) Build(*branch->else_case, &node->otherwise);
    } else {
      node->id = own.empty() && !names_.empty() ? names_.back() : own;
      Leaf(node);
    }
  }

  void Leaf(RoleNode* node) {
    const Stmt& s = node->stmt;
    if (s.as<AttrStmtNode>()) {
      const std::string key = s.as<AttrStmtNode>()->attr_key;
      return Refuse(s, key == kThreadRange ? "it gives threads their roles itself (T.ws)"
                                           : "it stands under the attribute " + key);
    }
    if (const auto* decl = s.as<DeclBufferNode>()) {
      if (!named_ && peers_.IsPeer(decl->buffer)) return;
      return Refuse(s, "it makes a tensor of an address");
    }
    if (s.as<AllocBufferNode>() || s.as<SBlockRealizeNode>()) {
      return Refuse(s, "it allocates inside of the kernel's block");
    }
    LeafFacts facts;
    facts(s);
    // The threads that a schedule's role leaves out would be missing at it; the consumer has all.
    const bool of_consumer = !named_ && (IsForConsumerBesidePipelines(*node) || OrdersRanks(*node));
    // Each role waits for the kernel before this one itself.
    const bool of_both = !named_ && IsWaitForKernel(s);
    if (!facts.explicit_sync.empty() && !of_consumer && !of_both) {
      return Refuse(s, "it synchronises threads itself (" + facts.explicit_sync + ")");
    }
    for (const Var& v : facts.opaque) node->opaque.push_back(views_.RootOf(v));
  }

  void Refuse(const Stmt& s, const std::string& why) {
    if (!roles_->why.empty()) return;
    roles_->why = why;
    roles_->where = s->span;
  }

  const Views& views_;
  const Peers peers_;
  WarpRoles* roles_;
  bool named_;
  std::vector<std::string> names_;
  std::unordered_set<const Object*> seen_;
};

bool Encloses(const RoleNode& outer, const RoleNode& node) {
  const RoleNode* n = &node;
  while (n && n != &outer) n = n->parent->owner;
  return n == &outer;
}

/*! Source text of the user's own may ask for the number of a thread, which specialisation changes.
 */
bool HasOwnThreads(const SBlockNode* block) {
  const auto it = block->annotations.find(kPrelude);
  if (it == block->annotations.end()) return false;
  const auto text = (*it).second.try_cast<String>();
  if (!text) return true;
  for (const char* word : {"threadIdx", "%tid", "blockDim", "__syncthreads", "bar.sync"}) {
    if (std::string(*text).find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

bool IsWaitForKernel(const Stmt& s) {
  const auto* evaluate = s.as<EvaluateNode>();
  return evaluate && IsCallTo(evaluate->value, kPdlSync);
}

bool BuildRoleTree(const KernelInfo& kernel, const Stmt& body, const Views& views,
                   WarpRoles* roles) {
  TreeBuilder(kernel, views, roles).Build(body, &roles->body);
  if (roles->why.empty() && HasOwnThreads(kernel.block)) {
    roles->why = "the kernel's imported source asks for its threads";
  }
  return roles->why.empty();
}

const ForNode* PipelineOf(const RoleSequence& sequence) {
  const RoleNode* owner = sequence.owner;
  while (owner && owner->kind == RoleNode::Kind::kIf) owner = owner->parent->owner;
  const ForNode* loop = owner ? owner->Loop() : nullptr;
  return loop && IsPipelined(loop) ? loop : nullptr;
}

bool IsPipelined(const ForNode* loop) {
  const bool staged = IntAnnotation(loop->annotations, kNumStages).value_or(0) >= 1;
  return staged || loop->annotations.count(kUserOrder);
}

int64_t StagesOf(const ForNode* loop) {
  const int64_t stages = IntAnnotation(loop->annotations, kNumStages).value_or(0);
  // A use in a later stage keeps its slot while earlier stages fill others.
  const auto stage = ListAnnotation(loop->annotations, kUserStage);
  if (!stage || stage->empty()) return std::max<int64_t>(1, stages);
  return std::max(stages, *std::max_element(stage->begin(), stage->end()) + 1);
}

RoleNode* LoopAround(const RoleNode& node) {
  RoleNode* n = node.parent->owner;
  while (n && n->kind == RoleNode::Kind::kIf) n = n->parent->owner;
  return n;
}

bool IsRepeated(const RoleSequence& sequence) {
  return !sequence.nodes.empty() && LoopAround(*sequence.nodes[0]);
}

size_t IndexOf(const RoleNode& node) {
  const auto& nodes = node.parent->nodes;
  return FindIf(nodes, [&](const auto& n) { return n.get() == &node; }) - nodes.begin();
}

bool IsUsed(const RoleNode& node, const Var& buffer) {
  return Contains(node.use.reads, buffer) || Contains(node.use.writes, buffer) ||
         Contains(node.opaque, buffer);
}

const RoleNode* JumpOutOfWindow(const WarpRoles& roles) {
  const RoleNode* jump = nullptr;
  ForEachNode(roles.body, [&](const RoleNode* node) {
    if (!IsBreak(node->stmt) && !IsContinue(node->stmt)) return;
    const RoleNode* loop = LoopAround(*node);
    for (const Channel& c : roles.channels) {
      for (const Window& w : c.windows) {
        const bool on_the_way = loop && w.sequence->owner && Encloses(*loop, *w.sequence->owner) &&
                                (w.sequence == node->parent || Encloses(*w.sequence->owner, *node));
        if (on_the_way) jump = node;
      }
    }
  });
  return jump;
}

std::vector<Var> WrittenGlobals(const KernelInfo& kernel, const RoleSequence& body) {
  std::vector<Var> written;
  ForEachNode(body, [&](const RoleNode* node) {
    if (!node->IsLeaf()) return;
    for (const auto* list : {&node->use.writes, &node->opaque}) {
      for (const Var& v : *list) {
        if (IsGlobal(v) && !Contains(written, v)) written.push_back(v);
      }
    }
  });
  const auto is_aliased = [&](const Var& v) {
    const auto& names = kernel.aliased;
    return std::find(names.begin(), names.end(), std::string(v->name)) != names.end();
  };
  if (AnyOf(written, is_aliased)) {
    for (const Var& v : kernel.params) {
      if (is_aliased(v) && !Contains(written, v)) written.push_back(v);
    }
  }
  return written;
}

}  // namespace tl
