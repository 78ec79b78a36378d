/*!
 * FlattenLoops: kernels of one loop over all elements of a tensor go through it in the order of its
 * memory, where its rows begin between vectors of 16 bytes.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, whose body
 *        for i, j in T.Parallel(8, 1024):
 *            if 8 * by + i < M and 1024 * bx + j < N:
 *                C[8 * by + i, 1024 * bx + j] = A[8 * by + i, 1024 * bx + j] * 2
 *      is, with n = M * N // 8 * 8 for 16-bit elements and f = (8 * by + bx) * 8192 + t,
 *        for t in T.Parallel(8192): C_flat[f] = A_flat[f] * 2      where f < n, as of any tensor
 *        if it is the first block:
 *            for t in T.Parallel(8): C_end[n + t] = A_end[n + t] * 2
 *      without the second loop where n is M * N. The first one is there twice: blocks of which all
 *      elements are in front of n have no condition for each vector, whose loads would wait for
 *      each other.
 * Establishes: threads load and store vectors of 16 bytes.
 * Left alone: kernels with other statements or other memory than tensors; loops that do not name
 *      each element of the tensor once, or of whose iterations it is known that most are for none;
 *      conditions on anything but the end of the tensor; tensors at any address; values that have
 *      effects or depend on anything but elements at the same place, for which a thread would
 *      divide.
 * Refuses nothing.
 */
#include <unordered_map>

#include "../../analysis/analyzing_mutator.h"
#include "../../layout/annotation.h"
#include "../../layout/layout.h"
#include "../../op/parallel.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../rename.h"
#include "kernel_scope.h"
#include "pipeline_bindings.h"
#include "tensor_rows.h"

namespace tl {
namespace {

/*! An axis of the grid, x in front. */
struct GridAxis {
  Var variable;
  Expr extent;
};

/*! A kernel that is one loop, which stores once. */
struct LoneLoop {
  std::vector<GridAxis> grid;
  /*! What the kernel assumes in front of the loop. */
  std::vector<Stmt> assumptions;
  ParallelNest nest;
  /*! Which iterations store; undefined for all. */
  Expr condition;
  /*! What the nest does: names of values, and the store. */
  std::vector<Stmt> bindings;
  BufferStore store;

  int64_t Iterations() const {
    int64_t n = 1;
    for (const Expr& extent : nest.extents) n *= ToInt(extent);
    return n;
  }
  /*! nullopt if the call decides it. */
  std::optional<int64_t> Blocks() const {
    int64_t n = 1;
    for (const GridAxis& axis : grid) {
      const auto extent = AsInt(axis.extent);
      if (!extent) return std::nullopt;
      n *= *extent;
    }
    return n;
  }
};

class LoopReader : public StmtExprVisitor {
 public:
  LoneLoop found;

 protected:
  void Visit_(const AttrStmtNode* op) final {
    fits_ &= op->attr_key == kThreadExtent;
    if (!fits_) return;
    const IterVar axis = op->node.cast<IterVar>();
    if (IsBlockAxis(axis)) {
      found.grid.push_back({axis->var, op->value});
    } else {
      threads_.push_back(axis->var);
    }
    Visit(op->body);
  }
  void Visit_(const SBlockNode* op) final {
    const Views views(op->body);
    const InlinedBody inlined = InlineBindings(FlatSeq(op->body), views);
    std::vector<Stmt> rest;
    for (const Stmt& s : inlined.body) {
      const Expr fact = AssumptionOf(s);
      const bool leads = rest.empty() && fact.defined() && IsArithmetic(fact);
      (leads ? found.assumptions : rest).push_back(s);
    }
    const auto* loop = rest.size() == 1 ? rest[0].as<ForNode>() : nullptr;
    fits_ &= !inlined.fixed.defined() && op->alloc_buffers.empty() && op->annotations.empty() &&
             loop && loop->kind == ForKind::kParallel && loop->annotations.empty() &&
             NoneOf(threads_, [&](const Var& v) { return Uses(op->body, v); });
    if (!fits_) return;
    found.nest = InlinedNestOfLoop(loop, views);
    if (AllOf(found.nest.extents, IsKnownExtent)) ReadBody();
  }

