#include "loop_layout.h"

#include <tvm/ffi/extra/structural_equal.h>

#include <numeric>
#include <unordered_map>

#include "../layout/int_program.h"
#include "../layout/inverse.h"
#include "../target/mma.h"
#include "../target/warp.h"
#include "../tvm/error.h"
#include "../tvm/functor.h"
#include "intrinsics.h"
#include "whole_fragment.h"
#include "whole_registers.h"

namespace tl {

std::optional<Fragment> ChooseLoopLayout(const ParallelNest& nest,
                                         const std::vector<FragmentAccess>& accesses,
                                         const FragmentLookup& lookup) {
  std::optional<Fragment> first;
  auto agree_all = [&](const Fragment& layout) {
    for (const FragmentAccess& access : accesses) {
      Fragment placed = lookup(access.buffer);
      if (placed.defined() && !IsCompatible(nest, access, placed, layout)) return false;
    }
    return true;
  };
  enum Round { kWrites, kReadsOnce, kReads };
  for (Round round : {kWrites, kReadsOnce, kReads}) {
    for (const FragmentAccess& access : accesses) {
      Fragment fragment = lookup(access.buffer);
      if (!fragment.defined() || access.is_write != (round == kWrites)) continue;
      if (round == kReadsOnce && fragment->replicate > 1) continue;
      auto layout = LayoutFromFragment(nest, access, fragment);
      if (!layout) continue;
      if (agree_all(*layout)) return layout;
      if (!first) first = layout;
    }
  }
  return first;
}

namespace {

/*! Rewrites fragment accesses to register accesses, for one register loop. */
class RegisterRewriter : public StmtExprMutator {
 public:
  RegisterRewriter(const ParallelNest& nest, const Fragment& layout, const Expr& reg,
                   const Array<Expr>& coords, const NestLowering& ctx)
      : nest_(nest), layout_(layout), reg_(reg), coords_(coords), ctx_(ctx) {}

 protected:
  Stmt Mutate_(const BufferStoreNode* op) final {
    if (!IsFragment(op->buffer)) return Default<Stmt>(op);
    return MakeStore(ctx_.registers(op->buffer), Mutate(op->value),
                     {Register(op->buffer, op->indices)}, op->span);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    Var buffer = op->source.as_or_throw<Var>();
    if (!IsFragment(buffer)) return Default<Expr>(op);
    return LoadOf(ctx_.registers(buffer), {Register(buffer, op->indices)});
  }

 private:
  /*! The register of an access. Where it runs in step with the loop's own register number, that
   * number is the answer. */
  Expr Register(const Var& buffer, const Array<Expr>& indices) {
    const Fragment fragment = ctx_.fragment(buffer);
    Expr index = fragment->MapIndex(indices)[0];
    if (!ReadsOnly(indices, nest_.vars)) return WithoutThread(index);
    const std::vector<int64_t> extents = StaticExtents(nest_);
    const bool same_number = AreIteration(indices, nest_) && fragment->Shape() == extents;
    const SharedTable registers =
        same_number ? nullptr : EvaluateOverBox({index}, nest_.vars, extents);
    const std::vector<int64_t>& accessed = same_number ? fragment->Table() : *registers;
    const std::vector<int64_t>& own = layout_->Table();
    if (&accessed == &own) return reg_;
    const int64_t offset = accessed[0] - own[0];
    for (size_t k = 0; k < own.size(); ++k) {
      if (accessed[k] - own[k] != offset) return WithoutThread(index);
    }
    return reg_ + offset;
  }
  /*! Registers have constant numbers. That the thread drops out shows here, where its number has
   * its bounds: in a role it is the block's number less that of the first thread, of which later
   * passes know no bounds. One simplification makes the quotients that the next one finds to be
   * zero. */
  Expr WithoutThread(const Expr& index) const {
    Substituter at;
    for (size_t d = 0; d < coords_.size(); ++d) at.map[nest_.vars[d].get()] = coords_[d];
    const Expr once = ctx_.analyzer->Simplify(at.Mutate(index));
    const Expr simple = ctx_.analyzer->Simplify(once);
    for (const Var& v : VarsOf(ctx_.thread)) {
      if (Uses(simple, v)) return index;
    }
    return simple;
  }

