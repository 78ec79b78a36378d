#include <unordered_set>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/rank_intrinsics.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "known_elements.h"
#include "pipeline.h"
#include "role_signals.h"
#include "warp_roles.h"

namespace tl {
namespace {

using Names = std::unordered_set<const Object*>;

/*! Visits what a node evaluates in a role. A known element of a tile (known_elements.h) is visited
 * as the value that the role computes in its place. */
class RoleVisitor : public StmtExprVisitor {
 public:
  explicit RoleVisitor(const KnownElements& known) : known_(known) {}
  /*! Visits a node without its bodies. */
  void VisitOwn(const RoleNode& node) {
    node_ = &node;
    if (const ForNode* loop = node.Loop()) {
      Visit(loop->min);
      Visit(loop->extent);
      if (loop->step) Visit(*loop->step);
    } else if (node.kind == RoleNode::Kind::kWhile) {
      Visit(node.stmt.as<WhileNode>()->condition);
    } else if (node.kind == RoleNode::Kind::kIf) {
      Visit(node.stmt.as<IfThenElseNode>()->condition);
    } else if (const auto* decl = node.stmt.as<DeclBufferNode>()) {
      for (const Expr& address : decl->data.as<CallNode>()->args) Visit(address);
    } else {
      Visit(node.stmt);
    }
  }

  /*! The statements that write the tiles of the known elements that were visited. */
  std::unordered_set<const RoleNode*> writers;

 protected:
  virtual void Read(const Var& buffer) = 0;
  void Visit_(const TensorLoadNode* op) final {
    if (const auto element = known_.Find(op, *node_)) {
      writers.insert(element->writer);
      return Visit(element->value);
    }
    Read(op->source.as_or_throw<Var>());
    for (const Expr& i : op->indices) Visit(i);
  }

  const RoleNode& Node() const { return *node_; }

 private:
  const KnownElements& known_;
  const RoleNode* node_ = nullptr;
};

/*! Adds to `needed` the scalars, the arrays of a thread and the peers that a node reads. */
class NeedCollector : public RoleVisitor {
 public:
  NeedCollector(const KnownElements& known, const Peers& peers, Names* needed)
      : RoleVisitor(known), peers_(peers), needed_(needed) {}
  bool changed = false;

 protected:
  void Visit_(const VarNode* op) final {
    if (!AsBuffer(GetRef<Var>(op))) Add(op);
  }
  void Read(const Var& buffer) final {
    if (IsLocal(buffer) || peers_.IsPeer(buffer)) Add(buffer.get());
  }
  void Visit_(const TensorRegionNode* op) final {
    Read(op->source.as_or_throw<Var>());
    for (const Range& r : op->region) {
      Visit(r->min);
      Visit(r->extent);
    }
  }

 private:
  void Add(const Object* v) { changed |= needed_->insert(v).second; }
  const Peers& peers_;
  Names* needed_;
};

bool IsJump(const Stmt& s) { return IsBreak(s) || IsContinue(s); }

bool IsAssumption(const Stmt& s) { return AssumptionOf(s).defined(); }

/*! Finds the slice of a role: its own statements, the control flow around them, and the statements
 * that set what these read. It repeats until nothing is added. */
class Slicer {
 public:
  Slicer(const KnownElements& known, const Peers& peers, RoleSequence* body, size_t role)
      : known_(known), peers_(peers), body_(body), role_(role) {}

  Names Run() {
    ForEachNode(*body_, [&](RoleNode* node) { node->run_by &= ~(1u << role_); });
    do {
      changed_ = false;
      Mark(body_);
    } while (changed_);
    return std::move(needed_);
  }

 private:
  bool Mark(RoleSequence* sequence) {
    bool any = false;
    for (const auto& node : sequence->nodes) {
      const bool inside = Mark(&node->body), otherwise = Mark(&node->otherwise);
      if (node->IsRunBy(role_) || inside || otherwise || IsWanted(*node)) {
        Keep(node.get());
        any |= !IsAssumption(node->stmt);
      }
    }
    return any;
  }

  bool IsWanted(const RoleNode& node) const {
    if (!node.IsLeaf()) return false;
    if (node.role) return *node.role == role_;
    if (IsWaitForKernel(node.stmt)) return true;
    if (const auto* bind = node.stmt.as<BindNode>()) return needed_.count(bind->var.get());
    if (const auto* decl = node.stmt.as<DeclBufferNode>()) return needed_.count(decl->buffer.get());
    if (const auto* store = node.stmt.as<BufferStoreNode>()) {
      return needed_.count(store->buffer.get());
    }
    if (IsJump(node.stmt)) {
      const RoleNode* loop = LoopAround(node);
      return loop && loop->IsRunBy(role_);
    }
    return IsAssumption(node.stmt) && Knows(node);
  }

