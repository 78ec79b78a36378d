/*! Mirrors of TVM's types and expressions: `ir.*` and `prim.*`. See mirror.h. */
#pragma once
#include <tvm/ffi/big_int.h>

#include "mirror.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

namespace tl {

class SourceNameNode : public Object {
 public:
  String name;
  TL_MIRROR_FINAL("ir.SourceName", SourceNameNode, Object);
};
TL_REF(SourceName, ObjectRef, SourceNameNode);
TL_PROVE(SourceNameNode, name);

class SpanNode : public Object {
 public:
  SourceName source_name;
  int32_t line;
  int32_t column;
  int32_t end_line;
  int32_t end_column;
  TL_MIRROR("ir.Span", SpanNode, Object);
};
TL_REF(Span, ObjectRef, SpanNode);
TL_PROVE(SpanNode, source_name, line, column, end_line, end_column);

class TypeNode : public Object {
 public:
  Span span;
  TL_MIRROR("ir.Type", TypeNode, Object);
};
TL_REF(Type, ObjectRef, TypeNode);
TL_PROVE(TypeNode, span);

class PrimTypeNode : public TypeNode {
 public:
  DLDataType dtype;
  TL_MIRROR_FINAL("ir.PrimType", PrimTypeNode, TypeNode);
};
TL_REF(PrimType, Type, PrimTypeNode);
TL_PROVE(PrimTypeNode, dtype);

class PointerTypeNode : public TypeNode {
 public:
  Type element_type;
  String storage_scope;
  TL_MIRROR_FINAL("ir.PointerType", PointerTypeNode, TypeNode);
};
TL_REF(PointerType, Type, PointerTypeNode);
TL_PROVE(PointerTypeNode, element_type, storage_scope);

class ExprNode : public Object {
 public:
  Span span;
  Type ty;
  TL_MIRROR("ir.Expr", ExprNode, Object);
  /*! The scalar or vector type; the expression must not be a buffer, pointer or void. */
  DLDataType dtype() const {
    const auto* p = ty.as<PrimTypeNode>();
    TVM_FFI_ICHECK(p) << "expression has no primitive type: " << GetTypeKey();
    return p->dtype;
  }
};
TL_REF(Expr, ObjectRef, ExprNode);

}  // namespace tl

namespace tvm::ffi {
// Python numbers become expressions when they reach a typed C++ argument, as in TVM itself.
template <>
inline constexpr bool use_default_type_traits_v<tl::Expr> = false;
template <>
struct TypeTraits<tl::Expr>
    : public ObjectRefWithFallbackTraitsBase<tl::Expr, StrictBool, int64_t, double> {
  static tl::Expr ConvertFallbackValue(StrictBool v) {
    return Imm("ir.IntImm", DLDataType{kDLBool, 8, 1}, static_cast<int64_t>(bool(v)));
  }
  static tl::Expr ConvertFallbackValue(int64_t v) {
    const bool narrow = v >= INT32_MIN && v <= INT32_MAX;
    return Imm("ir.IntImm", DLDataType{kDLInt, static_cast<uint8_t>(narrow ? 32 : 64), 1}, v);
  }
  static tl::Expr ConvertFallbackValue(double v) {
    return Imm("ir.FloatImm", DLDataType{kDLFloat, 32, 1}, v);
  }

 private:
  template <typename V>
  static tl::Expr Imm(const char* fn, DLDataType t, V v) {
    return Function::GetGlobalRequired(fn)(t, v, nullptr).template cast<tl::Expr>();
  }
};
}  // namespace tvm::ffi

