/*!
 * VerifyReducer: reducers are initialised, updated and finalised in this order.
 *
 * In:  a tile program as traced.   Out: the same program.
 * Establishes: every store to a buffer of scope `local.reducer` combines the old value with another
 * one by the reducer's own function, in a parallel loop between a `reducer_init` and a
 * `reducer_finalize` in the same body or in branches of it; other loads are where it is finalised.
 * Refuses: anything else (ValueError, "[Tilelang Semantic Check]").
 */
#include <tvm/ffi/extra/structural_equal.h>

#include "../../op/operator.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

template <typename... Nodes>
std::optional<std::pair<Expr, Expr>> Operands(const Expr& e) {
  std::optional<std::pair<Expr, Expr>> out;
  auto match = [&](const auto* op) {
    if (op) out = {op->a, op->b};
  };
  (match(e.as<Nodes>()), ...);
  return out;
}

/*! The operands of a call of the function that a reducer accumulates with. */
std::optional<std::pair<Expr, Expr>> OperandsOf(const std::string& reduction, const Expr& e) {
  if (reduction == "sum") return Operands<AddNode>(e);
  if (reduction == "max") return Operands<MaxNode>(e);
  if (reduction == "min") return Operands<MinNode>(e);
  const auto* call = e.as<CallNode>();
  const OpNode* op = call ? OpOf(call) : nullptr;
  if (op && call->args.size() == 2 &&
      std::string(op->name) == "prim.bitwise_" + reduction.substr(3)) {
    return std::pair(call->args[0], call->args[1]);
  }
  if (reduction == "bitand") return Operands<AndNode, BitwiseAndNode>(e);
  if (reduction == "bitor") return Operands<OrNode, BitwiseOrNode>(e);
  return Operands<NENode, BitwiseXorNode>(e);
}

class ReducerVerifier : public StmtExprVisitor {
 public:
  void Check(const Stmt& body) { VisitBody(body); }

 protected:
  void Visit_(const ForNode* op) final {
    const bool parallel = op->kind == ForKind::kParallel;
    parallel_ += parallel;
    VisitLoop(op->body);
    parallel_ -= parallel;
  }
  void Visit_(const WhileNode* op) final {
    Visit(op->condition);
    VisitLoop(op->body);
  }
  void Visit_(const IfThenElseNode* op) final {
    span_ = op->span;
    Visit(op->condition);
    const std::vector<Reducer> before = reducers_;
    VisitBody(op->then_case);
    const std::vector<Reducer> after_then = reducers_;
    for (size_t i = 0; i < before.size(); ++i) reducers_[i] = before[i];
    if (op->else_case) VisitBody(*op->else_case);
    for (size_t i = 0; i < before.size(); ++i) {
      if (after_then[i].state != reducers_[i].state) reducers_[i].state = State::kOpenOnSomePaths;
    }
  }

  void Visit_(const EvaluateNode* op) final {
    span_ = op->span;
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    const std::string name = call ? std::string(OpOf(call)->name) : "";
    if (name == kReducerInit) {
      const Var buffer = TileRegion::From(call->args[0]).buffer;
      Reducer& r = Find(buffer);
      if (r.state == State::kOpen) {
        Refuse(op->span, buffer, "a second initialisation", "finalise it first");
      }
      const std::string reduction = ToString(call->args[1]);
      r = {buffer, reduction, State::kOpen, nesting_, loops_, op->span};
      for (size_t i = 2; i < call->args.size(); ++i) Visit(call->args[i]);
    } else if (name == kReducerFinalize) {
      const Var buffer = TileRegion::From(call->args[0]).buffer;
      Reducer& r = Find(buffer);
      if (r.state != State::kOpen || r.loops != loops_) {
        Refuse(op->span, buffer, "T.finalize_reducer without an initialisation before it",
               "initialise it in the body of the same loop, on each path that leads here");
      }
      r.state = State::kFinal;
    } else {
      Default(op);
    }
  }