  /*! Whether a role can use an assumption: it runs the body around it, has all names in it, and the
   * assumption reads no memory. */
  bool Knows(const RoleNode& node) const {
    if (node.parent->owner && !node.parent->owner->IsRunBy(role_)) return false;
    Names bound;
    ForEachNode(*body_, [&](const RoleNode* n) {
      if (const auto* bind = n->stmt.as<BindNode>()) bound.insert(bind->var.get());
    });
    return !HasNode<TensorLoadNode>(node.stmt) &&
           !HasNode<VarNode>(node.stmt,
                             [&](const VarNode* v) { return bound.count(v) && !needed_.count(v); });
  }

  void Keep(RoleNode* node) {
    changed_ |= !node->IsRunBy(role_);
    node->run_by |= 1u << role_;
    NeedCollector needs(known_, peers_, &needed_);
    needs.VisitOwn(*node);
    changed_ |= needs.changed;
  }

  const KnownElements& known_;
  const Peers& peers_;
  RoleSequence* body_;
  size_t role_;
  Names needed_;
  bool changed_ = false;
};

/*! Knows which tensors a kernel writes while another role may read them. */
class WrittenMemory {
 public:
  WrittenMemory(const KernelInfo& kernel, const Peers& peers, const RoleSequence& body)
      : peers_(peers), written_(WrittenGlobals(kernel, body)), waits_(HasRankOrder(body)) {
    ForEachIn<AttrStmtNode>(kernel.block->body, [&](const AttrStmtNode* op) {
      // Symmetric tensors have the name of a memory at this attribute. Other aliases have none.
      if (op->attr_key == kAliased && op->node.try_cast<String>()) {
        symmetric_.insert(ToString(op->value));
      }
    });
    ForEachNode(body, [&](const RoleNode* node) {
      if (!node->IsLeaf()) return;
      for (const auto* list : {&node->use.writes, &node->opaque}) {
        for (const Var& v : *list) {
          if (IsGlobal(v)) writers_.emplace_back(node, v);
        }
      }
    });
  }

  /*! Whether the tensor may have changed when the reader's role comes to the reader. */
  bool MayChange(const Var& tensor, const RoleNode& reader) const {
    if (!symmetric_.count(std::string(tensor->name))) return Contains(written_, tensor);
    const Var memory = peers_.TensorOf(tensor);
    return AnyOf(writers_, [&](const auto& writer) {
      if (!peers_.TensorOf(writer.second).same_as(memory)) return false;
      // The branch of other blocks writes it. A signal in front of the load orders its stores.
      const bool by_others = waits_ && AreExclusive(*writer.first, reader);
      return !by_others || reader.fill == CopyKind::kNothing;
    });
  }

 private:
  const Peers& peers_;
  std::vector<Var> written_;
  bool waits_;
  /*! Names of symmetric tensors and of peers. */
  std::unordered_set<std::string> symmetric_;
  std::vector<std::pair<const RoleNode*, Var>> writers_;
};

/*! Checks whether a role can evaluate a node without anything that only other roles have: their
 * tiles, their thread numbers and what the kernel writes. `why` has the first reason if not. */
class SliceLegality : public RoleVisitor {
 public:
  SliceLegality(const KernelInfo& kernel, const Views& views, const KnownElements& known,
                const Peers& peers, const RoleSequence& body)
      : RoleVisitor(known), kernel_(kernel), views_(views), written_(kernel, peers, body) {
    ForEachNode(body, [&](const RoleNode* node) {
      if (node->fill != CopyKind::kFetchTile) return;
      const std::vector<Var>& slots = node->use.writes;
      AppendRange(&fetched_, slots);
    });
  }
  std::string why;

 protected:
  void Visit_(const VarNode* op) final {
    for (const Var& v : kernel_.thread_vars) {
      if (v.get() == op) Refuse("it depends on the thread's number");
    }
  }
  void Visit_(const TensorRegionNode* op) final {
    const Var buffer = op->source.as_or_throw<Var>();
    // A region in global memory is what a fill reads. One on the chip is what it writes.
    if (IsGlobal(buffer) && !OrdersRanks(Node())) Read(buffer);
    for (const Range& r : op->region) {
      Visit(r->min);
      Visit(r->extent);
    }
  }
  void Visit_(const BufferStoreNode* op) final {
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
  }
  void Visit_(const CallNode* op) final {
    if (IsCallTo(op, kPeer)) {
      // It takes the addresses of the first two operands, and reads nothing of them.
      Visit(op->args[2]);
      return Visit(op->args[3]);
    }
    static const std::unordered_set<std::string> values = {
        "prim.likely",      "tirx.likely",      "tirx.assume",        "tirx.shift_left",
        "tirx.shift_right", "tirx.bitwise_and", "tirx.bitwise_or",    "tirx.bitwise_xor",
        "tirx.bitwise_not", "prim.left_shift",  "prim.right_shift",   "prim.max_value",
        "prim.min_value",   "tirx.break_loop",  "tirx.continue_loop", "tirx.address_of"};
    const OpNode* callee = OpOf(op);
    const std::string name = callee ? std::string(callee->name) : "a function";
    const Intrinsic* row = FindIntrinsic(op);
    const bool is_value = name == kPdlSync || IsElementwise(op) || IsIfThenElse(op) ||
                          values.count(name) || (row && IsValue(*row)) || IsTileOp(op);
    if (!is_value) Refuse("it calls " + name + ", which two roles may not both do");
    Default(op);
  }

