/*!
 * VerifyParallelLoop: iterations of a T.Parallel, or elements of a copy, that depend on each other.
 *
 * In:  a tile program under thread_extent attributes.   Out: the same program.
 * Establishes: nothing; what is not decided here passes: indices that read memory or symbols, and
 * two accesses under conditions that do. Refuses (ValueError with both iterations): an element of a
 * shared buffer, a fragment or a tensor that one iteration writes and another one reads, or to
 * which another one writes something else; a T.alloc_var that an iteration reads as another one
 * left it. Iterations that write the same to an element, and an element or a variable that each
 * iteration writes before it reads it, are independent. Likewise a T.copy, T.transpose, T.cumsum or
 * tile of T.atomic_add whose source and destination overlap in one buffer, unless it is a fragment,
 * whose copies read all elements first. Names of one memory (T.view, T.reshape) are compared by
 * where their elements lie in it, if shapes are constants.
 *
 * The indices are evaluated for every iteration. Loops around and blocks are at their first value
 * where all conditions around hold then, else unknown; an extent that is not constant is 2.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "../../analysis/effects.h"
#include "../../layout/index_box.h"
#include "../../op/copy_instruction.h"
#include "../../op/parallel.h"
#include "../../op/region_nest.h"
#include "../../op/tma_reduce.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! The bits of an element. */
int64_t ElementBits(const Var& buffer) {
  const DLDataType t = DTypeOf(buffer);
  return int64_t(t.bits) * t.lanes;
}

/*! Whether the place of each element is known: constant extents, row-major. */
bool HasKnownPlaces(const Var& buffer) {
  const auto is_const = [](const Expr& e) { return AsInt(e).has_value(); };
  const auto* type = BufferOf(buffer);
  return type->strides.empty() && AllOf(type->shape, is_const);
}

/*! More points than this are not looked at. */
constexpr int64_t kMaxLoopPoints = 1 << 20;

using Guards = std::vector<std::pair<Expr, bool>>;

bool AreEqual(const ObjectRef& a, const ObjectRef& b) { return ffi::StructuralEqual()(a, b); }

struct ElementTouch {
  Var buffer;
  Array<Expr> indices;
  Expr value;  // of a write, else undefined
  Span span;
  Guards guards;
  std::vector<const ForNode*> inner;

  bool IsWrite() const { return value.defined(); }
};

/*! A scalar of each thread: private to an iteration that writes it before it reads it. */
bool IsScalar(const Var& buffer) { return ScopeOf(buffer) == "local.var"; }

/*! What the body of a parallel nest touches, but for reads of what the iteration has written. */
class TouchCollector : public StmtExprVisitor {
 public:
  std::vector<ElementTouch> touches;

 protected:
  void Visit_(const ForNode* op) final {
    span_ = op->span;
    Visit(op->min);
    Visit(op->extent);
    inner_.push_back(op);
    const size_t before = written_.size();
    Visit(op->body);
    if (AsInt(op->extent).value_or(0) < 1) written_.resize(before);
    inner_.pop_back();
  }
  void Visit_(const WhileNode* op) final {
    span_ = op->span;
    Visit(op->condition);
    const size_t before = written_.size();
    guards_.emplace_back(names_.Mutate(op->condition), true);
    Visit(op->body);
    guards_.pop_back();
    written_.resize(before);
  }
  void Visit_(const BufferStoreNode* op) final {
    span_ = op->span;
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
    if (!IsWatched(op->buffer)) return;
    touches.push_back(MakeTouch(op->buffer, op->indices, values_.Mutate(op->value)));
    written_.push_back(touches.back());
  }
  void Visit_(const TensorLoadNode* op) final {
    Default(op);
    const Var buffer = op->source.as_or_throw<Var>();
    if (!IsWatched(buffer)) return;
    ElementTouch read = MakeTouch(buffer, op->indices, Expr(nullptr));
    const bool own = AnyOf(written_, [&](const ElementTouch& w) { return Supplies(w, read); });
    if (!own) touches.push_back(std::move(read));
  }
  void Visit_(const EvaluateNode* op) final {
    span_ = op->span;
    Visit(op->value);
  }
  void Visit_(const BindNode* op) final {
    span_ = op->span;
    Visit(op->value);
    if (IsPureInteger(op->value)) names_.map[op->var.get()] = names_.Mutate(op->value);
    values_.map[op->var.get()] = values_.Mutate(op->value);
  }
  void Visit_(const IfThenElseNode* op) final {
    span_ = op->span;
    VisitChoice(op->condition, op->then_case,
                op->else_case ? ObjectRef(*op->else_case) : ObjectRef());
  }
  void Visit_(const AndNode* op) final {
    Visit(op->a);
    guards_.emplace_back(names_.Mutate(op->a), true);
    Visit(op->b);
    guards_.pop_back();
  }
  void Visit_(const CallNode* op) final {
    if (IsIfThenElse(op)) return VisitChoice(op->args[0], op->args[1], op->args[2]);
    // Functions that get an address, atomics among them, answer for it.
    if (!AsAddressOf(GetRef<Expr>(op))) Default(op);
  }

