/*!
 * PackFloat6: tensors and tiles of 6-bit floats become bytes.
 *
 * In:  a traced tile program.
 * Out: the same, where each buffer (.., n) of float6_e2m3fn or float6_e3m2fn is one of uint8
 *      (.., 3 n / 4): element e of a row is bits 6 e to 6 e + 5 of the row's bytes, the lowest bits
 *      first (OCP Microscaling Formats; MFMA takes 32 elements of a lane so, from six registers).
 *      T.copy of such elements is one of their bytes, T.gemm_blockscaled has the type of its
 *      operands as attribute `packed_operand`.
 * Establishes: no buffer has elements of 6 bits, so nothing behind this pass packs them: layouts,
 * vectors, pipelines and loads to LDS are those of bytes. Refuses (ValueError), since an element
 * crosses bytes: accesses of elements, other operators, copies that convert, places and extents
 * along the last dimension that are no multiples of four elements, and operands of
 * T.gemm_blockscaled whose last dimension is not K.
 */
#include "../../layout/annotation.h"
#include "../../op/call_attrs.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

constexpr DLDataType kByte{kDLUInt, 8, 1};
/*! Elements that lie in whole bytes, and these. */
constexpr int64_t kElements = 4, kBytes = 3;

bool HasFloat6(const Var& buffer) {
  const BufferTypeNode* type = AsBuffer(buffer);
  return type && type->dtype->dtype.bits == 6;
}

std::string TypeOf(const Var& buffer) { return DTypeName(DTypeOf(buffer)); }

