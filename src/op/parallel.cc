#include "parallel.h"

#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <map>
#include <set>

#include "../layout/annotation.h"
#include "../layout/index_box.h"
#include "../layout/int_program.h"
#include "../layout/inverse.h"
#include "../target/access_width.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"
#include "intrinsics.h"
#include "permuted_access.h"

namespace tl {
namespace {

/*! The buffers that a body stores to, and whether it jumps over a part of itself. */
struct BodyEffects : StmtExprVisitor {
  std::vector<Var> stored;
  bool jumps = false;
  void Visit_(const BufferStoreNode* op) final {
    stored.push_back(op->buffer);
    Default(op);
  }
  void Visit_(const BreakNode*) final { jumps = true; }
  void Visit_(const ContinueNode*) final { jumps = true; }
  void Visit_(const CallNode* op) final {
    const Expr call = GetRef<Expr>(op);
    jumps |= IsCallTo(call, "tirx.break_loop") || IsCallTo(call, "tirx.continue_loop");
    Default(op);
  }
};

/*!
 * Whether an expression has one value in all iterations that name the same element: of the
 * variables of the body it has those alone that are an index of the element, it loads nothing that
 * the body stores, and its calls are functions of their arguments.
 */
class UniformityCheck : public StmtExprVisitor {
 public:
  UniformityCheck(const Array<Expr>& indices, const std::vector<Var>& varying,
                  const BodyEffects& effects)
      : indices_(indices), varying_(varying), effects_(effects) {}
  bool operator()(const Expr& e) {
    Visit(e);
    return is_uniform_;
  }

 protected:
  void Visit_(const VarNode* v) final {
    const auto is_v = [v](const Expr& e) { return e.get() == v; };
    const bool varies = AnyOf(varying_, is_v);
    is_uniform_ &= !varies || AnyOf(indices_, is_v);
  }
  void Visit_(const FloorDivNode* op) final {
    const auto is_op = [op](const Expr& e) { return ffi::StructuralEqual()(e, GetRef<Expr>(op)); };
    if (NoneOf(indices_, is_op)) Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    const auto is_source = [op](const Var& v) { return v.same_as(op->source); };
    is_uniform_ &= NoneOf(effects_.stored, is_source);
    Default(op);
  }
  void Visit_(const CallNode* op) final {
    is_uniform_ &= PointerAccesses(op).empty() && !IsCallTo(op, "tirx.call_extern");
    Default(op);
  }
  void Visit_(const LetNode*) final { is_uniform_ = false; }

 private:
  const Array<Expr>& indices_;
  const std::vector<Var>& varying_;
  const BodyEffects& effects_;
  bool is_uniform_ = true;
};

class FragmentAccessCollector : public StmtExprVisitor {
 public:
  explicit FragmentAccessCollector(const ParallelNest& nest)
      : nest_(nest), varying_(nest.vars.begin(), nest.vars.end()) {
    effects_(nest.body);
  }
  std::vector<FragmentAccess> found;

 protected:
  void Visit_(const ForNode* op) final {
    varying_.push_back(op->loop_var);
    const std::optional<Axis> own = AxisOf(op);
    const std::optional<Axis> axis = own ? own : Around(op);
    if (axis) axes_.push_back(*axis);
    if (!own) unknown_.push_back(op->loop_var);
    std::vector<Expr> bounds;
    if (!own) bounds = {op->min, op->extent, op->step.value_or(MakeInt(1))};
    Under(bounds, op);
    if (!own) unknown_.pop_back();
    if (axis) axes_.pop_back();
  }
  void Visit_(const BufferStoreNode* op) final {
    span_ = op->span;
    if (IsFragment(op->buffer)) {
      Add(op->buffer, op->indices, true);
      found.back().is_uniform = IsUniform(op);
    }
    Default(op);
  }
  void Visit_(const EvaluateNode* op) final { InStatement(op); }
  void Visit_(const BindNode* op) final {
    InStatement(op);
    bound_.map[op->var.get()] = bound_.Mutate(op->value);
  }
  void Visit_(const IfThenElseNode* op) final {
    span_ = op->span;
    Under({op->condition}, op);
  }
  void Visit_(const WhileNode* op) final { Under({op->condition}, op); }
  void Visit_(const TensorLoadNode* op) final {
    Var buffer = op->source.as_or_throw<Var>();
    if (IsFragment(buffer)) Add(buffer, op->indices, false);
    Default(op);
  }

