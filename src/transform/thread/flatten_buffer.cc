/*!
 * FlattenBuffer: every buffer gets one dimension.
 *
 * In:  a thread program without blocks; buffers of any rank, row-major or with strides, with or
 *      without an offset; only the last index of an access may be a Ramp.
 * Out: accesses, also those under address_of, have one index: offset + sum of index * stride,
 *      simplified under the ranges of threads, loops and bound values. A parameter keeps its type,
 *      for the host; a DeclBuffer in front of the kernels gives its flat view. Allocations become
 *      flat in place. Views of the same dtype become the buffer itself, others are flat views of
 *      the flat buffer.
 *      An index into shared memory or a thread's array that depends on data, and is not provably
 *      less than its extent, becomes tl.in_extent(index, ..): one past a row's end is an element of
 *      the next row.
 * Establishes: a flat index is in int32 where the buffer provably has at most 2^31 - 1 elements,
 * else in int64 (`tl.config_index_bitwidth` = 64: for all of global memory). What is computed on
 * the way to an index, and what is compared, has its mathematical value (wide_bounds.h): in int64
 * where the ranges of threads, loops, dimensions and names and `assume` leave open whether int32
 * will do. So has the number of iterations of a loop by a step (kExactExtent). A name of such an
 * integer gets a second one, of the exact value, for indices and comparisons; as a value it wraps.
 * A coordinate of a tensor map that int32 does not have is in front of the tensor. Refuses: regions
 * and vectors in other indices (tile operators and vectorisation come before: a bug).
 */
#include <algorithm>
#include <unordered_set>

#include "../../analysis/analyzing_mutator.h"
#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "wide_bounds.h"

namespace tl {
namespace {

constexpr const char* kFlattenBuffer = "FlattenBuffer";

/*! A buffer's place in memory: element (i, j, ..) is at offset + i * strides[0] + j * strides[1] +
 * .. */
struct Linear {
  std::vector<Expr> strides;
  Expr offset;
  Expr size;
  DLDataType index_type;
};

bool IsRowMajor(const BufferTypeNode* type) {
  const size_t rank = type->shape.size();
  for (size_t d = 0; d < type->strides.size(); ++d) {
    const auto stride = SizeProductOf(type->strides[d]);
    const auto inner = SizeProductOf({type->shape.begin() + static_cast<long>(d) + 1,
                                      type->shape.begin() + static_cast<long>(rank)});
    const bool same = stride && inner && stride->constant == inner->constant;
    if (!same || !stride->SameFactors(*inner)) return false;
  }
  return true;
}

bool IsFlat(const BufferTypeNode* type) {
  return type->shape.size() == 1 && type->strides.empty() && IsConst(type->elem_offset, 0);
}

/*! Whether a value is read from memory, wholly or in part. */
class DependsOnData : public StmtExprVisitor {
 public:
  explicit DependsOnData(const std::unordered_set<const Object*>& from_data)
      : from_data_(from_data) {}

  bool Of(const Expr& e) {
    Visit(e);
    return found_;
  }

 protected:
  void Visit_(const TensorLoadNode*) override { found_ = true; }
  void Visit_(const VarNode* op) override { found_ |= from_data_.count(op) > 0; }

 private:
  const std::unordered_set<const Object*>& from_data_;
  bool found_ = false;
};

class Flattener : public StmtExprMutator {
 public:
  PrimFunc Run(PrimFunc f) {
    analyzer_.BindShapes(f);
    bounds_.Shapes(f);
    std::vector<Stmt> body;
    for (const Var& p : f->params) {
      if (!AsBuffer(p) || IsFlat(BufferOf(p))) continue;
      body.push_back(DeclareView(FlatBuffer(p), p, p->span));
    }
    body.push_back(WithoutUnusedNames(Mutate(f->body)));
    return WithBody(f, MakeSeq(body));
  }

 protected:
  Expr Mutate_(const TensorLoadNode* op) override {
    const auto buffer = op->source.as_or_throw<Var>();
    TensorLoad load(make_object<TensorLoadNode>(*op));
    load.CopyOnWrite()->indices = FlatIndices(buffer, op->indices);
    load.CopyOnWrite()->source = FlatBuffer(buffer);
    return load;
  }

  Expr Mutate_(const TensorRegionNode* op) override {
    ThrowBug(op->span, kFlattenBuffer, "found a region of a buffer, wanted loads and stores only");
  }

  Stmt Mutate_(const BufferStoreNode* op) override {
    BufferStore store(make_object<BufferStoreNode>(*op));
    store.CopyOnWrite()->value = Mutate(op->value);
    store.CopyOnWrite()->indices = FlatIndices(op->buffer, op->indices);
    store.CopyOnWrite()->buffer = FlatBuffer(op->buffer);
    return store;
  }

