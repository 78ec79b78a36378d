/*!
 * HoistDivisions: divisions by what is no constant, computed once where a loop would repeat them.
 *
 * In:  a flat thread program, with its `assume` statements.
 * Out: the same. A quotient or remainder of integers in a serial loop, whose divisor is no constant
 *      and whose variables are all defined in front of the loop, becomes a variable that is bound
 *      in front of the outermost such loop. What may divide by 0 divides by 1 there instead: the
 *      loop does not get to it then.
 * Establishes: a producer does not divide in each step. NVVM moves nothing that may trap out of a
 *      loop that waits at an mbarrier, since it does not know that the loop goes on. On an H200 the
 *      producer of a convolution took 980 clocks a step for five divisions of a tile's number by
 *      the height of its panel (`min(8, rows - above)`), twice the time of the step's product.
 *      Where loops over elements are unrolled, each element had divisions: a kernel whose sizes may
 *      be 0 had 30906 instructions for 3215.
 * Refuses nothing. Unchanged: divisions by constants, which are multiplications, and those by what
 * may be negative.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <unordered_set>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../name_expressions.h"

namespace tl {
namespace {

/*! Divisions of a loop, in its order, and the variables that the loop defines. */
struct Divisions : StmtExprVisitor {
  std::vector<Expr> found;
  std::unordered_set<const Object*> defined;
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

/*! A division of a loop, and the variable that has its value. */
struct NamedDivision {
  Expr value;
  /*! The same, where the loop gets to it; otherwise some number. */
  Expr safe;
  Var name;
};

class DivisionHoister : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  Stmt Mutate_(const ForNode* op) override {
    if (op->kind != ForKind::kSerial) return AnalyzingMutator::Mutate_(op);
    const std::vector<NamedDivision> divisions = NamesOf(op);
    if (divisions.empty()) return AnalyzingMutator::Mutate_(op);
    ExpressionNamer namer;
    std::vector<Stmt> stmts;
    for (const NamedDivision& division : divisions) {
      namer.names.emplace_back(division.value, division.name);
      stmts.push_back(MakeBind(division.name, division.safe, op->span));
    }
    stmts.push_back(namer.Mutate(GetRef<Stmt>(op)));
    // Nothing is left to hoist from this loop, but from those in it.
    return Mutate(MakeSeq(stmts));
  }

 private:
  /*! Names of the divisions that have one value in all iterations; of those that contain each other
   * the outermost one has a name. */
  std::vector<NamedDivision> NamesOf(const ForNode* op) {
    Divisions divisions;
    divisions(GetRef<Stmt>(op));
    const auto changes = [&](const VarNode* v) { return divisions.defined.count(v) != 0; };
    std::vector<NamedDivision> names;
    for (const Expr& e : divisions.found) {
      const bool known =
          AnyOf(names, [&](const NamedDivision& other) { return Contains(other.value, e); });
      if (known || HasNode<VarNode>(e, changes)) continue;
      const Expr safe = Safe(e);
      if (!safe.defined()) continue;
      const char* name = e.as<FloorDivNode>() ? "quotient" : "remainder";
      names.push_back({e, safe, MakeVar(name, e->dtype())});
    }
    return names;
  }
  /*! The division with this one and all in it by 1 where their divisors are 0; undefined where one
   * may be negative. What the analyzer knows in front of the loop counts, where conditions in the
   * loop say nothing. */
  Expr Safe(const Expr& e) {
    struct Replacer : StmtExprMutator {
      Analyzer* analyzer;
      bool fits = true;
      Expr Mutate_(const FloorDivNode* op) override { return FloorDivOf(Mutate(op->a), Of(op->b)); }
      Expr Mutate_(const FloorModNode* op) override { return FloorModOf(Mutate(op->a), Of(op->b)); }
      Expr Of(const Expr& divisor) {
        const Expr safe = Mutate(divisor);
        if (analyzer->CanProve(MakeInt(divisor->dtype(), 0) < divisor)) return safe;
        fits &= analyzer->CanProve(MakeInt(divisor->dtype(), -1) < divisor);
        return MaxOf(safe, MakeInt(divisor->dtype(), 1));
      }
    } replacer;
    replacer.analyzer = &analyzer_;
    const Expr safe = replacer.Mutate(e);
    return replacer.fits ? safe : Expr();
  }
  static bool Contains(const Expr& e, const Expr& part) {
    const auto is = [&](const auto* op) {
      return tvm::ffi::StructuralEqual()(GetRef<Expr>(op), part);
    };
    return HasNode<FloorDivNode>(e, is) || HasNode<FloorModNode>(e, is);
  }
};

PrimFunc HoistDivisions(PrimFunc f) { return WithBody(f, DivisionHoister(f).Mutate(f->body)); }

TL_REGISTER_PASS(HoistDivisions);

}  // namespace
}  // namespace tl
