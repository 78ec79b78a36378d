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
 *      `bytes` of a tensor of 2 GiB and more, or of a size that the call decides, has 64 bits: the
 *      resource begins at `uniform`, so that offsets from there alone have to have 32 bits.
 * Refuses nothing. Unchanged: offsets of such tensors that may have more, as those of rows whose
 *      size the call decides; tensors that the kernel writes or that have other names; offsets that
 *      may be negative, which the check takes for large ones; indices that are read from memory
 *      under a condition.
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
#include "../../tvm/conjuncts.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! Pointers to elements of 4 bits count bytes. */
int64_t ElementsOfByte(const DLDataType& t) { return t.bits < 8 ? 8 / t.bits : 1; }

class BufferLoadLowerer : public AnalyzingMutator {
 public:
  explicit BufferLoadLowerer(const PrimFunc& f)
      : AnalyzingMutator(f),
        views_(f->body),
        aliased_(KernelFacts(f).aliased),
        written_(WrittenTensors(f->body)) {
    for (const Var& p : f->params) {
      params_.insert(p.get());
      if (!AsBuffer(p)) continue;
      for (const Var& size : SizeSymbolsOf(p)) uniform_.insert(size.get());
    }
  }

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const auto axis = op->node.cast<IterVar>();
      if (IsBlockAxis(axis)) uniform_.insert(axis->var.get());
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

  /*! The bytes of a tensor whose vectors are loaded by a resource, undefined for others: 32 bits
   * where the resource is the whole tensor, else 64. */
  Expr BytesOf(const Var& tensor) {
    const Var root = views_.RootOf(tensor);
    const bool is_plain = params_.count(root.get()) && IsGlobal(tensor) &&
                          !written_.count(root.get()) && !aliased_.count(root->name);
    if (!is_plain) return Expr();
    if (const auto bytes = ResourceBytes(tensor)) {
      return MakeInt(DLDataType{kDLUInt, 32, 1}, *bytes);
    }
    const int64_t bits = DTypeOf(tensor).bits;
    if (bits % 8) return Expr();
    Expr bytes = MakeInt(kInt64, bits / 8);
    for (const Expr& extent : BufferOf(tensor)->shape) {
      if (!IsUniform(extent)) return Expr();
      bytes = bytes * Wide(extent);
    }
    return analyzer_.Simplify(bytes);
  }