namespace tl {

TL_PROVE(ExprNode, span, ty);

class VarNode : public ExprNode {
 public:
  String name;
  TL_MIRROR("ir.Var", VarNode, ExprNode);
};
TL_REF(Var, Expr, VarNode);
TL_PROVE(VarNode, name);

class GlobalVarNode : public ExprNode {
 public:
  String name_hint;
  TL_MIRROR_FINAL("ir.GlobalVar", GlobalVarNode, ExprNode);
};
TL_REF(GlobalVar, Expr, GlobalVarNode);
TL_PROVE(GlobalVarNode, name_hint);

class IntImmNode : public ExprNode {
 public:
  ffi::BigInt value;
  TL_MIRROR_FINAL("ir.IntImm", IntImmNode, ExprNode);
};
TL_REF(IntImm, Expr, IntImmNode);
TL_PROVE(IntImmNode, value);

class FloatImmNode : public ExprNode {
 public:
  double value;
  TL_MIRROR_FINAL("ir.FloatImm", FloatImmNode, ExprNode);
};
TL_REF(FloatImm, Expr, FloatImmNode);
TL_PROVE(FloatImmNode, value);

class StringImmNode : public ExprNode {
 public:
  String value;
  TL_MIRROR_FINAL("ir.StringImm", StringImmNode, ExprNode);
};
TL_REF(StringImm, Expr, StringImmNode);
TL_PROVE(StringImmNode, value);

class AttrsNode : public Object {
 public:
  TL_MIRROR("ir.Attrs", AttrsNode, Object);
};
TL_REF(Attrs, ObjectRef, AttrsNode);

class DictAttrsNode : public AttrsNode {
 public:
  Map<String, Any> __dict__;
  TL_MIRROR_FINAL("ir.DictAttrs", DictAttrsNode, AttrsNode);
};
TL_REF(DictAttrs, Attrs, DictAttrsNode);
TL_PROVE(DictAttrsNode, __dict__);

class CallNode : public ExprNode {
 public:
  Expr op;
  Array<Expr> args;
  Attrs attrs;
  Array<Type> ty_args;
  TL_MIRROR_FINAL("ir.Call", CallNode, ExprNode);
};
TL_REF(Call, Expr, CallNode);
TL_PROVE(CallNode, op, args, attrs, ty_args);

class OpNode : public ExprNode {
 public:
  String name;
  TL_MIRROR_FINAL("ir.Op", OpNode, ExprNode);
};
TL_REF(Op, Expr, OpNode);
TL_PROVE_READ_ONLY(OpNode, name);

class TensorLoadNode : public ExprNode {
 public:
  Expr source;
  Array<Expr> indices;
  TL_MIRROR_FINAL("ir.TensorLoad", TensorLoadNode, ExprNode);
};
TL_REF(TensorLoad, Expr, TensorLoadNode);
TL_PROVE(TensorLoadNode, source, indices);

class RangeNode : public Object {
 public:
  Expr min;
  Expr extent;
  Span span;
  TL_MIRROR_FINAL("ir.Range", RangeNode, Object);
};
TL_REF(Range, ObjectRef, RangeNode);
TL_PROVE(RangeNode, min, extent, span);

class TensorRegionNode : public ExprNode {
 public:
  Expr source;
  Array<Range> region;
  TL_MIRROR_FINAL("ir.TensorRegion", TensorRegionNode, ExprNode);
};
TL_REF(TensorRegion, Expr, TensorRegionNode);
TL_PROVE(TensorRegionNode, source, region);

#define TL_BINARY_(Name)                                  \
  class Name##Node : public ExprNode {                    \
   public:                                                \
    Expr a;                                               \
    Expr b;                                               \
    TL_MIRROR_FINAL("prim." #Name, Name##Node, ExprNode); \
  };                                                      \
  TL_REF(Name, Expr, Name##Node);                         \
  TL_PROVE(Name##Node, a, b)
TL_BINARY_(Add);
TL_BINARY_(Sub);
TL_BINARY_(Mul);
TL_BINARY_(Div);
TL_BINARY_(Mod);
TL_BINARY_(FloorDiv);
TL_BINARY_(FloorMod);
TL_BINARY_(Min);
TL_BINARY_(Max);
TL_BINARY_(EQ);
TL_BINARY_(NE);
TL_BINARY_(LT);
TL_BINARY_(LE);
TL_BINARY_(GT);
TL_BINARY_(GE);
TL_BINARY_(And);
TL_BINARY_(Or);
TL_BINARY_(BitwiseAnd);
TL_BINARY_(BitwiseOr);
TL_BINARY_(BitwiseXor);
TL_BINARY_(LShift);
TL_BINARY_(RShift);
#undef TL_BINARY_

class NotNode : public ExprNode {
 public:
  Expr a;
  TL_MIRROR_FINAL("prim.Not", NotNode, ExprNode);
};
TL_REF(Not, Expr, NotNode);
TL_PROVE(NotNode, a);

class BitwiseNotNode : public ExprNode {
 public:
  Expr a;
  TL_MIRROR_FINAL("prim.BitwiseNot", BitwiseNotNode, ExprNode);
};
TL_REF(BitwiseNot, Expr, BitwiseNotNode);
TL_PROVE(BitwiseNotNode, a);

class CastNode : public ExprNode {
 public:
  Expr value;
  TL_MIRROR_FINAL("prim.Cast", CastNode, ExprNode);
};
TL_REF(Cast, Expr, CastNode);
TL_PROVE(CastNode, value);

class SelectNode : public ExprNode {
 public:
  Expr condition;
  Expr true_value;
  Expr false_value;
  TL_MIRROR_FINAL("prim.Select", SelectNode, ExprNode);
};
TL_REF(Select, Expr, SelectNode);
TL_PROVE(SelectNode, condition, true_value, false_value);

class RampNode : public ExprNode {
 public:
  Expr base;
  Expr stride;
  Expr lanes;
  TL_MIRROR_FINAL("prim.Ramp", RampNode, ExprNode);
};
TL_REF(Ramp, Expr, RampNode);
TL_PROVE(RampNode, base, stride, lanes);

class BroadcastNode : public ExprNode {
 public:
  Expr value;
  Expr lanes;
  TL_MIRROR_FINAL("prim.Broadcast", BroadcastNode, ExprNode);
};
TL_REF(Broadcast, Expr, BroadcastNode);
TL_PROVE(BroadcastNode, value, lanes);

class ShuffleNode : public ExprNode {
 public:
  Array<Expr> vectors;
  Array<Expr> indices;
  TL_MIRROR_FINAL("prim.Shuffle", ShuffleNode, ExprNode);
};
TL_REF(Shuffle, Expr, ShuffleNode);
TL_PROVE(ShuffleNode, vectors, indices);

class LetNode : public ExprNode {
 public:
  Var var;
  Expr value;
  Expr body;
  TL_MIRROR_FINAL("prim.Let", LetNode, ExprNode);
};
TL_REF(Let, Expr, LetNode);
TL_PROVE(LetNode, var, value, body);

class TileLayoutBaseNode : public Object {
 public:
  TL_MIRROR("tirx.Layout", TileLayoutBaseNode, Object);
};
TL_REF(TileLayoutBase, ObjectRef, TileLayoutBaseNode);

/*! The type of a buffer variable. */
class BufferTypeNode : public TypeNode {
 public:
  PrimType dtype;
  String storage_scope;
  Array<Expr> shape;
  Array<Expr> strides;
  Expr elem_offset;
  int32_t data_alignment;
  int32_t offset_factor;
  Optional<TileLayoutBase> layout;
  Array<Expr> allocated_addr;
  TL_MIRROR_FINAL("tirx.BufferType", BufferTypeNode, TypeNode);
};
TL_REF(BufferType, Type, BufferTypeNode);
TL_PROVE(BufferTypeNode, dtype, storage_scope, shape, strides, elem_offset, data_alignment,
         offset_factor, layout, allocated_addr);

}  // namespace tl
#pragma GCC diagnostic pop