 private:
  void InStatement(const StmtNode* op) {
    span_ = op->span;
    Default(op);
  }
  /*! For a loop whose bounds are not constants: an interval from 0 that contains all values of its
   * variable; nullopt where none is known. The bounds may be those of a triangle. */
  std::optional<Axis> Around(const ForNode* op) const {
    Analyzer analyzer;
    for (size_t k = 0; k < nest_.vars.size(); ++k) {
      if (const auto extent = AsInt(nest_.extents[k])) analyzer.BindConst(nest_.vars[k], *extent);
    }
    for (const Axis& a : axes_) {
      analyzer.Bind(a.var, MakeInt(a.var->dtype(), a.min), MakeInt(a.var->dtype(), a.extent));
    }
    const int64_t end = analyzer.ConstBound(analyzer.Simplify(op->min + op->extent)).max;
    const bool is_known = analyzer.ConstBound(op->min).min >= 0 && end <= kMostRegisters;
    if (!is_known) return std::nullopt;
    return Axis{op->loop_var, 0, std::max<int64_t>(0, end)};
  }
  /*! What decides whether and how often the children run. */
  void Under(const std::vector<Expr>& conditions, const StmtNode* op) {
    const size_t outer = conditions_.size();
    for (const Expr& e : conditions) conditions_.push_back(bound_.Mutate(e));
    Default(op);
    conditions_.resize(outer);
  }
  bool IsUniform(const BufferStoreNode* op) {
    const auto is_uniform = [&](const Expr& e) {
      return UniformityCheck(op->indices, varying_, effects_)(e);
    };
    // The interval of such a variable may contain values that the loop does not take.
    const auto names_alike = [&](const Var& v) {
      return is_uniform(v) || NoneOf(op->indices, [&](const Expr& e) { return Uses(e, v); });
    };
    return !effects_.jumps && is_uniform(bound_.Mutate(op->value)) &&
           AllOf(conditions_, is_uniform) && AllOf(unknown_, names_alike);
  }
  void Add(const Var& buffer, const Array<Expr>& indices, bool is_write) {
    FragmentAccess access{buffer, indices, is_write};
    for (const Axis& a : axes_) {
      access.inner_vars.push_back(a.var);
      access.inner_mins.push_back(a.min);
      access.inner_extents.push_back(a.extent);
    }
    access.span = span_;
    found.push_back(std::move(access));
  }
  /*! A loop whose bounds are not numbers runs over registers of a thread, of which there are fewer.
   */
  static constexpr int64_t kMostRegisters = 1024;
  const ParallelNest& nest_;
  BodyEffects effects_;
  Substituter bound_;
  /*! Variables of the nest and of all loops in it. */
  std::vector<Var> varying_;
  std::vector<Expr> conditions_;
  Span span_;
  /*! Axes of the loops around. */
  std::vector<Axis> axes_;
  /*! The variables of those whose bounds are no numbers. */
  std::vector<Var> unknown_;
};

/*! The indices by inner variables that begin at 0. */
Array<Expr> IndicesFromZero(const FragmentAccess& access) {
  Substituter shift;
  for (size_t k = 0; k < access.inner_vars.size(); ++k) {
    const Var& v = access.inner_vars[k];
    if (access.inner_mins[k]) shift.map[v.get()] = v + MakeInt(v->dtype(), access.inner_mins[k]);
  }
  if (shift.map.empty()) return access.indices;
  Analyzer analyzer;
  return access.indices.Map([&](const Expr& e) { return analyzer.Simplify(shift.Mutate(e)); });
}

/*! Loop variables of the nest and of the inner loops around an access. */
Array<Var> AllVars(const ParallelNest& nest, const FragmentAccess& access) {
  Array<Var> vars = nest.vars;
  for (const Var& v : access.inner_vars) vars.push_back(v);
  return vars;
}

}  // namespace

ParallelNest NestOfLoop(const ForNode* loop) {
  ParallelNest nest;
  nest.span = loop->span;
  nest.coalesced_width = IntAnnotation(loop->annotations, "coalesced_width").value_or(0);
  nest.has_placed_tensor = loop->annotations.count(kPlacedTensor) != 0;
  nest.prefer_async = IntAnnotation(loop->annotations, "prefer_async").value_or(0) != 0;
  Stmt body;
  Substituter shift;
  for (const ForNode* l = loop; l; l = body.as<ForNode>()) {
    if (l->kind != ForKind::kParallel) break;
    nest.vars.push_back(l->loop_var);
    nest.extents.push_back(l->extent);
    if (!IsConst(l->min, 0)) shift.map[l->loop_var.get()] = l->loop_var + l->min;
    body = l->body;
  }
  nest.body = shift.map.empty() ? body : shift.Mutate(body);
  return nest;
}

Fragment LoopLayoutOf(const ForNode* loop) { return GetLoopLayout(loop->annotations); }

namespace {

/*! An index v + c where the variable's extent divides c: v in one of several blocks of a
 * dimension. Gives v; the index itself where it is no such sum. */
Expr WithoutBlock(const Expr& index, const ParallelNest& nest) {
  const auto* sum = index.as<AddNode>();
  const auto offset = sum ? AsInt(sum->b) : std::nullopt;
  if (!offset || *offset < 0) return index;
  for (size_t k = 0; k < nest.vars.size(); ++k) {
    const auto extent = AsInt(nest.extents[k]);
    if (nest.vars[k].same_as(sum->a) && extent && *offset % *extent == 0) return sum->a;
  }
  return index;
}

}  // namespace

std::vector<FragmentAccess> FragmentAccesses(const ParallelNest& nest) {
  FragmentAccessCollector c(nest);
  c(nest.body);
  for (FragmentAccess& a : c.found) {
    for (size_t d = 0; d < a.indices.size(); ++d) {
      const Expr v = WithoutBlock(a.indices[d], nest);
      a.in_blocks.push_back(AnyOf(c.found, [&](const FragmentAccess& other) {
        if (!other.buffer.same_as(a.buffer)) return false;
        const Expr &own = a.indices[d], &others = other.indices[d];
        return !others.same_as(own) && WithoutBlock(others, nest).same_as(v) &&
               !ffi::StructuralEqual()(others, own);
      }));
    }
  }
  return c.found;
}

std::vector<int64_t> StaticExtents(const ParallelNest& nest) {
  std::vector<int64_t> out;
  for (const Expr& e : nest.extents) {
    if (!AsInt(e)) {
      ThrowAt(nest.span, "ValueError",
              "a parallel loop over a fragment has a dynamic extent; make it a Python int");
    }
    out.push_back(ToInt(e));
  }
  return out;
}

bool ReadsOnly(const Array<Expr>& indices, const Array<Var>& vars) {
  return AllOf(indices, [&](const Expr& e) {
    return !HasNode<TensorLoadNode>(e) &&
           !HasNode<VarNode>(e, [&](const VarNode* v) { return !Contains(vars, GetRef<Var>(v)); });
  });
}

bool AreIteration(const Array<Expr>& indices, const ParallelNest& nest) {
  return indices.size() == nest.vars.size() &&
         std::equal(indices.begin(), indices.end(), nest.vars.begin(),
                    [](const Expr& index, const Var& var) { return index.same_as(var); });
}

bool IsIndexedByNest(const ParallelNest& nest, const FragmentAccess& access) {
  return ReadsOnly(access.indices, AllVars(nest, access));
}

namespace {

/*! The index v // divisor: so many neighbouring iterations name one element. */
struct SharedElement {
  size_t var;
  int64_t divisor;
};

std::optional<SharedElement> SharedElementOf(const Expr& index, const ParallelNest& nest) {
  const auto* quotient = index.as<FloorDivNode>();
  const auto divisor = quotient ? AsInt(quotient->b) : std::nullopt;
  if (!divisor || *divisor < 1) return std::nullopt;
  for (size_t k = 0; k < nest.vars.size(); ++k) {
    if (nest.vars[k].same_as(quotient->a)) return SharedElement{k, *divisor};
  }
  return std::nullopt;
}

/*! Whether bounds show that all iterations name elements that there are. Those of a loop over all
 * of one fragment may name none of another: its condition leaves them out (whole_fragment.h). */
bool StayInside(const ParallelNest& nest, const Array<Expr>& indices,
                const std::vector<int64_t>& shape) {
  Analyzer analyzer;
  const std::vector<int64_t> extents = StaticExtents(nest);
  for (size_t k = 0; k < extents.size(); ++k) analyzer.BindConst(nest.vars[k], extents[k]);
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto bound = analyzer.ConstBound(indices[d]);
    if (bound.min < 0 || bound.max >= shape[d]) return false;
  }
  return true;
}

}  // namespace

