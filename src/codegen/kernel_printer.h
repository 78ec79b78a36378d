/*! Prints a device function: its signature, the names of its indices, and its statements, one line
 * each. */
#pragma once
#include <string>

#include "expr_printer.h"

namespace tl {

class KernelFacts;

class KernelPrinter : private ExprPrinter {
 public:
  /*! With `line_directives`, `#line` in front of each statement gives its place in the user's
   * Python. */
  explicit KernelPrinter(bool line_directives) : line_directives_(line_directives) {}
  std::string Run(const PrimFunc& kernel);
  /*! Headers of the intrinsics that the kernel uses. */
  const std::set<std::string>& headers() const { return headers_; }
  const WgmmaProducts& products() const { return products_; }
  /*! C++ of the user's own that stands before the kernels. */
  const std::string& prelude() const { return prelude_; }

 private:
  void Visit_(const ForNode* op) override;
  void Visit_(const WhileNode* op) override;
  void Visit_(const IfThenElseNode* op) override;
  void Visit_(const SeqStmtNode* op) override;
  void Visit_(const AttrStmtNode* op) override;
  void Visit_(const BufferStoreNode* op) override;
  void Visit_(const BindNode* op) override;
  void Visit_(const AllocBufferNode* op) override;
  void Visit_(const DeclBufferNode* op) override;
  void Visit_(const EvaluateNode* op) override;
  void Visit_(const BreakNode* op) override;
  void Visit_(const ContinueNode* op) override;

  void Statement(const Stmt& s);
  void Braces(const std::string& head, const Stmt& body);
  void If(const IfThenElseNode* op, const std::string& head);
  std::string Signature(const PrimFunc& kernel, const KernelFacts& facts);
  void Indices(const KernelFacts& facts);
  static const TensorLoadNode* ConvertedRegisters(const BufferStoreNode* op);
  void StoreSubByte(const BufferStoreNode* op, const std::string& value);
  std::string StorageType(DLDataType t);
  /*! A tile whose extents the launch decides. */
  void SharedTile(const AllocBufferNode* op, const std::string& name);
  void SharedArray(const std::string& type, int64_t extent, const std::string& name,
                   const std::string& memory, int64_t offset);
  void Line(const std::string& text);

  bool line_directives_;
  std::optional<int64_t> unroll_factor_;
  std::unordered_map<const Object*, int64_t> static_shared_;
  bool awaits_mbarriers_ = false;
  /*! Loops around the statement. */
  int loops_ = 0;
  int indent_ = 0;
  std::string prelude_;
  std::string out_;
};

}  // namespace tl
