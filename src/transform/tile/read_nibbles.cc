/*!
 * ReadNibbles: elements of 4 bits that a program takes out of bytes are loads of such elements.
 *
 * In:  a tile program; bytes of tiles, shared or in registers, that are shifted and masked:
 *      `packed[i, j // 2] >> j % 2 * 4 & 15`, as kernels with weights of 4 bits have them.
 * Out: the same values as `uint4` elements, `packed_nibbles[i, j]`: of a view of each such tile,
 *      declared in front of the block's body. A float of such an element and a constant more or
 *      less, computed as an integer, is a sum of floats where that is exact.
 * Establishes: neighbouring elements are neighbours in memory, so loops over them are vectors, and
 *      casts take eight of a word at a time (device/include/tl/nibble_pairs.h). Only shifts of 0 or
 *      4 by what an index chooses are taken: of bytes whose two elements lie apart, nothing is
 *      gained. In a parallel loop that does not change the tile the byte and the element may have
 *      names, which are gone if nothing else uses them. Refuses nothing.
 */
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../analysis/unused_bindings.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

constexpr DLDataType kNibble{kDLUInt, 4, 1};
constexpr int64_t kLargest = 15;

bool IsInteger(DLDataType t) { return t.lanes == 1 && (t.code == kDLInt || t.code == kDLUInt); }

/*! Whether each value of `from` is one of `to`: a signed integer of as many bits has another one
 * for half of them. */
bool Holds(DLDataType to, DLDataType from) {
  if (to.code == from.code) return to.bits >= from.bits;
  return to.code == kDLInt && to.bits > from.bits;
}

/*! What is left of a value without conversions that keep it. */
Expr WithoutWidening(const Expr& e) {
  const auto* cast = e.as<CastNode>();
  if (!cast || !IsInteger(cast->dtype()) || !IsInteger(cast->value->dtype())) return e;
  return Holds(cast->dtype(), cast->value->dtype()) ? WithoutWidening(cast->value) : e;
}

/*! Without its casts; asked of 0, 1 and 4, which every integer type has. */
Expr WithoutCasts(const Expr& e) {
  const auto* cast = e.as<CastNode>();
  return cast && IsInteger(cast->dtype()) && IsInteger(cast->value->dtype())
             ? WithoutCasts(cast->value)
             : e;
}

bool IsNibble(const Expr& e) {
  const Expr value = WithoutWidening(e);
  return value.as<TensorLoadNode>() && value->dtype() == kNibble;
}

/*! Integers up to this are floats of the type, nullopt for other types. */
std::optional<int64_t> LargestExact(DLDataType t) {
  if (t.code == kDLBfloat && t.bits == 16) return 1 << 8;
  if (t.code != kDLFloat) return std::nullopt;
  if (t.bits == 16) return 1 << 11;
  return t.bits == 32 ? std::optional<int64_t>(1 << 24) : std::nullopt;
}

