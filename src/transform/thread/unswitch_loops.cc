/*!
 * UnswitchLoops: conditions that do not change in a loop are evaluated once.
 *
 * In:  a thread program, after ThreadSync, whose barriers need the threads together.
 * Out: the same, in which
 * - `for: if a && b(i): S`, without `else`, becomes `if a: for: if b(i): S`: the conjuncts that
 *   are equal in each iteration stand before the loop;
 * - a loop whose body is `if` with `else`, or has statements beside the `if`, is written twice,
 *   if `tl.loop_unswitching_allow_non_trivial_else` is set and the condition is equal in each
 *   iteration;
 * - neighbours `if c: S` and `if c: T` are `if c: S; T`, unless one stands for several warp groups
 *   (kInstances), which take another branch in the end;
 * - `unroll r: if c(r % m): S(r)` over a thread's registers becomes `unroll q: if c(q): unroll p:
 *   S(p * m + q)`, where each S changes a register of its own: the condition of a fragment's row
 *   is evaluated once for all of its elements, which are skipped if it is false in all threads of
 *   the warp.
 *
 * A condition moves only if its value cannot change on the way: it is integer arithmetic on
 * variables that are defined outside, without calls, and loads registers only if they stay the
 * same. No loop is written twice that has a barrier or another intrinsic of several threads.
 * Refuses nothing. `tl.disable_loop_unswitching` turns the pass off.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <numeric>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/conjuncts.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../instances.h"

namespace tl {
namespace {

/*! Barriers, instructions of a warp, functions of the user's: threads may have to meet there. */
bool HasCalls(const Stmt& s) {
  return HasNode<EvaluateNode>(s, [&](const EvaluateNode* op) { return !AsInt(op->value); });
}

/*! Variables that statements give values to: what they compute with them cannot be moved in front.
 */
struct Definitions : StmtExprVisitor {
  std::unordered_set<const Object*> vars;
  void Visit_(const BindNode* op) override { vars.insert(op->var.get()); }
};

bool UsesAny(const Expr& e, const std::unordered_set<const Object*>& vars) {
  return HasNode<VarNode>(e, [&](const VarNode* op) { return vars.count(op) != 0; });
}

/*! The conjuncts of a condition that may stand in front of a loop, and the others; undefined where
 * there is none. */
struct Split {
  Expr outside, inside;
};
Split SplitConjuncts(const Expr& condition, const Var& loop_var) {
  Split out;
  for (const Expr& e : ConjunctsOf(condition)) {
    Expr* side = IsArithmetic(e) && !Uses(e, loop_var) ? &out.outside : &out.inside;
    *side = side->defined() ? *side && e : e;
  }
  return out;
}

/*! Elements of a row for which a branch pays. */
constexpr int64_t kLeastOfRow = 8;

/*! The smallest m for which `e` depends on r % m alone; nullopt if there is none. */
std::optional<int64_t> PeriodOf(const Expr& e, const Var& r) {
  struct Finder : StmtExprVisitor {
    const VarNode* r;
    int64_t period = 1;
    bool found = true;
    void Visit_(const FloorModNode* op) override {
      const auto divisor = op->a.get() == r ? AsInt(op->b) : std::nullopt;
      if (!divisor || *divisor <= 0) return Default(op);
      period = std::lcm(period, *divisor);
    }
    void Visit_(const VarNode* op) override { found &= op != r; }
  } finder;
  finder.r = r.get();
  finder(e);
  return finder.found ? std::optional<int64_t>(finder.period) : std::nullopt;
}

/*! Reads no memory but registers, and not those of `written`; calls nothing. */
bool ReadsOtherRegisters(const Expr& e, const Var& written, const Views& views) {
  struct Finder : StmtExprVisitor {
    Var written;
    const Views* views;
    bool fits = true;
    void Visit_(const TensorLoadNode* op) override {
      const auto buffer = op->source.as_or_throw<Var>();
      fits &= IsLocal(buffer) && !views->IsSameMemory(buffer, written);
      Default(op);
    }
    void Visit_(const CallNode*) override { fits = false; }
  } finder;
  finder.written = written;
  finder.views = &views;
  finder(e);
  return finder.fits;
}

/*! Each iteration changes registers of its own, and reads of what is changed only those. */
bool ChangesItsOwnRegisters(const BufferStoreNode* store, const Var& r, const Views& views) {
  if (!IsLocal(store->buffer) || store->indices.size() != 1) return false;
  const auto* ramp = store->indices[0].as<RampNode>();
  const Expr first = ramp ? ramp->base : store->indices[0];
  const int64_t lanes = ramp ? ToInt(ramp->lanes) : 1;
  if (!IsPureInteger(first) || (ramp && !IsConst(ramp->stride, 1))) return false;
  Analyzer analyzer;
  const auto step = AsInt(analyzer.Simplify(Substitute(first, r, r + 1) - first));
  if (!step || std::abs(*step) < lanes) return false;
  struct Finder : StmtExprVisitor {
    const BufferStoreNode* store;
    const Views* views;
    bool fits = true;
    void Visit_(const TensorLoadNode* op) override {
      const auto buffer = op->source.as_or_throw<Var>();
      if (views->IsSameMemory(buffer, store->buffer)) {
        fits &=
            buffer.same_as(store->buffer) && ffi::StructuralEqual()(op->indices, store->indices);
      }
      Default(op);
    }
    void Visit_(const CallNode* op) override {
      fits &= IsElementwise(op);
      Default(op);
    }
  } finder;
  finder.store = store;
  finder.views = &views;
  finder(store->value);
  return finder.fits;
}