  const ParallelNest& nest_;
  const Fragment& layout_;
  Expr reg_;
  const Array<Expr>& coords_;
  const NestLowering& ctx_;
};

/*! Whether a nest writes one element of memory and touches another one by the same name, so that
 * only its promise tells threads apart where indices do not. */
class TouchesSeveral : public StmtExprVisitor {
 public:
  bool found = false;

 protected:
  void Visit_(const BufferStoreNode* op) final {
    Note(op->buffer, op->indices, true);
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    Note(op->source.as_or_throw<Var>(), op->indices, false);
    Default(op);
  }

 private:
  struct Touched {
    Array<Expr> first;
    bool several = false, written = false;
  };
  void Note(const Var& buffer, const Array<Expr>& indices, bool writes) {
    if (IsFragment(buffer) || IsLocal(buffer)) return;
    const auto [it, is_new] = touched_.try_emplace(buffer.get(), Touched{indices});
    it->second.several |= !is_new && !ffi::StructuralEqual()(it->second.first, indices);
    it->second.written |= writes;
    found |= it->second.several && it->second.written;
  }

  std::unordered_map<const VarNode*, Touched> touched_;
};

bool IsOfThread(const Var& buffer) { return IsFragment(buffer) || IsLocal(buffer); }

/*! What a nest does to registers, which each replica has, and to memory, which all share. */
class SideEffects : public StmtExprVisitor {
 public:
  bool registers = false;
  bool memory = false;
  /*! The old value of an atomic operation is used. */
  bool fetches = false;

 protected:
  void Visit_(const BufferStoreNode* op) final {
    (IsOfThread(op->buffer) ? registers : memory) = true;
    Default(op);
  }
  void Visit_(const EvaluateNode*) final { memory = true; }
  void Visit_(const CallNode* op) final {
    for (const PointerAccess& p : PointerAccesses(op)) {
      memory |= p.access == Access::kAtomic;
      fetches |= p.access == Access::kAtomic;
    }
    Default(op);
  }
};

/*! Puts what a statement does to memory under a condition. */
class MemoryGuard : public StmtExprMutator {
 public:
  explicit MemoryGuard(const Expr& condition) : condition_(condition) {}

 protected:
  Stmt Mutate_(const BufferStoreNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    return IsOfThread(op->buffer) ? s : MakeIf(condition_, s, op->span);
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    return MakeIf(condition_, GetRef<Stmt>(op), op->span);
  }