std::optional<Fragment> LayoutFromFragment(const ParallelNest& nest, const FragmentAccess& access,
                                           const Fragment& fragment) {
  if (!IsIndexedByNest(nest, access)) return std::nullopt;
  const std::vector<int64_t> extents = StaticExtents(nest);
  // The usual case, an iteration has the element of its own number: one function, with one table.
  if (AreIteration(access.indices, nest) && fragment->Shape() == extents) return fragment;
  Substituter first;
  for (size_t k = 0; k < access.inner_vars.size(); ++k) {
    const Var& v = access.inner_vars[k];
    first.map[v.get()] = MakeInt(v->dtype(), access.inner_mins[k]);
  }
  const Array<Expr> indices = access.indices.Map([&](Expr e) { return first.Mutate(e); });
  // The neighbours that name one element are neighbours in its thread's registers.
  Array<Expr> names = indices;
  Expr index = fragment->MapIndex(indices)[0];
  const bool shares =
      AnyOf(indices, [&](const Expr& e) { return SharedElementOf(e, nest).has_value(); });
  // A flat loop that says v // n and v % n shares nothing.
  const bool each_its_own = shares && IsInjective(MakeLayout(nest.vars, extents, indices));
  for (const Expr& e : indices) {
    const std::optional<SharedElement> shared = SharedElementOf(e, nest);
    if (!shared || each_its_own) continue;
    names.push_back(FloorModOf(nest.vars[shared->var], shared->divisor));
    index = index * shared->divisor + names.back();
  }
  // Other iterations must name elements of their own, else they have no places of their own.
  const bool all_named = AllOf(nest.vars, [&](const Var& v) {
    return AnyOf(names, [&](const Expr& e) { return e.same_as(v); });
  });
  if (!all_named && !each_its_own && !IsInjective(MakeLayout(nest.vars, extents, names)))
    return std::nullopt;
  const Fragment found =
      MakeFragment(nest.vars, extents, index, fragment->MapThread(indices, fragment->replica),
                   fragment->replica, fragment->replicate);
  // Iterations of no element have a place, too, in threads that there are.
  const bool is_placed =
      StayInside(nest, indices, fragment->Shape()) ||
      (PlacementDefect(found).empty() && found->ThreadExtent() <= fragment->ThreadExtent());
  return is_placed ? std::optional(found) : std::nullopt;
}

