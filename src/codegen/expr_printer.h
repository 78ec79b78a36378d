/*!
 * Prints expressions as C++ on the device headers: user's names, parentheses only where precedence
 * needs them.
 *
 * A node that has no C++ form raises with the place of the statement it stands in; nothing is
 * printed in its stead.
 */
#pragma once
#include <set>
#include <string>
#include <unordered_set>

#include "../tvm/analyzer.h"
#include "../tvm/functor.h"
#include "names.h"
#include "wgmma_products.h"

namespace tl {

/*! Binding strength of C++ operators, weakest first. */
enum Precedence : int {
  kAnyExpression,
  kTernary,
  kLogicalOr,
  kLogicalAnd,
  kBitOr,
  kBitXor,
  kBitAnd,
  kEquality,
  kRelational,
  kShift,
  kAdditive,
  kMultiplicative,
  kUnary,
  kPrimary,
};

/*! Headers of functions that kernels include if they call one of them; C++ of the user's own may.
 */
inline constexpr const char* kFunctionHeaders[] = {"tl/exponential.h", "tl/floor.h",
                                                   "tl/number_bits.h", "tl/trigonometric.h"};

class ExprPrinter : protected StmtExprVisitor {
 protected:
  /*! C++ of `e`, in parentheses where it binds weaker than `at_least`. */
  std::string Print(const Expr& e, int at_least = kAnyExpression);
  /*! The same for what is computed with: its sums of integers wrap. Others, which are places and
   * counts, may be compiled as if they never did. */
  std::string PrintValue(const Expr& e);
  /*! Does the expression depend on memory, itself or through a variable? */
  bool ReadsMemory(const Expr& e);
  std::string TypeName(DLDataType t);
  /*! `buffer + index` */
  std::string Pointer(const Var& buffer, const Expr& index);
  std::string Element(const Var& buffer, const Expr& index);
  const std::string& Name(const VarNode* var);
  [[noreturn]] void Refuse(const std::string& found, const std::string& repair);
  [[noreturn]] void Bug(const std::string& found);

  NameScopes names_;
  Analyzer analyzer_;
  std::set<std::string> headers_;
  WgmmaProducts products_;
  /*! One-element buffers that became plain variables. */
  std::unordered_set<const Object*> scalars_;
  /*! Place of the statement that is being printed. */
  Span span_;
  /*! Elements of shared memory are read by `tl::load`: KernelFacts::loads_to_lds. */
  bool loads_elements_ = false;
  /*! Printing what is bound to a name where `tl::load_here` reads memory: see KernelPrinter. */
  bool loads_here_ = false;
  /*! Variables whose value was read from memory. */
  std::unordered_set<const Object*> loaded_;
  /*! The node whose printing was completed last: how a class without a Visit_ of its own is
   * noticed. */
  const Object* done_ = nullptr;

  void Visit_(const VarNode* op) override;
  void Visit_(const IntImmNode* op) override;
  void Visit_(const FloatImmNode* op) override;
  void Visit_(const StringImmNode* op) override;
  void Visit_(const TensorLoadNode* op) override;
  void Visit_(const CallNode* op) override;
  void Visit_(const CastNode* op) override;
  void Visit_(const SelectNode* op) override;
  void Visit_(const LetNode* op) override;
  void Visit_(const RampNode* op) override;
  void Visit_(const BroadcastNode* op) override;
  void Visit_(const ShuffleNode* op) override;
  void Visit_(const AddNode* op) override;
  void Visit_(const SubNode* op) override;
  void Visit_(const MulNode* op) override;
  void Visit_(const DivNode* op) override { Infix(op, "/", kMultiplicative); }
  void Visit_(const ModNode* op) override { Infix(op, "%", kMultiplicative); }
  void Visit_(const FloorDivNode* op) override { Floor(op, "/", "tl::floordiv"); }
  void Visit_(const FloorModNode* op) override { Floor(op, "%", "tl::floormod"); }
  void Visit_(const MinNode* op) override {
    RefuseSubByte(op->dtype());
    Done(op, Function("tl::min", {op->a, op->b}), kPrimary);
  }
  void Visit_(const MaxNode* op) override {
    RefuseSubByte(op->dtype());
    Done(op, Function("tl::max", {op->a, op->b}), kPrimary);
  }
  void Visit_(const EQNode* op) override { Compare(op, "==", kEquality); }
  void Visit_(const NENode* op) override { Compare(op, "!=", kEquality); }
  void Visit_(const LTNode* op) override { Compare(op, "<", kRelational); }
  void Visit_(const LENode* op) override { Compare(op, "<=", kRelational); }
  void Visit_(const GTNode* op) override { Compare(op, ">", kRelational); }
  void Visit_(const GENode* op) override { Compare(op, ">=", kRelational); }
  void Visit_(const AndNode* op) override { Infix(op, "&&", kLogicalAnd); }
  void Visit_(const OrNode* op) override { Infix(op, "||", kLogicalOr); }
  void Visit_(const BitwiseAndNode* op) override { Infix(op, "&", kBitAnd); }
  void Visit_(const BitwiseOrNode* op) override { Infix(op, "|", kBitOr); }
  void Visit_(const BitwiseXorNode* op) override { Infix(op, "^", kBitXor); }
  void Visit_(const LShiftNode* op) override { Infix(op, "<<", kShift); }
  void Visit_(const RShiftNode* op) override { Infix(op, ">>", kShift); }
  void Visit_(const NotNode* op) override { Prefix(op, "!"); }
  void Visit_(const BitwiseNotNode* op) override { Prefix(op, "~"); }

 private:
  void Done(const ExprNode* op, std::string text, int precedence);
  template <typename Node>
  void Infix(const Node* op, const char* symbol, int precedence);
  template <typename Node>
  void Compare(const Node* op, const char* symbol, int precedence);
  template <typename Node>
  bool Wraps(const Node* op);
  template <typename Node>
  void Prefix(const Node* op, const char* symbol);
  template <typename Node>
  void Floor(const Node* op, const char* symbol, const char* function);
  void DoneArithmetic(const ExprNode* op, std::string text, int precedence);
  std::string PrintIndex(const Expr& e, int at_least = kAnyExpression);
  std::string Operand(const Expr& e, const Expr& other, int at_least);
  Expr ByteOf(const Var& buffer, const Expr& index);
  void RefuseSubByte(DLDataType t);
  bool NeverNegative(const Expr& e);
  std::string Function(const std::string& name, const Array<Expr>& args, size_t first = 0);
  std::string Intrinsic(const CallNode* op);
  std::string ExternCall(const std::string& name, const Array<Expr>& args);
  std::string ElementAddress(const TensorLoadNode* target);
  std::string VectorLoad(const TensorLoadNode* op, const Var& buffer);
  static const TensorLoadNode* LanesOfRegisters(const Expr& e);
  std::string Lanes(const TensorLoadNode* load, const std::string& function);
  bool CallToBuiltin(const CallNode* op, const std::string& name);

  /*! Printing a value, not a place or a count. */
  bool value_ = false;
  std::string text_;
  int precedence_ = kPrimary;
};

}  // namespace tl