 private:
  static bool IsWatched(const Var& buffer) {
    return IsScalar(buffer) || !(IsLocal(buffer) || IsReducer(buffer));
  }

  void VisitChoice(const Expr& condition, const ObjectRef& yes, const ObjectRef& no) {
    Visit(condition);
    const size_t before = written_.size();
    guards_.emplace_back(names_.Mutate(condition), true);
    Visit(yes);
    const size_t middle = written_.size();
    guards_.back().second = false;
    if (no.defined()) Visit(no);
    guards_.pop_back();
    // What both write is written behind them.
    const size_t end = written_.size();
    for (size_t i = before; i < middle; ++i) {
      for (size_t j = middle; j < end; ++j) {
        if (!AreSameElement(written_[i], written_[j])) continue;
        ElementTouch both = written_[i];
        both.guards = guards_;
        if (!HasGuardsOf(written_[i], 1) || !HasGuardsOf(written_[j], 1)) continue;
        written_.push_back(std::move(both));
        break;
      }
    }
  }
  /*! The write happens whenever the choice is made, which adds `more` conditions to those here. */
  bool HasGuardsOf(const ElementTouch& write, size_t more) const {
    return write.guards.size() == guards_.size() + more;
  }

  static bool AreSameElement(const ElementTouch& a, const ElementTouch& b) {
    return a.buffer.same_as(b.buffer) && AreEqual(a.indices, b.indices);
  }
  /*! The write has certainly happened in the iteration that reads, to the same element. */
  bool Supplies(const ElementTouch& write, const ElementTouch& read) const {
    if (!AreSameElement(write, read)) return false;
    const bool in_loops_of = write.inner.size() <= read.inner.size() &&
                             std::equal(write.inner.begin(), write.inner.end(), read.inner.begin());
    const bool needs_loops = AnyOf(
        write.inner, [&](const ForNode* loop) { return Uses(write.indices, loop->loop_var); });
    if (needs_loops && !in_loops_of) return false;
    return AllOf(write.guards, [&](const auto& g) {
      return AnyOf(read.guards, [&](const auto& h) {
        return g.second == h.second && AreEqual(g.first, h.first);
      });
    });
  }

  ElementTouch MakeTouch(const Var& buffer, const Array<Expr>& indices, const Expr& value) {
    return {buffer, names_.MutateArray(indices), value, span_, guards_, inner_};
  }

  Substituter names_;   // of integers
  Substituter values_;  // of everything
  Guards guards_;
  std::vector<const ForNode*> inner_;
  std::vector<ElementTouch> written_;
  Span span_;
};

using Point = std::vector<int64_t>;

struct Hash {
  size_t operator()(const Point& v) const {
    size_t h = v.size();
    for (int64_t x : v) h = h * 1000003 + static_cast<size_t>(x);
    return h;
  }
};

