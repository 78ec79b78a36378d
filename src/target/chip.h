/*! What each NVIDIA chip can do: one row for each compute capability. */
#pragma once
#include <cstdint>
#include <string>

#include "../tvm/ir.h"
#include "../tvm/registry.h"

namespace tl {

/*! Of a warp, and of the four warps of a warp group (PTX ISA, wgmma). */
inline constexpr int64_t kWarpThreads = 32, kWarpGroupThreads = 4 * kWarpThreads;

struct Chip {
  int sm;                          // 80 for sm_80, 90 for sm_90a
  int64_t shared_bytes_per_block;  // most dynamic shared memory that a block may have
  int64_t shared_bytes_per_sm;     // of a multiprocessor
  int64_t threads_per_sm;          // that run on it at the same time
  int64_t blocks_per_sm;
  bool has_ldmatrix;
  bool has_cp_async;
  bool has_stmatrix;
  bool has_bulk_copy;  // the tensor memory access unit

  /*! How many blocks of `threads`, with these bytes of shared memory, a multiprocessor has room
   * for, if they use few registers. */
  int64_t BlocksThatFit(int64_t threads, int64_t shared_bytes) const;
};

/*! Row of `arch`; ValueError at `span` for a chip that is not in the table. */
const Chip& ChipOf(const Arch& arch, const Span& span);

/*! Whether it has wgmma and setmaxnreg, which are features of that chip alone (PTX ISA, "Target ISA
 * Notes" of both: sm_90a). Other chips have setmaxnreg, too; nothing here moves their registers. */
inline bool HasWarpGroups(const Arch& arch) { return arch.sm == 90 && arch.features == 'a'; }

}  // namespace tl
