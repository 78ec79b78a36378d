#include "build.h"

#include <unordered_map>

namespace tl {

PrimType PrimTy(DLDataType t) {
  static thread_local auto* cache = new std::unordered_map<uint32_t, PrimType>();
  const uint32_t key = t.code | uint32_t(t.bits) << 8 | uint32_t(t.lanes) << 16;
  auto it = cache->find(key);
  if (it == cache->end()) {
    it = cache->emplace(key, TL_GLOBAL("ir.PrimType")(t).cast<PrimType>()).first;
  }
  return it->second;
}

Type VoidTy() { return PrimTy(DLDataType{kDLOpaqueHandle, 0, 0}); }

std::string DTypeName(DLDataType t) { return ffi::DLDataTypeToString(t); }

IntImm MakeInt(DLDataType t, int64_t v) {
  auto n = make_object<IntImmNode>();
  n->ty = PrimTy(t);
  n->value = ffi::BigInt(v);
  return IntImm(n);
}

std::optional<int64_t> AsInt(const Expr& e) {
  const auto* p = e.as<IntImmNode>();
  if (!p || p->value > INT64_MAX || p->value < INT64_MIN) return std::nullopt;
  return static_cast<int64_t>(p->value);
}

int64_t ToInt(const Expr& e) {
  std::optional<int64_t> v = AsInt(e);
  TVM_FFI_ICHECK(v.has_value()) << "expected a constant, got " << e->GetTypeKey();
  return *v;
}

Var MakeVar(const std::string& name, DLDataType t) {
  auto n = make_object<VarNode>();
  n->name = name;
  n->ty = PrimTy(t);
  return Var(n);
}

#define TL_DEFINE_OP_(name, global) \
  Expr name(const Expr& a, const Expr& b) { return TL_GLOBAL(global)(a, b, nullptr).cast<Expr>(); }
TL_DEFINE_OP_(operator+, "prim._OpAdd")
TL_DEFINE_OP_(operator-, "prim._OpSub")
TL_DEFINE_OP_(operator*, "prim._OpMul")
TL_DEFINE_OP_(operator<, "prim._OpLT")
TL_DEFINE_OP_(operator>=, "prim._OpGE")
TL_DEFINE_OP_(operator&&, "prim._OpAnd")
TL_DEFINE_OP_(FloorDivOf, "prim._OpFloorDiv")
TL_DEFINE_OP_(FloorModOf, "prim._OpFloorMod")
TL_DEFINE_OP_(EqualOf, "prim._OpEQ")
TL_DEFINE_OP_(NotEqualOf, "prim._OpNE")
TL_DEFINE_OP_(operator||, "prim._OpOr")
TL_DEFINE_OP_(BitAndOf, "prim.bitwise_and")
TL_DEFINE_OP_(BitOrOf, "prim.bitwise_or")
TL_DEFINE_OP_(XorOf, "prim.bitwise_xor")
TL_DEFINE_OP_(ShiftLeftOf, "prim.left_shift")
TL_DEFINE_OP_(ShiftRightOf, "prim.right_shift")
TL_DEFINE_OP_(MinOf, "prim._OpMin")
TL_DEFINE_OP_(MaxOf, "prim._OpMax")
#undef TL_DEFINE_OP_

Expr NotOf(const Expr& a) { return TL_GLOBAL("prim.Not")(a, nullptr).cast<Expr>(); }

Expr CastTo(DLDataType t, const Expr& e) {
  if (e->dtype() == t) return e;
  return TL_GLOBAL("prim._cast")(PrimTy(t), e, nullptr).cast<Expr>();
}

Expr MakeFloat(DLDataType t, double v) {
  return TL_GLOBAL("ir.FloatImm")(t, v, nullptr).cast<Expr>();
}

Expr ZeroOf(DLDataType t) {
  const DLDataType scalar = WithLanes(t, 1);
  Expr zero = t.code == kDLInt || t.code == kDLUInt || t.code == kDLBool ? Expr(MakeInt(scalar, 0))
                                                                         : MakeFloat(scalar, 0.0);
  return t.lanes == 1 ? zero : BroadcastOf(zero, t.lanes);
}

Expr IfThenElseOf(const Expr& condition, const Expr& a, const Expr& b) {
  return TL_GLOBAL("prim._OpIfThenElse")(condition, a, b, nullptr).cast<Expr>();
}

Expr RampOf(const Expr& base, int64_t stride, int lanes) {
  return TL_GLOBAL("prim.Ramp")(base, MakeInt(base->dtype(), stride), MakeInt(lanes), nullptr)
      .cast<Expr>();
}

Expr BroadcastOf(const Expr& value, int lanes) {
  return TL_GLOBAL("prim.Broadcast")(value, MakeInt(lanes), nullptr).cast<Expr>();
}

Call CallOp(const std::string& op, const Array<Expr>& args, const Type& ret) {
  auto n = make_object<CallNode>();
  n->op = TL_GLOBAL("ir.GetOp")(op).cast<Op>();
  n->args = args;
  n->ty = ret;
  return Call(n);
}

const OpNode* OpOf(const CallNode* call) { return call->op.as<OpNode>(); }

std::string ToString(const Expr& e) { return e.as_or_throw<StringImm>()->value; }

bool IsCallTo(const CallNode* call, const char* op) {
  const OpNode* o = OpOf(call);
  return o && o->name == op;
}

bool IsCallTo(const Expr& e, const char* op) {
  const auto* call = e.as<CallNode>();
  return call && IsCallTo(call, op);
}

const BufferTypeNode* AsBuffer(const Expr& e) {
  return e.defined() && e->ty.defined() ? e->ty.as<BufferTypeNode>() : nullptr;
}

const BufferTypeNode* BufferOf(const Var& buffer) {
  const BufferTypeNode* t = AsBuffer(buffer);
  TVM_FFI_ICHECK(t) << buffer->name << " is not a buffer";
  return t;
}

std::string ScopeOf(const Var& buffer) {
  const String& s = BufferOf(buffer)->storage_scope;
  return s.empty() ? std::string("global") : std::string(s);
}

Var MakeBuffer(const std::string& name, DLDataType dtype, const Array<Expr>& shape,
               const std::string& scope) {
  auto t = make_object<BufferTypeNode>();
  t->dtype = PrimTy(dtype);
  t->storage_scope = scope;
  t->shape = shape;
  t->elem_offset = MakeInt(0);
  t->data_alignment = 64;
  t->offset_factor = 1;
  auto n = make_object<VarNode>();
  n->name = name;
  n->ty = BufferType(t);
  return Var(n);
}

Expr LoadOf(const Var& buffer, const Array<Expr>& indices) {
  auto n = make_object<TensorLoadNode>();
  n->source = buffer;
  n->indices = indices;
  DLDataType t = BufferOf(buffer)->dtype->dtype;
  if (!indices.empty()) t.lanes = static_cast<uint16_t>(t.lanes * indices.back()->dtype().lanes);
  n->ty = PrimTy(t);
  return TensorLoad(n);
}

Expr AddressOf(const Var& buffer, const Array<Expr>& indices) {
  auto t = make_object<PointerTypeNode>();
  t->element_type = BufferOf(buffer)->dtype;
  t->storage_scope = BufferOf(buffer)->storage_scope;
  return CallOp("tirx.address_of", {LoadOf(buffer, indices)}, PointerType(t));
}

const TensorLoadNode* AsAddressOf(const Expr& e) {
  if (!IsCallTo(e, "tirx.address_of")) return nullptr;
  return e.as<CallNode>()->args[0].as<TensorLoadNode>();
}

Stmt MakeSeq(const std::vector<Stmt>& stmts) {
  std::vector<Stmt> flat;
  for (const Stmt& s : stmts) {
    for (const Stmt& t : FlatSeq(s)) flat.push_back(t);
  }
  if (flat.size() == 1) return flat[0];
  if (flat.empty()) return MakeEvaluate(MakeInt(0), Span());
  auto n = make_object<SeqStmtNode>();
  n->seq = Array<Stmt>(flat.begin(), flat.end());
  return SeqStmt(n);
}

std::vector<Stmt> FlatSeq(const Stmt& s) {
  const auto* seq = s.as<SeqStmtNode>();
  if (!seq) return {s};
  std::vector<Stmt> out;
  for (const Stmt& t : seq->seq) {
    for (const Stmt& u : FlatSeq(t)) out.push_back(u);
  }
  return out;
}

Stmt MakeStore(const Var& buffer, const Expr& value, const Array<Expr>& indices, const Span& span) {
  auto n = make_object<BufferStoreNode>();
  n->buffer = buffer;
  n->value = value;
  n->indices = indices;
  n->span = span;
  return BufferStore(n);
}

Range MakeRange(const Expr& min, const Expr& extent) {
  auto n = make_object<RangeNode>();
  n->min = min;
  n->extent = extent;
  return Range(n);
}

Stmt MakeEvaluate(const Expr& value, const Span& span) {
  auto n = make_object<EvaluateNode>();
  n->value = value;
  n->span = span;
  return Evaluate(n);
}

Stmt MakeBind(const Var& v, const Expr& value, const Span& span) {
  auto n = make_object<BindNode>();
  n->var = v;
  n->value = value;
  n->span = span;
  return Bind(n);
}

Stmt MakeAssume(const Expr& fact, const Span& span) {
  return MakeEvaluate(CallOp("tirx.assume", {fact}, PrimTy(kBool)), span);
}

Stmt MakeAlloc(const Var& buffer, const Map<String, Any>& annotations) {
  auto n = make_object<AllocBufferNode>();
  n->buffer = buffer;
  n->annotations = annotations;
  return AllocBuffer(n);
}

Stmt MakeIf(const Expr& condition, const Stmt& then_case, const Span& span) {
  if (AsInt(condition)) return ToInt(condition) ? then_case : MakeSeq({});
  auto n = make_object<IfThenElseNode>();
  n->condition = condition;
  n->then_case = then_case;
  n->span = span;
  return IfThenElse(n);
}

For MakeFor(const Var& v, const Expr& extent, ForKind kind, const Stmt& body, const Span& span,
            const Map<String, Any>& annotations) {
  auto n = make_object<ForNode>();
  n->loop_var = v;
  n->min = MakeInt(v->dtype(), 0);
  n->extent = extent;
  n->kind = kind;
  n->body = body;
  n->span = span;
  n->annotations = annotations;
  return For(n);
}

Stmt MakeAttr(const Any& node, const std::string& key, const Expr& value, const Stmt& body) {
  auto n = make_object<AttrStmtNode>();
  n->node = node;
  n->attr_key = key;
  n->value = value;
  n->body = body;
  return AttrStmt(n);
}

std::vector<int64_t> ConstShape(const Var& buffer) {
  std::vector<int64_t> out;
  for (const Expr& e : BufferOf(buffer)->shape) out.push_back(ToInt(e));
  return out;
}

std::optional<int64_t> IntAnnotation(const Map<String, Any>& m, const char* key) {
  auto it = m.find(key);
  if (it == m.end()) return std::nullopt;
  const Any value = (*it).second;
  if (auto v = value.as<int64_t>()) return *v;
  if (auto e = value.as<Expr>()) return AsInt(*e);
  return std::nullopt;
}

Any GetAttr(const PrimFunc& f, const char* key) {
  if (!f->attrs.defined()) return Any(nullptr);
  auto it = f->attrs->__dict__.find(key);
  return it == f->attrs->__dict__.end() ? Any(nullptr) : (*it).second;
}

DictAttrs MakeDict(const Map<String, Any>& attrs) {
  auto n = make_object<DictAttrsNode>();
  n->__dict__ = attrs;
  return DictAttrs(n);
}

PrimFunc WithAttr(PrimFunc f, const char* key, const Any& value) {
  Map<String, Any> attrs;
  if (f->attrs.defined()) attrs = f->attrs->__dict__;
  attrs.Set(key, value);
  f.CopyOnWrite()->attrs = MakeDict(attrs);
  return f;
}

bool IsThreadAxis(const IterVar& axis) {
  return std::string(axis->thread_tag).rfind("threadIdx", 0) == 0;
}

bool IsBlockAxis(const IterVar& axis) {
  return std::string(axis->thread_tag).rfind("blockIdx", 0) == 0;
}

AttrStmt WithAxis(const AttrStmtNode* op, const Var& v, const Expr& extent) {
  const IterVar axis = op->node.cast<IterVar>();
  auto n = make_object<AttrStmtNode>(*op);
  n->node = TL_GLOBAL("tirx.IterVar")(MakeRange(MakeInt(extent->dtype(), 0), extent), v,
                                      axis->iter_type, axis->thread_tag, nullptr);
  n->value = extent;
  return AttrStmt(n);
}

PrimFunc WithBody(PrimFunc f, const Stmt& body) {
  if (body.same_as(f->body)) return f;
  f.CopyOnWrite()->body = body;
  return f;
}

}  // namespace tl
