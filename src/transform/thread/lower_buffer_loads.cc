/*!
 * LowerBufferLoads: vectors from global memory are loaded by a buffer resource.
 *
 * In:  a flat thread program.
 * Out: the same where the target has no copy instruction kByBufferLoads. Elsewhere a load of a
 *      vector from a tensor that the kernel does not write is `tl.buffer_load<lanes>(tensor, bytes,
 *      offset, uniform)`: the sum of both offsets, in elements, is the index; `uniform` has the
 *      terms that are equal in all threads. `if_then_else(condition, load, zeros)` is
 *      `tl.buffer_load_if`, whose last operand is the condition. `tl.load_lds<bytes>(shared,
 * global)` is `tl.buffer_load_lds<bytes>(shared, lane, tensor, bytes, offset, uniform)`, and
 *      `tl.load_lds_if` likewise, with the conditions that are equal in all threads and those that
 *      are not: the terms of the place in shared memory that differ between lanes are `lane`, so
 *      that scalar registers compute the rest.
 * Establishes: the hardware's check of the range is the predicate: a lane whose condition is false
 *      gives an offset behind the tensor, and reads zeros without a branch. Per loop iteration only
 *      `uniform` changes, which a scalar register holds, where a global load takes a sum of 64 bits
 *      of each lane.
 * Refuses nothing. Unchanged: tensors of 2 GiB and more, or of unknown size, since offsets have 32
 *      bits; tensors that the kernel writes or that have other names; offsets that may be
 *      negative, which the check takes for large ones; indices that are read from memory under a
 *      condition.
 */
#include <algorithm>
#include <unordered_set>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../analysis/kernel_facts.h"
#include "../../analysis/predicated_load.h"
#include "../../op/copy_instruction.h"
#include "../../op/intrinsics.h"
#include "../../op/lds_copy.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! Pointers to elements of 4 bits count bytes. */
int64_t ElementsOfByte(const DLDataType& t) { return t.bits < 8 ? 8 / t.bits : 1; }

/*! What a program may write: stores, pointers that write or whose use is not known. */
struct WriteFinder : StmtExprVisitor {
  std::unordered_set<const Object*> found;
  using StmtExprVisitor::Visit_;
  void Visit_(const BufferStoreNode* op) final {
    found.insert(op->buffer.get());
    Default(op);
  }
  /*! A view's accesses count, not its declaration. */
  void Visit_(const DeclBufferNode*) final {}
  void Visit_(const CallNode* op) final {
    if (FindIntrinsic(op)) {
      for (const PointerAccess& p : PointerAccesses(op)) {
        if (Writes(p.access)) found.insert(p.buffer.get());
      }
    } else {
      for (const Expr& arg : op->args) {
        if (const TensorLoadNode* pointee = AsAddressOf(arg)) found.insert(pointee->source.get());
        const auto* pointer = arg.as<VarNode>();
        if (pointer && AsBuffer(GetRef<Var>(pointer))) found.insert(pointer);
      }
    }
    Default(op);
  }
};

class BufferLoadLowerer : public AnalyzingMutator {
 public:
  explicit BufferLoadLowerer(const PrimFunc& f)
      : AnalyzingMutator(f), views_(f->body), aliased_(KernelFacts(f).aliased) {
    WriteFinder writes;
    writes(f->body);
    written_ = std::move(writes.found);
    for (const Var& p : f->params) params_.insert(p.get());
    for (const Var& view : views_.all) {
      if (written_.count(view.get())) written_.insert(views_.RootOf(view).get());
    }
  }