class Unswitcher : public StmtExprMutator {
 public:
  Unswitcher(const Stmt& body, bool copy_loops) : views_(body), copy_loops_(copy_loops) {}

 protected:
  Stmt Mutate_(const ForNode* op) override {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    const auto* branch = loop->body.as<IfThenElseNode>();
    if (branch && !branch->else_case) {
      if (const auto rows = GroupRows(loop, branch)) return *rows;
      return HoistConjuncts(loop, branch);
    }
    return copy_loops_ ? CopyForBranches(loop) : loop;
  }

  Stmt Mutate_(const SeqStmtNode* op) override {
    const std::vector<Stmt> stmts = FlatSeq(Default<Stmt>(op));
    std::vector<Stmt> out;
    for (size_t i = 0, end = 0; i < stmts.size(); i = end) {
      end = i + 1;
      const auto* first = AsMergeable(stmts[i]);
      std::vector<Stmt> bodies;
      for (; first && end < stmts.size(); ++end) {
        const auto* next = AsMergeable(stmts[end]);
        if (!next || !ffi::StructuralEqual()(first->condition, next->condition)) break;
        bodies.push_back(next->then_case);
      }
      out.push_back(bodies.empty() ? stmts[i] : Merged(first, std::move(bodies)));
    }
    return MakeSeq(out);
  }

 private:
  std::optional<Stmt> GroupRows(const For& loop, const IfThenElseNode* branch) const {
    const auto* store = branch->then_case.as<BufferStoreNode>();
    const std::optional<int64_t> extent = AsInt(loop->extent);
    const Var& r = loop->loop_var;
    if (!store || !extent || loop->kind != ForKind::kUnrolled || !IsConst(loop->min, 0) ||
        loop->step || !ReadsOtherRegisters(branch->condition, store->buffer, views_)) {
      return std::nullopt;
    }
    const std::optional<int64_t> rows = PeriodOf(branch->condition, r);
    if (!rows || *rows == 1 || *extent % *rows != 0 || *extent / *rows < kLeastOfRow) {
      return std::nullopt;
    }
    if (!ChangesItsOwnRegisters(store, r, views_)) return std::nullopt;
    const DLDataType t = r->dtype();
    const Var row = MakeVar("row", t), element = MakeVar(r->name, t);
    const Stmt body = Substitute(branch->then_case, r, element * *rows + row);
    const auto unrolled = [&](const Var& v, int64_t n, const Stmt& s) {
      return MakeFor(v, MakeInt(t, n), ForKind::kUnrolled, s, loop->span, loop->annotations);
    };
    const Stmt elements = unrolled(element, *extent / *rows, body);
    const Expr condition = Substitute(branch->condition, r, row);
    return unrolled(row, *rows, MakeIf(condition, elements, branch->span));
  }

  static Stmt HoistConjuncts(For loop, const IfThenElseNode* branch) {
    const Split split = SplitConjuncts(branch->condition, loop->loop_var);
    if (!split.outside.defined()) return loop;
    const Stmt body = branch->then_case;
    const Span span = branch->span;
    loop.CopyOnWrite()->body = split.inside.defined() ? MakeIf(split.inside, body, span) : body;
    return MakeIf(split.outside, loop, span);
  }

  /*! The first `if` of the body whose condition stays the same decides between two loops. */
  static Stmt CopyForBranches(const For& loop) {
    const std::vector<Stmt> body = FlatSeq(loop->body);
    if (HasCalls(loop->body)) return loop;
    Definitions inside;
    inside(loop->body);
    for (size_t k = 0; k < body.size(); ++k) {
      const auto* branch = body[k].as<IfThenElseNode>();
      if (!branch || !IsArithmetic(branch->condition) || Uses(branch->condition, loop->loop_var) ||
          UsesAny(branch->condition, inside.vars)) {
        continue;
      }
      auto with = [&](const Optional<Stmt>& taken) {
        std::vector<Stmt> stmts(body.begin(), body.begin() + k);
        if (taken) stmts.push_back(*taken);
        stmts.insert(stmts.end(), body.begin() + k + 1, body.end());
        // Each loop has variables of its own.
        const Var v = MakeVar(loop->loop_var->name, loop->loop_var->dtype());
        For copy = loop;
        ForNode* n = copy.CopyOnWrite();
        n->loop_var = v;
        n->body = Substitute(MakeSeq(stmts), loop->loop_var, v);
        return Stmt(copy);
      };
      auto n = make_object<IfThenElseNode>(*branch);
      n->then_case = with(branch->then_case);
      n->else_case = with(branch->else_case);
      return IfThenElse(n);
    }
    return loop;
  }

  /*! The `if` that a statement is, where its neighbours of the same condition may be part of it. */
  static const IfThenElseNode* AsMergeable(const Stmt& s) {
    const auto* branch = s.as<IfThenElseNode>();
    const bool may = branch && !branch->else_case && IsArithmetic(branch->condition) &&
                     !HasNode<ForNode>(s, IsInstances);
    return may ? branch : nullptr;
  }

  static Stmt Merged(const IfThenElseNode* first, std::vector<Stmt> behind) {
    behind.insert(behind.begin(), first->then_case);
    return With(first, &IfThenElseNode::then_case, MakeSeq(behind));
  }

  Views views_;
  bool copy_loops_;
};

PrimFunc UnswitchLoops(PrimFunc f) {
  if (PassConfigFlag("tl.disable_loop_unswitching", false)) return f;
  const bool copy_loops = PassConfigFlag("tl.loop_unswitching_allow_non_trivial_else", false);
  return WithBody(f, Unswitcher(f->body, copy_loops).Mutate(f->body));
}

TL_REGISTER_PASS(UnswitchLoops);

}  // namespace
}  // namespace tl
