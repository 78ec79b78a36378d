/*! Stores of matrix fragments of a warp. The last lane to arrive does the work of all. */
#pragma once

#include <tl/barrier.h>
#include <tl/buffer.h>

namespace tl {
namespace emu {

struct StmatrixArguments {
  void* row;
  const void* registers;
};

/*! Lane l gives row l / 4, elements 2 * (l % 4) and the next, of each matrix or its transpose. */
template <int matrices, bool transposed>
TL_UNOBSERVED void stmatrix(void* const* arguments) {
  for (int m = 0; m < matrices; ++m) {
    uint16_t matrix[8][8];
    for (int l = 0; l < kWarpSize; ++l) {
      const auto* lane = static_cast<const StmatrixArguments*>(arguments[l]);
      uint16_t pair[2];
      __builtin_memcpy(pair, static_cast<const char*>(lane->registers) + m * sizeof(pair),
                       sizeof(pair));
      for (int e = 0; e < 2; ++e) {
        const int row = l / 4, column = 2 * (l % 4) + e;
        (transposed ? matrix[column][row] : matrix[row][column]) = pair[e];
      }
    }
    for (int r = 0; r < 8; ++r) {
      const auto* lane = static_cast<const StmatrixArguments*>(arguments[m * 8 + r]);
      __builtin_memcpy(lane->row, matrix[r], sizeof(matrix[r]));
    }
  }
}

template <int matrices, bool transposed>
TL_DEVICE void stmatrix_sync(const char* name, void* row, const void* registers, Location where) {
  const bool gives_a_row = worker->current->linear % kWarpSize < 8 * matrices;
  check_read(registers, matrices * sizeof(uint32_t), where);
  if (gives_a_row) {
    check_alignment(row, 16, "row address of an stmatrix", where);
    check_write(row, 16, where);
  }
  StmatrixArguments arguments{row, registers};
  collective_sync(name, stmatrix<matrices, transposed>, &arguments, where);
}

}  // namespace emu

#if TL_EMU_CHECKS
#define TL_STMATRIX_TO_BUFFER(name, matrices)                            \
  template <typename T>                                                  \
  TL_DEVICE void name(const emu::Pointer<T>& row, const void* registers, \
                      emu::Location where = emu::here()) {               \
    name(emu::row_of<matrices>(row), registers, where);                  \
  }
#else
#define TL_STMATRIX_TO_BUFFER(name, matrices)
#endif
#define TL_STMATRIX(name, matrices, transposed)                                              \
  TL_DEVICE void name(void* row, const void* registers, emu::Location where = emu::here()) { \
    emu::stmatrix_sync<matrices, transposed>(#name, row, registers, where);                  \
  }                                                                                          \
  TL_STMATRIX_TO_BUFFER(name, matrices)
TL_STMATRIX(ptx_stmatrix_x1, 1, false)
TL_STMATRIX(ptx_stmatrix_x2, 2, false)
TL_STMATRIX(ptx_stmatrix_x4, 4, false)
TL_STMATRIX(ptx_stmatrix_x1_trans, 1, true)
TL_STMATRIX(ptx_stmatrix_x2_trans, 2, true)
TL_STMATRIX(ptx_stmatrix_x4_trans, 4, true)
#undef TL_STMATRIX
#undef TL_STMATRIX_TO_BUFFER

}  // namespace tl
