#include "whole_fragment.h"

#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>

#include "../layout/int_program.h"
#include "../tvm/functor.h"

namespace tl {
namespace {

/*! A digit of a loop variable, (v / divisor) % extent, and what it is worth in each index. */
struct LoopDigit {
  size_t var;
  int64_t divisor;
  int64_t extent;
  std::vector<int64_t> strides;
  /*! In terms of the elements' coordinates, once it is known. */
  Expr value;
};

/*! The indices without what all iterations have in common: functions of the nest's variables. */
struct Indices {
  Array<Expr> base, varying;
};

std::optional<Indices> SplitIndices(const ParallelNest& nest, const FragmentAccess& access) {
  Analyzer analyzer;
  Substituter at_zero;
  for (size_t k = 0; k < nest.vars.size(); ++k) {
    analyzer.BindConst(nest.vars[k], ToInt(nest.extents[k]));
    at_zero.map[nest.vars[k].get()] = MakeInt(nest.vars[k]->dtype(), 0);
  }
  Indices out;
  for (const Expr& e : access.indices) {
    out.base.push_back(analyzer.Simplify(at_zero.Mutate(e)));
    out.varying.push_back(analyzer.Simplify(e - out.base.back()));
    if (!ReadsOnly({out.varying.back()}, nest.vars)) return std::nullopt;
  }
  return out;
}

/*! Reads the digits of the nest's variables off the table of the indices, axis by axis; nullopt
 * where they do not explain all of it. */
std::optional<std::vector<LoopDigit>> ReadDigits(const ParallelNest& nest,
                                                 const Array<Expr>& varying) {
  const std::vector<int64_t> extents = StaticExtents(nest);
  const SharedTable indices = EvaluateOverBox(varying, nest.vars, extents);
  const std::vector<int64_t>& table = *indices;
  const size_t rank = varying.size();
  std::vector<LoopDigit> digits;
  int64_t axis = Product(extents);
  for (size_t k = 0; k < extents.size(); ++k) {
    axis /= extents[k];
    const auto is_worth = [&](int64_t x, const std::vector<int64_t>& unit, int64_t times) {
      for (size_t d = 0; d < rank; ++d) {
        if (table[x * axis * rank + d] != unit[d] * times) return false;
      }
      return true;
    };
    for (int64_t divisor = 1; divisor < extents[k];) {
      const auto first = table.begin() + divisor * axis * rank;
      LoopDigit digit{k, divisor, 1, {first, first + rank}, Expr()};
      const int64_t count = (extents[k] + divisor - 1) / divisor;
      while (digit.extent < count &&
             is_worth(digit.extent * divisor, digit.strides, digit.extent)) {
        ++digit.extent;
      }
      divisor *= digit.extent;
      digits.push_back(std::move(digit));
    }
  }
  std::vector<int64_t> point(extents.size(), 0);
  for (size_t at = 0; at < table.size(); at += rank) {
    for (size_t d = 0; d < rank; ++d) {
      int64_t sum = 0;
      for (const LoopDigit& g : digits) {
        sum += point[g.var] / g.divisor % g.extent * g.strides[d];
      }
      if (sum != table[at + d]) return std::nullopt;
    }
    for (size_t k = extents.size(); k-- > 0;) {
      if (++point[k] < extents[k]) break;
      point[k] = 0;
    }
  }
  return digits;
}

/*! Finds the digits from the coordinates of the element that they name. */
class DigitSolver {
 public:
  explicit DigitSolver(std::vector<LoopDigit> digits) : digits_(std::move(digits)) {}

  /*! Index d is `value`, which is below `most`, more than in the first iteration. False if that
   * does not tell the digits apart. */
  bool Solve(size_t d, Expr value, int64_t most) {
    std::vector<LoopDigit*> unknown;
    int64_t below = 0;
    for (LoopDigit& g : digits_) {
      if (!g.strides[d]) continue;
      if (g.value.defined()) {
        value = value - g.value * g.strides[d];
        most = INT64_MAX;
        continue;
      }
      unknown.push_back(&g);
      if (g.strides[d] < 0) below += g.strides[d] * (g.extent - 1);
    }
    // A digit that falls is one that rises, counted from its end.
    if (below) value = value - MakeInt(value->dtype(), below);
    if (most < INT64_MAX) most -= below;
    const auto stride = [d](const LoopDigit* g) { return std::abs(g->strides[d]); };
    std::sort(unknown.begin(), unknown.end(),
              [&](const LoopDigit* a, const LoopDigit* b) { return stride(a) < stride(b); });
    if (unknown.empty()) {
      Require(EqualOf(value, MakeInt(value->dtype(), 0)));
      return true;
    }
    for (size_t k = 0; k + 1 < unknown.size(); ++k) {
      if (stride(unknown[k]) * unknown[k]->extent > stride(unknown[k + 1])) return false;
    }
    Require(value >= MakeInt(value->dtype(), 0));
    for (size_t k = unknown.size(); k-- > 0;) {
      LoopDigit* g = unknown[k];
      const int64_t reach = stride(g) * g->extent;
      if (reach < most) Require(value < MakeInt(value->dtype(), reach));
      const Expr digit = FloorDivOf(value, stride(g));
      g->value = g->strides[d] > 0 ? digit : MakeInt(value->dtype(), g->extent - 1) - digit;
      value = FloorModOf(value, stride(g));
      most = stride(g);
    }
    if (most > 1) Require(EqualOf(value, MakeInt(value->dtype(), 0)));
    return true;
  }

