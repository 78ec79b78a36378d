/*!
 * OffsetTensors: the variant of a program that takes tensors at any address.
 *
 * In:  a tile program as it was traced.
 * Out: the same, each of whose tensors begins `<tensor>_offset` elements behind its address, which
 *      is a multiple of 16 bytes; function attribute `tilelang_any_address`. The offset, below 16,
 *      is the buffer's `elem_offset`, of which no pass knows anything: so no access of the tensor
 * is wider than an element, and no copy of it is one by TMA. Establishes: the program does not rely
 * on the alignment of a tensor. A program that may rely on it by itself comes back as it is: it has
 * pointers into tensors, views of them, tensors of 4-bit elements, or is the user's own text.
 * Refuses nothing.
 */
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

int BitsOf(const Var& buffer) { return DTypeOf(buffer).bits; }

/*! Whether elements of a view have the bytes of several elements of its tensor: then their address
 * is no multiple of their size. */
bool IsWide(const Var& view, const Var& tensor) { return BitsOf(view) > BitsOf(tensor); }

/*! Looks for what may rely on the alignment of tensors. */
class Reliance : public StmtExprVisitor {
 public:
  explicit Reliance(const PrimFunc& f) {
    for (const Var& p : f->params) found |= AsBuffer(p) && BitsOf(p) < 8;
    found |= GetAttr(f, "tilelang_pointers") != nullptr || HasCall(f->body, {kSourceKernel});
    for (const Var& p : f->params) {
      if (AsBuffer(p)) parameters_.insert(p.get());
    }
    Visit(f->body);
  }

  bool found = false;

 protected:
  void Visit_(const DeclBufferNode* op) override {
    const Var viewed = ViewedBy(op);
    if (viewed.defined() && IsGlobal(viewed)) Declare(op->buffer, viewed);
  }
  void Visit_(const SBlockNode* op) override {
    found |= op->annotations.count("tensor_layout_map") != 0;
    Default(op);
  }
  void Visit_(const CallNode* op) override {
    const TensorLoadNode* element = AsAddressOf(GetRef<Expr>(op));
    found |= element && IsGlobal(element->source.as_or_throw<Var>()) && !of_element_;
    found |= element && wide_.count(element->source.get());
    const bool outside = of_element_;
    // Atomic operations on one element.
    of_element_ = IsCallTo(op, kAtomicAdd) && op->args[2]->dtype().lanes == 1;
    Default(op);
    of_element_ = outside;
  }
  // Only elements of a wide view are known to be read and written as parts.
  void Visit_(const VarNode* op) override { found |= wide_.count(op) != 0; }
  void Visit_(const TensorLoadNode* op) override {
    if (!wide_.count(op->source.get())) return Default(op);
    for (const Expr& index : op->indices) Visit(index);
  }
  void Visit_(const BufferStoreNode* op) override {
    if (!wide_.count(op->buffer.get())) return Default(op);
    for (const Expr& index : op->indices) Visit(index);
    Visit(op->value);
  }

 private:
  void Declare(const Var& view, const Var& viewed) {
    const BufferTypeNode* type = BufferOf(view);
    found |= !parameters_.count(viewed.get()) || type->dtype->dtype.lanes != 1;
    found |= BitsOf(view) < 8;
    if (!IsWide(view, viewed)) return;
    found |= !type->strides.empty() || BitsOf(view) > 64;
    wide_.insert(view.get());
  }

  std::unordered_set<const Object*> parameters_, wide_;
  bool of_element_ = false;
};

/*! A view whose elements are read and written as `parts` unsigned elements of the tensor. */
struct WideView {
  Var narrow;
  int parts;
};

class Offsetter : public Substituter {
 public:
  PrimFunc Run(PrimFunc f) {
    std::vector<std::string> taken;
    for (const Var& p : f->params) taken.push_back(p->name);
    for (const Var& v : VarsOf(f->body)) taken.push_back(v->name);
    Array<Var> params;
    for (const Var& p : f->params) params.push_back(AsBuffer(p) ? WithOffset(p, &taken) : p);
    PrimFunc out = WithBody(f, Mutate(f->body));
    out.CopyOnWrite()->params = params;
    return WithAttr(out, kAnyAddress, MakeInt(1));
  }

 protected:
  Stmt Mutate_(const DeclBufferNode* op) override {
    const Var viewed = ViewedBy(op);
    if (!viewed.defined() || !map.count(viewed.get())) return Default<Stmt>(op);
    const Var tensor = map.at(viewed.get()).as_or_throw<Var>();
    const Var view = ViewWithOffset(op->buffer, tensor);
    return DeclareView(view, tensor, op->span);
  }