 protected:
  using AnalyzingMutator::Mutate_;

  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const auto axis = op->node.cast<IterVar>();
      if (std::string(axis->thread_tag).rfind("blockIdx", 0) == 0) uniform_.insert(axis->var.get());
    }
    return AnalyzingMutator::Mutate_(op);
  }
  Stmt Mutate_(const ForNode* op) final {
    // What is written out has numbers for its variable, which differ between its loads.
    if (IsUniform(op->min)) {
      (op->kind == ForKind::kUnrolled ? written_out_ : uniform_).insert(op->loop_var.get());
    }
    return AnalyzingMutator::Mutate_(op);
  }
  Stmt Mutate_(const BindNode* op) final {
    if (IsUniform(op->value)) uniform_.insert(op->var.get());
    return AnalyzingMutator::Mutate_(op);
  }

  Expr Mutate_(const CallNode* op) final {
    if (AsAddressOf(GetRef<Expr>(op))) return GetRef<Expr>(op);
    const Expr call = GetRef<Expr>(op);
    if (IsCallTo(call, kLoadLds) || IsCallTo(call, kLoadLdsIf)) return LdsLoad(op);
    if (!IsIfThenElse(op) || op->args[0]->dtype().lanes != 1 || !IsZeros(op->args[2])) {
      return AnalyzingMutator::Mutate_(op);
    }
    const auto* load = op->args[1].as<TensorLoadNode>();
    const auto parts = load ? PartsOf(load, op->args[0]) : std::nullopt;
    if (!parts) return AnalyzingMutator::Mutate_(op);
    Array<Expr> args = *parts;
    args.push_back(Mutate(op->args[0]));
    return CallOp(kBufferLoadIf, args, op->ty);
  }

  Expr Mutate_(const TensorLoadNode* op) final {
    const auto parts = PartsOf(op, Expr());
    return parts ? CallOp(kBufferLoad, *parts, op->ty) : AnalyzingMutator::Mutate_(op);
  }

 private:
  /*! Equal in all lanes, as clang sees, too: made of parameters, numbers of blocks, and loops. */
  bool IsUniform(const Expr& e) const { return IsPureInteger(e) && AllUniform(e); }

  bool AllUniform(const Expr& e) const {
    return IsArithmetic(e) && !HasNode<VarNode>(e, [&](const VarNode* v) {
             return !(uniform_.count(v) || (in_lds_ && written_out_.count(v)) ||
                      (params_.count(v) && !AsBuffer(GetRef<Var>(v))));
           });
  }

  /*! The bytes of a tensor whose vectors are loaded by a resource; nullopt for others. */
  std::optional<int64_t> BytesOf(const Var& tensor) {
    const Var root = views_.RootOf(tensor);
    const bool is_plain = params_.count(root.get()) && IsGlobal(tensor) &&
                          !written_.count(root.get()) && !aliased_.count(root->name);
    if (!is_plain) return std::nullopt;
    return ResourceBytes(tensor);
  }

  /*! Terms of a sum, those that are uniform apart. */
  void Split(const Expr& e, std::vector<Expr>* varying, std::vector<Expr>* uniform) const {
    if (const auto* sum = e.as<AddNode>()) {
      Split(sum->a, varying, uniform);
      Split(sum->b, varying, uniform);
    } else {
      // A number is a part of the instruction.
      (IsUniform(e) && (in_lds_ || !AsInt(e)) ? uniform : varying)->push_back(e);
    }
  }

  /*! Conditions that all have to hold, those that are uniform apart. */
  void SplitCondition(const Expr& e, Expr* varying, Expr* uniform) const {
    if (const auto* both = e.as<AndNode>()) {
      SplitCondition(both->a, varying, uniform);
      SplitCondition(both->b, varying, uniform);
      return;
    }
    Expr* const of = AllUniform(e) ? uniform : varying;
    *of = IsConst(*of, 1) ? e : *of && e;
  }

  Expr Sum(const std::vector<Expr>& terms, const Expr& like) const {
    Expr sum;
    for (const Expr& t : terms) sum = sum.defined() ? sum + t : t;
    return sum.defined() ? sum : Expr(MakeInt(like->dtype(), 0));
  }

  bool IsOffset(const Expr& e) {
    const Analyzer::Bound bound = analyzer_.ConstBound(e);
    return bound.min >= 0 && bound.max < kMostResourceBytes;
  }

  /*! Offset and uniform offset of an index of a tensor, in elements, or in bytes if these
   * have less. */
  std::pair<Expr, Expr> OffsetsOf(const Var& buffer, const Expr& index) {
    const int64_t of_byte = ElementsOfByte(BufferOf(buffer)->dtype->dtype);
    const Expr base = of_byte == 1 ? index : analyzer_.Simplify(FloorDivOf(index, of_byte));
    std::vector<Expr> varying, uniform;
    Split(base, &varying, &uniform);
    const Expr offset = Sum(varying, base), rest = Sum(uniform, base);
    if (IsOffset(offset) && IsOffset(rest)) return {offset, rest};
    // The sum is one, where it is computed at all.
    return {base, MakeInt(base->dtype(), 0)};
  }

  std::optional<Array<Expr>> PartsOf(const TensorLoadNode* load, const Expr& condition) {
    const Var tensor = load->source.as_or_throw<Var>();
    const auto* ramp = load->indices.size() == 1 ? load->indices[0].as<RampNode>() : nullptr;
    const auto bytes = ramp && IsConst(ramp->stride, 1) ? BytesOf(tensor) : std::nullopt;
    const int64_t width = int64_t(load->dtype().bits) * load->dtype().lanes;
    if (!bytes || BufferOf(tensor)->dtype->dtype.bits % 8) return std::nullopt;
    if (width % 32 || width > 256 || (width & (width - 1))) return std::nullopt;
    if (condition.defined() && !IsPureInteger(ramp->base)) return std::nullopt;
    const auto [offset, rest] = OffsetsOf(tensor, Mutate(ramp->base));
    return Array<Expr>{MakeInt(load->dtype().lanes), AddressOf(tensor, {MakeInt(0)}),
                       MakeInt(DLDataType{kDLUInt, 32, 1}, *bytes), offset, rest};
  }

  /*! A load to LDS by its resource. Where it writes is a pointer that all lanes share, and the
   * lane's offset from there. */
  Expr LdsLoad(const CallNode* op) {
    const TensorLoadNode* to = AsAddressOf(op->args[1]);
    const TensorLoadNode* from = AsAddressOf(op->args[2]);
    const Var tile = to->source.as_or_throw<Var>(), tensor = from->source.as_or_throw<Var>();
    const std::optional<int64_t> bytes = BytesOf(tensor);
    if (!bytes || from->indices.size() != 1 || to->indices.size() != 1) {
      ThrowBug(op->span, "LowerBufferLoads",
               "no resource for " + std::string(tensor->name) + ", which SelectInstructions found");
    }
    std::vector<Expr> varying, uniform;
    in_lds_ = true;
    Split(to->indices[0], &varying, &uniform);
    in_lds_ = false;
    const Expr shared = Sum(uniform, to->indices[0]);
    const Expr lane = analyzer_.Simplify(
        FloorDivOf(Sum(varying, to->indices[0]), ElementsOfByte(BufferOf(tile)->dtype->dtype)));
    const auto [offset, rest] = OffsetsOf(tensor, from->indices[0]);
    Array<Expr> args = {op->args[0],
                        AddressOf(tile, {shared}),
                        lane,
                        AddressOf(tensor, {MakeInt(0)}),
                        MakeInt(DLDataType{kDLUInt, 32, 1}, *bytes),
                        offset,
                        rest};
    if (op->args.size() == 3) return CallOp(kBufferLoadLds, args);
    Expr uniform_condition = MakeInt(kBool, 1), condition = MakeInt(kBool, 1);
    SplitCondition(Mutate(op->args[3]), &condition, &uniform_condition);
    args.push_back(uniform_condition);
    args.push_back(condition);
    return CallOp(kBufferLoadLdsIf, args);
  }

  const Views views_;
  const std::unordered_set<std::string> aliased_;
  /*! Parameters; those that the program writes, if under another name; names of equal values. */
  std::unordered_set<const Object*> params_, written_, uniform_;
  /*! Variables of loops that are written out: a number in each iteration. */
  std::unordered_set<const Object*> written_out_;
  /*! The index is one of shared memory, whose parts all are numbers of the instruction. */
  bool in_lds_ = false;
};

PrimFunc LowerBufferLoads(PrimFunc f) {
  const Target& target = TargetOf(f);
  const bool has =
      std::any_of(target.copies.begin(), target.copies.end(), [&](const CopyInstruction& row) {
        return row.name == kByBufferLoads && target.Has(row.feature);
      });
  return has ? WithBody(f, BufferLoadLowerer(f).Mutate(f->body)) : f;
}

Registration lower_buffer_loads_registration([] {
  RegisterPass("LowerBufferLoads", LowerBufferLoads);
});

}  // namespace
}  // namespace tl
