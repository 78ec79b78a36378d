/*!
 * FlattenLoops: kernels of one loop over all elements of a tensor go through it in the order of its
 * memory, where its rows begin between vectors of 16 bytes.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, whose body
 *        for i, j in T.Parallel(8, 1024):
 *            C[8 * by + i, 1024 * bx + j] = A[8 * by + i, 1024 * bx + j] * 2
 *      is, with rows of 8191 elements and f = (8 * by + bx) * 8192 + t,
 *        for t in T.Parallel(8192): C_flat[f] = A_flat[f] * 2
 * Establishes: threads load and store vectors of 16 bytes.
 * Left alone: kernels with other statements or other memory than tensors; loops that do not name
 *      each element of the tensor once, or of whose iterations most are for none; tensors of sizes
 *      of the call, or at any address; values that have effects or depend on anything but elements
 *      at the same place, for which a thread would divide.
 * Refuses nothing.
 */
#include <unordered_map>

#include "../../analysis/effects.h"
#include "../../layout/annotation.h"
#include "../../layout/layout.h"
#include "../../op/parallel.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "pipeline_bindings.h"
#include "tensor_rows.h"

namespace tl {
namespace {

/*! An axis of the grid, x in front. */
struct GridAxis {
  Var variable;
  int64_t extent;
};

/*! A kernel that is one loop, which stores once. */
struct LoneLoop {
  std::vector<GridAxis> grid;
  ParallelNest nest;
  /*! The body of the nest. */
  BufferStore store;

  int64_t Iterations() const {
    int64_t n = 1;
    for (const Expr& extent : nest.extents) n *= ToInt(extent);
    return n;
  }
  int64_t Blocks() const {
    int64_t n = 1;
    for (const GridAxis& axis : grid) n *= axis.extent;
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
      fits_ &= AsInt(op->value).has_value();
      found.grid.push_back({axis->var, AsInt(op->value).value_or(0)});
    } else {
      threads_.push_back(axis->var);
    }
    Visit(op->body);
  }
  void Visit_(const SBlockNode* op) final {
    const Views views(op->body);
    const InlinedBody inlined = InlineBindings(FlatSeq(op->body), views);
    const auto* loop = inlined.body.size() == 1 ? inlined.body[0].as<ForNode>() : nullptr;
    fits_ &= !inlined.fixed.defined() && op->alloc_buffers.empty() && op->annotations.empty() &&
             loop && loop->kind == ForKind::kParallel && loop->annotations.empty() &&
             NoneOf(threads_, [&](const Var& v) { return Uses(op->body, v); });
    if (!fits_) return;
    found.nest = InlinedNestOfLoop(loop, views);
    const auto* store = found.nest.body.as<BufferStoreNode>();
    fits_ = store && AllOf(found.nest.extents, IsKnownExtent) && !HasEffect(store->value) &&
            IsGlobal(store->buffer);
    if (fits_) found.store = GetRef<BufferStore>(store);
  }

 private:
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

  /*! The loop in the new order; undefined if it has to stay. */
  Stmt Run() {
    const BufferStore& store = loop_.store;
    if (!IsInOnePiece(store->buffer) || !HasOddRows(store->buffer)) return Stmt();
    shape_ = ConstShape(store->buffer);
    if (!ReadDigits() || !IsWorthIt()) return Stmt();
    const int64_t iterations = loop_.Iterations();
    const Var t = MakeVar("t");
    place_ = BlockNumber() * iterations + t;
    const Expr value = Mutate(store->value);
    if (!fits_) return Stmt();
    const Stmt flat = MakeStore(ViewOf(store->buffer), value, {place_}, store->span);
    declared_.push_back(MakeFor(t, MakeInt(iterations), ForKind::kParallel, flat, loop_.nest.span));
    return MakeSeq(declared_);
  }

 protected:
  Expr Mutate_(const VarNode* op) final {
    fits_ &= !Names(GetRef<Var>(op));
    return GetRef<Expr>(op);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    const Var tensor = op->source.as_or_throw<Var>();
    const bool is_same = IsInOnePiece(tensor) && ConstShape(tensor) == shape_ && IsStored(op);
    if (is_same) return LoadOf(ViewOf(tensor), {place_});
    fits_ &= !tensor.same_as(loop_.store->buffer);
    return Default<Expr>(op);
  }

 private:
  /*! The load has the indices of the store. */
  bool IsStored(const TensorLoadNode* load) {
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (!analyzer_.CanProveEqual(load->indices[d], loop_.store->indices[d])) return false;
    }
    return true;
  }

  /*! What each index of the store is made of, if each variable is in one of them. */
  bool ReadDigits() {
    for (const GridAxis& axis : loop_.grid) analyzer_.BindConst(axis.variable, axis.extent);
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
    for (const GridAxis& axis : loop_.grid) axes += axis.extent == 1 && !Names(axis.variable);
    return axes == loop_.grid.size() && vars == loop_.nest.vars.size();
  }

  bool Names(const Var& v) const {
    return AnyOf(digits_, [&](const TensorDigit& digit) {
      return v.same_as(digit.block) || v.same_as(digit.loop);
    });
  }

  /*! `block * extent + loop`, which goes through all of a dimension. */
  std::optional<TensorDigit> DigitOf(const Expr& index, int64_t dimension) {
    TensorDigit digit{Var(), Var(), 1};
    for (size_t k = 0; k < loop_.nest.vars.size(); ++k) {
      const Var& v = loop_.nest.vars[k];
      if (!Uses(index, v)) continue;
      if (digit.loop.defined() || Names(v)) return std::nullopt;
      digit.loop = v;
      digit.extent = ToInt(loop_.nest.extents[k]);
    }
    int64_t blocks = 1;
    for (const GridAxis& axis : loop_.grid) {
      if (!Uses(index, axis.variable)) continue;
      if (digit.block.defined() || Names(axis.variable)) return std::nullopt;
      digit.block = axis.variable;
      blocks = axis.extent;
    }
    Expr wanted = MakeInt(0);
    if (digit.block.defined()) wanted = digit.block * digit.extent;
    if (digit.loop.defined()) wanted = wanted + digit.loop;
    const bool covers = blocks * digit.extent >= dimension;
    if (!covers || !analyzer_.CanProveEqual(index, wanted)) return std::nullopt;
    return digit;
  }

  /*! Of a block's iterations, in the new order, at least half have an element. */
  bool IsWorthIt() const {
    return loop_.Blocks() <= kMostTensorPlaces / loop_.Iterations() &&
           2 * Product(shape_) >= loop_.Blocks() * loop_.Iterations();
  }

  Expr BlockNumber() const {
    Expr number = MakeInt(0);
    for (size_t k = loop_.grid.size(); k-- > 0;) {
      if (loop_.grid[k].extent == 1) continue;
      number = number * loop_.grid[k].extent + loop_.grid[k].variable;
    }
    return number;
  }

  Var ViewOf(const Var& tensor) {
    Var& view = views_[tensor.get()];
    if (!view.defined()) {
      view = AsOneRow(tensor);
      declared_.push_back(DeclareView(view, tensor, loop_.store->span));
    }
    return view;
  }

  const LoneLoop& loop_;
  Analyzer analyzer_;
  std::vector<int64_t> shape_;
  std::vector<TensorDigit> digits_;
  Expr place_;
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
