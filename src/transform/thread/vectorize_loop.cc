/*!
 * VectorizeLoop: vectorised loops become vector code, as wide as is legal.
 *
 * In:  a thread program with `For(kVectorized)`.
 * Out: none of these. A loop of constant extent E becomes code of w lanes in an unrolled loop of
 *      E / w iterations; w is the widest power of two that divides E and passes the rules below.
 *      If w is 1, the loop is unrolled. A loop of any other extent becomes serial. Vectors are
 *      Ramp and Broadcast; an access's Ramp is in its last index.
 *
 * Legal for w lanes:
 * - Each access is invariant, or its w elements are contiguous and start at a multiple of w
 *   elements or of 16 bytes (PTX ISA, ld and st: vectors up to 16 bytes, aligned to their size).
 *   A store is contiguous. Loads of elements of half a byte from a thread's own array need a
 *   constant step only.
 * - Of the accesses of memory, the one with the smallest elements has at most 16 bytes, and none
 *   has more than 32, which are two instructions and one sector of the cache. So conversions keep
 *   full accesses on both sides, and the wider value waits in registers.
 * - Accesses of a buffer that the loop writes are to the same element in each lane, or never meet
 *   within w lanes.
 * - Conditions of `if` and `if_then_else` have one value for the w lanes (UniformComparison), or
 *   they are comparisons that hold in all lanes if they hold in the first or the last one. The
 *   code of the latter is `if (they hold) vector else loop`, where the loop has the widest vectors
 *   that no condition cuts: the tail of an array in memory has vectors of fewer lanes if its bound
 *   is a multiple of them, else it is scalar.
 * - A loop in the body runs alike in all lanes, and the body stores to no element that depends on
 *   its variable: each iteration is one of vectors, such as a term of a sum.
 * - The body has no jump, and no call that is not elementwise. Atomic additions may stand as
 *   statements, as wide as the architecture has them (target/atomic.h).
 *
 * A loop over whole registers (op/whole_registers.h) is unrolled. Where the target has arithmetic
 * on two float32 (target/packed_float.h), such loops, unrolled ones as well, become pairs, if
 * that is legal. `tirx.disable_vectorize` turns the pass off; `tl.disable_vectorize_256` limits
 * every access to 16 bytes. The pass relies on buffers that start at a multiple of 16 bytes:
 * tensors by the call's check, shared and local memory by their declaration. Refuses nothing.
 */
#include <algorithm>
#include <climits>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../op/whole_registers.h"
#include "../../target/access_width.h"
#include "../../target/atomic.h"
#include "../../target/packed_float.h"
#include "../../tvm/find.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../inline_names.h"
#include "lane_value.h"

namespace tl {
namespace {

constexpr int kMaxLanes = 32;  // of tl::vec

/*! Inlines integers, so that indices can be judged, and elements of half a byte in registers, so
 * that a cast of them can go by words. */
class LaneNameInliner : public NameInliner {
 public:
  LaneNameInliner(const Stmt& body, const Views& views) : views_(views) {
    ForEachIn<BufferStoreNode>(body, [&](const BufferStoreNode* op) {
      if (IsLocal(op->buffer)) stored_.push_back(op->buffer);
    });
  }

 protected:
  bool IsInlined(const Expr& value) const final {
    return NameInliner::IsInlined(value) || IsHalfByteThatStays(value);
  }

 private:
  /*! An element of a thread's own registers to which nothing in the body stores. */
  bool IsHalfByteThatStays(const Expr& value) const {
    const auto* load = value.as<TensorLoadNode>();
    if (!load || !IsSubByte(load->dtype())) return false;
    if (!AllOf(load->indices, IsPureInteger)) return false;
    const Var buffer = load->source.as_or_throw<Var>();
    return IsLocal(buffer) &&
           NoneOf(stored_, [&](const Var& v) { return views_.IsSameMemory(v, buffer); });
  }