/*! The integers that a value is a function of: two iterations for which they are equal compute the
 * same. `known` is false where memory that the nest writes, or a call with an effect, counts too.
 */
class ValueKey : public StmtExprVisitor {
 public:
  ValueKey(const IndexBox& box, const std::vector<ElementTouch>& touches, const Views& views,
           const Expr& value)
      : box_(box), touches_(touches), views_(views) {
    Visit(value);
  }
  bool known = true;
  std::vector<Expr> integers;

 protected:
  void Visit_(const VarNode* op) final { Note(GetRef<Expr>(op)); }
  void Visit_(const TensorLoadNode* op) final {
    const Var buffer = op->source.as_or_throw<Var>();
    known &= NoneOf(touches_, [&](const ElementTouch& t) {
      return t.IsWrite() && views_.IsSameMemory(t.buffer, buffer);
    });
    for (const Expr& i : op->indices) {
      if (IsPureInteger(i) && box_.CanEvaluate(i)) {
        integers.push_back(i);
      } else {
        Visit(i);
      }
    }
  }
  void Visit_(const CallNode* op) final {
    known &= IsIfThenElse(op) || IsElementwise(op);
    Default(op);
  }

 private:
  /*! What is no axis is the same in all iterations. */
  void Note(const Expr& v) {
    if (IsPureInteger(v) && box_.CanEvaluate(v)) integers.push_back(v);
  }

  const IndexBox& box_;
  const std::vector<ElementTouch>& touches_;
  const Views& views_;
};

/*! Looks for a dependence in one nest. */
class NestVerifier {
 public:
  /*! An operator's iterations are its elements. */
  NestVerifier(const ParallelNest& nest, const Views& views, Substituter* around,
               bool is_operator = false)
      : views_(views), around_(around), is_operator_(is_operator) {
    TouchCollector collector;
    collector(nest.body);
    touches_ = std::move(collector.touches);
    for (size_t d = 0; d < nest.vars.size(); ++d) {
      const Expr extent = analyzer_.Simplify(around_->Mutate(nest.extents[d]));
      axes_.push_back({nest.vars[d], 0, AsInt(extent).value_or(2)});
      is_empty_ |= axes_.back().extent < 1;
    }
  }

  void Verify() {
    if (is_empty_) return;
    std::vector<const Object*> checked;
    for (const ElementTouch& t : touches_) {
      if (!t.IsWrite() || std::count(checked.begin(), checked.end(), t.buffer.get())) continue;
      checked.push_back(t.buffer.get());
      const bool is_read = AnyOf(touches_, [&](const ElementTouch& r) {
        return !r.IsWrite() && r.buffer.same_as(t.buffer);
      });
      if (IsScalar(t.buffer) && !is_read) continue;
      if (const int64_t bits = BitsOfCells(t.buffer)) {
        VerifyBuffer(t.buffer, bits);
      } else if (!EachHasItsElement(t)) {
        VerifyBuffer(t.buffer, 0);
      }
    }
  }

 private:
  struct Write {
    Point iteration;
    const ElementTouch* touch;
    Point key;  // of the value
    bool known;
    bool certain;  // happens
  };

  /*! All touches of the buffer are at the same indices, which are others in each iteration: what
   * most nests are. */
  bool EachHasItsElement(const ElementTouch& touch) {
    for (const ElementTouch& t : touches_) {
      if (t.buffer.same_as(touch.buffer) && !AreEqual(t.indices, touch.indices)) return false;
    }
    return AllOf(axes_, [&](const Axis& axis) {
      return axis.extent == 1 ||
             AnyOf(touch.indices, [&](const Expr& e) { return IsShifted(e, axis, touch); });
    });
  }
  /*! `axis`, or a sum of it and what is the same in all iterations. */
  bool IsShifted(const Expr& e, const Axis& axis, const ElementTouch& touch) {
    if (e.same_as(axis.var)) return true;
    const auto* sum = e.as<AddNode>();
    if (!sum) return false;
    const bool first = Uses(sum->a, axis.var);
    const Expr& rest = first ? sum->b : sum->a;
    const auto varies = [&](const Var& v) { return Uses(rest, v); };
    return IsPureInteger(rest) && IsShifted(first ? sum->a : sum->b, axis, touch) &&
           NoneOf(axes_, [&](const Axis& a) { return varies(a.var); }) &&
           NoneOf(touch.inner, [&](const ForNode* loop) { return varies(loop->loop_var); });
  }