 private:
  /*! Names of values and a store, perhaps under a condition. */
  void ReadBody() {
    Stmt body = found.nest.body;
    if (const auto* branch = body.as<IfThenElseNode>(); branch && !branch->else_case) {
      found.condition = branch->condition;
      body = branch->then_case;
    }
    std::vector<Stmt> statements = FlatSeq(body);
    const auto* store = statements.empty() ? nullptr : statements.back().as<BufferStoreNode>();
    if (!store || !IsGlobal(store->buffer) || HasEffect(store->value)) return;
    statements.pop_back();
    const bool names = AllOf(statements, [](const Stmt& s) {
      const auto* bind = s.as<BindNode>();
      return bind && !HasEffect(bind->value);
    });
    if (!names) return;
    found.bindings = statements;
    found.store = GetRef<BufferStore>(store);
  }

  std::vector<Var> threads_;
  bool fits_ = true;
};

/*! The dimension of a tensor that a variable of the grid and one of the loop go through. */
struct TensorDigit {
  Var block, loop;
  int64_t extent;
};

/*! Stores of a loop as a walk through a tensor's memory. */
class Flattener : public StmtExprMutator {
 public:
  explicit Flattener(const LoneLoop& loop) : loop_(loop) {}

  /*! The loops in the new order; undefined if the one has to stay. */
  Stmt Run() {
    std::vector<Expr> facts;
    for (const Stmt& s : loop_.assumptions) facts.push_back(AssumptionOf(s));
    Stmt out;
    WithFacts(&analyzer_, facts, [&] { out = Flat(); });
    return out;
  }

 protected:
  Expr Mutate_(const VarNode* op) final {
    fits_ &= !Names(GetRef<Var>(op));
    return GetRef<Expr>(op);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    const Var tensor = op->source.as_or_throw<Var>();
    if (IsInOrder(tensor) && HasShape(tensor) && IsStored(op)) {
      return LoadOf(ViewOf(tensor), {place_});
    }
    fits_ &= !tensor.same_as(loop_.store->buffer);
    return Default<Expr>(op);
  }

 private:
  Stmt Flat() {
    const Var& tensor = loop_.store->buffer;
    shape_ = BufferOf(tensor)->shape;
    if (!IsInOrder(tensor) || !SetTotal() || !ReadDigits() || !IsWorthIt() || !StoresAll()) {
      return Stmt();
    }
    const int64_t vector = VectorOf(tensor), iterations = loop_.Iterations();
    const Expr whole = analyzer_.Simplify(FloorDivOf(total_, vector) * vector);
    const Expr first = BlockNumber() * iterations;
    const Span& span = loop_.nest.span;
    std::vector<Stmt> loops = {Walk("_flat", whole, first, iterations)};
    const Expr is_whole = whole >= first + MakeInt(total_->dtype(), iterations);
    if (!analyzer_.CanProve(is_whole)) {
      const Stmt other = BindingRenamer().Mutate(loops[0]);
      const Stmt branch = MakeIf(is_whole, loops[0], span);
      loops[0] = With(branch.as<IfThenElseNode>(), &IfThenElseNode::else_case, other);
    }
    if (!IsMultiple(total_, vector)) {
      loops.push_back(MakeIf(IsFirstBlock(), Walk("_end", total_, whole, vector), span));
    }
    if (!fits_) return Stmt();
    std::vector<Stmt> out = loop_.assumptions;
    AppendRange(&out, declared_);
    AppendRange(&out, loops);
    return MakeSeq(out);
  }

  /*! The loop over `count` elements from `first` on, of views of `extent` elements. */
  Stmt Walk(const std::string& suffix, const Expr& extent, const Expr& first, int64_t count) {
    views_.clear();
    suffix_ = suffix;
    extent_ = extent;
    const Var t = MakeVar("t", total_->dtype());
    place_ = first + t;
    std::vector<Stmt> body;
    for (const Stmt& s : loop_.bindings) body.push_back(Mutate(s));
    const Expr value = Mutate(loop_.store->value);
    body.push_back(MakeStore(ViewOf(loop_.store->buffer), value, {place_}, loop_.store->span));
    const Stmt named = BindingRenamer().Mutate(MakeSeq(body));
    return MakeFor(t, MakeInt(total_->dtype(), count), ForKind::kParallel, named, loop_.nest.span);
  }