  const Views& views_;
  std::vector<Var> stored_;
};

/*! The body of a vectorised loop for `lanes` values of the lane variable, if that is legal. */
class VectorBody : public StmtExprMutator {
 public:
  VectorBody(Analyzer* analyzer, const Views& views, const Target& target, const Var& lane,
             int lanes)
      : analyzer_(analyzer), views_(views), target_(target), lane_(lane), lanes_(lanes) {}

  std::optional<Stmt> Vectorize(const Stmt& body) {
    if (!LanesAreIndependent(body)) return std::nullopt;
    Stmt result = Mutate(body);
    if (!legal_ || !HasLegalWidths()) return std::nullopt;
    // A scalar tail would write single elements. In registers, where there is no wide access to be
    // gained, one selection an element is cheaper than a branch.
    const bool branches = assumption.defined();
    if (branches && (writes_sub_byte_ || widest_memory_ == 0)) return std::nullopt;
    return result;
  }

  /*! What must hold for the vector code to be the loop; undefined if nothing. */
  Expr assumption;

 protected:
  // --- statements
#define TL_ILLEGAL_(Node) \
  Stmt Mutate_(const Node* op) override { return Fail<Stmt>(op); }
  TL_ILLEGAL_(WhileNode)
  TL_ILLEGAL_(AllocBufferNode)
  TL_ILLEGAL_(DeclBufferNode)
  TL_ILLEGAL_(AssertStmtNode)
  TL_ILLEGAL_(BreakNode)
  TL_ILLEGAL_(ContinueNode)
  TL_ILLEGAL_(SBlockNode)
#undef TL_ILLEGAL_

  Stmt Mutate_(const ForNode* op) override {
    const bool is_plain = op->kind == ForKind::kSerial || op->kind == ForKind::kUnrolled;
    if (!is_plain || op->step || Uses(op->min, lane_) || Uses(op->extent, lane_)) {
      return Fail<Stmt>(op);
    }
    analyzer_->BindLoop(op);
    bound_inside_.insert(op->loop_var.get());
    auto n = make_object<ForNode>(*op);
    n->min = ScalarOnly(op->min);
    n->extent = ScalarOnly(op->extent);
    n->body = Mutate(op->body);
    return For(n);
  }

  Stmt Mutate_(const EvaluateNode* op) override {
    if (AsInt(op->value)) return GetRef<Stmt>(op);
    // An assumption about each lane: nothing is left to be asked in vector code.
    if (AssumptionOf(GetRef<Stmt>(op)).defined()) return MakeEvaluate(MakeInt(0), op->span);
    return IsCallTo(op->value, kAtomicAdd) ? AtomicAdd(op) : Fail<Stmt>(op);
  }

  Stmt Mutate_(const BindNode* op) override {
    const Expr value = Mutate(op->value);
    auto n = make_object<BindNode>(*op);
    n->value = value;
    bound_inside_.insert(op->var.get());
    const auto* type = value->ty.as<PrimTypeNode>();
    if (type && type->dtype.lanes != 1) {
      // TVM's analyzer fails on a variable that is a vector of bools.
      if (type->dtype.code == kDLBool) return Fail<Stmt>(op);
      n->var = MakeVar(op->var->name, value->dtype());
      vectors_[op->var.get()] = n->var;
    }
    return Bind(n);
  }

  Stmt Mutate_(const IfThenElseNode* op) override {
    auto n = make_object<IfThenElseNode>(*op);
    n->condition = UniformCondition(op->condition);
    n->then_case = Mutate(op->then_case);
    if (IsConst(n->condition, 1)) return n->then_case;
    if (op->else_case) n->else_case = Mutate(*op->else_case);
    return IfThenElse(n);
  }

