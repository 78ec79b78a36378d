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

#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! Looks for what may rely on the alignment of tensors. */
class Reliance : public StmtExprVisitor {
 public:
  explicit Reliance(const PrimFunc& f) {
    for (const Var& p : f->params) found |= AsBuffer(p) && BufferOf(p)->dtype->dtype.bits < 8;
    found |= GetAttr(f, "tilelang_pointers") != nullptr || HasCall(f->body, {"tl.source_kernel"});
    Visit(f->body);
  }

  bool found = false;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const DeclBufferNode* op) override {
    const Var viewed = ViewedBy(op);
    found |= viewed.defined() && IsGlobal(viewed);
    Default(op);
  }
  void Visit_(const SBlockNode* op) override {
    found |= op->annotations.count("tensor_layout_map") != 0;
    Default(op);
  }
  void Visit_(const CallNode* op) override {
    const TensorLoadNode* element = AsAddressOf(GetRef<Expr>(op));
    found |= element && IsGlobal(element->source.as_or_throw<Var>()) && !of_element_;
    const bool outside = of_element_;
    // Atomic operations on one element.
    of_element_ = IsCallTo(GetRef<Expr>(op), kAtomicAdd) && op->args[2]->dtype().lanes == 1;
    Default(op);
    of_element_ = outside;
  }

 private:
  bool of_element_ = false;
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

 private:
  Var WithOffset(const Var& tensor, std::vector<std::string>* taken) {
    std::string name = std::string(tensor->name) + "_offset";
    while (std::find(taken->begin(), taken->end(), name) != taken->end()) name += "_";
    taken->push_back(name);
    auto type = make_object<BufferTypeNode>(*BufferOf(tensor));
    type->elem_offset = MakeVar(name);
    auto var = make_object<VarNode>(*tensor.get());
    var->ty = BufferType(type);
    const Var replaced(var);
    map[tensor.get()] = replaced;
    return replaced;
  }
};

PrimFunc OffsetTensors(PrimFunc f) {
  if (Reliance(f).found) return f;
  return Offsetter().Run(std::move(f));
}

Registration registration([] { RegisterFunction("transform.OffsetTensors", OffsetTensors); });

}  // namespace
}  // namespace tl