  bool IsMultiple(const Expr& e, int64_t n) {
    const Analyzer::Modular m = analyzer_.ModularSet(e);
    return m.coeff % n == 0 && m.base % n == 0;
  }

  /*! Elements are whole bytes that follow each other from a multiple of 16 bytes on. */
  bool IsInOrder(const Var& tensor) {
    const BufferTypeNode* buffer = BufferOf(tensor);
    const DLDataType type = DTypeOf(tensor);
    if (!IsGlobal(tensor) || type.lanes != 1 || type.bits < 8 ||
        type.bits >= 8 * kTensorVectorBytes || !IsConst(buffer->elem_offset, 0)) {
      return false;
    }
    Expr stride = MakeInt(kInt64, 1);
    for (size_t d = buffer->strides.size(); d-- > 0;) {
      if (!analyzer_.CanProveEqual(CastTo(kInt64, buffer->strides[d]), stride)) return false;
      stride = stride * CastTo(kInt64, buffer->shape[d]);
    }
    return true;
  }

  bool HasShape(const Var& tensor) {
    const Array<Expr>& shape = BufferOf(tensor)->shape;
    if (shape.size() != shape_.size()) return false;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!analyzer_.CanProveEqual(shape[d], shape_[d])) return false;
    }
    return true;
  }

  /*! Elements of the tensor, whose rows begin between vectors; false if there is nothing to do. */
  bool SetTotal() {
    const int64_t vector = VectorOf(loop_.store->buffer);
    if (shape_.empty() || IsMultiple(shape_.back(), vector)) return false;
    const bool is_known = AllOf(shape_, IsKnownExtent);
    if (is_known) {
      const int64_t n = Product(ConstShape(loop_.store->buffer));
      total_ = MakeInt(n);
      return n >= vector && n < kMostTensorPlaces;
    }
    total_ = MakeInt(kInt64, 1);
    for (const Expr& extent : shape_) total_ = total_ * CastTo(kInt64, extent);
    return true;
  }

  /*! Of all iterations that name an element. */
  bool StoresAll() {
    if (!loop_.condition.defined()) return true;
    std::vector<Expr> inside;
    for (size_t d = 0; d < shape_.size(); ++d) {
      inside.push_back(loop_.store->indices[d] < shape_[d]);
    }
    bool holds = false;
    WithFacts(&analyzer_, inside, [&] { holds = analyzer_.CanProve(loop_.condition); });
    return holds;
  }