Fragment PlanPartition(const ParallelNest& nest, int64_t width, int64_t num_threads) {
  Expr flat = MakeInt(0);
  for (size_t d = 0; d < nest.vars.size(); ++d) {
    flat = flat * nest.extents[d] + nest.vars[d];
  }
  Expr vec = FloorDivOf(flat, width);
  Expr index = FloorDivOf(vec, num_threads) * width + FloorModOf(flat, width);
  Var replica = MakeVar("rep");
  return MakeFragment(nest.vars, StaticExtents(nest), index, FloorModOf(vec, num_threads), replica,
                      1);
}

namespace {

/*! Which loop each dimension of an accessed buffer runs over. */
struct AccessPattern {
  std::vector<std::optional<size_t>> loop_of_dim;   // dimension -> nest variable
  std::vector<std::optional<size_t>> inner_of_dim;  // dimension -> inner variable
  std::vector<bool> loop_used;                      // nest variable appears
  std::vector<int64_t> divisors;                    // dimension -> iterations of one element
  std::vector<int64_t> blocks;                      // dimension -> times that the loop fits into it
};

std::optional<AccessPattern> PatternOf(const ParallelNest& nest, const FragmentAccess& access) {
  const BufferTypeNode* type = BufferOf(access.buffer);
  AccessPattern p;
  p.loop_used.resize(nest.vars.size(), false);
  std::vector<bool> inner_used(access.inner_vars.size(), false);
  const Array<Expr> from_zero = IndicesFromZero(access);
  auto match = [&](const Array<Var>& vars, const Expr& index, std::vector<bool>* used,
                   auto fits) -> std::optional<size_t> {
    for (size_t k = 0; k < vars.size(); ++k) {
      if (!vars[k].same_as(index) || (*used)[k] || !fits(k)) continue;
      (*used)[k] = true;
      return k;
    }
    return std::nullopt;
  };
  for (size_t d = 0; d < type->shape.size(); ++d) {
    const int64_t extent = ToInt(type->shape[d]);
    p.divisors.push_back(1);
    p.blocks.push_back(1);
    const std::optional<SharedElement> shared = SharedElementOf(access.indices[d], nest);
    if (shared && !p.loop_used[shared->var] &&
        ToInt(nest.extents[shared->var]) == extent * shared->divisor) {
      p.loop_used[shared->var] = true;
      p.loop_of_dim.push_back(shared->var);
      p.inner_of_dim.push_back(std::nullopt);
      p.divisors[d] = shared->divisor;
      continue;
    }
    const Expr index = WithoutBlock(access.indices[d], nest);
    p.loop_of_dim.push_back(match(nest.vars, index, &p.loop_used, [&](size_t k) {
      const int64_t runs = ToInt(nest.extents[k]);
      return runs == extent || (access.in_blocks[d] && extent % runs == 0);
    }));
    // The first elements may be those of no iteration.
    std::optional<size_t> inner = match(access.inner_vars, index, &inner_used, [&](size_t k) {
      return access.inner_mins[k] >= 0 && access.inner_mins[k] + access.inner_extents[k] == extent;
    });
    if (!inner) {
      inner = match(access.inner_vars, from_zero[d], &inner_used,
                    [&](size_t k) { return access.inner_extents[k] == extent; });
    }
    p.inner_of_dim.push_back(inner);
    if (p.loop_of_dim[d]) p.blocks[d] = extent / ToInt(nest.extents[*p.loop_of_dim[d]]);
    const bool unit = IsConst(type->shape[d], 1) && IsConst(access.indices[d], 0);
    if (!p.loop_of_dim[d] && !p.inner_of_dim[d] && !unit) return std::nullopt;
  }
  return p;
}

}  // namespace

