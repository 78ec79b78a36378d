/*!
 * EvaluateOnce: a call that does something is made once, however often its value is used.
 *
 * In:  the traced program, whose nodes are still those that the front end made.
 * Out: the same; a call with an effect (an atomic operation that returns, a random number, a
 *      shuffle) is bound to a variable in front of its statement if it is part of an index, or if
 *      the statement has the very node more than once. `C[fetch_add(n)] += 1` has it in two places,
 *      abs(x) makes three of x, and so may a plain function of the user's.
 *      What says where an operator's tiles are, and a value for all of a tile's elements, is bound
 *      where it is read from memory of the tiles: `T.fill(S, S[0] + 1)`.
 *      A member of a Python container (`t = [A[i], A[j]]`) is a place, where a tile may start, and
 *      has the value of when it got there: the front end binds `tl.element(A[i])`, and where the
 *      node A[i] is evaluated later stands that variable.
 * Establishes: no index has such a call, and there is no `tl.element`. Later passes repeat indices,
 * in bounds above all. Refuses: a call that has to be bound where nothing can stand in front
 * (ValueError): in the condition of a `while`, which each iteration evaluates, and in an operand
 * that the program may skip; and a value that is used behind the branch or loop in which it is
 * computed.
 */
#include <algorithm>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/views.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! A shuffle, a vote: what it does is that lanes meet. */
bool IsConvergent(const CallNode* call) {
  const IntrinsicEffects* effects = EffectsOf(call);
  return effects && effects->meets == ThreadScope::kLanes;
}

/*! A value that a variable can have. */
bool IsScalarValue(const CallNode* call) {
  const auto* type = call->ty.as<PrimTypeNode>();
  return type && type->dtype.code != kDLOpaqueHandle && type->dtype.bits > 0;
}

/*! `tl.element(A[i])`: the value that a container has, beside the place A[i]. */
constexpr const char* kElement = "tl.element";

constexpr const char* kSkipped = "an operand that the program may skip";

const TensorLoadNode* AsElement(const Expr& value) {
  return IsCallTo(value, kElement) ? value.as<CallNode>()->args[0].as<TensorLoadNode>() : nullptr;
}

/*! How often each node, and each variable, is evaluated. */
struct UseCounter : StmtExprVisitor {
  std::unordered_map<const Object*, int> uses;

 protected:
  void Visit_(const BindNode* op) final { Visit(op->value); }
  void Visit_(const VarNode* op) final { ++uses[op]; }
  void Visit_(const TensorLoadNode* op) final {
    ++uses[op];
    Default(op);
  }
  void Visit_(const CallNode* op) final {
    ++uses[op];
    const TensorLoadNode* place = AsElement(GetRef<Expr>(op));
    if (!place) place = AsAddressOf(GetRef<Expr>(op));
    if (!place) return Default(op);
    for (const Expr& i : place->indices) Visit(i);
  }
};