  Stmt Mutate_(const BufferStoreNode* op) override {
    auto n = make_object<BufferStoreNode>(*op);
    const std::optional<Array<Expr>> indices = ContiguousIndices(op->buffer, op->indices);
    if (!indices) return Fail<Stmt>(op);
    n->indices = *indices;
    const bool is_sub_byte = !IsLocal(op->buffer) && IsSubByte(DTypeOf(op->buffer));
    writes_sub_byte_ |= is_sub_byte;
    const bool was_legal = legal_;
    n->value = Widen(Mutate(op->value));
    if (is_sub_byte && lanes_ == 2 && was_legal && !legal_) {
      if (const std::optional<Expr> pair = Pair(op->value)) {
        legal_ = true;
        n->value = *pair;
      }
    }
    return BufferStore(n);
  }

  /*! Two elements of 4 bits that are stored together, each computed by itself: in registers of the
   * type that they are converted from. */
  std::optional<Expr> Pair(const Expr& value) {
    for (const auto& [name, vector] : vectors_) {
      if (Uses(value, GetRef<Var>(static_cast<const VarNode*>(name)))) return std::nullopt;
    }
    const DLDataType narrow = value->dtype();
    const auto* cast = value.as<CastNode>();
    const DLDataType wide = narrow.code == kDLInt || narrow.code == kDLUInt
                                ? DLDataType{narrow.code, 8, 1}
                                : DLDataType{kDLFloat, 32, 1};
    const Expr element = cast ? cast->value : CastTo(wide, value);
    Array<Expr> lanes, numbers;
    for (int i = 0; i < lanes_; ++i) {
      lanes.push_back(analyzer_->Simplify(Substitute(element, lane_, MakeInt(lane_->dtype(), i))));
      numbers.push_back(MakeInt(i));
    }
    const Expr pair = TL_GLOBAL("prim.Shuffle")(lanes, numbers, nullptr).cast<Expr>();
    return CastTo(WithLanes(narrow, lanes_), pair);
  }

  // --- expressions: what does not depend on the lane stays scalar
  Expr Mutate_(const VarNode* op) override {
    if (op == lane_.get()) return RampOf(MakeInt(lane_->dtype(), 0), 1, lanes_);
    auto it = vectors_.find(op);
    return it == vectors_.end() ? GetRef<Expr>(op) : Expr(it->second);
  }

  Expr Mutate_(const TensorLoadNode* op) override {
    const Var buffer = op->source.as_or_throw<Var>();
    if (NamesVector(op->indices)) return Fail<Expr>(op);
    bool invariant = true;
    Array<Expr> simple;
    for (const Expr& index : op->indices) {
      simple.push_back(Uses(index, lane_) ? analyzer_->Simplify(index) : index);
      invariant &= !Uses(simple.back(), lane_);
    }
    if (invariant) {
      return With(op, &TensorLoadNode::indices, simple);
    }
    std::optional<Array<Expr>> indices = ContiguousIndices(buffer, simple);
    if (!indices) indices = IndicesOfHalfBytes(buffer, simple);
    return indices ? LoadOf(buffer, *indices) : Fail<Expr>(op);
  }

  /*! Registers of elements of half a byte, which have to be taken out of words anyway: the lanes
   * may lie apart. */
  std::optional<Array<Expr>> IndicesOfHalfBytes(const Var& buffer, const Array<Expr>& indices) {
    if (!IsLocal(buffer) || !IsSubByte(DTypeOf(buffer))) return std::nullopt;
    if (indices.size() != 1) return std::nullopt;
    const auto value = LaneValueOf(indices[0], lane_, lanes_, analyzer_);
    if (!value || value->step < 2) return std::nullopt;
    const Expr first = analyzer_->Simplify(AtLaneZero(indices[0]));
    return Array<Expr>{RampOf(first, static_cast<int>(value->step), lanes_)};
  }