  /*! The value of variable k; undefined where the indices do not tell it. */
  Expr ValueOf(const ParallelNest& nest, size_t k) {
    Expr value = MakeInt(0);
    int64_t reach = 1;
    for (const LoopDigit& g : digits_) {
      if (g.var != k) continue;
      if (!g.value.defined()) return Expr();
      value = value + g.value * g.divisor;
      reach = g.divisor * g.extent;
    }
    if (reach > ToInt(nest.extents[k])) Require(value < nest.extents[k]);
    return CastTo(nest.vars[k]->dtype(), value);
  }

  /*! What holds where an iteration names the element. */
  Expr condition = MakeInt(kBool, 1);

 private:
  void Require(const Expr& e) { condition = condition && e; }

  std::vector<LoopDigit> digits_;
};

/*! Writes the coordinates in the place of the indices that the nest is turned around by, whatever
 * has them (`sum[i, n * 64 + j] += product[i, n * 64 + j]`), and what follows from them in the
 * place of its variables. */
class Renamer : public Substituter {
 public:
  explicit Renamer(const FragmentAccess& access) : access_(access) {}
  Array<Expr> element;

 protected:
  Stmt Mutate_(const BufferStoreNode* op) final {
    if (!IsTurned(op->indices)) return Default<Stmt>(op);
    return MakeStore(op->buffer, Mutate(op->value), element, op->span);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    if (!IsTurned(op->indices)) return Default<Expr>(op);
    return LoadOf(op->source.as_or_throw<Var>(), element);
  }

 private:
  bool IsTurned(const Array<Expr>& indices) const {
    return ffi::StructuralEqual()(indices, access_.indices);
  }
  const FragmentAccess& access_;
};

/*! The variables of the body's own loops and bindings: they have no value in front of it. */
struct OwnVariables : StmtExprVisitor {
  Array<Var> found;
  void Visit_(const ForNode* op) final {
    found.push_back(op->loop_var);
    Default(op);
  }
  void Visit_(const BindNode* op) final {
    found.push_back(op->var);
    Default(op);
  }
};

bool UsesAny(const Expr& e, const Array<Var>& vars) {
  return AnyOf(vars, [&](const Var& v) { return Uses(e, v); });
}

}  // namespace

std::optional<WholeNest> OverWholeFragment(const ParallelNest& nest, const FragmentAccess& access,
                                           bool visits_numbers) {
  const auto is_number = [](const Expr& e) { return AsInt(e).has_value(); };
  if (!AllOf(nest.extents, is_number)) return std::nullopt;
  const std::optional<Indices> indices = SplitIndices(nest, access);
  const auto digits = indices ? ReadDigits(nest, indices->varying) : std::nullopt;
  if (!digits) return std::nullopt;

  ParallelNest whole = nest;
  whole.vars = {};
  whole.extents = {};
  whole.is_partial = true;
  DigitSolver solver(*digits);
  Analyzer analyzer;
  FragmentAccess named = access;
  Renamer renamer(access);
  const std::vector<int64_t> shape = ConstShape(access.buffer);
  OwnVariables own;
  own(nest.body);
  std::vector<bool> is_fixed;
  std::vector<Expr> fixed;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Expr& base = indices->base[d];
    const bool is_named = AnyOf(*digits, [d](const LoopDigit& g) { return g.strides[d] != 0; });
    if (UsesAny(base, access.inner_vars)) {
      if (is_named) return std::nullopt;
      continue;
    }
    if (UsesAny(base, own.found)) return std::nullopt;
    if (!is_named && is_number(base) && !visits_numbers) continue;
    const Var x = MakeVar("x" + std::to_string(d), base->dtype());
    analyzer.BindConst(x, shape[d]);
    whole.vars.push_back(x);
    is_fixed.push_back(!is_named);
    if (!is_named) fixed.push_back(base);
    whole.extents.push_back(MakeInt(x->dtype(), shape[d]));
    named.indices.Set(d, x);
    if (!solver.Solve(d, x - base, is_number(base) ? shape[d] - ToInt(base) : INT64_MAX)) {
      return std::nullopt;
    }
    // The name of the number that the element has is as good as the number.
    if (!is_named && base.as<VarNode>()) renamer.map[base.get()] = x;
  }
  for (size_t k = 0; k < nest.vars.size(); ++k) {
    const Expr value = solver.ValueOf(nest, k);
    if (!value.defined()) return std::nullopt;
    renamer.map[nest.vars[k].get()] = analyzer.Simplify(value);
  }
  if (whole.vars.empty()) return std::nullopt;
  renamer.element = named.indices;
  whole.body = MakeIf(analyzer.Simplify(solver.condition), renamer.Mutate(nest.body), nest.span);
  return WholeNest{whole, named, is_fixed, fixed};
}

}  // namespace tl