  void Visit_(const BufferStoreNode* op) final {
    span_ = op->span;
    if (IsReducer(op->buffer)) return CheckUpdate(op);
    Default(op);
  }

  void Visit_(const TensorLoadNode* op) final {
    CheckRead(op->source.as_or_throw<Var>());
    for (const Expr& i : op->indices) Visit(i);
  }
  void Visit_(const TensorRegionNode* op) final {
    CheckRead(op->source.as_or_throw<Var>());
    for (const Range& r : op->region) Visit(r->min);
  }

 private:
  /*! Between initialisation and end; behind the end (or before all); one or the other. */
  enum class State { kOpen, kFinal, kOpenOnSomePaths };

  struct Reducer {
    Var buffer;
    std::string reduction;
    State state = State::kFinal;
    int nesting = 0;
    int loops = 0;
    Span at;
  };

  Reducer& Find(const Var& buffer) {
    auto it = FindIf(reducers_, [&](const Reducer& r) { return r.buffer.same_as(buffer); });
    if (it != reducers_.end()) return *it;
    reducers_.push_back({buffer, "", State::kFinal, 0, 0, Span()});
    return reducers_.back();
  }

  void VisitLoop(const Stmt& body) {
    ++loops_;
    VisitBody(body);
    --loops_;
  }

  /*! What is initialised in a body is finalised in it, on some path at least. */
  void VisitBody(const Stmt& body) {
    ++nesting_;
    Visit(body);
    for (const Reducer& r : reducers_) {
      if (r.state == State::kOpen && r.nesting == nesting_) {
        Refuse(r.at, r.buffer, "an initialisation without T.finalize_reducer behind it",
               "finalise it in the body of the same loop or branch");
      }
    }
    --nesting_;
  }

  void CheckUpdate(const BufferStoreNode* op) {
    const Reducer& r = Find(op->buffer);
    if (r.state != State::kOpen) {
      Refuse(op->span, op->buffer, "an update that is not between its initialisation and its end",
             "call T.reducer_init before");
    }
    if (!parallel_) {
      Refuse(op->span, op->buffer, "an update outside of T.Parallel, which every thread would make",
             "put it into a T.Parallel loop");
    }
    for (const Expr& i : op->indices) Visit(i);
    const Expr old = LoadOf(op->buffer, op->indices);
    const auto operands = OperandsOf(r.reduction, op->value);
    const ffi::StructuralEqual same;
    if (operands && same(operands->first, old) && !Uses(operands->second, op->buffer)) {
      return Visit(operands->second);
    }
    if (operands && same(operands->second, old) && !Uses(operands->first, op->buffer)) {
      return Visit(operands->first);
    }
    Refuse(op->span, op->buffer,
           "a store that does not combine the old value of the element with another one by " +
               r.reduction,
           "use T.reducer_update");
  }

  void CheckRead(const Var& buffer) {
    if (!IsReducer(buffer)) return;
    const Reducer& r = Find(buffer);
    if (r.state == State::kFinal && r.at.defined()) return;
    Refuse(span_, buffer, "its value read where each thread has only a part of it",
           "call T.finalize_reducer before");
  }

  [[noreturn]] static void Refuse(const Span& span, const Var& buffer, const std::string& found,
                                  const std::string& repair) {
    ThrowAt(span, "ValueError",
            "[Tilelang Semantic Check] reducer " + std::string(buffer->name) + ": found " + found +
                "; wanted T.reducer_init, updates in T.Parallel, T.finalize_reducer, then reads: " +
                repair);
  }

  std::vector<Reducer> reducers_;
  int nesting_ = 0;
  int loops_ = 0;
  int parallel_ = 0;
  Span span_;
};

PrimFunc VerifyReducer(PrimFunc f) {
  ReducerVerifier().Check(f->body);
  return f;
}

TL_REGISTER_PASS(VerifyReducer);

}  // namespace
}  // namespace tl