  Stmt Mutate_(const AllocBufferNode* op) override {
    if (IsFlat(BufferOf(op->buffer))) return GetRef<Stmt>(op);
    AllocBuffer alloc(make_object<AllocBufferNode>(*op));
    alloc.CopyOnWrite()->buffer = FlatBuffer(op->buffer);
    return alloc;
  }

  Stmt Mutate_(const DeclBufferNode* op) override {
    const Var root = ViewedBy(op);
    if (!root.defined()) {
      DeclBuffer decl(make_object<DeclBufferNode>(*op));
      decl.CopyOnWrite()->data = Mutate(op->data);
      decl.CopyOnWrite()->buffer = FlatBuffer(op->buffer);
      return decl;
    }
    const Var flat = FlatBuffer(root);
    if (DTypeOf(root) != DTypeOf(op->buffer)) {
      return DeclareView(FlatBuffer(op->buffer), flat, op->span);
    }
    flat_[op->buffer.get()] = flat;
    return MakeSeq({});
  }

  Stmt Mutate_(const AttrStmtNode* op) override {
    if (op->attr_key == kThreadExtent) {
      analyzer_.BindThread(op);
      bounds_.Range(op->node.cast<IterVar>()->var, MakeInt(0), op->value);
    }
    // The node of an attribute is not an expression of the program.
    AttrStmt attr(make_object<AttrStmtNode>(*op));
    attr.CopyOnWrite()->value = Mutate(op->value);
    attr.CopyOnWrite()->body = Mutate(op->body);
    return attr;
  }

  Stmt Mutate_(const ForNode* op) override {
    analyzer_.BindLoop(op);
    bounds_.Range(op->loop_var, op->min, op->extent);
    For loop = Default<Stmt>(op).as_or_throw<For>();
    if (!op->annotations.count(kExactExtent)) return loop;
    loop.CopyOnWrite()->annotations.erase(kExactExtent);
    if (!bounds_.IsExact(loop->extent)) loop.CopyOnWrite()->extent = Trips(loop);
    return loop;
  }

  // What is assumed holds for the rest of a sequence.
  Stmt Mutate_(const SeqStmtNode* op) override {
    WideBounds::Before before;
    std::vector<Stmt> stmts;
    for (const Stmt& s : FlatSeq(GetRef<Stmt>(op))) {
      stmts.push_back(Mutate(s));
      if (const Expr fact = AssumptionOf(s); fact.defined()) bounds_.Assume(fact, &before);
    }
    bounds_.PutBack(before);
    return MakeSeq(stmts);
  }

  Stmt Mutate_(const BindNode* op) override {
    analyzer_.BindValue(op);
    if (DependsOnData(from_data_).Of(op->value)) from_data_.insert(op->var.get());
    const Stmt bind = Default<Stmt>(op);
    const Stmt wide = bounds_.Value(bind.as<BindNode>());
    if (!wide.defined()) return bind;
    wide_names_.insert(wide.as<BindNode>()->var.get());
    return MakeSeq({bind, wide});
  }