class Float6Packer : public Substituter {
 public:
  /*! `first` is the program's first statement that has a place. */
  PrimFunc Run(PrimFunc f, const Span& first) {
    span_ = first;
    Array<Var> params;
    for (const Var& p : f->params) params.push_back(HasFloat6(p) ? Packed(p) : p);
    PrimFunc out = WithBody(f, Mutate(f->body));
    out.CopyOnWrite()->params = params;
    return out;
  }

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    Array<Var> allocs;
    for (const Var& b : op->alloc_buffers) allocs.push_back(HasFloat6(b) ? Packed(b) : b);
    for (const Var& buffer : AnnotatedBuffers(op->annotations)) {
      if (!HasFloat6(buffer)) continue;
      Refuse("a layout or a safe value of " + std::string(buffer->name), buffer,
             "wanted none: its layout is that of its bytes, and what lies outside reads as 0");
    }
    SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    block.CopyOnWrite()->alloc_buffers = allocs;
    return block;
  }

  Stmt Mutate_(const DeclBufferNode* op) final {
    auto decl = make_object<DeclBufferNode>(*op);
    decl->data = Mutate(op->data);
    if (HasFloat6(op->buffer)) decl->buffer = Packed(op->buffer);
    return DeclBuffer(decl);
  }

  Stmt Mutate_(const ForNode* op) final {
    analyzer_.BindLoop(op);
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const EvaluateNode* op) final {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    span_ = op->span;
    if (!call) return Default<Stmt>(op);
    std::vector<Var> found;
    for (const Expr& arg : call->args) {
      const auto* region = arg.as<TensorRegionNode>();
      if (region && HasFloat6(region->source.as_or_throw<Var>())) {
        found.push_back(region->source.as_or_throw<Var>());
      }
    }
    if (found.empty()) return Default<Stmt>(op);
    const bool is_copy = IsCallTo(op->value, kCopy);
    if (is_copy) CheckCopy(call, found);
    if (!is_copy) CheckProduct(call, found);
    auto packed = make_object<CallNode>(*call);
    packed->args = MutateArray(call->args);
    const Call out(packed);
    if (is_copy) return MakeEvaluate(out, op->span);
    return MakeEvaluate(WithTileOpAttr(out.get(), kPackedOperand, String(TypeOf(found[0]))),
                        op->span);
  }

  Expr Mutate_(const TensorRegionNode* op) final {
    const auto buffer = op->source.as_or_throw<Var>();
    if (!HasFloat6(buffer)) return Default<Expr>(op);
    auto region = make_object<TensorRegionNode>(*op);
    region->source = Mutate(op->source);
    const size_t last = op->region.size() - 1;
    const Range row = op->region[last];
    region->region.Set(last, MakeRange(Bytes(row->min, "begins at element ", buffer),
                                       Bytes(row->extent, "has ", buffer)));
    return TensorRegion(region);
  }

  Stmt Mutate_(const BufferStoreNode* op) final {
    span_ = op->span;
    if (HasFloat6(op->buffer)) RefuseElement(op->buffer);
    return Default<Stmt>(op);
  }

  Expr Mutate_(const TensorLoadNode* op) final {
    const auto buffer = op->source.as_or_throw<Var>();
    if (HasFloat6(buffer)) RefuseElement(buffer);
    return Default<Expr>(op);
  }

 private:
  [[noreturn]] void Refuse(const std::string& found, const Var& buffer,
                           const std::string& wanted) const {
    ThrowAt(span_, "ValueError",
            "found " + found + ", of " + TypeOf(buffer) + ", four of which lie in three bytes; " +
                wanted);
  }

  [[noreturn]] void RefuseElement(const Var& buffer) const {
    Refuse("an element of " + std::string(buffer->name), buffer,
           "wanted tiles that T.copy moves and T.gemm_blockscaled multiplies: convert on the host "
           "(tilelang.utils.float6), or use float8_e4m3fn");
  }

  /*! As many elements, or the place behind them, in bytes. */
  Expr Bytes(const Expr& elements, const std::string& what, const Var& buffer) {
    const Analyzer::Modular found = analyzer_.ModularSet(elements);
    const std::optional<int64_t> known = AsInt(elements);
    if (found.coeff % kElements || found.base % kElements) {
      std::ostringstream text;
      Refuse("a row of " + std::string(buffer->name) + " that " + what +
                 (known ? std::to_string(*known) : "a number of the run"),
             buffer, "wanted a multiple of 4 there: pad the rows");
    }
    return analyzer_.Simplify(FloorDivOf(elements, kElements) * kBytes);
  }

  /*! The buffer of bytes that stands for it from here on. */
  Var Packed(const Var& buffer) {
    auto type = make_object<BufferTypeNode>(*BufferOf(buffer));
    const std::string name(buffer->name);
    if (type->shape.empty() || !AsInt(type->shape[type->shape.size() - 1])) {
      Refuse(name + ", whose last extent is not known", buffer,
             "wanted a constant: only the others may be symbols");
    }
    const size_t last = type->shape.size() - 1;
    type->shape.Set(last, Bytes(type->shape[last], "has ", buffer));
    for (size_t d = 0; d < type->strides.size(); ++d) {
      const Expr stride = type->strides[d];
      if (d < last) {
        type->strides.Set(d, Bytes(stride, "is a stride away from the next: ", buffer));
      } else if (!IsConst(stride, 1)) {
        Refuse(name + ", whose rows have gaps", buffer,
               "wanted elements side by side: a stride of 1");
      }
    }
    type->dtype = PrimTy(kByte);
    auto var = make_object<VarNode>(*buffer.get());
    var->ty = BufferType(type);
    const Var packed(var);
    map[buffer.get()] = packed;
    return packed;
  }

  void CheckCopy(const CallNode* call, const std::vector<Var>& found) const {
    if (found.size() == 2 && TypeOf(found[0]) == TypeOf(found[1])) {
      for (const char* key : {"coalesced_width", "parallel_loop_layout"}) {
        if (TileOpAttr(call, key) == nullptr) continue;
        Refuse("T.copy of " + std::string(found[0]->name), found[0],
               std::string("wanted no `") + key + "`, which counts elements");
      }
      return;
    }
    Refuse("T.copy that converts " + std::string(found[0]->name), found[0],
           "wanted both sides of this type: convert on the host (tilelang.utils.float6)");
  }

  void CheckProduct(const CallNode* call, const std::vector<Var>& found) const {
    if (!IsCallTo(call, kGemmScaled)) {
      Refuse("T." + TileOpName(call) + " of " + std::string(found[0]->name), found[0],
             "wanted T.copy or T.gemm_blockscaled");
    }
    const GemmOp op = ParseGemm(call, span_);
    const std::pair<const TileRegion*, bool> operands[] = {{&op.a, op.trans_a},
                                                           {&op.b, !op.trans_b}};
    for (const auto& [operand, along_rows] : operands) {
      if (!along_rows) continue;
      Refuse(
          "T.gemm_blockscaled of " + std::string(operand->buffer->name) + ", whose rows are of K",
          found[0],
          "wanted elements along K side by side, A as (M, K) and B as (N, K) with "
          "transpose_B=True");
    }
  }

  Analyzer analyzer_;
  Span span_;
};

class Float6Finder : public StmtExprVisitor {
 public:
  bool found = false;
  /*! The place of the first statement that has one. */
  Span place;

 protected:
  void Visit_(const SBlockNode* op) final {
    for (const Var& b : op->alloc_buffers) found |= HasFloat6(b);
    Default(op);
  }
  void Visit_(const DeclBufferNode* op) final {
    found |= HasFloat6(op->buffer);
    Default(op);
  }
  void Visit_(const EvaluateNode* op) final {
    if (!place.defined()) place = op->span;
  }
  void Visit_(const BufferStoreNode* op) final {
    if (!place.defined()) place = op->span;
  }
};

PrimFunc PackFloat6(PrimFunc f) {
  Float6Finder finder;
  for (const Var& p : f->params) finder.found |= HasFloat6(p);
  finder(f->body);
  return finder.found ? Float6Packer().Run(std::move(f), finder.place) : f;
}

TL_REGISTER_PASS(PackFloat6);

}  // namespace
}  // namespace tl