bool NamesWhole(const ParallelNest& nest, const FragmentAccess& access) {
  return PatternOf(nest, access) || IterationsOfElements(nest, access);
}

std::optional<Fragment> FragmentFromLayout(const ParallelNest& nest, const FragmentAccess& access,
                                           const Fragment& loop_layout, int64_t num_threads) {
  const std::optional<AccessPattern> pattern = PatternOf(nest, access);
  if (!pattern) {
    const std::optional<Layout> iterations = IterationsOfElements(nest, access);
    if (!iterations) return std::nullopt;
    return FragmentOfPermutation(*iterations, loop_layout);
  }
  const bool all_used = AllOf(pattern->loop_used, [](bool used) { return used; });
  // The nest's variables that appear, in nest order, are the coordinates of `base`.
  Fragment base =
      all_used ? loop_layout : ProjectFragment(loop_layout, pattern->loop_used, num_threads);
  std::vector<Expr> base_coordinates;
  std::vector<size_t> position(nest.vars.size(), 0);
  for (size_t k = 0; k < nest.vars.size(); ++k) {
    position[k] = base_coordinates.size();
    if (pattern->loop_used[k]) base_coordinates.push_back(Expr());
  }
  if (base_coordinates.empty()) base_coordinates.push_back(MakeInt(0));

  Array<Var> vars;
  std::vector<int64_t> shape = ConstShape(access.buffer);
  Expr inner = MakeInt(0);
  int64_t inner_total = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    vars.push_back(MakeVar("i" + std::to_string(d)));
    if (pattern->loop_of_dim[d]) {
      const int64_t blocks = pattern->blocks[d], rows = shape[d] / blocks;
      const Expr row = blocks == 1 ? Expr(vars[d]) : FloorModOf(vars[d], rows);
      base_coordinates[position[*pattern->loop_of_dim[d]]] = row * pattern->divisors[d];
      if (blocks == 1) continue;
      inner = inner * blocks + FloorDivOf(vars[d], rows);
      inner_total *= blocks;
    } else if (pattern->inner_of_dim[d]) {
      inner = inner * shape[d] + vars[d];
      inner_total *= shape[d];
    }
  }
  Array<Expr> at(base_coordinates.begin(), base_coordinates.end());
  const int64_t sharing = Product(pattern->divisors);
  const Expr own = FloorDivOf(base->MapIndex(at)[0], sharing);
  // Neighbours of the last dimension are neighbours in registers, as vectors want them.
  const bool is_inner_last = !pattern->loop_of_dim.empty() && !pattern->loop_of_dim.back();
  const int64_t owned = (base->OutputShape()[0] + sharing - 1) / sharing;
  const Expr index = is_inner_last ? own * inner_total + inner : inner * owned + own;
  const Fragment found = MakeFragment(vars, shape, index, base->MapThread(at, base->replica),
                                      base->replica, base->replicate);
  // Iterations of one element may lie in several threads, or far apart in one.
  const bool fits = sharing == 1 || (PlacementDefect(found).empty() &&
                                     IsCompatible(nest, access, found, loop_layout));
  return fits ? std::optional(found) : std::nullopt;
}