class OnceEvaluator : public StmtExprMutator {
 public:
  explicit OnceEvaluator(const Stmt& body) : views_(body), written_(WrittenBuffers(body)) {
    UseCounter counter;
    counter(body);
    uses_ = std::move(counter.uses);
  }

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    SBlock block = GetRef<SBlock>(op);
    const Stmt body = Body(op->body);
    if (!body.same_as(op->body)) block.CopyOnWrite()->body = body;
    return block;
  }
  Stmt Mutate_(const SBlockRealizeNode* op) final { return Default<Stmt>(op); }
  Stmt Mutate_(const SeqStmtNode* op) final {
    const Stmt s = Default<Stmt>(op);
    return s.same_as(GetRef<Stmt>(op)) ? s : MakeSeq({s});
  }
  Stmt Mutate_(const AttrStmtNode* op) final {
    AttrStmt s = GetRef<AttrStmt>(op);
    const Stmt body = Body(op->body);
    if (!body.same_as(op->body)) s.CopyOnWrite()->body = body;
    return s;
  }
  Stmt Mutate_(const BindNode* op) final {
    const TensorLoadNode* element = AsElement(op->value);
    return element ? Element(op, element) : Statement(op);
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    if (!call) return Statement(op);
    return Within(op->span, [&] { return Operator(call, op->span); });
  }
  Stmt Mutate_(const AssertStmtNode* op) final { return Statement(op); }
  Stmt Mutate_(const BufferStoreNode* op) final {
    return Within(op->span, [&] {
      const Expr value = Mutate(op->value);
      const Array<Expr> indices = Indices(op->indices);
      if (value.same_as(op->value) && indices.same_as(op->indices)) return GetRef<Stmt>(op);
      BufferStore store = GetRef<BufferStore>(op);
      store.CopyOnWrite()->value = value;
      store.CopyOnWrite()->indices = indices;
      return Stmt(store);
    });
  }
  Stmt Mutate_(const ForNode* op) final {
    return Within(op->span, [&] {
      const Expr min = Mutate(op->min), extent = Mutate(op->extent);
      const Stmt body = Body(op->body);
      if (min.same_as(op->min) && extent.same_as(op->extent) && body.same_as(op->body)) {
        return GetRef<Stmt>(op);
      }
      For loop = GetRef<For>(op);
      ForNode* n = loop.CopyOnWrite();
      n->min = min;
      n->extent = extent;
      n->body = body;
      return Stmt(loop);
    });
  }
  Stmt Mutate_(const IfThenElseNode* op) final {
    return Within(op->span, [&] {
      IfThenElse s = GetRef<IfThenElse>(op);
      const Expr condition = Mutate(op->condition);
      if (!condition.same_as(op->condition)) s.CopyOnWrite()->condition = condition;
      const Stmt then_case = Body(op->then_case);
      if (!then_case.same_as(op->then_case)) s.CopyOnWrite()->then_case = then_case;
      if (op->else_case) {
        const Stmt else_case = Body(*op->else_case);
        if (!else_case.same_as(*op->else_case)) s.CopyOnWrite()->else_case = else_case;
      }
      return Stmt(s);
    });
  }
  Stmt Mutate_(const WhileNode* op) final {
    return Within(op->span, [&] {
      While s = GetRef<While>(op);
      const Expr condition =
          Where("the condition of `while`", [&] { return Mutate(op->condition); });
      const Stmt body = Body(op->body);
      if (!condition.same_as(op->condition)) s.CopyOnWrite()->condition = condition;
      if (!body.same_as(op->body)) s.CopyOnWrite()->body = body;
      return Stmt(s);
    });
  }

  Expr Mutate_(const TensorLoadNode* op) final {
    const auto it = values_.find(op);
    if (it == values_.end()) return Place(op);
    if (it->second.is_open) return it->second.var;
    ThrowAt(span_, "ValueError",
            "found an element of " + std::string(op->source.as_or_throw<Var>()->name) +
                " that a container got in a loop or a branch which has ended, wanted a value of "
                "here; keep it in a T.alloc_var or a T.alloc_local array");
  }
  Expr Mutate_(const TensorRegionNode* op) final {
    ++indices_;
    const Expr e = Default<Expr>(op);
    --indices_;
    return e;
  }
  Expr Mutate_(const AndNode* op) final {
    const auto [a, b] = Operands(op);
    return a.same_as(op->a) && b.same_as(op->b) ? GetRef<Expr>(op) : a && b;
  }
  Expr Mutate_(const OrNode* op) final {
    const auto [a, b] = Operands(op);
    return a.same_as(op->a) && b.same_as(op->b) ? GetRef<Expr>(op) : a || b;
  }
  Expr Mutate_(const CallNode* op) final {
    if (IsIfThenElse(op)) return Selection(op);
    if (const TensorLoadNode* place = AsAddressOf(GetRef<Expr>(op))) {
      const Expr placed = Place(place);
      if (placed.get() == place) return GetRef<Expr>(op);
      Call call = GetRef<Call>(op);
      call.CopyOnWrite()->args.Set(0, placed);
      return call;
    }
    if ((indices_ == 0 && uses_[op] < 2) || !IsScalarValue(op) || !HasEffect(op)) {
      return Default<Expr>(op);
    }
    return Bound(op);
  }

 private:
  struct Value {
    Var var;
    bool is_open;  // its scope
  };

  /*! The first operand is evaluated before it may skip the other one. */
  template <typename Node>
  std::pair<Expr, Expr> Operands(const Node* op) {
    const Expr a = Mutate(op->a);
    return {a, Where(kSkipped, [&] { return Mutate(op->b); })};
  }
  Expr Selection(const CallNode* op) {
    Array<Expr> args = op->args;
    args.Set(0, Mutate(op->args[0]));
    for (size_t i = 1; i < args.size(); ++i) {
      args.Set(i, Where(kSkipped, [&] { return Mutate(op->args[i]); }));
    }
    const bool same = std::equal(args.begin(), args.end(), op->args.begin(),
                                 [](const Expr& x, const Expr& y) { return x.same_as(y); });
    if (same) return GetRef<Expr>(op);
    return With(op, &CallNode::args, args);
  }

  template <typename Run>
  std::invoke_result_t<Run> Where(const char* place, const Run& run) {
    std::swap(place, no_statements_);
    auto result = run();
    std::swap(place, no_statements_);
    return result;
  }

  template <typename Node>
  Stmt Statement(const Node* op) {
    return Within(op->span, [&] { return Default<Stmt>(op); });
  }
  /*! A statement behind those that its expressions need. */
  template <typename Run>
  Stmt Within(const Span& span, const Run& run) {
    std::vector<Stmt> before;
    std::swap(before, before_);
    const Span outer = span_;
    span_ = span;
    const Stmt s = run();
    span_ = outer;
    std::swap(before, before_);
    if (before.empty()) return s;
    before.push_back(s);
    return MakeSeq(before);
  }
  /*! The body of a loop or a branch, which has variables of its own. */
  Stmt Body(const Stmt& s) {
    const size_t first = order_.size();
    const int indices = indices_;
    indices_ = 0;
    std::vector<Stmt> before;
    std::swap(before, before_);
    const Stmt body = Where(nullptr, [&] { return Mutate(s); });
    std::swap(before, before_);
    indices_ = indices;
    for (size_t i = first; i < order_.size(); ++i) values_.at(order_[i]).is_open = false;
    order_.resize(first);
    return body;
  }

  bool IsWritten(const Var& buffer) const {
    const auto is = [&](const Var& v) { return written_.count(v.get()) != 0; };
    return is(buffer) || AnyOf(views_.OthersOf(views_.RootOf(buffer)), is);
  }

  /*! A member of a container is evaluated where it got there, if anything uses the value, and
   * memory may change until then. */
  Stmt Element(const BindNode* op, const TensorLoadNode* element) {
    const bool changes = IsWritten(element->source.as_or_throw<Var>());
    const bool is_named = uses_[op->var.get()] > 0;
    if (!is_named && !(changes && uses_[element] > 0)) return MakeSeq({});
    return Within(op->span, [&] {
      const Stmt s = MakeBind(op->var, Place(element), op->span);
      if (changes) {
        values_.emplace(element, Value{op->var, true});
        order_.push_back(element);
      }
      return s;
    });
  }

  /*! An operator's elements are read and written in any order, so what says where its tiles are,
   * and a value for all elements, is read before. */
  Stmt Operator(const CallNode* op, const Span& span) {
    std::vector<Var> tiles;
    for (const Expr& arg : op->args) {
      if (const auto* region = arg.as<TensorRegionNode>()) {
        tiles.push_back(region->source.as_or_throw<Var>());
      }
    }
    const auto before = [&](const Expr& e) {
      const Expr value = Mutate(e);
      const bool reads = HasNode<TensorLoadNode>(value, [&](const TensorLoadNode* load) {
        return AnyOf(tiles, [&](const Var& tile) {
          return views_.MayShareMemory(tile, load->source.as_or_throw<Var>());
        });
      });
      if (!reads || !e->ty.as<PrimTypeNode>()) return value;
      before_.push_back(MakeBind(MakeVar("value", value->dtype()), value, span_));
      return Expr(before_.back().as_or_throw<Bind>()->var);
    };
    Call call = GetRef<Call>(op);
    call.CopyOnWrite()->args = op->args.Map([&](const Expr& arg) -> Expr {
      const auto* region = arg.as<TensorRegionNode>();
      if (!region) return before(arg);
      auto n = make_object<TensorRegionNode>(*region);
      ++indices_;
      n->region = region->region.Map(
          [&](const Range& r) { return MakeRange(before(r->min), before(r->extent)); });
      --indices_;
      return TensorRegion(n);
    });
    return MakeEvaluate(call, span);
  }

  Expr Place(const TensorLoadNode* op) {
    const Array<Expr> indices = Indices(op->indices);
    if (indices.same_as(op->indices)) return GetRef<Expr>(op);
    return With(op, &TensorLoadNode::indices, indices);
  }
  Array<Expr> Indices(const Array<Expr>& indices) {
    ++indices_;
    const Array<Expr> result = MutateArray(indices);
    --indices_;
    return result;
  }

  Expr Bound(const CallNode* op) {
    const auto it = values_.find(op);
    const bool is_bound = it != values_.end();
    if (is_bound && it->second.is_open) return it->second.var;
    // Made again it gives the same, and LegalizeSafeMemoryAccess keeps it in front of guards.
    if (no_statements_ && IsConvergent(op)) return Default<Expr>(op);
    if (is_bound || no_statements_) {
      const std::string name = OpOf(op) ? std::string(OpOf(op)->name) : "a function";
      const std::string place =
          no_statements_ ? std::string("in an index of, or more than once in, ") + no_statements_
                         : "in a loop or a branch, and behind it";
      ThrowAt(span_, "ValueError",
              "found a call of " + name + " " + place +
                  ", wanted one that is made once; give its value a name in a statement before, or "
                  "keep it in a T.alloc_var");
    }
    const Expr value = Default<Expr>(op);
    const Var var = MakeVar("value", op->dtype());
    before_.push_back(MakeBind(var, value, span_));
    values_.emplace(op, Value{var, true});
    order_.push_back(op);
    return var;
  }

  const Views views_;
  const std::unordered_set<const Object*> written_;
  std::unordered_map<const Object*, int> uses_;
  std::unordered_map<const Object*, Value> values_;
  std::vector<const Object*> order_;
  std::vector<Stmt> before_;
  Span span_;
  int indices_ = 0;
  const char* no_statements_ = nullptr;
};

PrimFunc EvaluateOnce(PrimFunc f) {
  const Stmt body = OnceEvaluator(f->body).Mutate(f->body);
  return body.same_as(f->body) ? f : WithBody(std::move(f), body);
}

Registration evaluate_once_registration([] {
  RegisterOp(kElement, kElement, CallEffect::kPure);
  RegisterPass("EvaluateOnce", EvaluateOnce);
});

}  // namespace
}  // namespace tl
