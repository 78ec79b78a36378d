/*! What each NVIDIA chip can do: one row for each compute capability. */
#pragma once
#include <cstdint>
#include <string>

#include "../tvm/ir.h"

namespace tl {

struct Chip {
  int sm;                          // 80 for sm_80, 90 for sm_90a
  int64_t shared_bytes_per_block;  // most dynamic shared memory that a block may have
  bool has_ldmatrix;
  bool has_cp_async;
  bool has_stmatrix;
  bool has_bulk_copy;  // the tensor memory access unit
};

/*! Row of `sm`; ValueError at `span` for a chip that is not in the table. */
const Chip& ChipOf(int sm, const Span& span);

}  // namespace tl
