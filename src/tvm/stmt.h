/*! Mirrors of TVM's statements and functions: `tirx.*` and `s_tir.*`. See mirror.h. */
#pragma once
#include "ir.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

namespace tl {

/*! Polymorphic in TVM, so never built here. */
class IterVarNode : public Object {
 public:
  Range dom;
  Var var;
  int32_t iter_type;
  String thread_tag;
  Span span;
  TL_MIRROR_FINAL("tirx.IterVar", IterVarNode, Object);
};
TL_REF(IterVar, ObjectRef, IterVarNode);
TL_PROVE_READ_ONLY(IterVarNode, dom, var, iter_type, thread_tag, span);

class StmtNode : public Object {
 public:
  Span span;
  TL_MIRROR("tirx.Stmt", StmtNode, Object);
};
TL_REF(Stmt, ObjectRef, StmtNode);
TL_PROVE(StmtNode, span);

enum class ForKind : int32_t { kSerial, kParallel, kVectorized, kUnrolled, kThreadBinding };

class ForNode : public StmtNode {
 public:
  Var loop_var;
  Expr min;
  Expr extent;
  ForKind kind;
  Stmt body;
  Optional<IterVar> thread_binding;
  Map<String, Any> annotations;
  Optional<Expr> step;
  TL_MIRROR_FINAL("tirx.For", ForNode, StmtNode);
};
TL_REF(For, Stmt, ForNode);
TL_PROVE(ForNode, loop_var, min, extent, kind, body, thread_binding, annotations, step);

class WhileNode : public StmtNode {
 public:
  Expr condition;
  Stmt body;
  TL_MIRROR_FINAL("tirx.While", WhileNode, StmtNode);
};
TL_REF(While, Stmt, WhileNode);
TL_PROVE(WhileNode, condition, body);

class BufferStoreNode : public StmtNode {
 public:
  Var buffer;
  Expr value;
  Array<Expr> indices;
  TL_MIRROR_FINAL("tirx.BufferStore", BufferStoreNode, StmtNode);
};
TL_REF(BufferStore, Stmt, BufferStoreNode);
TL_PROVE(BufferStoreNode, buffer, value, indices);

/*! `var = value` for the rest of the enclosing sequence. */
class BindNode : public StmtNode {
 public:
  Var var;
  Expr value;
  TL_MIRROR_FINAL("tirx.Bind", BindNode, StmtNode);
};
TL_REF(Bind, Stmt, BindNode);
TL_PROVE(BindNode, var, value);

class AllocBufferNode : public StmtNode {
 public:
  Var buffer;
  Map<String, Any> annotations;
  TL_MIRROR_FINAL("tirx.AllocBuffer", AllocBufferNode, StmtNode);
};
TL_REF(AllocBuffer, Stmt, AllocBufferNode);
TL_PROVE(AllocBufferNode, buffer, annotations);

class DeclBufferNode : public StmtNode {
 public:
  Var buffer;
  Expr data;
  TL_MIRROR_FINAL("tirx.DeclBuffer", DeclBufferNode, StmtNode);
};
TL_REF(DeclBuffer, Stmt, DeclBufferNode);
TL_PROVE(DeclBufferNode, buffer, data);

class AttrStmtNode : public StmtNode {
 public:
  Any node;
  String attr_key;
  Expr value;
  Stmt body;
  TL_MIRROR_FINAL("tirx.AttrStmt", AttrStmtNode, StmtNode);
};
TL_REF(AttrStmt, Stmt, AttrStmtNode);
TL_PROVE(AttrStmtNode, node, attr_key, value, body);

class IfThenElseNode : public StmtNode {
 public:
  Expr condition;
  Stmt then_case;
  Optional<Stmt> else_case;
  TL_MIRROR_FINAL("tirx.IfThenElse", IfThenElseNode, StmtNode);
};
TL_REF(IfThenElse, Stmt, IfThenElseNode);
TL_PROVE(IfThenElseNode, condition, then_case, else_case);

class SeqStmtNode : public StmtNode {
 public:
  Array<Stmt> seq;
  TL_MIRROR_FINAL("tirx.SeqStmt", SeqStmtNode, StmtNode);
};
TL_REF(SeqStmt, Stmt, SeqStmtNode);
TL_PROVE(SeqStmtNode, seq);

class EvaluateNode : public StmtNode {
 public:
  Expr value;
  TL_MIRROR_FINAL("tirx.Evaluate", EvaluateNode, StmtNode);
};
TL_REF(Evaluate, Stmt, EvaluateNode);
TL_PROVE(EvaluateNode, value);

class AssertStmtNode : public StmtNode {
 public:
  Expr condition;
  StringImm error_kind;
  Array<StringImm> message_parts;
  TL_MIRROR_FINAL("tirx.AssertStmt", AssertStmtNode, StmtNode);
};
TL_REF(AssertStmt, Stmt, AssertStmtNode);
TL_PROVE(AssertStmtNode, condition, error_kind, message_parts);

class BreakNode : public StmtNode {
 public:
  TL_MIRROR_FINAL("tirx.Break", BreakNode, StmtNode);
};
TL_REF(Break, Stmt, BreakNode);

class ContinueNode : public StmtNode {
 public:
  TL_MIRROR_FINAL("tirx.Continue", ContinueNode, StmtNode);
};
TL_REF(Continue, Stmt, ContinueNode);

class MatchBufferRegionNode : public Object {
 public:
  Var buffer;
  TensorRegion source;
  TL_MIRROR_FINAL("s_tir.MatchBufferRegion", MatchBufferRegionNode, Object);
};
TL_REF(MatchBufferRegion, ObjectRef, MatchBufferRegionNode);
TL_PROVE(MatchBufferRegionNode, buffer, source);

class SBlockNode : public StmtNode {
 public:
  Array<IterVar> iter_vars;
  Array<TensorRegion> reads;
  Array<TensorRegion> writes;
  String name_hint;
  Array<Var> alloc_buffers;
  Array<MatchBufferRegion> match_buffers;
  Map<String, Any> annotations;
  Optional<Stmt> init;
  Stmt body;
  TL_MIRROR_FINAL("s_tir.SBlock", SBlockNode, StmtNode);
};
TL_REF(SBlock, Stmt, SBlockNode);
TL_PROVE(SBlockNode, iter_vars, reads, writes, name_hint, alloc_buffers, match_buffers, annotations,
         init, body);

class SBlockRealizeNode : public StmtNode {
 public:
  Array<Expr> iter_values;
  Expr predicate;
  SBlock block;
  TL_MIRROR_FINAL("s_tir.SBlockRealize", SBlockRealizeNode, StmtNode);
};
TL_REF(SBlockRealize, Stmt, SBlockRealizeNode);
TL_PROVE(SBlockRealizeNode, iter_values, predicate, block);

class BaseFuncNode : public ExprNode {
 public:
  DictAttrs attrs;
  TL_MIRROR("ir.BaseFunc", BaseFuncNode, ExprNode);
};
TL_REF(BaseFunc, Expr, BaseFuncNode);
TL_PROVE(BaseFuncNode, attrs);

class PrimFuncNode : public BaseFuncNode {
 public:
  Array<Var> params;
  Type ret_type;
  Stmt body;
  TL_MIRROR_FINAL("tirx.PrimFunc", PrimFuncNode, BaseFuncNode);
};
TL_REF(PrimFunc, BaseFunc, PrimFuncNode);
TL_PROVE(PrimFuncNode, params, ret_type, body);

}  // namespace tl
#pragma GCC diagnostic pop
