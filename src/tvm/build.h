/*! Builders for expressions and statements. Arithmetic goes through TVM's folding constructors. */
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ranges.h"
#include "stmt.h"

namespace tl {

/*! A TVM global function, looked up once for each call site. */
#define TL_GLOBAL(Name)                                                                  \
  ([]() -> const ::tvm::ffi::Function& {                                                 \
    static const ::tvm::ffi::Function f = ::tvm::ffi::Function::GetGlobalRequired(Name); \
    return f;                                                                            \
  }())

/*! A copy of a node with another value of one member. */
template <typename Node, typename Member, typename Value>
auto With(const Node* node, Member member, Value&& value) {
  auto copy = make_object<Node>(*node);
  copy.get()->*member = std::forward<Value>(value);
  return decltype(RefOf(node))(copy);
}

inline constexpr DLDataType kInt32{kDLInt, 32, 1};
inline constexpr DLDataType kInt64{kDLInt, 64, 1};
inline constexpr DLDataType kBool{kDLBool, 8, 1};

inline DLDataType WithLanes(DLDataType t, int lanes) {
  return DLDataType{t.code, t.bits, static_cast<uint16_t>(lanes)};
}

/*! int4, uint4, float4_e2m1fn: in memory two elements share a byte. */
inline bool IsSubByte(DLDataType t) {
  return t.bits == 4 && (t.code == kDLInt || t.code == kDLUInt || t.code == kDLFloat4_e2m1fn);
}

PrimType PrimTy(DLDataType t);
/*! Type of calls that return nothing. */
Type VoidTy();
std::string DTypeName(DLDataType t);

// --- expressions
IntImm MakeInt(DLDataType t, int64_t v);
inline IntImm MakeInt(int64_t v) { return MakeInt(kInt32, v); }
/*! The constant, nullopt for other expressions and for constants beyond int64. */
std::optional<int64_t> AsInt(const Expr& e);
inline bool IsConst(const Expr& e, int64_t v) { return AsInt(e) == v; }
/*! The constant, or an internal error: for values that an earlier check made constant. */
int64_t ToInt(const Expr& e);
Range MakeRange(const Expr& min, const Expr& extent);
Var MakeVar(const std::string& name, DLDataType t = kInt32);

#define TL_DECLARE_OP_(name) Expr name(const Expr& a, const Expr& b);
TL_DECLARE_OP_(operator+)
TL_DECLARE_OP_(operator-)
TL_DECLARE_OP_(operator*)
TL_DECLARE_OP_(operator<)
TL_DECLARE_OP_(operator>=)
TL_DECLARE_OP_(operator&&)
TL_DECLARE_OP_(FloorDivOf)
TL_DECLARE_OP_(FloorModOf)
TL_DECLARE_OP_(EqualOf)
TL_DECLARE_OP_(NotEqualOf)
TL_DECLARE_OP_(operator||)
TL_DECLARE_OP_(BitAndOf)
TL_DECLARE_OP_(BitOrOf)
TL_DECLARE_OP_(XorOf)
TL_DECLARE_OP_(ShiftLeftOf)
TL_DECLARE_OP_(ShiftRightOf)
TL_DECLARE_OP_(MinOf)
TL_DECLARE_OP_(MaxOf)
#undef TL_DECLARE_OP_
inline Expr operator+(const Expr& a, int64_t b) { return a + MakeInt(a->dtype(), b); }
inline Expr operator*(const Expr& a, int64_t b) { return a * MakeInt(a->dtype(), b); }
inline Expr FloorDivOf(const Expr& a, int64_t b) { return FloorDivOf(a, MakeInt(a->dtype(), b)); }
inline Expr FloorModOf(const Expr& a, int64_t b) { return FloorModOf(a, MakeInt(a->dtype(), b)); }

Expr NotOf(const Expr& a);
Expr CastTo(DLDataType t, const Expr& e);
/*! The value 0 of a scalar or vector type. */
Expr ZeroOf(DLDataType t);
/*! A constant of a floating-point type; infinities and NaN are values too. */
Expr MakeFloat(DLDataType t, double v);
/*! `condition ? a : b`, evaluating only the branch taken. */
Expr IfThenElseOf(const Expr& condition, const Expr& a, const Expr& b);
Expr RampOf(const Expr& base, int64_t stride, int lanes);
Expr BroadcastOf(const Expr& value, int lanes);
Call CallOp(const std::string& op, const Array<Expr>& args, const Type& ret = VoidTy());
inline Expr StringOf(const std::string& s) {
  return TL_GLOBAL("ir.StringImm")(s, nullptr).cast<Expr>();
}
/*! The text of a string, or an internal error. */
std::string ToString(const Expr& e);
/*! Op of a call, or nullptr for calls of functions. */
const OpNode* OpOf(const CallNode* call);
bool IsCallTo(const CallNode* call, const char* op);
bool IsCallTo(const Expr& e, const char* op);

// --- buffers
/*! Type of a buffer variable, nullptr for other expressions. */
const BufferTypeNode* AsBuffer(const Expr& e);
const BufferTypeNode* BufferOf(const Var& buffer);
/*! Type of its elements. */
inline DLDataType DTypeOf(const Var& buffer) { return BufferOf(buffer)->dtype->dtype; }
std::string ScopeOf(const Var& buffer);
bool IsShared(const Var& buffer);
bool IsFragment(const Var& buffer);
bool IsGlobal(const Var& buffer);
/*! mbarriers: what T.alloc_barrier and T.alloc_cluster_barrier make. */
bool IsBarrier(const Var& buffer);
/*! Memory that one thread owns: local, local.var, local.descriptor.wgmma. */
bool IsLocal(const Var& buffer);
/*! What T.alloc_reducer makes: a part of a value in each thread, until it is finalised. */
bool IsReducer(const Var& buffer);
Var MakeBuffer(const std::string& name, DLDataType dtype, const Array<Expr>& shape,
               const std::string& scope);
Expr LoadOf(const Var& buffer, const Array<Expr>& indices);
/*! Pointer to an element: `address_of(buffer[indices])`. */
Expr AddressOf(const Var& buffer, const Array<Expr>& indices);
/*! Buffer and indices behind `address_of(...)`, nullptr for other expressions. */
const TensorLoadNode* AsAddressOf(const Expr& e);
/*! Shape of a tile buffer, which the front end made static. */
std::vector<int64_t> ConstShape(const Var& buffer);

// --- statements
Stmt MakeSeq(const std::vector<Stmt>& stmts);
/*! The statements of a sequence, nested sequences flattened; one element for anything else. */
std::vector<Stmt> FlatSeq(const Stmt& s);
Stmt MakeStore(const Var& buffer, const Expr& value, const Array<Expr>& indices, const Span& span);
Stmt MakeEvaluate(const Expr& value, const Span& span);
/*! `v` is a name of `value` in the rest of the sequence. */
Stmt MakeBind(const Var& v, const Expr& value, const Span& span);
Stmt MakeAssume(const Expr& fact, const Span& span);
Stmt MakeAlloc(const Var& buffer, const Map<String, Any>& annotations = {});
Stmt MakeIf(const Expr& condition, const Stmt& then_case, const Span& span);
For MakeFor(const Var& v, const Expr& extent, ForKind kind, const Stmt& body, const Span& span,
            const Map<String, Any>& annotations = {});
Stmt MakeAttr(const Any& node, const std::string& key, const Expr& value, const Stmt& body);

/*! Whether a thread_extent attribute's axis is threadIdx.x, y or z. */
bool IsThreadAxis(const IterVar& axis);
/*! Whether it is blockIdx.x, y or z. */
bool IsBlockAxis(const IterVar& axis);
/*! A thread_extent attribute whose axis has another variable and extent. */
AttrStmt WithAxis(const AttrStmtNode* op, const Var& v, const Expr& extent);
/*! A block with further buffers. */
template <typename Buffers>
SBlock WithBuffers(SBlock block, const Buffers& more) {
  for (const Var& buffer : more) block.CopyOnWrite()->alloc_buffers.push_back(buffer);
  return block;
}

DictAttrs MakeDict(const Map<String, Any>& attrs);
/*! An annotation or attribute as an integer, nullopt if absent. */
std::optional<int64_t> IntAnnotation(const Map<String, Any>& m, const char* key);
/*! Function attribute, nullptr-valued Any if absent. */
Any GetAttr(const PrimFunc& f, const char* key);
PrimFunc WithAttr(PrimFunc f, const char* key, const Any& value);
/*! Whether a list has the very variable. */
template <typename List>
bool Contains(const List& list, const Var& v) {
  return AnyOf(list, [&](const Var& u) { return u.same_as(v); });
}

PrimFunc WithBody(PrimFunc f, const Stmt& body);

}  // namespace tl