bool IsCompatible(const ParallelNest& nest, const FragmentAccess& access, const Fragment& fragment,
                  const Fragment& loop_layout) {
  if (!IsIndexedByNest(nest, access)) return false;
  const Array<Var> vars = AllVars(nest, access);
  std::vector<int64_t> extents = StaticExtents(nest);
  AppendRange(&extents, access.inner_extents);
  const int64_t inner = Product(access.inner_extents);
  const std::vector<int64_t>& runs = loop_layout->ThreadTable();
  const std::vector<int64_t>& holds = fragment->ThreadTable();
  const std::vector<int64_t> shape = fragment->Shape();
  // The usual case: an iteration has the element of its own number.
  const bool same_number = extents == shape && AreIteration(access.indices, nest);
  if (same_number && fragment.same_as(loop_layout)) return true;
  if (same_number && fragment->replicate == loop_layout->replicate && IsSame(runs, holds))
    return true;
  const SharedTable indices =
      same_number ? nullptr : EvaluateOverBox(IndicesFromZero(access), vars, extents);
  const size_t rank = shape.size(), points = Product(extents);
  // The threads that write an element, where its iterations may share that.
  const bool shares = access.is_write && access.is_uniform && fragment->replicate > 1;
  std::map<int64_t, std::set<int64_t>> writers;
  for (size_t point = 0; point < points; ++point) {
    int64_t element = same_number ? point : 0;
    bool inside = true;
    for (size_t d = 0; d < rank && !same_number; ++d) {
      const int64_t x = (*indices)[point * rank + d];
      inside = inside && x >= 0 && x < shape[d];
      element = element * shape[d] + x;
    }
    if (!inside && nest.is_partial) continue;
    if (!inside) return false;
    const auto held = holds.begin() + element * fragment->replicate;
    const auto run = runs.begin() + point / inner * loop_layout->replicate;
    const auto are_among = [](auto some, int64_t n, auto all, int64_t m) {
      return std::all_of(some, some + n,
                         [&](int64_t t) { return std::find(all, all + m, t) != all + m; });
    };
    const int64_t runners = loop_layout->replicate, holders = fragment->replicate;
    if (!are_among(run, runners, held, holders)) return false;
    if (shares) {
      writers[element].insert(run, run + runners);
    } else if (access.is_write && holders > 1 && !are_among(held, holders, run, runners)) {
      return false;
    }
  }
  return AllOf(writers, [&](const auto& entry) {
    const auto held = holds.begin() + entry.first * fragment->replicate;
    return std::all_of(held, held + fragment->replicate,
                       [&](int64_t thread) { return entry.second.count(thread) > 0; });
  });
}