  Expr Mutate_(const CallNode* op) override {
    const bool branches = IsIfThenElse(op);
    if (!branches && !IsElementwise(op)) return Fail<Expr>(op);
    Array<Expr> args = branches ? Array<Expr>{UniformCondition(op->args[0]), Mutate(op->args[1]),
                                              Mutate(op->args[2])}
                                : MutateArray(op->args);
    const Intrinsic* row = FindIntrinsic(op);
    const size_t first = branches ? 1 : row ? static_cast<size_t>(row->template_args) : 0;
    bool vector = false;
    for (size_t i = first; i < args.size(); ++i) vector |= args[i]->dtype().lanes != 1;
    if (branches && IsConst(args[0], 1)) return args[1];
    auto n = make_object<CallNode>(*op);
    if (vector) {
      for (size_t i = first; i < args.size(); ++i) args.Set(i, Widen(args[i]));
      n->ty = PrimTy(WithLanes(op->dtype(), lanes_));
    }
    n->args = args;
    return Call(n);
  }

  Expr Mutate_(const CastNode* op) override { return Unary(op, &CastNode::value); }
  Expr Mutate_(const NotNode* op) override { return Unary(op, &NotNode::a); }
  Expr Mutate_(const BitwiseNotNode* op) override { return Unary(op, &BitwiseNotNode::a); }

#define TL_BINARY_(Name) \
  Expr Mutate_(const Name##Node* op) override { return Binary(op); }
  TL_BINARY_(Add)
  TL_BINARY_(Sub)
  TL_BINARY_(Mul)
  TL_BINARY_(Div)
  TL_BINARY_(Mod)
  TL_BINARY_(FloorDiv)
  TL_BINARY_(FloorMod)
  TL_BINARY_(Min)
  TL_BINARY_(Max)
  TL_BINARY_(EQ)
  TL_BINARY_(NE)
  TL_BINARY_(LT)
  TL_BINARY_(LE)
  TL_BINARY_(GT)
  TL_BINARY_(GE)
  TL_BINARY_(And)
  TL_BINARY_(Or)
  TL_BINARY_(BitwiseAnd)
  TL_BINARY_(BitwiseOr)
  TL_BINARY_(BitwiseXor)
  TL_BINARY_(LShift)
  TL_BINARY_(RShift)
#undef TL_BINARY_

  Expr Mutate_(const SelectNode* op) override {
    auto n = make_object<SelectNode>(*op);
    n->condition = Mutate(op->condition);
    n->true_value = Mutate(op->true_value);
    n->false_value = Mutate(op->false_value);
    if (n->condition->dtype().lanes != 1 || n->true_value->dtype().lanes != 1 ||
        n->false_value->dtype().lanes != 1) {
      n->condition = Widen(n->condition);
      n->true_value = Widen(n->true_value);
      n->false_value = Widen(n->false_value);
      n->ty = PrimTy(WithLanes(op->dtype(), lanes_));
    }
    return Select(n);
  }

  Expr Mutate_(const RampNode* op) override { return Fail<Expr>(op); }
  Expr Mutate_(const BroadcastNode* op) override { return Fail<Expr>(op); }
  Expr Mutate_(const ShuffleNode* op) override { return Fail<Expr>(op); }
  Expr Mutate_(const LetNode* op) override { return Fail<Expr>(op); }

 private:
  template <typename R, typename N>
  R Fail(const N* op) {
    legal_ = false;
    return GetRef<R>(op);
  }

  Stmt AtomicAdd(const EvaluateNode* op) {
    const auto* call = op->value.as<CallNode>();
    const TensorLoadNode* target = AsAddressOf(call->args[1]);
    const auto buffer = target->source.as_or_throw<Var>();
    const DLDataType type = DTypeOf(buffer);
    const std::optional<Array<Expr>> indices = ContiguousIndices(buffer, target->indices);
    const bool one_element = call->args[2]->dtype().lanes == 1;
    if (!indices || !one_element || lanes_ > AtomicAddLanes(target_, type, IsGlobal(buffer))) {
      return Fail<Stmt>(op);
    }
    auto n = make_object<CallNode>(*call);
    n->args = {call->args[0], AddressOf(buffer, *indices), Widen(Mutate(call->args[2]))};
    return MakeEvaluate(Call(n), op->span);
  }

  Expr Widen(const Expr& e) {
    // A vector of another width comes from a node that has already failed.
    return e->dtype().lanes == 1 ? BroadcastOf(e, lanes_) : e;
  }

  template <typename N>
  Expr Unary(const N* op, Expr N::* operand) {
    auto n = make_object<N>(*op);
    (*n).*operand = Mutate(op->*operand);
    n->ty = PrimTy(WithLanes(op->dtype(), ((*n).*operand)->dtype().lanes));
    return Expr(ObjectPtr<ExprNode>(n));
  }

  template <typename N>
  Expr Binary(const N* op) {
    if (IsSubByte(op->a->dtype())) return Fail<Expr>(op);
    auto n = make_object<N>(*op);
    n->a = Mutate(op->a);
    n->b = Mutate(op->b);
    if (n->a->dtype().lanes != 1 || n->b->dtype().lanes != 1) {
      n->a = Widen(n->a);
      n->b = Widen(n->b);
      n->ty = PrimTy(WithLanes(op->dtype(), lanes_));
    }
    return Expr(ObjectPtr<ExprNode>(n));
  }

  Expr AtLaneZero(const Expr& e) { return Substitute(e, lane_, MakeInt(lane_->dtype(), 0)); }

  /*! Position of an element in memory, in elements. */
  static Expr FlatIndex(const Var& buffer, const Array<Expr>& indices) {
    const BufferTypeNode* type = BufferOf(buffer);
    Expr flat = MakeInt(indices.back()->dtype(), 0), stride = MakeInt(indices.back()->dtype(), 1);
    for (size_t i = indices.size(); i-- > 0;) {
      if (!type->strides.empty()) stride = type->strides[i];
      flat = indices[i] * stride + flat;
      stride = stride * type->shape[i];
    }
    return type->elem_offset.defined() ? flat + type->elem_offset : flat;
  }

  bool IsMultiple(const Expr& e, int64_t factor) {
    const Analyzer::Modular m = analyzer_->ModularSet(analyzer_->Simplify(e));
    return m.coeff % factor == 0 && m.base % factor == 0;
  }

  /*! The access's indices with a Ramp in the last one, if the lanes are contiguous, aligned and not
   * too wide. */
  std::optional<Array<Expr>> ContiguousIndices(const Var& buffer, const Array<Expr>& indices) {
    const DLDataType type = DTypeOf(buffer);
    if (indices.empty() || type.lanes != 1 || NamesVector(indices)) return std::nullopt;
    const int elements = std::min(lanes_, kMaxInstructionBits / type.bits);
    widest_local_ = std::max<int>(widest_local_, IsLocal(buffer) ? type.bits : 0);
    widest_memory_ = std::max<int>(widest_memory_, IsLocal(buffer) ? 0 : type.bits);
    narrowest_memory_ = std::min<int>(narrowest_memory_, IsLocal(buffer) ? INT_MAX : type.bits);
    Array<Expr> simple, first;
    for (const Expr& index : indices) {
      if (index->dtype().lanes != 1) return std::nullopt;
      simple.push_back(analyzer_->Simplify(index));
      first.push_back(analyzer_->Simplify(AtLaneZero(simple.back())));
    }
    if (!IsRun(buffer, simple, first, elements)) return std::nullopt;
    first.Set(first.size() - 1, RampOf(first.back(), 1, lanes_));
    return first;
  }

  /*! What has another value in each lane without a word about the lane. */
  bool NamesVector(const Array<Expr>& indices) const {
    return AnyOf(indices, [&](const Expr& index) {
      return HasNode<VarNode>(index, [&](const VarNode* op) { return vectors_.count(op) != 0; });
    });
  }

  /*! The lanes' elements lie side by side, the first at a multiple of `elements`. */
  bool IsRun(const Var& buffer, const Array<Expr>& indices, const Array<Expr>& first,
             int64_t elements) {
    const Expr place = FlatIndex(buffer, indices);
    const auto value = LaneValueOf(place, lane_, lanes_, analyzer_);
    if (value && value->step == 1 && value->divisor % elements == 0) return true;
    const Expr start = FlatIndex(buffer, first), step = place - start;
    return analyzer_->CanProveEqual(step, CastTo(step->dtype(), lane_)) &&
           IsMultiple(start, elements);
  }

  /*! A condition that has one value in all lanes, as a scalar; otherwise the vector is illegal. */
  Expr UniformCondition(const Expr& e) {
    if (!Uses(e, lane_)) return ScalarOnly(e);
    if (const auto* op = e.as<AndNode>()) {
      return UniformCondition(op->a) && UniformCondition(op->b);
    }
    if (e.as<OrNode>() || e.as<NotNode>()) {
      // What one operand needs in order to be true is not what the whole needs.
      ++under_or_;
      const Expr uniform = UniformUnderOr(e);
      --under_or_;
      return uniform;
    }
    if (const auto* op = e.as<LTNode>()) return UniformComparison(op, op->a - op->b, true);
    if (const auto* op = e.as<GENode>()) return UniformComparison(op, op->a - op->b, false);
    if (const auto* op = e.as<GTNode>()) return UniformComparison(op, op->b - op->a, true);
    if (const auto* op = e.as<LENode>()) return UniformComparison(op, op->b - op->a, false);
    const Expr simple = analyzer_->Simplify(e);
    return Uses(simple, lane_) ? Fail<Expr>(e.get()) : ScalarOnly(simple);
  }

  Expr UniformUnderOr(const Expr& e) {
    if (const auto* op = e.as<NotNode>()) return NotOf(UniformCondition(op->a));
    auto n = make_object<OrNode>(*e.as<OrNode>());
    n->a = UniformCondition(n->a);
    n->b = UniformCondition(n->b);
    return Or(n);
  }

  /*!
   * The comparison decides the sign of `difference`: it holds if that is negative, or if it is not.
   The sign is the same in all lanes if lane 0
   * has a multiple of w and no other lane is w or more above that: no multiple of w lies between.
   * The sign of d is the opposite of that of -d - 1.
   */
  template <typename N>
  Expr UniformComparison(const N* op, const Expr& difference, bool holds_if_negative) {
    const DLDataType type = difference->dtype();
    if (type.code != kDLInt) return Fail<Expr>(op);
    const Expr opposite = MakeInt(type, -1) - difference;
    if (StaysInStep(difference) || StaysInStep(opposite)) return AtLane(op, 0);
    const Expr step = analyzer_->Simplify(difference - AtLaneZero(difference));
    const Expr lane = CastTo(type, lane_);
    const bool rises = analyzer_->CanProveEqual(step, lane);
    const bool falls = !rises && analyzer_->CanProveEqual(step, MakeInt(type, 0) - lane);
    if ((!rises && !falls) || under_or_ || !IsKnownBefore(op->a) || !IsKnownBefore(op->b)) {
      return Fail<Expr>(op);
    }
    const Expr all = AtLane(op, rises == holds_if_negative ? lanes_ - 1 : 0);
    assumption = assumption.defined() ? assumption && all : all;
    return MakeInt(kBool, 1);
  }

  /*! The comparison in one lane, a scalar. */
  template <typename N>
  Expr AtLane(const N* op, int lane) {
    auto at = [&](const Expr& e) {
      return ScalarOnly(analyzer_->Simplify(Substitute(e, lane_, MakeInt(lane_->dtype(), lane))));
    };
    auto n = make_object<N>(*op);
    n->a = at(op->a);
    n->b = at(op->b);
    return Expr(ObjectPtr<ExprNode>(n));
  }

  /*! Has a value, the same one, in front of the loop's body. */
  bool IsKnownBefore(const Expr& e) const {
    return IsPureInteger(e) &&
           !HasNode<VarNode>(e, [&](const VarNode* op) { return bound_inside_.count(op) != 0; });
  }

  bool HasLegalWidths() const {
    if (widest_memory_ == 0) return widest_local_ * lanes_ <= kMaxInstructionBits;
    return narrowest_memory_ * lanes_ <= kMaxInstructionBits &&
           widest_memory_ * lanes_ <= MaxAccessBits();
  }

  bool StaysInStep(const Expr& e) {
    const Expr first = AtLaneZero(e);
    const Analyzer::Bound rise = analyzer_->ConstBound(analyzer_->Simplify(e - first));
    if (rise.min == 0 && rise.max == 0) return true;
    return rise.min >= 0 && rise.max < lanes_ && IsMultiple(first, lanes_);
  }

  /*! Refuses vectors and names of vectors in a place for scalars. */
  Expr ScalarOnly(const Expr& e) {
    const Expr scalar = Mutate(e);
    return scalar->dtype().lanes == 1 ? scalar : Fail<Expr>(e.get());
  }

  bool LanesAreIndependent(const Stmt& body);

  Analyzer* analyzer_;
  const Views& views_;
  const Target& target_;
  Var lane_;
  int lanes_;
  bool legal_ = true, writes_sub_byte_ = false;
  int under_or_ = 0;
  int widest_local_ = 0, widest_memory_ = 0, narrowest_memory_ = INT_MAX;
  std::unordered_set<const Object*> bound_inside_;
  std::unordered_map<const Object*, Var> vectors_;
};

/*! Vector code does a statement for all lanes before the next statement, and an iteration of a loop
 * in the body before the next one: no lane may see another lane's element. */
bool VectorBody::LanesAreIndependent(const Stmt& body) {
  struct Collector : StmtExprVisitor {
    std::vector<std::pair<Var, Array<Expr>>> stores, loads;
    std::vector<Var> inner;
    void Visit_(const ForNode* op) override {
      inner.push_back(op->loop_var);
      Default(op);
    }
    void Visit_(const BufferStoreNode* op) override {
      stores.emplace_back(op->buffer, op->indices);
      Default(op);
    }
    void Visit_(const TensorLoadNode* op) override {
      loads.emplace_back(op->source.as_or_throw<Var>(), op->indices);
      Default(op);
    }
    void Visit_(const CallNode* op) override {
      for (const PointerAccess& p : PointerAccesses(op)) stores.emplace_back(p.buffer, p.indices);
      Default(op);
    }
  } accesses;
  accesses(body);
  std::vector<std::pair<Var, Array<Expr>>> all = accesses.loads;
  AppendRange(&all, accesses.stores);
  const auto varies = [&](const Array<Expr>& indices) {
    return AnyOf(accesses.inner, [&](const Var& v) {
      return AnyOf(indices, [&](const Expr& e) { return Uses(e, v); });
    });
  };
  for (const auto& [buffer, stored] : accesses.stores) {
    for (const auto& [other, indices] : all) {
      if (!views_.IsSameMemory(buffer, other) || indices.empty()) continue;
      if (!buffer.same_as(other) || varies(indices)) return false;
      const Expr gap = analyzer_->Simplify(FlatIndex(buffer, stored) - FlatIndex(buffer, indices));
      const std::optional<int64_t> distance = AsInt(gap);
      if (!distance || (*distance != 0 && std::abs(*distance) < lanes_)) return false;
    }
  }
  return true;
}

class LoopVectorizer : public AnalyzingMutator {
 public:
  explicit LoopVectorizer(const PrimFunc& f)
      : AnalyzingMutator(f), views_(f->body), target_(TargetOf(f)) {}