  void Read(const Var& buffer) final {
    const Var root = views_.RootOf(buffer);
    const std::string name = buffer->name;
    if (IsGlobal(root) && written_.MayChange(root, Node())) {
      Refuse("it reads " + name + ", which the kernel writes");
    } else if (IsFragment(root) || IsReducer(root)) {
      Refuse("it depends on " + name + ", which the consumer has" + kNotKnown);
    } else if (IsShared(root) && !Contains(fetched_, root)) {
      Refuse("it depends on " + name + " in shared memory" + kNotKnown);
    }
  }

 private:
  /*! Whether the intrinsic has no effect and the same result in any thread. */
  static bool IsValue(const Intrinsic& row) {
    return row.effects.IsPlain() && row.effects.result != CallResult::kOfThread &&
           NoneOf(row.access, Writes);
  }

  static constexpr const char* kNotKnown =
      " and is not one statement's copy of memory that the kernel leaves alone";
  void Refuse(const std::string& text) {
    if (why.empty()) why = text;
  }

  const KernelInfo& kernel_;
  const Views& views_;
  WrittenMemory written_;
  /*! Where the producer puts the tile numbers that it fetches: it can read these. */
  std::vector<Var> fetched_;
};

/*! The scalar or the thread's array in `needed` that a statement sets; nullptr if there is none. */
const VarNode* SetBy(const RoleNode& node, const Names& needed) {
  const auto* bind = node.stmt.as<BindNode>();
  if (bind && needed.count(bind->var.get())) return bind->var.get();
  for (const auto* list : {&node.use.writes, &node.opaque}) {
    for (const Var& v : *list) {
      if (needed.count(v.get())) return v.get();
    }
  }
  return nullptr;
}

}  // namespace

std::string SliceProducer(const KernelInfo& kernel, const Views& views, RoleSequence* body,
                          Span* where) {
  ForEachNode(*body, [](RoleNode* node) {
    const bool fills = node->fill != CopyKind::kNothing;
    node->role = fills ? std::optional(kProducer) : std::nullopt;
    node->run_by = fills ? 0 : 1u << kConsumer;
  });
  const Peers peers(kernel.block->body);
  const std::string out_of_order = PlaceRankOrder(kernel, peers, body, where);
  if (!out_of_order.empty()) return out_of_order;
  const KnownElements known(*body, views);
  const Names needed = Slicer(known, peers, body, kProducer).Run();
  SliceLegality check(kernel, views, known, peers, *body);
  std::string& why = check.why;
  ForEachNode(*body, [&](const RoleNode* node) {
    if (!why.empty()) return;
    if (node->IsRunBy(kProducer)) {
      check.VisitOwn(*node);
    } else if (const VarNode* v = node->IsLeaf() ? SetBy(*node, needed) : nullptr) {
      why = "it writes " + std::string(v->name) + ", on which loads of tiles depend";
    }
    if (!why.empty()) *where = node->stmt->span;
  });
  ForEachNode(*body, [&](RoleNode* node) { node->is_repeated = check.writers.count(node) != 0; });
  return why;
}

std::string SliceRole(const KernelInfo& kernel, const Views& views, size_t role, RoleSequence* body,
                      Span* where) {
  const KnownElements known;
  const Peers none;
  const Names needed = Slicer(known, none, body, role).Run();
  SliceLegality check(kernel, views, known, none, *body);
  std::string& why = check.why;
  ForEachNode(*body, [&](const RoleNode* node) {
    if (!why.empty()) return;
    if (node->IsRunBy(role) && !node->role) {
      check.VisitOwn(*node);
    } else if (const VarNode* v =
                   node->IsLeaf() && !node->IsRunBy(role) ? SetBy(*node, needed) : nullptr) {
      why = "it sets " + std::string(v->name) + ", which another role reads";
    }
    if (!why.empty()) *where = node->stmt->span;
  });
  return why;
}

}  // namespace tl