class NibbleReader : public ViewDeclarer {
 public:
  explicit NibbleReader(const Stmt& body) : names_(body) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    if (op->kind != ForKind::kParallel || stored_) return Default<Stmt>(op);
    stored_ = Stored();
    for (const Object* buffer : WrittenBuffers(op->body)) {
      stored_->insert(names_.RootOf(GetRef<Var>(static_cast<const VarNode*>(buffer))).get());
    }
    Stmt loop = Default<Stmt>(op);
    // A byte that nothing else uses would keep the loop's vectors narrow.
    loop = WithoutUnusedBindings(loop, [&](const BindNode* bind) {
      return bytes_.count(bind->var.get()) != 0 || elements_.count(bind->var.get()) != 0;
    });
    bytes_.clear();
    elements_.clear();
    stored_.reset();
    return loop;
  }

  /*! A byte or an element that has a name, of a tile that the loop does not change. */
  Stmt Mutate_(const BindNode* op) final {
    if (IsKeptByLoop(op->value, 8)) bytes_[op->var.get()] = op->value;
    const Stmt out = Default<Stmt>(op);
    const auto* bind = out.as<BindNode>();
    if (bind && IsNibble(bind->value) && IsKeptByLoop(bind->value, kNibble.bits)) {
      elements_[op->var.get()] = bind->value;
    }
    return out;
  }

  Expr Mutate_(const VarNode* op) final {
    const auto it = elements_.find(op);
    return it == elements_.end() ? GetRef<Expr>(op) : it->second;
  }

  Expr Mutate_(const BitwiseAndNode* op) final {
    for (const auto& [value, mask] : {std::pair(op->a, op->b), std::pair(op->b, op->a)}) {
      if (!IsConst(mask, kLargest)) continue;
      const Expr element = Nibble(value);
      if (element.defined()) return CastTo(op->dtype(), element);
    }
    return Default<Expr>(op);
  }

  Expr Mutate_(const CastNode* op) final {
    const Expr cast = Default<Expr>(op);
    const Expr value = cast.as<CastNode>()->value;
    if (IsNibble(value)) return CastTo(op->dtype(), WithoutWidening(value));
    if (const auto* add = value.as<AddNode>()) return Sum(cast, add->a, add->b, 1);
    if (const auto* sub = value.as<SubNode>()) return Sum(cast, sub->a, sub->b, -1);
    return cast;
  }

 private:
  /*! An element of a tile that the parallel loop around does not change, at a place that is no
   * element itself. */
  bool IsKeptByLoop(const Expr& value, int bits) const {
    const auto* load = WithoutWidening(value).as<TensorLoadNode>();
    if (!stored_ || !load || load->dtype().bits != bits) return false;
    const auto buffer = load->source.as_or_throw<Var>();
    return !stored_->count(RootOf(buffer).get()) &&
           NoneOf(load->indices, [](const Expr& i) { return HasNode<TensorLoadNode>(i); });
  }

  /*! Views that are made here have buffers of their own. */
  Var RootOf(const Var& buffer) const {
    const auto it = roots_.find(buffer.get());
    return it == roots_.end() ? names_.RootOf(buffer) : it->second;
  }

  /*! The element that a shifted byte begins with, if the index chooses which one; else undefined.
   */
  Expr Nibble(const Expr& value) {
    const auto* shifted = WithoutWidening(value).as<RShiftNode>();
    if (!shifted) return Expr();
    const auto named = bytes_.find(WithoutWidening(shifted->a).get());
    const Expr byte_of = named == bytes_.end() ? shifted->a : named->second;
    const auto* load = WithoutWidening(byte_of).as<TensorLoadNode>();
    if (!load || !IsInteger(load->dtype()) || load->dtype().bits != 8) return Expr();
    const Var buffer = load->source.as_or_throw<Var>();
    const bool is_tile = IsShared(buffer) || IsFragment(buffer);
    if (!is_tile || !BufferOf(buffer)->strides.empty()) return Expr();
    const Expr half = WhichHalf(shifted->b);
    if (!half.defined()) return Expr();
    Array<Expr> indices = MutateArray(load->indices);
    const size_t last = indices.size() - 1;
    const Expr byte = indices[last];
    indices.Set(last, analyzer_.Simplify(byte * 2 + CastTo(byte->dtype(), half)));
    return LoadOf(ViewOf(buffer), indices);
  }

  /*! `x % 2` of a shift by four times that; undefined for others. */
  static Expr WhichHalf(const Expr& shift) {
    const Expr bits = WithoutCasts(shift);
    Expr half;
    if (const auto* product = bits.as<MulNode>()) {
      if (IsConst(product->b, 4)) half = product->a;
      if (IsConst(product->a, 4)) half = product->b;
    } else if (const auto* left = bits.as<LShiftNode>()) {
      if (IsConst(left->b, 2)) half = left->a;
    }
    if (!half.defined()) return Expr();
    half = WithoutCasts(half);
    const auto* remainder = half.as<FloorModNode>();
    return remainder && IsConst(remainder->b, 2) ? half : Expr();
  }

  Var ViewOf(const Var& buffer) {
    Var& view = views_[buffer.get()];
    const bool is_declared = AnyOf(
        declared_, [&](const Stmt& s) { return s.as<DeclBufferNode>()->buffer.same_as(view); });
    if (!is_declared) {
      Array<Expr> shape = BufferOf(buffer)->shape;
      const size_t last = shape.size() - 1;
      shape.Set(last, analyzer_.Simplify(shape[last] * 2));
      view = MakeBuffer(std::string(buffer->name) + "_nibbles", kNibble, shape, ScopeOf(buffer));
      roots_[view.get()] = names_.RootOf(buffer);
      // Other names of the tile are declared behind it.
      declared_.push_back(DeclareView(view, names_.RootOf(buffer), buffer->span));
    }
    return view;
  }

  /*! The float of `a` and `sign` times `b`, one of which is an element of 4 bits, the other a
   * constant. */
  static Expr Sum(const Expr& cast, const Expr& a, const Expr& b, int sign) {
    const std::optional<int64_t> constant = AsInt(b), largest = LargestExact(cast->dtype());
    if (!constant || !largest || !IsNibble(a)) return cast;
    const DLDataType integer = a->dtype();
    const int64_t added = sign * *constant, most = int64_t(1) << (integer.bits - 1);
    // No integer wraps round, and every one is a float.
    const bool is_signed = integer.code == kDLInt;
    const bool fits = is_signed ? added >= -most && added + kLargest < most
                                : added >= 0 && added + kLargest < 2 * most;
    if (!fits || std::abs(added) + kLargest > *largest) return cast;
    const DLDataType type = cast->dtype();
    return CastTo(type, WithoutWidening(a)) + MakeFloat(type, static_cast<double>(added));
  }

  const Views names_;
  /*! Roots of the buffers that the parallel loop around stores to. */
  using Stored = std::unordered_set<const Object*>;
  std::optional<Stored> stored_;
  /*! Names of bytes and of elements in that loop. */
  std::unordered_map<const Object*, Expr> bytes_, elements_;
  std::unordered_map<const Object*, Var> views_, roots_;
  Analyzer analyzer_;
};

PrimFunc ReadNibbles(PrimFunc f) { return WithBody(f, NibbleReader(f->body).Mutate(f->body)); }

TL_REGISTER_PASS(ReadNibbles);

}  // namespace
}  // namespace tl