 protected:
  Stmt Mutate_(const ForNode* op) override {
    For loop = AnalyzingMutator::Mutate_(op).as_or_throw<For>();
    if (loop->kind == ForKind::kUnrolled) return Paired(loop);
    if (loop->kind != ForKind::kVectorized) return loop;
    const std::optional<int64_t> extent = AsInt(analyzer_.Simplify(loop->extent));
    if (extent == 1) return Substitute(loop->body, loop->loop_var, loop->min);
    ForNode* n = loop.CopyOnWrite();
    n->kind = extent ? ForKind::kUnrolled : ForKind::kSerial;
    if (IsOfWholeRegisters(loop->body)) return Paired(loop);
    if (!extent || loop->step || !enabled_) return loop;
    return Widest(loop, *extent, kMaxLanes, true).value_or(loop);
  }

 private:
  /*! The loop with the most lanes that are legal; nullopt if no more than one lane is legal.
   * `may_branch`: a condition may cut a vector. */
  std::optional<Stmt> Widest(const For& loop, int64_t extent, int most_lanes, bool may_branch) {
    for (int lanes = most_lanes; lanes > 1; lanes /= 2) {
      if (extent % lanes != 0) continue;
      if (auto vectorized = TryLanes(loop, extent, lanes, may_branch)) return vectorized;
    }
    return std::nullopt;
  }