namespace {

/*! Element offset of an access. */
Expr FlatOffset(const Var& buffer, const Array<Expr>& indices) {
  const BufferTypeNode* t = BufferOf(buffer);
  Expr flat = MakeInt(0);
  for (size_t d = 0; d < indices.size(); ++d) {
    flat = t->strides.empty() ? flat * t->shape[d] + indices[d] : flat + indices[d] * t->strides[d];
  }
  return IsConst(t->elem_offset, 0) ? flat : flat + t->elem_offset;
}

/*! Finds the widest vector along the innermost loop variable that every memory access of a body
 * allows. */
class WidthPlanner : public StmtExprVisitor {
 public:
  WidthPlanner(const ParallelNest& nest, bool touches_fragments, Analyzer* analyzer)
      : nest_(nest), inner_(nest.vars.back()), analyzer_(analyzer) {
    for (size_t d = 0; d < nest.vars.size(); ++d) {
      analyzer->Bind(nest.vars[d], MakeInt(0), nest.extents[d]);
    }
    stored_(nest.body);
    // The end of a single loop may cut a vector, the end of a row may not.
    if (nest.vars.size() > 1 || touches_fragments) LimitToDivisor(nest.extents.back());
    ends_even_ = width_ > 1;
  }

  /*! Elements that share a byte belong to one thread, whatever else the loop touches. */
  int64_t MinWidth() const {
    if (stores_pairs_) return 2;
    return std::min<int64_t>(width_, has_sub_byte_ ? 2 : 1);
  }

  /*! The widest vector whose accesses of memory are full for the smallest elements, and no more
   * than a thread may have for the largest. */
  int64_t Width() const {
    if (widest_memory_ == 0) return std::min<int64_t>(width_, kMaxInstructionBits / widest_);
    return std::min<int64_t>(width_, std::min(kMaxInstructionBits / narrowest_memory_,
                                              MaxAccessBits() / widest_memory_));
  }

 protected:
  void Visit_(const BufferStoreNode* op) final {
    Limit(op->buffer, op->indices, true);
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    Limit(op->source.as_or_throw<Var>(), op->indices, false);
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    // VectorizeLoop takes terms of a sum, not stores that depend on the inner loop's variable.
    inner_loops_.push_back(op->loop_var);
    if (Uses(op->min, inner_) || Uses(op->extent, inner_)) width_ = 1;
    Default(op);
  }
  void Visit_(const CallNode* op) final {
    // Only pairs of 16-bit floats are vectors on every target; for anything else, neighbouring
    // threads should have neighbouring elements.
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (p.access != Access::kAtomic || nest_.max_width) continue;
      width_ = std::min<int64_t>(width_, DTypeOf(p.buffer).bits == 16 ? 2 : 1);
    }
    Default(op);
  }

 private:
  void Limit(const Var& buffer, const Array<Expr>& indices, bool is_store) {
    const int bits = DTypeOf(buffer).bits;
    widest_ = std::max(widest_, bits);
    const bool is_sub_byte = IsSubByte(DTypeOf(buffer));
    has_sub_byte_ |= is_sub_byte;
    const bool is_varied = AnyOf(inner_loops_, [&](const Var& v) {
      return AnyOf(indices, [&](const Expr& e) { return Uses(e, v); });
    });
    if (is_varied && IsStored(buffer)) width_ = 1;
    if (IsFragment(buffer)) return;
    const Expr zero = MakeInt(inner_->dtype(), 0);
    Expr offset = FlatOffset(buffer, indices);
    Expr start = analyzer_->Simplify(Substitute(offset, inner_, zero));
    Expr step = analyzer_->Simplify(offset - start);
    if (IsConst(step, 0) && !is_store) return;
    const bool is_contiguous = analyzer_->CanProveEqual(step, inner_);
    if (is_store && is_sub_byte) {
      const Analyzer::Modular m = analyzer_->ModularSet(start);
      stores_pairs_ = is_contiguous && ends_even_ && m.coeff % 2 == 0 && m.base % 2 == 0;
    }
    if (!is_contiguous) {
      LimitToRuns(offset, is_store);
      return;
    }
    widest_memory_ = std::max(widest_memory_, bits);
    narrowest_memory_ = std::min(narrowest_memory_, bits);
    // A vector must start aligned; VectorizeLoop deals with bounds that cut one.
    LimitToDivisor(start);
  }

