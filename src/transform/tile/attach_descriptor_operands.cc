/*!
 * AttachDescriptorOperands: MMAs by wgmma descriptors name the memory that they read.
 *
 * In:  a tile program in which `tl.initialize_wgmma_descriptor` describes shared memory, and
 *      MMAs take the descriptors; the two may stand anywhere.
 * Out: the same. Each MMA has trailing operands, which are not printed: the addresses of all
 *      buffers that its descriptors are initialised with anywhere in the program.
 * Establishes: the call of an MMA has everything that synchronisation, lifetimes and alignment
 *      of shared memory need to know of it.
 * Refuses (ValueError): an MMA with a descriptor that is never initialised; a descriptor that
 *      is written by something else than initialize_wgmma_descriptor and
 *      increase_descriptor_offset.
 */
#include <unordered_map>
#include <vector>

#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

bool IsDescriptor(const Var& buffer) { return ScopeOf(buffer) == kDescriptorScope; }

/*! What each descriptor may describe. */
class Descriptions : public StmtExprVisitor {
 public:
  explicit Descriptions(const Stmt& body) : views_(body) { Visit(body); }

  std::vector<Var> Of(const Var& descriptor) const {
    auto it = buffers_.find(descriptor.get());
    return it == buffers_.end() ? std::vector<Var>() : it->second;
  }
  bool Any() const { return any_; }

 protected:
  void Visit_(const SBlockNode* op) final { Visit(op->body); }
  void Visit_(const EvaluateNode* op) final {
    span_ = op->span;
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) final {
    span_ = op->span;
    if (IsDescriptor(op->buffer)) RefuseWrite(op->buffer);
    for (const Expr& index : op->indices) Visit(index);
    Visit(op->value);
  }
  void Visit_(const CallNode* op) final {
    const Expr call = GetRef<Expr>(op);
    const bool initialises = IsCallTo(call, kInitializeWgmmaDescriptor);
    any_ |= IsWgmma(op);
    if (initialises) Describe(op);
    const bool writes = initialises || IsCallTo(call, kIncreaseDescriptorOffset);
    for (const Expr& arg : op->args) {
      const TensorLoadNode* pointee = AsAddressOf(arg);
      if (!pointee) {
        Visit(arg);
        continue;
      }
      const Var buffer = pointee->source.as_or_throw<Var>();
      if (IsDescriptor(buffer) && !writes) RefuseWrite(buffer);
      for (const Expr& index : pointee->indices) Visit(index);
    }
  }
  void Visit_(const TensorLoadNode* op) final {
    for (const Expr& index : op->indices) Visit(index);
  }
  // A buffer outside of a load or store is a pointer that goes somewhere.
  void Visit_(const VarNode* op) final {
    const Var v = GetRef<Var>(op);
    if (AsBuffer(v) && IsDescriptor(v)) RefuseWrite(v);
  }

 private:
  void Describe(const CallNode* op) {
    const Object* descriptor = AsAddressOf(op->args[3])->source.get();
    const Var buffer = views_.RootOf(AsAddressOf(op->args[4])->source.as_or_throw<Var>());
    std::vector<Var>& known = buffers_[descriptor];
    const bool is_known = AnyOf(known, [&](const Var& v) { return v.same_as(buffer); });
    if (!is_known) known.push_back(buffer);
  }

  [[noreturn]] void RefuseWrite(const Var& descriptor) const {
    ThrowAt(
        span_, "ValueError",
        "found a use of the descriptor " + std::string(descriptor->name) +
            " that may change it, wanted T.initialize_wgmma_descriptor or "
            "T.increase_descriptor_offset, so that it is known what products read; initialise a "
            "descriptor of its own");
  }

  const Views views_;
  Span span_;
  bool any_ = false;
  std::unordered_map<const Object*, std::vector<Var>> buffers_;
};

class Attacher : public StmtExprMutator {
 public:
  explicit Attacher(const Descriptions& descriptions) : descriptions_(descriptions) {}

 protected:
  Stmt Mutate_(const EvaluateNode* op) final {
    span_ = op->span;
    return Default<Stmt>(op);
  }
  Expr Mutate_(const CallNode* op) final {
    if (!IsWgmma(op)) return Default<Expr>(op);
    std::vector<Var> read;
    for (const Var& descriptor : DescriptorsIn(op)) {
      const std::vector<Var> described = descriptions_.Of(descriptor);
      if (described.empty()) RefuseEmpty(descriptor);
      AppendRange(&read, described);
    }
    Array<Expr> args = op->args;
    for (const Var& buffer : read) {
      const Array<Expr>& shape = BufferOf(buffer)->shape;
      args.push_back(AddressOf(buffer, shape.Map([](const Expr&) { return Expr(MakeInt(0)); })));
    }
    return With(op, &CallNode::args, args);
  }

 private:
  static std::vector<Var> DescriptorsIn(const CallNode* product) {
    std::vector<Var> found;
    for (const Expr& arg : product->args) {
      ForEachIn<TensorLoadNode>(arg, [&](const TensorLoadNode* op) {
        const Var buffer = op->source.as_or_throw<Var>();
        if (IsDescriptor(buffer)) found.push_back(buffer);
      });
    }
    return found;
  }

  [[noreturn]] void RefuseEmpty(const Var& descriptor) const {
    ThrowAt(span_, "ValueError",
            "found a product with the descriptor " + std::string(descriptor->name) +
                ", which describes nothing, wanted T.initialize_wgmma_descriptor(" +
                std::string(descriptor->name) + ", tile, ..) in front of it");
  }

  const Descriptions& descriptions_;
  Span span_;
};

PrimFunc AttachDescriptorOperands(PrimFunc f) {
  const Descriptions descriptions(f->body);
  if (!descriptions.Any()) return f;
  return WithBody(f, Attacher(descriptions).Mutate(f->body));
}

TL_REGISTER_PASS(AttachDescriptorOperands);

}  // namespace
}  // namespace tl
