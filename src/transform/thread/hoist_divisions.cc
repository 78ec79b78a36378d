/*!
 * HoistDivisions: divisions by what is no constant, computed once where a loop would repeat them.
 *
 * In:  a flat thread program, with its `assume` statements.
 * Out: the same. A quotient or remainder of integers in a serial loop, whose divisor is no constant
 *      and whose variables are all defined in front of the loop, becomes a variable that is bound
 *      in front of the outermost such loop.
 * Establishes: a producer does not divide in each step. NVVM moves nothing that may trap out of a
 *      loop that waits at an mbarrier, since it does not know that the loop goes on. On an H200 the
 *      producer of a convolution took 980 clocks a step for five divisions of a tile's number by
 *      the height of its panel (`min(8, rows - above)`), twice the time of the step's product.
 * Refuses nothing. Unchanged: divisions by constants, which are multiplications, and those by what
 * may be below 1, which the program may guard by a condition in the loop.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <unordered_set>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

bool IsEqual(const Expr& a, const Expr& b) { return tvm::ffi::StructuralEqual()(a, b); }

/*! Divisions of a loop, in its order, and the variables that the loop defines. */
struct Divisions : StmtExprVisitor {
  std::vector<Expr> found;
  std::unordered_set<const Object*> defined;
  using StmtExprVisitor::Visit_;
  void Visit_(const ForNode* op) override {
    defined.insert(op->loop_var.get());
    Default(op);
  }
  void Visit_(const BindNode* op) override {
    defined.insert(op->var.get());
    Default(op);
  }
  void Visit_(const FloorDivNode* op) override { Add(op, op->b); }
  void Visit_(const FloorModNode* op) override { Add(op, op->b); }

 private:
  template <typename Node>
  void Add(const Node* op, const Expr& divisor) {
    if (!AsInt(divisor) && IsPureInteger(GetRef<Expr>(op))) found.push_back(GetRef<Expr>(op));
    Default(op);
  }
};

/*! Puts variables into the places of divisions. */
class DivisionNamer : public StmtExprMutator {
 public:
  std::vector<std::pair<Expr, Var>> names;

 protected:
  using StmtExprMutator::Mutate_;
  Expr Mutate_(const FloorDivNode* op) override { return NameOf(op); }
  Expr Mutate_(const FloorModNode* op) override { return NameOf(op); }

 private:
  template <typename Node>
  Expr NameOf(const Node* op) {
    const Expr e = GetRef<Expr>(op);
    for (const auto& [value, name] : names) {
      if (IsEqual(value, e)) return name;
    }
    return Default<Expr>(op);
  }
};

class DivisionHoister : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  using AnalyzingMutator::Mutate_;
  Stmt Mutate_(const ForNode* op) override {
    if (op->kind != ForKind::kSerial) return AnalyzingMutator::Mutate_(op);
    DivisionNamer namer = NamesOf(op);
    if (namer.names.empty()) return AnalyzingMutator::Mutate_(op);
    std::vector<Stmt> stmts;
    for (const auto& [value, name] : namer.names) stmts.push_back(MakeBind(name, value, op->span));
    stmts.push_back(namer.Mutate(GetRef<Stmt>(op)));
    // Nothing is left to hoist from this loop, but from those in it.
    return Mutate(MakeSeq(stmts));
  }

 private:
  /*! Names of the divisions that have one value in all iterations; of those that contain each other
   * the outermost one has a name. */
  DivisionNamer NamesOf(const ForNode* op) {
    Divisions divisions;
    divisions(GetRef<Stmt>(op));
    const auto changes = [&](const VarNode* v) { return divisions.defined.count(v) != 0; };
    DivisionNamer namer;
    for (const Expr& e : divisions.found) {
      if (HasNode<VarNode>(e, changes) || !IsPositive(DivisorOf(e))) continue;
      bool known = false;
      for (const auto& [value, name] : namer.names) known |= Contains(value, e);
      if (known) continue;
      const char* name = e.as<FloorDivNode>() ? "quotient" : "remainder";
      namer.names.emplace_back(e, MakeVar(name, e->dtype()));
    }
    return namer;
  }
  static Expr DivisorOf(const Expr& e) {
    const auto* quotient = e.as<FloorDivNode>();
    return quotient ? quotient->b : e.as<FloorModNode>()->b;
  }
  /*! Whether it is so in front of the loop, too, where conditions in the loop say nothing. */
  bool IsPositive(const Expr& divisor) {
    return analyzer_.CanProve(MakeInt(divisor->dtype(), 0) < divisor);
  }
  static bool Contains(const Expr& e, const Expr& part) {
    const auto is = [&](const auto* op) { return IsEqual(GetRef<Expr>(op), part); };
    return HasNode<FloorDivNode>(e, is) || HasNode<FloorModNode>(e, is);
  }
};

PrimFunc HoistDivisions(PrimFunc f) { return WithBody(f, DivisionHoister(f).Mutate(f->body)); }

Registration hoist_divisions_registration([] { RegisterPass("HoistDivisions", HoistDivisions); });

}  // namespace
}  // namespace tl