  /*! Factors and terms in 64 bits. */
  static Expr Wide(const Expr& e) {
    if (const auto* product = e.as<MulNode>()) return Wide(product->a) * Wide(product->b);
    if (const auto* sum = e.as<AddNode>()) return Wide(sum->a) + Wide(sum->b);
    return CastTo(kInt64, e);
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

  /*! The same of an index whose parts may have 64 bits, times `factor`: the terms of sums in
   * products, as in (block * 64 + row) * 128, are apart. What varies has 32 bits; false where it
   * may have more. */
  bool SplitWide(const Expr& e, int64_t factor, std::vector<Expr>* varying,
                 std::vector<Expr>* uniform) {
    const auto inside = [&](const Expr& part, int64_t times) {
      return SplitWide(part, times, varying, uniform);
    };
    if (const auto* sum = e.as<AddNode>()) return inside(sum->a, factor) && inside(sum->b, factor);
    if (const auto* less = e.as<SubNode>()) {
      return inside(less->a, factor) && inside(less->b, -factor);
    }
    const auto* product = e.as<MulNode>();
    const auto times = product ? AsInt(product->b) : std::nullopt;
    if (times) return inside(product->a, *times * factor);
    const auto* cast = e.as<CastNode>();
    if (cast && IsPureInteger(cast->value)) return inside(cast->value, factor);
    if (IsUniform(e)) {
      uniform->push_back(Wide(e) * MakeInt(kInt64, factor));
      return true;
    }
    const Analyzer::Bound bound = analyzer_.ConstBound(e);
    if (bound.min < 0 || bound.max >= kMostResourceBytes / std::max<int64_t>(factor, 1)) {
      return false;
    }
    varying->push_back(CastTo(kInt32, e) * MakeInt(kInt32, factor));
    return true;
  }

  /*! Conditions that all have to hold, those that are uniform apart. */
  void SplitCondition(const Expr& e, Expr* varying, Expr* uniform) const {
    for (const Expr& part : ConjunctsOf(e)) {
      Expr* const of = AllUniform(part) ? uniform : varying;
      *of = IsConst(*of, 1) ? part : *of && part;
    }
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
   * have less; nullopt where a resource that begins at the latter has no offset of 32 bits. */
  std::optional<std::pair<Expr, Expr>> OffsetsOf(const Var& buffer, const Expr& bytes,
                                                 const Expr& index) {
    const int64_t of_byte = ElementsOfByte(DTypeOf(buffer));
    const Expr base = of_byte == 1 ? index : analyzer_.Simplify(FloorDivOf(index, of_byte));
    std::vector<Expr> varying, uniform;
    if (bytes->dtype().bits == 64) {
      if (!SplitWide(base, 1, &varying, &uniform)) return std::nullopt;
      const Expr offset = Sum(varying, MakeInt(kInt32, 0)), rest = Sum(uniform, MakeInt(kInt64, 0));
      const int64_t size = DTypeOf(buffer).bits / 8;
      const Analyzer::Bound bound = analyzer_.ConstBound(offset);
      if (bound.min < 0 || bound.max >= kMostResourceBytes / size) return std::nullopt;
      return std::pair(analyzer_.Simplify(offset), analyzer_.Simplify(rest));
    }
    Split(base, &varying, &uniform);
    const Expr offset = Sum(varying, base), rest = Sum(uniform, base);
    if (IsOffset(offset) && IsOffset(rest)) return std::pair(offset, rest);
    // The sum is one, where it is computed at all.
    return std::pair(base, Expr(MakeInt(base->dtype(), 0)));
  }

  std::optional<Array<Expr>> PartsOf(const TensorLoadNode* load, const Expr& condition) {
    const Var tensor = load->source.as_or_throw<Var>();
    const auto* ramp = load->indices.size() == 1 ? load->indices[0].as<RampNode>() : nullptr;
    const Expr bytes = ramp && IsConst(ramp->stride, 1) ? BytesOf(tensor) : Expr();
    const int64_t width = int64_t(load->dtype().bits) * load->dtype().lanes;
    if (!bytes.defined() || DTypeOf(tensor).bits % 8) return std::nullopt;
    if (width % 32 || width > 256 || (width & (width - 1))) return std::nullopt;
    if (condition.defined() && !IsPureInteger(ramp->base)) return std::nullopt;
    const auto offsets = OffsetsOf(tensor, bytes, Mutate(ramp->base));
    if (!offsets) return std::nullopt;
    return Array<Expr>{MakeInt(load->dtype().lanes), AddressOf(tensor, {MakeInt(0)}), bytes,
                       offsets->first, offsets->second};
  }

  /*! A load to LDS by its resource. Where it writes is a pointer that all lanes share, and the
   * lane's offset from there. */
  Expr LdsLoad(const CallNode* op) {
    const TensorLoadNode* to = AsAddressOf(op->args[1]);
    const TensorLoadNode* from = AsAddressOf(op->args[2]);
    const Var tile = to->source.as_or_throw<Var>(), tensor = from->source.as_or_throw<Var>();
    const Expr bytes = BytesOf(tensor);
    const bool is_flat = from->indices.size() == 1 && to->indices.size() == 1;
    const auto offsets =
        bytes.defined() && is_flat ? OffsetsOf(tensor, bytes, from->indices[0]) : std::nullopt;
    if (!offsets) {
      ThrowBug(op->span, "LowerBufferLoads",
               "no resource for " + std::string(tensor->name) + ", which SelectInstructions found");
    }
    std::vector<Expr> varying, uniform;
    in_lds_ = true;
    Split(to->indices[0], &varying, &uniform);
    in_lds_ = false;
    const Expr shared = Sum(uniform, to->indices[0]);
    const Expr lane =
        analyzer_.Simplify(FloorDivOf(Sum(varying, to->indices[0]), ElementsOfByte(DTypeOf(tile))));
    Array<Expr> args = {op->args[0],    AddressOf(tile, {shared}),
                        lane,           AddressOf(tensor, {MakeInt(0)}),
                        bytes,          offsets->first,
                        offsets->second};
    if (op->args.size() == 3) return CallOp(kBufferLoadLds, args);
    Expr uniform_condition = MakeInt(kBool, 1), condition = MakeInt(kBool, 1);
    SplitCondition(Mutate(op->args[3]), &condition, &uniform_condition);
    args.push_back(uniform_condition);
    args.push_back(condition);
    return CallOp(kBufferLoadLdsIf, args);
  }

  const Views views_;
  const std::unordered_set<std::string> aliased_;
  const std::unordered_set<const Object*> written_;
  /*! Parameters; names of equal values. */
  std::unordered_set<const Object*> params_, uniform_;
  /*! Variables of loops that are written out: a number in each iteration. */
  std::unordered_set<const Object*> written_out_;
  /*! The index is one of shared memory, whose parts all are numbers of the instruction. */
  bool in_lds_ = false;
};

PrimFunc LowerBufferLoads(PrimFunc f) {
  const Target& target = TargetOf(f);
  const bool has = AnyOf(target.copies, [&](const CopyInstruction& row) {
    return row.name == kByBufferLoads && target.Has(row.feature);
  });
  return has ? WithBody(f, BufferLoadLowerer(f).Mutate(f->body)) : f;
}

TL_REGISTER_PASS(LowerBufferLoads);

}  // namespace
}  // namespace tl