  /*! Where the nest touches the buffer's memory under several names, the bits of which an element
   * of each name has a whole number; else 0. */
  int64_t BitsOfCells(const Var& buffer) const {
    bool has_other = false, known = true;
    int64_t bits = 0;
    for (const ElementTouch& t : touches_) {
      if (!views_.IsSameMemory(t.buffer, buffer)) continue;
      has_other |= !t.buffer.same_as(buffer);
      known = known && HasKnownPlaces(t.buffer);
      bits = std::gcd(bits, ElementBits(t.buffer));
    }
    return has_other && known ? bits : 0;
  }

  /*! By cells of so many bits, under all names of its memory, or by elements. */
  void VerifyBuffer(const Var& buffer, int64_t cell_bits) {
    writes_.clear();
    for (const bool writes : {true, false}) {
      for (const ElementTouch& t : touches_) {
        const bool is_it = cell_bits ? views_.IsSameMemory(t.buffer, buffer)  //
                                     : t.buffer.same_as(buffer);
        if (is_it && t.IsWrite() == writes) VerifyTouch(t, cell_bits);
      }
    }
  }

  /*! What a touch of an element is a touch of. */
  static std::vector<Point> PlacesOf(const ElementTouch& t, const Point& element,
                                     int64_t cell_bits) {
    if (!cell_bits) return {element};
    const std::vector<int64_t> shape = ConstShape(t.buffer);
    int64_t flat = 0;
    for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + element[d];
    const int64_t cells = ElementBits(t.buffer) / cell_bits;
    std::vector<Point> out;
    for (int64_t c = 0; c < cells; ++c) out.push_back({flat * cells + c});
    return out;
  }

  void VerifyTouch(const ElementTouch& t, int64_t cell_bits) {
    std::vector<Axis> axes = axes_;
    for (const ForNode* loop : t.inner) {
      if (const std::optional<Axis> axis = AxisOf(loop)) axes.push_back(*axis);
    }
    IndexBox box(axes);
    if (box.Points() > kMaxLoopPoints) return;
    bool certain = true;
    for (const auto& [condition, value] : t.guards) {
      certain &= box.Require(around_->Mutate(condition), value);
    }
    std::vector<IntProgram> programs, keys;
    for (const Expr& e : t.indices) {
      const Expr index = around_->Mutate(e);
      if (!IsPureInteger(index) || !box.CanEvaluate(index)) return;
      programs.push_back(box.Compile(index));
    }
    bool known = false;
    if (t.IsWrite()) {
      const ValueKey key(box, touches_, views_, around_->Mutate(t.value));
      for (const Expr& e : key.integers) keys.push_back(box.Compile(e));
      known = key.known;
    }
    const auto evaluate = [](const std::vector<IntProgram>& all, const Point& point) {
      Point values;
      for (const IntProgram& p : all) values.push_back(p(point.data()));
      return values;
    };
    box.ForEach([&](const Point& point) {
      const Point element = evaluate(programs, point);
      const Point iteration(point.begin(),
                            point.begin() + static_cast<std::ptrdiff_t>(axes_.size()));
      const Write mine{iteration, &t, t.IsWrite() ? evaluate(keys, point) : Point(), known,
                       certain};
      for (const Point& place : PlacesOf(t, element, cell_bits)) {
        const auto it = writes_.find(place);
        if (it != writes_.end() && it->second.iteration != iteration && Depend(it->second, mine)) {
          Refuse(t, element, it->second, iteration);
        }
        if (t.IsWrite()) writes_.try_emplace(place, mine);
      }
      return true;
    });
  }

