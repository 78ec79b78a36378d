#include <algorithm>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../tvm/functor.h"
#include "known_elements.h"
#include "pipeline.h"
#include "warp_roles.h"

namespace tl {
namespace {

using Names = std::unordered_set<const Object*>;

/*! Visits what a node evaluates where a role computes known elements of tiles itself. */
class RoleVisitor : public StmtExprVisitor {
 public:
  explicit RoleVisitor(const KnownElements& known) : known_(known) {}
  /*! What a node evaluates itself, without the bodies in it. */
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
    } else {
      Visit(node.stmt);
    }
  }

  /*! The statements that write the tiles of known elements. */
  std::unordered_set<const RoleNode*> writers;

 protected:
  virtual void Read(const Var& buffer) = 0;
  using StmtExprVisitor::Visit_;
  void Visit_(const TensorLoadNode* op) final {
    if (const auto element = known_.Find(op, *node_)) {
      writers.insert(element->writer);
      return Visit(element->value);
    }
    Read(op->source.as_or_throw<Var>());
    for (const Expr& i : op->indices) Visit(i);
  }

 private:
  const KnownElements& known_;
  const RoleNode* node_ = nullptr;
};

/*! Scalars, and memory of one thread, that a node reads. */
class NeedCollector : public RoleVisitor {
 public:
  NeedCollector(const KnownElements& known, Names* needed) : RoleVisitor(known), needed_(needed) {}
  bool changed = false;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const VarNode* op) final {
    if (!AsBuffer(GetRef<Var>(op))) Add(op);
  }
  void Read(const Var& buffer) final {
    if (IsLocal(buffer)) Add(buffer.get());
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
  Names* needed_;
};

bool IsJump(const Stmt& s) { return IsBreak(s) || IsContinue(s); }

bool IsAssumption(const Stmt& s) {
  const auto* evaluate = s.as<EvaluateNode>();
  return evaluate && IsCallTo(evaluate->value, "tirx.assume");
}

/*! Grows the slice of a role until it is closed. It begins with what only that role runs. */
class Slicer {
 public:
  Slicer(const KnownElements& known, RoleSequence* body, size_t role)
      : known_(known), body_(body), role_(role) {}

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
    if (const auto* bind = node.stmt.as<BindNode>()) return needed_.count(bind->var.get());
    if (const auto* store = node.stmt.as<BufferStoreNode>()) {
      return needed_.count(store->buffer.get());
    }
    if (IsJump(node.stmt)) {
      const RoleNode* loop = LoopAround(node);
      return loop && loop->IsRunBy(role_);
    }
    return IsAssumption(node.stmt) && Knows(node);
  }

  /*! An assumption holds for the role where it speaks of what that has. */
  bool Knows(const RoleNode& node) const {
    if (node.parent->owner && !node.parent->owner->IsRunBy(role_)) return false;
    struct Finder : StmtExprVisitor {
      const Names* bound;
      const Names* needed;
      bool knows = true;
      using StmtExprVisitor::Visit_;
      void Visit_(const VarNode* v) final { knows &= !bound->count(v) || needed->count(v); }
      void Visit_(const TensorLoadNode*) final { knows = false; }
    } finder;
    Names bound;
    ForEachNode(*body_, [&](const RoleNode* n) {
      if (const auto* bind = n->stmt.as<BindNode>()) bound.insert(bind->var.get());
    });
    finder.bound = &bound;
    finder.needed = &needed_;
    finder(node.stmt);
    return finder.knows;
  }

  void Keep(RoleNode* node) {
    changed_ |= !node->IsRunBy(role_);
    node->run_by |= 1u << role_;
    NeedCollector needs(known_, &needed_);
    needs.VisitOwn(*node);
    changed_ |= needs.changed;
  }

  const KnownElements& known_;
  RoleSequence* body_;
  size_t role_;
  Names needed_;
  bool changed_ = false;
};

/*! Whether threads that know nothing of the consumer's can evaluate what a node evaluates. */
class SliceLegality : public RoleVisitor {
 public:
  SliceLegality(const KernelInfo& kernel, const Views& views, const KnownElements& known,
                const RoleSequence& body)
      : RoleVisitor(known), kernel_(kernel), views_(views), written_(WrittenGlobals(kernel, body)) {
    ForEachNode(body, [&](const RoleNode* node) {
      if (node->fill != CopyKind::kFetchTile) return;
      const std::vector<Var>& slots = node->use.writes;
      fetched_.insert(fetched_.end(), slots.begin(), slots.end());
    });
  }
  std::string why;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const VarNode* op) final {
    for (const Var& v : kernel_.thread_vars) {
      if (v.get() == op) Refuse("it depends on the thread's number");
    }
  }
  void Visit_(const TensorRegionNode* op) final {
    const Var buffer = op->source.as_or_throw<Var>();
    // The other operand is what the fill writes.
    if (IsGlobal(buffer)) Read(buffer);
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
    static const std::unordered_set<std::string> values = {
        "prim.likely",      "tirx.likely",      "tirx.assume",        "tirx.shift_left",
        "tirx.shift_right", "tirx.bitwise_and", "tirx.bitwise_or",    "tirx.bitwise_xor",
        "tirx.bitwise_not", "prim.left_shift",  "prim.right_shift",   "prim.max_value",
        "prim.min_value",   "tirx.break_loop",  "tirx.continue_loop", "tirx.address_of"};
    const OpNode* callee = OpOf(op);
    const std::string name = callee ? std::string(callee->name) : "a function";
    const Intrinsic* row = FindIntrinsic(op);
    const bool is_value = IsElementwise(op) || IsIfThenElse(op) || values.count(name) ||
                          (row && IsValue(*row)) || name.rfind("tl.tileop.", 0) == 0;
    if (!is_value) Refuse("it calls " + name + ", which two roles may not both do");
    Default(op);
  }

  void Read(const Var& buffer) final {
    const Var root = views_.RootOf(buffer);
    const std::string name = buffer->name;
    if (IsGlobal(root) && Contains(written_, root)) {
      Refuse("it reads " + name + ", which the kernel writes");
    } else if (IsFragment(root) || IsReducer(root)) {
      Refuse("it depends on " + name + ", which the consumer has" + kNotKnown);
    } else if (IsShared(root) && !Contains(fetched_, root)) {
      Refuse("it depends on " + name + " in shared memory" + kNotKnown);
    }
  }

 private:
  /*! Any thread gets it, and changes nothing by that. */
  static bool IsValue(const Intrinsic& row) {
    return row.effects.IsPlain() && row.effects.result != CallResult::kOfThread &&
           std::none_of(row.access.begin(), row.access.end(), Writes);
  }

  static constexpr const char* kNotKnown =
      " and is not one statement's copy of memory that the kernel leaves alone";
  void Refuse(const std::string& text) {
    if (why.empty()) why = text;
  }

  const KernelInfo& kernel_;
  const Views& views_;
  std::vector<Var> written_;
  /*! What the producer fetches, it has itself. */
  std::vector<Var> fetched_;
};

/*! The scalar or the memory of a thread, of those in `needed`, that a statement sets. */
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
  const KnownElements known(*body, views);
  const Names needed = Slicer(known, body, kProducer).Run();
  SliceLegality check(kernel, views, known, *body);
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
  const Names needed = Slicer(known, body, role).Run();
  SliceLegality check(kernel, views, known, *body);
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
