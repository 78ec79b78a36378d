/*!
 * IfConversion: choices between computed values compute both, without a branch.
 *
 * In:  a flat thread program. Behind it no pass simplifies expressions.
 * Out: the same, in which an `if_then_else` of a function of a value (an exponential), or of
 *      arithmetic on memory that threads share, is a `Select`. Its operands are computed in any
 *      case; of them, loads that the condition may guard are an `if_then_else` of their own. Any
 *      other `Select` is an `if_then_else`.
 * Establishes: the elements of a loop are computed beside each other. NVVM keeps a branch around
 *      what it takes for expensive, such as one exponential. Then each element waits for the one
 *      before: a load, arithmetic and an exponential, some 100 clocks one behind the other.
 * Refuses nothing. Unchanged: choices with operands that have effects, that may trap (quotients of
 *      integers), that are long (functions of several instructions, kMostCalls of them), or whose
 *      condition reads memory.
 */
#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

constexpr int kMostCalls = 4;

/*! Functions of values that are a few instructions, without branches of their own. */
bool IsShortFunction(const CallNode* call) {
  static const std::unordered_set<std::string> names = {
      "tirx.exp",    "tirx.exp2",    "tirx.exp10",    "tirx.log",     "prim.log2",
      "tirx.log10",  "tirx.sqrt",    "tirx.rsqrt",    "tirx.tanh",    "tirx.fabs",
      "tirx.floor",  "prim.ceil",    "tirx.trunc",    "tirx.round",   "tirx.nearbyint",
      "tirx.isnan",  "tirx.sigmoid", "tl.fast_exp",   "tl.fast_exp2", "tl.fast_exp10",
      "tl.fast_log", "tl.fast_log2", "tl.fast_log10", "tl.fast_rcp"};
  const OpNode* op = OpOf(call);
  return op && names.count(std::string(op->name));
}

/*! A load, also one whose element is all lanes. */
bool IsLoad(const Expr& e) {
  const auto* lanes = e.as<BroadcastNode>();
  return lanes ? IsLoad(lanes->value) : e.as<TensorLoadNode>() != nullptr;
}

/*! What a choice's operand does. */
class Operand : public StmtExprVisitor {
 public:
  bool may_be_computed = true, reads_shared = false;
  int calls = 0;

 protected:
  void Visit_(const TensorLoadNode* op) override {
    reads_shared |= !IsLocal(op->source.as_or_throw<Var>());
    Default(op);
  }
  void Visit_(const CallNode* op) override {
    const bool is_load = IsIfThenElse(op) && op->args[1].as<TensorLoadNode>();
    if (!is_load && !IsCallTo(op, "tirx.reinterpret")) {
      may_be_computed &= IsShortFunction(op);
      ++calls;
    }
    Default(op);
  }
  void Visit_(const DivNode* op) override { Divide(op, op->b); }
  void Visit_(const ModNode* op) override { Divide(op, op->b); }
  void Visit_(const FloorDivNode* op) override { Divide(op, op->b); }
  void Visit_(const FloorModNode* op) override { Divide(op, op->b); }
  void Visit_(const TensorRegionNode*) override { may_be_computed = false; }

 private:
  void Divide(const Object* op, const Expr& divisor) {
    may_be_computed &= divisor.as<IntImmNode>() || divisor.as<FloatImmNode>();
    Default(op);
  }
};

/*! Loads that a condition may guard are guarded by it alone. */
class LoadGuard : public StmtExprMutator {
 public:
  LoadGuard(const Expr& condition, Analyzer* analyzer)
      : condition_(condition), analyzer_(analyzer) {}

 protected:
  Expr Mutate_(const TensorLoadNode* op) override {
    const Expr load = GetRef<Expr>(op);
    if (IsRegister(op)) return load;
    return IfThenElseOf(condition_, load, ZeroOf(op->dtype()));
  }
  Expr Mutate_(const CallNode* op) override {
    if (!IsIfThenElse(op)) return Default<Expr>(op);
    return IfThenElseOf(condition_ && op->args[0], op->args[1], Mutate(op->args[2]));
  }

 private:
  /*! One of the thread's own, whatever the condition. */
  bool IsRegister(const TensorLoadNode* op) const {
    const auto buffer = op->source.as_or_throw<Var>();
    if (!IsLocal(buffer) || op->indices.size() != 1) return false;
    const auto* ramp = op->indices[0].as<RampNode>();
    const Expr first = ramp ? ramp->base : op->indices[0];
    const Expr last = first + (op->dtype().lanes - 1);
    return (!ramp || IsConst(ramp->stride, 1)) &&
           analyzer_->CanProve(first >= MakeInt(first->dtype(), 0)) &&
           analyzer_->CanProve(last < CastTo(last->dtype(), BufferOf(buffer)->shape[0]));
  }

  Expr condition_;
  Analyzer* analyzer_;
};

class IfConverter : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  /*! TVM takes the condition of a `Select` for a fact in its operands, so that loads in them may
   * have lost their guards: the program's own is a choice like others. */
  Expr Mutate_(const SelectNode* op) override {
    if (op->condition->dtype().lanes != 1) return AnalyzingMutator::Mutate_(op);
    return Mutate(IfThenElseOf(op->condition, op->true_value, op->false_value));
  }
  Expr Mutate_(const CallNode* op) override {
    const Expr inner = AnalyzingMutator::Mutate_(op);
    const auto* call = inner.as<CallNode>();
    if (!call || !IsIfThenElse(call)) return inner;
    const Expr condition = call->args[0];
    if (condition->dtype().lanes != 1 || !IsArithmetic(condition)) return inner;
    Operand yes, no;
    yes(call->args[1]);
    no(call->args[2]);
    if (!yes.may_be_computed || !no.may_be_computed) return inner;
    const int calls = yes.calls + no.calls;
    const bool computes_of_shared =
        (yes.reads_shared && !IsLoad(call->args[1])) || (no.reads_shared && !IsLoad(call->args[2]));
    if (calls > kMostCalls || (calls == 0 && !computes_of_shared)) return inner;
    auto n = make_object<SelectNode>();
    n->ty = call->ty;
    n->span = call->span;
    n->condition = condition;
    n->true_value = LoadGuard(condition, &analyzer_).Mutate(call->args[1]);
    n->false_value = LoadGuard(NotOf(condition), &analyzer_).Mutate(call->args[2]);
    return Select(n);
  }
};

PrimFunc IfConversion(PrimFunc f) { return WithBody(f, IfConverter(f).Mutate(f->body)); }

TL_REGISTER_PASS(IfConversion);

}  // namespace
}  // namespace tl