  /*! The load has the indices of the store. */
  bool IsStored(const TensorLoadNode* load) {
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (!analyzer_.CanProveEqual(load->indices[d], loop_.store->indices[d])) return false;
    }
    return true;
  }

  /*! What each index of the store is made of, if each variable is in one of them. */
  bool ReadDigits() {
    for (const GridAxis& axis : loop_.grid) {
      analyzer_.Bind(axis.variable, MakeInt(axis.variable->dtype(), 0), axis.extent);
    }
    for (size_t k = 0; k < loop_.nest.vars.size(); ++k) {
      analyzer_.BindConst(loop_.nest.vars[k], ToInt(loop_.nest.extents[k]));
    }
    size_t axes = 0, vars = 0;
    for (size_t d = 0; d < shape_.size(); ++d) {
      const auto digit = DigitOf(loop_.store->indices[d], shape_[d]);
      if (!digit) return false;
      digits_.push_back(*digit);
      axes += digit->block.defined();
      vars += digit->loop.defined();
    }
    for (const GridAxis& axis : loop_.grid) {
      axes += IsConst(axis.extent, 1) && !Names(axis.variable);
    }
    return axes == loop_.grid.size() && vars == loop_.nest.vars.size();
  }

  bool Names(const Var& v) const {
    return AnyOf(digits_, [&](const TensorDigit& digit) {
      return v.same_as(digit.block) || v.same_as(digit.loop);
    });
  }

  /*! `block * extent + loop`, which goes through all of a dimension. */
  std::optional<TensorDigit> DigitOf(const Expr& index, const Expr& dimension) {
    TensorDigit digit{Var(), Var(), 1};
    for (size_t k = 0; k < loop_.nest.vars.size(); ++k) {
      const Var& v = loop_.nest.vars[k];
      if (!Uses(index, v)) continue;
      if (digit.loop.defined() || Names(v)) return std::nullopt;
      digit.loop = v;
      digit.extent = ToInt(loop_.nest.extents[k]);
    }
    Expr blocks = MakeInt(1);
    for (const GridAxis& axis : loop_.grid) {
      if (!Uses(index, axis.variable)) continue;
      if (digit.block.defined() || Names(axis.variable)) return std::nullopt;
      digit.block = axis.variable;
      blocks = axis.extent;
    }
    Expr wanted = MakeInt(0);
    if (digit.block.defined()) wanted = digit.block * digit.extent;
    if (digit.loop.defined()) wanted = wanted + digit.loop;
    // As T.ceildiv has it.
    const Expr least = FloorDivOf(dimension + (digit.extent - 1), digit.extent);
    const bool covers = analyzer_.CanProve(blocks * digit.extent >= dimension) ||
                        analyzer_.CanProveEqual(blocks, least);
    if (!covers || !analyzer_.CanProveEqual(index, wanted)) return std::nullopt;
    return digit;
  }

  /*! Of a block's iterations, in the new order, at least half have an element. Where the call
   * decides it, blocks with nothing to do end at once. */
  bool IsWorthIt() const {
    const auto blocks = loop_.Blocks(), total = AsInt(total_);
    if (!blocks || !total) return true;
    return *blocks <= kMostTensorPlaces / loop_.Iterations() &&
           2 * *total >= *blocks * loop_.Iterations();
  }

  Expr BlockNumber() const {
    Expr number = MakeInt(total_->dtype(), 0);
    for (size_t k = loop_.grid.size(); k-- > 0;) {
      const auto& [variable, extent] = loop_.grid[k];
      if (IsConst(extent, 1)) continue;
      number = number * CastTo(total_->dtype(), extent) + CastTo(total_->dtype(), variable);
    }
    return number;
  }

  Expr IsFirstBlock() const {
    Expr all = EqualOf(MakeInt(0), MakeInt(0));
    for (const GridAxis& axis : loop_.grid) {
      if (!IsConst(axis.extent, 1))
        all = all && EqualOf(axis.variable, ZeroOf(axis.variable->dtype()));
    }
    return all;
  }

  Var ViewOf(const Var& tensor) {
    Var& view = views_[tensor.get()];
    if (!view.defined()) {
      view = MakeBuffer(std::string(tensor->name) + suffix_, DTypeOf(tensor), {extent_},
                        ScopeOf(tensor));
      declared_.push_back(DeclareView(view, tensor, loop_.store->span));
    }
    return view;
  }

  const LoneLoop& loop_;
  Analyzer analyzer_;
  Array<Expr> shape_;
  /*! Elements, of the type of places. */
  Expr total_;
  std::vector<TensorDigit> digits_;
  /*! Of the loop that is being made. */
  Expr place_, extent_;
  std::string suffix_;
  std::unordered_map<const Object*, Var> views_;
  std::vector<Stmt> declared_;
  bool fits_ = true;
};

/*! Puts another body into the place of a block's. */
class BodyReplacer : public StmtExprMutator {
 public:
  explicit BodyReplacer(const Stmt& body) : body_(body) {}

 protected:
  Stmt Mutate_(const SBlockNode* op) final { return With(op, &SBlockNode::body, body_); }

 private:
  const Stmt body_;
};

PrimFunc FlattenLoops(PrimFunc f) {
  if (DisablesSafeMemoryAccess()) return f;
  return ForEachKernel(f, [](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    LoopReader reader;
    reader(kernel);
    const Stmt body = reader.found.store.defined() ? Flattener(reader.found).Run() : Stmt();
    return body.defined() ? BodyReplacer(body).Mutate(kernel) : kernel;
  });
}

TL_REGISTER_PASS(FlattenLoops);

}  // namespace
}  // namespace tl