  static bool Depend(const Write& a, const Write& b) {
    // Two that only data decide may never both happen; a variable carries its value on.
    if (!a.certain && !b.certain && !IsScalar(a.touch->buffer)) return false;
    const bool same = a.known && b.known && a.key == b.key &&
                      (a.touch == b.touch || AreEqual(a.touch->value, b.touch->value));
    return !same;
  }

  static std::string Text(const Point& p) {
    std::string text;
    for (int64_t x : p) text += (text.empty() ? "" : ", ") + std::to_string(x);
    return text;
  }

  [[noreturn]] void Refuse(const ElementTouch& t, const Point& element, const Write& first,
                           const Point& second) const {
    std::string vars;
    for (const Axis& a : axes_) vars += (vars.empty() ? "" : ", ") + std::string(a.var->name);
    const std::string name = std::string(t.buffer->name);
    const bool accumulates = t.IsWrite() || Accumulates(*first.touch);
    const std::string repair =
        accumulates ? "use T.reduce_sum and its like, T.alloc_reducer or T.atomic_add where the "
                      "iterations combine their values, else T.serial"
                    : "read from another buffer than the one that is written, or use T.serial";
    const Var& other = first.touch->buffer;
    if (is_operator_) RefuseOverlap(t.span, t.buffer, Text(element), other);
    const std::string of_other =
        other.same_as(t.buffer)
            ? ""
            : ", in memory that " + std::string(other->name) + " is another name of";
    ThrowAt(t.span, "ValueError",
            "found iterations (" + vars + ") = (" + Text(first.iteration) + ") and (" +
                Text(second) + ") of T.Parallel that both touch " + name +
                (IsScalar(t.buffer) ? "" : "[" + Text(element) + "]") + of_other +
                ", the first one writing it, wanted independent iterations; " + repair);
  }

  [[noreturn]] static void RefuseOverlap(const Span& span, const Var& src,
                                         const std::string& element, const Var& dst) {
    const std::string name(src->name);
    ThrowAt(span, "ValueError",
            "found a source in " + name + " and a destination in " + std::string(dst->name) +
                ", a name of the same memory, that overlap at " + name + "[" + element +
                "], wanted two that do not, since elements move in any order; copy the source to "
                "another tile first");
  }

  /*! The value written is made of the element's old one. */
  static bool Accumulates(const ElementTouch& write) {
    return HasNode<TensorLoadNode>(write.value, [&](const TensorLoadNode* op) {
      return op->source.same_as(write.buffer) && AreEqual(op->indices, write.indices);
    });
  }

  const Views& views_;
  Substituter* around_;
  bool is_operator_;
  Analyzer analyzer_;
  std::vector<ElementTouch> touches_;
  std::vector<Axis> axes_;
  bool is_empty_ = false;
  std::unordered_map<Point, Write, Hash> writes_;
};

/*! The operators that read a region element by element and write another one. */
bool MovesElements(const OpNode* op) {
  return op->name == kCopy || op->name == kTranspose || op->name == kAtomic || op->name == kScan;
}

/*! The nest that writes an element of `dst` as it reads one of `src`; nullopt where their shapes do
 * not say which. */
std::optional<ParallelNest> NestOfMove(const TileRegion& src, const TileRegion& dst,
                                       bool transposes, const Span& span) {
  const std::vector<size_t> dims = NonUnitDims(src);
  if (dims.size() != NonUnitDims(dst).size()) return std::nullopt;
  ParallelNest nest = NestOverRegion(src, span), written = nest;
  const size_t count = dims.size(), rank = src.ranges.size();
  if (transposes && count >= 2 && dims[count - 2] + 2 == rank) {
    written.vars = nest.vars;
    written.vars.Set(count - 2, nest.vars[count - 1]);
    written.vars.Set(count - 1, nest.vars[count - 2]);
  }
  nest.body =
      MakeStore(dst.buffer, CastTo(DTypeOf(dst.buffer), LoadOf(src.buffer, ElementOf(src, nest))),
                ElementOf(dst, written), span);
  return nest;
}