  /*! An unrolled loop, by pairs of float32 where it computes with them and the target does. */
  Stmt Paired(const For& loop) {
    constexpr int kPair = 2;
    const std::optional<int64_t> extent = AsInt(analyzer_.Simplify(loop->extent));
    const bool packs = enabled_ && HasPackedFloat32(target_);
    if (!packs || !extent || *extent % kPair != 0 || loop->step || !ComputesFloat32(loop->body)) {
      return loop;
    }
    return TryLanes(loop, *extent, kPair, true).value_or(loop);
  }

  std::optional<Stmt> TryLanes(const For& loop, int64_t extent, int lanes, bool may_branch) {
    const Var& v = loop->loop_var;
    const DLDataType type = v->dtype();
    const Var lane = MakeVar(std::string(v->name) + "_lane", type);
    const Var chunk = MakeVar(v->name, type);
    analyzer_.BindConst(lane, lanes);
    analyzer_.BindConst(chunk, extent / lanes);
    const bool whole = extent == lanes;
    const Expr first = whole ? loop->min : loop->min + chunk * lanes;
    LaneNameInliner inliner(loop->body, views_);
    inliner.map[v.get()] = first + lane;
    const Stmt scalar = inliner.Mutate(loop->body);
    VectorBody vector(&analyzer_, views_, target_, lane, lanes);
    std::optional<Stmt> body = vector.Vectorize(scalar);
    if (!body || (vector.assumption.defined() && !may_branch)) return std::nullopt;
    if (vector.assumption.defined()) {
      const For tail = MakeFor(lane, MakeInt(type, lanes), ForKind::kUnrolled, scalar, loop->span,
                               loop->annotations);
      auto both = make_object<IfThenElseNode>();
      both->condition = vector.assumption;
      both->then_case = *body;
      both->else_case = Widest(tail, lanes, lanes / 2, false).value_or(tail);
      both->span = loop->span;
      body = IfThenElse(both);
    }
    if (whole) return body;
    return MakeFor(chunk, MakeInt(type, extent / lanes), ForKind::kUnrolled, *body, loop->span,
                   loop->annotations);
  }

  Views views_;
  const Target& target_;
  const bool enabled_ = !DisablesVectorize();
};

PrimFunc VectorizeLoop(PrimFunc f) { return WithBody(f, LoopVectorizer(f).Mutate(f->body)); }

TL_REGISTER_PASS(VectorizeLoop);

}  // namespace
}  // namespace tl