  Expr Mutate_(const TensorLoadNode* op) override {
    const auto it = wide_.find(op->source.get());
    if (it == wide_.end()) return Default<Expr>(op);
    const auto& [narrow, parts] = it->second;
    const Expr first = FlatIndex(op->source.as_or_throw<Var>(), MutateArray(op->indices)) * parts;
    const DLDataType type = op->dtype(), bits{kDLUInt, type.bits, 1};
    Expr value;
    for (int i = 0; i < parts; ++i) {
      const Expr part = CastTo(bits, LoadOf(narrow, {first + i}));
      const Expr placed = ShiftLeftOf(part, MakeInt(bits, i * BitsOf(narrow)));
      value = value.defined() ? BitOrOf(value, placed) : part;
    }
    return type.code == kDLUInt ? value : Expr(CallOp("tirx.reinterpret", {value}, PrimTy(type)));
  }

  Stmt Mutate_(const BufferStoreNode* op) override {
    const auto it = wide_.find(op->buffer.get());
    if (it == wide_.end()) return Default<Stmt>(op);
    const auto& [narrow, parts] = it->second;
    const Expr first = FlatIndex(op->buffer, MutateArray(op->indices)) * parts;
    const DLDataType type = op->value->dtype(), bits{kDLUInt, type.bits, 1};
    const Expr stored = Mutate(op->value);
    const Var value = MakeVar("word", bits);
    const bool is_bits = type.code == kDLUInt;
    const Expr as_bits =
        is_bits ? stored : Expr(CallOp("tirx.reinterpret", {stored}, PrimTy(bits)));
    std::vector<Stmt> all = {MakeBind(value, as_bits, op->span)};
    for (int i = 0; i < parts; ++i) {
      const Expr part = ShiftRightOf(value, MakeInt(bits, i * BitsOf(narrow)));
      const Expr narrowed = CastTo(DTypeOf(narrow), part);
      all.push_back(MakeStore(narrow, narrowed, {first + i}, op->span));
    }
    return MakeSeq(all);
  }

 private:
  static Expr FlatIndex(const Var& view, const Array<Expr>& indices) {
    Expr flat = indices[0];
    for (size_t i = 1; i < indices.size(); ++i) flat = flat * BufferOf(view)->shape[i] + indices[i];
    return flat;
  }

  /*! The view with the tensor's offset, in its own elements or, if they are wide, in the tensor's.
   */
  Var ViewWithOffset(const Var& view, const Var& tensor) {
    const Expr offset = BufferOf(tensor)->elem_offset;
    auto type = make_object<BufferTypeNode>(*BufferOf(view));
    if (IsWide(view, tensor)) {
      const int parts = BitsOf(view) / BitsOf(tensor);
      Expr count = MakeInt(parts);
      for (const Expr& extent : type->shape) count = count * extent;
      const DLDataType part{kDLUInt, static_cast<uint8_t>(BitsOf(tensor)), 1};
      const Var narrow = MakeBuffer(view->name, part, {count}, ScopeOf(view));
      auto narrow_type = make_object<BufferTypeNode>(*BufferOf(narrow));
      narrow_type->elem_offset = offset;
      const Var replaced = OfType(narrow, narrow_type);
      wide_[view.get()] = {replaced, parts};
      return replaced;
    }
    type->elem_offset = type->elem_offset + offset * (BitsOf(tensor) / BitsOf(view));
    const Var replaced = OfType(view, type);
    map[view.get()] = replaced;
    return replaced;
  }

  static Var OfType(const Var& buffer, const ObjectPtr<BufferTypeNode>& type) {
    return With(buffer.get(), &VarNode::ty, BufferType(type));
  }

  Var WithOffset(const Var& tensor, std::vector<std::string>* taken) {
    std::string name = std::string(tensor->name) + "_offset";
    while (std::find(taken->begin(), taken->end(), name) != taken->end()) name += "_";
    taken->push_back(name);
    auto type = make_object<BufferTypeNode>(*BufferOf(tensor));
    type->elem_offset = MakeVar(name);
    const Var replaced = OfType(tensor, type);
    map[tensor.get()] = replaced;
    return replaced;
  }

  std::unordered_map<const Object*, WideView> wide_;
};

PrimFunc OffsetTensors(PrimFunc f) {
  if (Reliance(f).found) return f;
  return Offsetter().Run(std::move(f));
}

Registration offset_tensors_registration([] {
  RegisterFunction("transform.OffsetTensors", OffsetTensors);
});

}  // namespace
}  // namespace tl