  /*! The widest vector whose lanes all read one element: a scale that a group of neighbours has
   * (`scale[i, j / 32]`), a byte with two elements (`packed[i, j / 2]`). */
  void LimitToRuns(const Expr& offset, bool is_store) {
    if (is_store || !ReadsRuns(offset)) width_ = 1;
    while (width_ > 1 && !IsOneElement(offset, width_)) width_ /= 2;
  }

  /*! Only a quotient by a constant is alike for neighbours, so nothing else is simplified. */
  bool ReadsRuns(const Expr& offset) const {
    bool found = false;
    ForEachIn<FloorDivNode>(offset, [&](const FloorDivNode* op) {
      found |= AsInt(op->b).value_or(1) > 1 && Uses(op->a, inner_);
    });
    return found;
  }

  bool IsOneElement(const Expr& offset, int64_t width) {
    const Var vector = MakeVar("vector", inner_->dtype()), lane = MakeVar("lane", inner_->dtype());
    const Expr wide = MakeInt(inner_->dtype(), width);
    analyzer_->Bind(vector, MakeInt(0), nest_.extents.back());
    analyzer_->Bind(lane, MakeInt(0), wide);
    const Expr first = vector * wide;
    return IsConst(analyzer_->Simplify(Substitute(offset, inner_, first + lane) -
                                       Substitute(offset, inner_, first)),
                   0);
  }

  void LimitToDivisor(const Expr& e) {
    const Analyzer::Modular m = analyzer_->ModularSet(e);
    while (width_ > 1 && (m.coeff % width_ || m.base % width_)) width_ /= 2;
  }

  bool IsStored(const Var& buffer) const {
    return AnyOf(stored_.stored, [&](const Var& v) { return v.same_as(buffer); });
  }

  const ParallelNest& nest_;
  BodyEffects stored_;
  std::vector<Var> inner_loops_;
  bool has_sub_byte_ = false, stores_pairs_ = false, ends_even_ = false;
  int64_t width_ = kMaxInstructionBits;
  int widest_ = 8, widest_memory_ = 0, narrowest_memory_ = kMaxInstructionBits;
  Var inner_;
  Analyzer* analyzer_;
};

}  // namespace

int64_t PlanVectorWidth(const ParallelNest& nest, int64_t num_threads, bool touches_fragments,
                        Analyzer* analyzer) {
  WidthPlanner planner(nest, touches_fragments, analyzer);
  planner(nest.body);
  int64_t width = std::max(planner.Width(), planner.MinWidth());
  if (nest.max_width) width = std::min(width, nest.max_width);
  const int64_t least = planner.MinWidth();
  if (nest.coalesced_width) {
    if (nest.coalesced_width > width || width % nest.coalesced_width) {
      ThrowAt(nest.span, "ValueError",
              "coalesced_width: found " + std::to_string(nest.coalesced_width) +
                  ", wanted a divisor of " + std::to_string(width) +
                  ", the widest vector that dtype, alignment and extents allow here");
    }
    width = nest.coalesced_width;
  }
  int64_t total = 1;
  for (const Expr& e : nest.extents) total *= AsInt(e).value_or(num_threads * width);
  if (touches_fragments) {
    while (width > least && total % (num_threads * width)) width /= 2;
    return width;
  }
  // Fewest passes over the block, then the widest vector: a narrow vector that keeps all threads
  // busy costs nothing more.
  while (width > least && total < num_threads * width) width /= 2;
  return width;
}

}  // namespace tl
