/*! What the printer must know of a kernel before its first line. */
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../tvm/functor.h"

namespace tl {

/*! The place of the next static shared array, of `bytes`, behind those that end at `end`. All begin
 * where swizzles repeat, which go by addresses: after 8 rows of 128 bytes (PTX ISA, Tensor
 * swizzling modes), which is more than TMA wants of tiles without one. */
inline int64_t PlaceStatic(int64_t bytes, int64_t* end) {
  constexpr int64_t kRepeats = 1024;
  const int64_t begin = (*end + kRepeats - 1) / kRepeats * kRepeats;
  *end = begin + bytes;
  return begin;
}

/*! Attribute around a kernel's body: for how many threads ptxas is to leave registers, where those
 * are more than the block has. */
inline constexpr const char* kBoundThreads = "tl.bound_threads";

class KernelFacts : public StmtExprVisitor {
 public:
  explicit KernelFacts(const PrimFunc& kernel) { Visit(kernel->body); }

  std::unordered_set<const Object*> used;
  /*! Buffers that a store, an intrinsic or an unknown function may write. */
  std::unordered_set<const Object*> written;
  /*! Buffers that the kernel loads from without an intrinsic. */
  std::unordered_set<const Object*> read;
  std::vector<IterVar> threads;
  std::string swizzle;
  Span swizzle_span;
  std::string prelude;
  std::optional<int64_t> min_blocks, bound_threads;
  bool sets_registers = false;
  bool awaits_mbarriers = false;
  std::unordered_set<std::string> aliased;
  bool has_dynamic_shared = false;
  /*! There are buffer loads to shared memory, for all of which AMD's compiler waits in front of a
   * read that it cannot tell from them: see tl/vmem.h. */
  bool loads_to_lds = false;
  /*! Place of each static shared array in the block's static memory, and bytes of all of them. */
  std::unordered_map<const Object*, int64_t> static_shared;
  int64_t static_shared_bytes = 0;

  /*! Whether an attribute of this name is one that this class reads. */
  static bool IsFact(const std::string& key);

 protected:
  void Visit_(const VarNode* op) override;
  void Visit_(const AttrStmtNode* op) override;
  void Visit_(const AllocBufferNode* op) override;
  void Visit_(const DeclBufferNode* op) override;
  void Visit_(const BufferStoreNode* op) override;
  void Visit_(const TensorLoadNode* op) override;
  void Visit_(const CallNode* op) override;
};

/*! Buffers whose elements may change while a kernel runs: what it writes, and what another rank
 * may, which a signal tells of. A read of others may be made earlier. */
std::unordered_set<const Object*> BuffersThatMayChange(const PrimFunc& kernel);

}  // namespace tl