 private:
  Expr condition_;
};

/*! Lets one replica do what a nest does to memory: all of the body, unless that computes registers
 * too. */
Stmt WriteMemoryOnce(const ParallelNest& nest, const Stmt& body, const Expr& replica, Expr* guard) {
  SideEffects effects;
  effects(nest.body);
  if (!effects.memory) return body;
  const Expr first = EqualOf(replica, MakeInt(0));
  if (!effects.registers) {
    *guard = *guard && first;
    return body;
  }
  if (effects.fetches) {
    ThrowAt(nest.span, "ValueError",
            "found the old value of an atomic operation in a loop that several threads run for "
            "each element, because they hold what it computes, wanted one thread; write the old "
            "value to shared memory and copy it from there");
  }
  return MemoryGuard(first).Mutate(body);
}

Stmt SubstituteVars(const Stmt& body, const Array<Var>& vars, const Array<Expr>& values) {
  Substituter s;
  for (size_t d = 0; d < vars.size(); ++d) s.map[vars[d].get()] = values[d];
  return s.Mutate(body);
}

/*! Values of a nest's variables, in their types: a tile's part may begin at an int64. */
Array<Expr> ValuesOf(const Array<Var>& vars, const Array<Expr>& values, Analyzer* analyzer) {
  Array<Expr> found;
  for (size_t d = 0; d < vars.size(); ++d) {
    found.push_back(CastTo(vars[d]->dtype(), analyzer->Simplify(values[d])));
  }
  return found;
}

/*! for outer in unroll: for lane in vectorized: body */
Stmt UnrollAndVectorize(const Var& outer, const Expr& outer_extent, const Var& lane, int64_t width,
                        Stmt body, const Span& span) {
  SideEffects effects;
  effects(body);
  Map<String, Any> independent;
  if (effects.memory) independent.Set(kIndependentIterations, true);
  if (width > 1) {
    body = MakeFor(lane, MakeInt(width), ForKind::kVectorized, body, span, independent);
  } else {
    body = Substitute(body, lane, MakeInt(0));
  }
  if (IsConst(outer_extent, 1)) return Substitute(body, outer, MakeInt(outer->dtype(), 0));
  const ForKind kind = AsInt(outer_extent) ? ForKind::kUnrolled : ForKind::kSerial;
  return MakeFor(outer, outer_extent, kind, body, span, independent);
}

/*! A nest, who runs its iterations, and the registers, of those of its layout, that it has to
 * visit. */
struct RegisterNest {
  ParallelNest nest;
  Fragment layout;
  int64_t first, end;
};

/*! Registers of one vectorised loop: those that follow each other along the last index, or, where
 * memory may have another order, as many as a vector has; VectorizeLoop looks at the places. */
int64_t RegistersAtOnce(const RegisterNest& in) {
  constexpr int64_t kMostLanes = 8;  // 16 bytes of the narrowest type that atomics add in vectors
  if (IsOfWholeRegisters(in.nest.body)) return 1;
  int64_t width = in.layout->ContiguousRegisters();
  if (!in.nest.has_placed_tensor) return width;
  while (width < kMostLanes && in.first % (width * 2) == 0 && in.end % (width * 2) == 0) width *= 2;
  return width;
}

/*! Nothing where the layout has no closed inverse. */
std::optional<Stmt> LowerInOrder(const RegisterNest& in, const NestLowering& ctx) {
  const auto& [nest, layout, first, end] = in;
  Var outer = MakeVar("r"), lane = MakeVar("v");
  const int64_t width = RegistersAtOnce(in);
  const int64_t skipped = first / width, vectors = (end + width - 1) / width - skipped;
  Expr reg = (Expr(outer) + skipped) * width + lane;
  auto inverse = InvertFragment(layout, ctx.thread, reg, ctx.num_threads);
  if (!inverse) return std::nullopt;
  ctx.analyzer->BindConst(outer, vectors);
  ctx.analyzer->BindConst(lane, width);
  const Array<Expr> coords = ValuesOf(nest.vars, inverse->coords, ctx.analyzer);
  Stmt body = RegisterRewriter(nest, layout, reg, coords, ctx).Mutate(nest.body);
  body = SubstituteVars(body, nest.vars, coords);
  Expr guard = inverse->guard;
  if (layout->replicate > 1) {
    body = WriteMemoryOnce(nest, body, inverse->replica, &guard);
  }
  body = MakeIf(ctx.analyzer->Simplify(guard), body, nest.span);
  return UnrollAndVectorize(outer, MakeInt(vectors), lane, width, body, nest.span);
}

/*! Tells `visit` of the nest and, if the nest is a part of a fragment whose own layout may be made
 * of digits where that of the part is not, of all of the fragment under a condition; until it
 * returns true. */
bool AnyForm(const ParallelNest& nest, const Fragment& layout, const FragmentLookup& lookup,
             const std::function<bool(const RegisterNest&)>& visit) {
  if (visit({nest, layout, 0, layout->RegisterExtent()})) return true;
  const std::vector<int64_t>& used = layout->Table();
  const auto [first, last] = std::minmax_element(used.begin(), used.end());
  for (const FragmentAccess& access : FragmentAccesses(nest)) {
    const Fragment fragment = lookup(access.buffer);
    if (!fragment.defined()) continue;
    const auto followed = LayoutFromFragment(nest, access, fragment);
    if (!followed || !IsSameLayout(*followed, layout)) continue;
    for (const bool visits_numbers : {false, true}) {
      const auto whole = OverWholeFragment(nest, access, visits_numbers);
      const auto all = whole ? LayoutFromFragment(whole->nest, whole->access, fragment)
                             : std::optional<Fragment>();
      if (all && visit({whole->nest, *all, *first, *last + 1})) return true;
    }
  }
  return false;
}

Stmt LowerRegisters(const ParallelNest& nest, const Fragment& layout, const NestLowering& ctx) {
  std::optional<Stmt> lowered;
  const auto lower = [&](const RegisterNest& form) {
    lowered = LowerInOrder(form, ctx);
    return lowered.has_value();
  };
  if (AnyForm(nest, layout, ctx.fragment, lower)) return *lowered;
  const std::vector<FragmentAccess> accesses = FragmentAccesses(nest);
  const FragmentAccess& access = accesses[0];
  ThrowAt(access.span.defined() ? access.span : nest.span, "ValueError",
          "found " + std::string(access.buffer->name) +
              " indexed by something else than sums of multiples of loop variables and of their "
              "quotients and remainders, wanted such sums, which tell the iterations of a thread's "
              "registers; copy " +
              std::string(access.buffer->name) +
              " to shared memory and index that instead\n  the loop would run as " +
              LayoutText(layout));
}

/*! The number of a thread's vector in a pass: round robin, or, where warp groups work apart and
 * vectors go round, each group in a part of its own. */
Expr VectorOf(const Var& pass, const Expr& passes, const Expr& total, int64_t per_pass,
              const NestLowering& ctx) {
  const std::optional<int64_t> elements = AsInt(total);
  if (!ctx.in_range || !elements || *elements % per_pass || ctx.num_threads % kWarpGroupThreads) {
    return pass * ctx.num_threads + ctx.thread;
  }
  const Expr group = FloorDivOf(ctx.thread, kWarpGroupThreads);
  return (group * ToInt(passes) + pass) * kWarpGroupThreads +
         FloorModOf(ctx.thread, kWarpGroupThreads);
}

/*! The row and the place in it, in vectors, of a thread's vector in a pass, where rows of `extent`
 * vectors are neither whole passes nor a part of one: threads form a rectangle whose rows have
 * whole warps and divide a row, so that vectors of a thread lie at constant distances from its
 * first one. Round robin, each would have its own quotient and remainder of the thread's number.
 * nullopt where no such rectangle covers all rows. */
std::optional<std::pair<Expr, Expr>> RowAndPlaceOf(const Var& pass, const Expr& total,
                                                   const Expr& extent, const NestLowering& ctx) {
  const std::optional<int64_t> elements = AsInt(total), row = AsInt(extent);
  const bool apart = ctx.in_range && ctx.num_threads % kWarpGroupThreads == 0;
  const int64_t threads = apart ? kWarpGroupThreads : ctx.num_threads;
  if (!elements || !row || *row == 0 || *row % threads == 0 || threads % *row == 0) {
    return std::nullopt;
  }
  const int64_t wide = std::gcd(*row, threads), high = threads / wide;
  const int64_t rows = *elements / *row, groups = ctx.num_threads / threads;
  if (wide % kLeastWarpThreads || rows % (groups * high)) return std::nullopt;
  const Expr thread = FloorModOf(ctx.thread, threads), begin = FloorDivOf(ctx.thread, threads);
  return std::pair(
      begin * (rows / groups) + FloorDivOf(pass, *row / wide) * high + FloorDivOf(thread, wide),
      FloorModOf(pass, *row / wide) * wide + FloorModOf(thread, wide));
}

Stmt LowerPartition(const ParallelNest& nest, const NestLowering& ctx) {
  const int64_t width = PlanVectorWidth(nest, ctx.num_threads, false, ctx.analyzer);
  Expr total = MakeInt(1);
  for (const Expr& e : nest.extents) total = total * e;
  const int64_t per_pass = ctx.num_threads * width;
  Expr passes = ctx.analyzer->Simplify(FloorDivOf(total + (per_pass - 1), per_pass));
  Var outer = MakeVar("o", passes->dtype()), lane = MakeVar("v");
  ctx.analyzer->Bind(outer, MakeInt(passes->dtype(), 0), passes);
  ctx.analyzer->BindConst(lane, width);

  const Expr vec = VectorOf(outer, passes, total, per_pass, ctx), start = vec * width;
  const size_t last = nest.vars.size() - 1;
  std::vector<Expr> coords(nest.vars.size(), Expr()),
      extents(nest.extents.begin(), nest.extents.end());
  // Where whole vectors make up a row, the lane stays out of the divisions: the vectoriser then
  // sees that the elements of a vector lie side by side.
  const bool whole_rows = ctx.analyzer->CanProveEqual(FloorModOf(extents[last], width), MakeInt(0));
  if (whole_rows) extents[last] = FloorDivOf(extents[last], width);
  const auto rectangle = whole_rows && last > 0
                             ? RowAndPlaceOf(outer, FloorDivOf(total, width), extents[last], ctx)
                             : std::nullopt;
  Expr rest = rectangle ? rectangle->first : whole_rows ? vec : start + lane;
  if (rectangle) coords[last] = rectangle->second;
  for (size_t d = rectangle ? last : last + 1; d-- > 0;) {
    coords[d] = d ? FloorModOf(rest, extents[d]) : rest;
    rest = d ? FloorDivOf(rest, extents[d]) : rest;
  }
  if (whole_rows) coords[last] = coords[last] * width + lane;
  // One extent of int64 makes all places int64.
  for (size_t d = 0; d <= last; ++d) coords[d] = CastTo(nest.vars[d]->dtype(), coords[d]);
  // A width that divides the innermost extent has whole vectors inside; else VectorizeLoop splits
  // off the tail.
  const Expr inside = ctx.analyzer->Simplify((whole_rows ? start : start + lane) < total);
  Stmt body =
      SubstituteVars(nest.body, nest.vars,
                     ValuesOf(nest.vars, Array<Expr>(coords.begin(), coords.end()), ctx.analyzer));
  if (!rectangle) body = MakeIf(inside, body, nest.span);
  return UnrollAndVectorize(outer, passes, lane, width, body, nest.span);
}

}  // namespace

bool CanTellIterations(const ParallelNest& nest, const Fragment& layout,
                       const FragmentLookup& lookup, int64_t num_threads) {
  const Var thread = MakeVar("thread"), reg = MakeVar("register");
  return AnyForm(nest, layout, lookup, [&](const RegisterNest& form) {
    return InvertFragment(form.layout, thread, reg, num_threads).has_value();
  });
}

Stmt LowerNest(const ParallelNest& nest, const Fragment& layout, const NestLowering& ctx) {
  const auto is_zero = [](const Expr& extent) { return IsConst(extent, 0); };
  if (AnyOf(nest.extents, is_zero)) return MakeSeq({});
  const Stmt lowered =
      layout.defined() ? LowerRegisters(nest, layout, ctx) : LowerPartition(nest, ctx);
  // One of the replicas writes what the others read.
  if (layout.defined() && layout->replicate > 1) return lowered;
  TouchesSeveral several;
  several(nest.body);
  if (!several.found) return lowered;
  return MakeAttr(MakeInt(0), kIndependentNest, MakeInt(1), lowered);
}

}  // namespace tl