  Expr Mutate_(const CallNode* op) override {
    const Expr result = Default<Expr>(op);
    if (!TakesCoordinates(op)) return result;
    auto call = make_object<CallNode>(*result.as<CallNode>());
    call->args = call->args.Map([this](const Expr& e) { return Coordinate(e); });
    return Call(call);
  }

#define TL_COMPARISON_(Name) \
  Expr Mutate_(const Name##Node* op) override { return Compare(op); }
  TL_COMPARISON_(LT)
  TL_COMPARISON_(LE)
  TL_COMPARISON_(GT)
  TL_COMPARISON_(GE)
  TL_COMPARISON_(EQ)
  TL_COMPARISON_(NE)
#undef TL_COMPARISON_

 private:
  const Linear& LinearOf(const Var& buffer) {
    auto it = linear_.find(buffer.get());
    if (it != linear_.end()) return it->second;
    const BufferTypeNode* type = BufferOf(buffer);
    const size_t rank = type->shape.size();
    Linear linear;
    linear.index_type = IndexType(type);
    auto widen = [&linear](const Expr& e) { return CastTo(linear.index_type, e); };
    linear.offset = widen(type->elem_offset);
    linear.strides.resize(rank);
    Expr row_major = MakeInt(linear.index_type, 1);
    linear.size = linear.offset + MakeInt(linear.index_type, 1);
    for (size_t d = rank; d-- > 0;) {
      linear.strides[d] = type->strides.empty() ? row_major : widen(type->strides[d]);
      linear.size =
          linear.size + (widen(type->shape[d]) - MakeInt(linear.index_type, 1)) * linear.strides[d];
      row_major = row_major * widen(type->shape[d]);
    }
    linear.size =
        analyzer_.Simplify(type->strides.empty() ? linear.offset + row_major : linear.size);
    return linear_.emplace(buffer.get(), linear).first->second;
  }

  /*! int32 where no element's place can exceed it. */
  DLDataType IndexType(const BufferTypeNode* type) {
    auto bound = [this](const Expr& e) { return static_cast<double>(bounds_.Of(e).max); };
    // Doubles hold every product of interest: exactly below 2^53, and anything larger needs int64
    // anyway.
    double size = bound(type->elem_offset) + 1;
    if (IsRowMajor(type)) {
      size += bounds_.MostElements(type->shape) - 1;
    } else {
      for (size_t d = type->shape.size(); d-- > 0;) {
        size += (bound(type->shape[d]) - 1) * bound(type->strides[d]);
      }
    }
    const bool wide = wide_ && type->storage_scope == "global";
    return size <= INT32_MAX && !wide ? kInt32 : kInt64;
  }

  Var FlatBuffer(const Var& buffer) {
    auto it = flat_.find(buffer.get());
    if (it != flat_.end()) return it->second;
    if (IsFlat(BufferOf(buffer))) return buffer;
    auto type = make_object<BufferTypeNode>(*BufferOf(buffer));
    type->shape = {LinearOf(buffer).size};
    type->strides = {};
    type->elem_offset = MakeInt(LinearOf(buffer).index_type, 0);
    type->layout = std::nullopt;
    auto var = make_object<VarNode>(*buffer.get());
    var->ty = BufferType(type);
    return flat_.emplace(buffer.get(), Var(var)).first->second;
  }

  Array<Expr> FlatIndices(const Var& buffer, const Array<Expr>& indices) {
    const BufferTypeNode* type = BufferOf(buffer);
    if (indices.size() != type->shape.size()) {
      ThrowBug(buffer->span, kFlattenBuffer,
               "found " + std::to_string(indices.size()) + " indices of " +
                   std::string(buffer->name) + ", wanted " + std::to_string(type->shape.size()));
    }
    const Linear& linear = LinearOf(buffer);
    Expr flat = linear.offset;
    Ramp ramp;
    for (size_t d = 0; d < indices.size(); ++d) {
      Expr index = Mutate(indices[d]);
      if (index->dtype().lanes != 1) {
        if (!index.as<RampNode>() || d + 1 != indices.size()) {
          ThrowBug(index->span, kFlattenBuffer,
                   "found a vector index of " + std::string(buffer->name) +
                       ", wanted a Ramp in the last index");
        }
        ramp = index.as_or_throw<Ramp>();
        index = ramp->base;
      }
      index = Index(index, type->shape[d], linear.index_type);
      if (!IsGlobal(buffer) && indices.size() > 1) {
        index = InExtent(index, indices[d], buffer, static_cast<int>(d), ramp);
      }
      flat = flat + index * linear.strides[d];
    }
    flat = analyzer_.Simplify(flat);
    if (!ramp.defined()) return {flat};
    const Expr stride = CastTo(linear.index_type, ramp->stride) * linear.strides.back();
    return {RampOf(flat, ToInt(analyzer_.Simplify(stride)), ramp->dtype().lanes)};
  }

  /*! `index` in dimension `d`, which was `written` before it was flattened, with a check where it
   * needs one: a vector's elements follow each other. */
  Expr InExtent(const Expr& index, const Expr& written, const Var& buffer, int d,
                const Ramp& ramp) {
    const bool vector = ramp.defined() && written.as<RampNode>();
    const int64_t last = vector ? (ramp->dtype().lanes - 1) * ToInt(ramp->stride) : 0;
    const Expr& extent = BufferOf(buffer)->shape[static_cast<size_t>(d)];
    if (!extent.as<IntImmNode>() || last < 0 || !DependsOnData(from_data_).Of(written))
      return index;
    const WideBounds::Bound bound = bounds_.Of(written.as<RampNode>() ? ramp->base : written);
    const int64_t room = ToInt(extent) - last;
    if (bound.min >= 0 && bound.max < room) return index;
    return CallOp(kInExtent,
                  {index, MakeInt(room), StringOf(std::string(buffer->name)), MakeInt(d)},
                  PrimTy(index->dtype()));
  }

  /*! A comparison that guards an access has to see the index that the access has. */
  template <typename N>
  Expr Compare(const N* op) {
    auto n = make_object<N>(*op);
    n->a = Mutate(op->a);
    n->b = Mutate(op->b);
    const DLDataType type = n->a->dtype();
    if ((type != kInt32 && type != kInt64) || (bounds_.IsExact(n->a) && bounds_.IsExact(n->b))) {
      return Expr(ObjectPtr<ExprNode>(n));
    }
    if (const Expr narrow = Narrow(n.get()); narrow.defined()) return narrow;
    n->a = bounds_.Widened(n->a);
    n->b = bounds_.Widened(n->b);
    return Expr(ObjectPtr<ExprNode>(n));
  }

  /*! The same comparison in int32 if one side is a constant and one part of the other decides. */
  template <typename N>
  Expr Narrow(const N* op) const {
    constexpr bool kLess = std::is_same_v<N, LTNode> || std::is_same_v<N, LENode>;
    constexpr bool kStrict = std::is_same_v<N, LTNode> || std::is_same_v<N, GTNode>;
    if constexpr (std::is_same_v<N, EQNode> || std::is_same_v<N, NENode>) return Expr();
    const Expr &small = kLess ? op->a : op->b, &large = kLess ? op->b : op->a;
    if (const auto least = AsInt(small); least && *least < INT64_MAX) {
      return bounds_.AtLeast(large, *least + kStrict);
    }
    const auto most = AsInt(large);
    if (!most || *most == INT64_MAX) return Expr();
    const Expr above = bounds_.AtLeast(small, *most + !kStrict);
    return above.defined() ? NotOf(above) : above;
  }

  /*! An index into a dimension, which is in its extent: a guard has seen to that, or the program.
   */
  Expr Index(const Expr& e, const Expr& extent, DLDataType t) {
    const int64_t last = std::max<int64_t>(bounds_.Of(extent).max, 1) - 1;
    if (e->dtype() == t && bounds_.IsExactWithin(e, 0, last)) return e;
    if (t == kInt64) return bounds_.Widened(e);
    if (e->dtype().code == kDLInt && e->dtype().bits <= 32 && bounds_.IsExact(e)) {
      return CastTo(t, e);
    }
    return CastTo(t, bounds_.Widened(e));
  }

  static bool TakesCoordinates(const CallNode* op) {
    for (const char* name :
         {kTmaLoad, kTmaLoadMulticast, kTmaLoadIm2col, kTmaLoadWaited, kTmaStore, kTmaReduce}) {
      if (IsCallTo(op, name)) return true;
    }
    return false;
  }

  /*! The extent of a loop by a step. More iterations than its variable counts are as good as the
   * most. */
  Expr Trips(const For& loop) {
    const DLDataType t = loop->loop_var->dtype();
    const Expr trips = bounds_.Widened(loop->extent);
    if (t.bits > 32) return trips;
    const bool fits = bounds_.Of(loop->extent).max <= INT32_MAX;
    return CastTo(t, fits ? trips : MinOf(trips, MakeInt(kInt64, INT32_MAX)));
  }

  /*! The unit takes int32, and reads zeros and writes nothing outside of the tensor. */
  Expr Coordinate(const Expr& e) {
    const auto* type = e->ty.as<PrimTypeNode>();
    if (!type || type->dtype.code != kDLInt || type->dtype.lanes != 1 || AsInt(e)) return e;
    const WideBounds::Bound bound = bounds_.Of(e);
    // A sum that has wrapped once from above is so far in front of the tensor that no box reaches
    // it.
    constexpr int64_t kMost = (int64_t(1) << 32) - (1 << 16);
    if (type->dtype.bits <= 32 && bounds_.IsModular(e) && bound.min >= INT32_MIN &&
        bound.max < kMost) {
      return e;
    }
    return CallOp(kTmaCoordinate, {bounds_.Widened(e)}, PrimTy(kInt32));
  }

  /*! Exact values that nobody has asked for go. */
  Stmt WithoutUnusedNames(const Stmt& body) const {
    struct Remover : StmtExprMutator {
      const Flattener* of;
      Stmt Mutate_(const BindNode* op) override {
        const bool unused = of->wide_names_.count(op->var.get()) && !of->bounds_.IsUsed(op->var);
        return unused ? MakeSeq({}) : GetRef<Stmt>(op);
      }
    } remover;
    remover.of = this;
    return wide_names_.empty() ? body : remover.Mutate(body);
  }

  static bool WantsWideIndices() {
    const Any bits = PassConfig("tl.config_index_bitwidth");
    if (bits == nullptr) return false;
    const auto value = bits.try_cast<int64_t>();
    if (value && (*value == 32 || *value == 64)) return *value == 64;
    ThrowAt(Span(), "ValueError",
            "tl.config_index_bitwidth: found another value, wanted 32 or 64; leave it out for 32");
  }

  const bool wide_ = WantsWideIndices();
  Analyzer analyzer_;
  WideBounds bounds_;
  std::unordered_set<const Object*> wide_names_;
  std::unordered_set<const Object*> from_data_;  // variables
  std::unordered_map<const Object*, Linear> linear_;
  std::unordered_map<const Object*, Var> flat_;
};

PrimFunc FlattenBuffer(PrimFunc f) { return Flattener().Run(f); }

Registration flatten_buffer_registration([] { RegisterPass(kFlattenBuffer, FlattenBuffer); });

}  // namespace
}  // namespace tl
