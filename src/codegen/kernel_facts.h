/*! What the printer must know of a kernel before its first line. */
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../tvm/functor.h"

namespace tl {

/*! Attribute with the user's own C++, from T.Kernel(prelude=..). */
inline constexpr const char* kPrelude = "pragma_import_c";
/*! Attribute with the order in which blocks take tiles, from T.use_swizzle. */
inline constexpr const char* kSwizzle = "threadblock_swizzle_pattern";

class KernelFacts : public StmtExprVisitor {
 public:
  explicit KernelFacts(const PrimFunc& kernel) { Visit(kernel->body); }

  std::unordered_set<const Object*> used;
  /*! Buffers that a store, an intrinsic or an unknown function may write. */
  std::unordered_set<const Object*> written;
  std::vector<IterVar> threads;
  std::string swizzle;
  Span swizzle_span;
  std::string prelude;
  bool has_dynamic_shared = false;
  /*! Place of each static shared array in the block's static memory, and bytes of all of them. */
  std::unordered_map<const Object*, int64_t> static_shared;
  int64_t static_shared_bytes = 0;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const VarNode* op) override;
  void Visit_(const AttrStmtNode* op) override;
  void Visit_(const AllocBufferNode* op) override;
  void Visit_(const DeclBufferNode* op) override;
  void Visit_(const BufferStoreNode* op) override;
  void Visit_(const CallNode* op) override;
};

}  // namespace tl