class ParallelLoopVerifier : public StmtExprVisitor {
 public:
  explicit ParallelLoopVerifier(const Stmt& body) : views_(body) {}

 protected:
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const Var& index = op->node.cast<IterVar>()->var;
      first_.map[index.get()] = MakeInt(index->dtype(), 0);
    }
    Default(op);
  }
  void Visit_(const BindNode* op) final {
    if (!IsPureInteger(op->value)) return;
    first_.map[op->var.get()] = first_.Mutate(op->value);
    names_.map[op->var.get()] = names_.Mutate(op->value);
  }
  void Visit_(const ForNode* op) final {
    if (op->kind == ForKind::kParallel) {
      NestVerifier(NestOfLoop(op), views_, unknown_ ? &names_ : &first_).Verify();
      return;
    }
    first_.map[op->loop_var.get()] = first_.Mutate(op->min);
    Default(op);
  }
  void Visit_(const EvaluateNode* op) final {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    if (!call || !MovesElements(OpOf(call))) return;
    if (!call->args[0].as<TensorRegionNode>() || !call->args[1].as<TensorRegionNode>()) return;
    VerifyRegions(call, TileRegion::From(call->args[0]), TileRegion::From(call->args[1]), op->span);
  }
  void Visit_(const WhileNode* op) final { VisitUnder(false, op->body); }
  void Visit_(const IfThenElseNode* op) final {
    const Expr condition = analyzer_.Simplify(first_.Mutate(op->condition));
    VisitUnder(IsConst(condition, 1), op->then_case);
    if (op->else_case) VisitUnder(IsConst(condition, 0), *op->else_case);
  }

 private:
  /*! Whether it is known that threads, blocks and loops at their first values get there. */
  void VisitUnder(bool is_reached, const Stmt& s) {
    unknown_ += !is_reached;
    Visit(s);
    unknown_ -= !is_reached;
  }

  void VerifyRegions(const CallNode* call, const TileRegion& a, const TileRegion& b,
                     const Span& span) {
    if (!views_.IsSameMemory(a.buffer, b.buffer) || IsFragment(a.buffer)) return;
    Substituter& around = unknown_ ? names_ : first_;
    const bool transposes = OpOf(call)->name == kTranspose;
    if (!a.buffer.same_as(b.buffer)) {
      const bool adds = OpOf(call)->name == kAtomic;
      const auto nest = NestOfMove(adds ? b : a, adds ? a : b, transposes, span);
      if (nest) NestVerifier(*nest, views_, &around, true).Verify();
      return;
    }
    bool is_same = !transposes;
    std::string distances;
    for (size_t d = 0; d < a.ranges.size(); ++d) {
      const Expr from = around.Mutate(a.ranges[d]->min), to = around.Mutate(b.ranges[d]->min);
      const std::optional<int64_t> apart = AsInt(analyzer_.Simplify(to - from));
      const std::optional<int64_t> extent = AsInt(a.ranges[d]->extent);
      const std::optional<int64_t> other = AsInt(b.ranges[d]->extent);
      if (!apart || !extent || !other || *apart >= *extent || -*apart >= *other) return;
      is_same &= *apart == 0;
      distances += (d ? ", " : "") + std::to_string(*apart);
    }
    if (is_same) return;
    ThrowAt(span, "ValueError",
            "found a source and a destination in " + std::string(a.buffer->name) +
                " that overlap, (" + distances +
                ") elements apart, wanted two that do not, since elements move in any order; copy "
                "the source to another tile first");
  }

  const Views views_;
  Analyzer analyzer_;
  Substituter first_, names_;
  int unknown_ = 0;
};

PrimFunc VerifyParallelLoop(PrimFunc f) {
  ParallelLoopVerifier{f->body}(f->body);
  return f;
}

TL_REGISTER_PASS(VerifyParallelLoop);

}  // namespace
}  // namespace tl
