/*! Stores of matrix fragments of a warp to shared memory. */
#pragma once

#include <tl/copy.h>

namespace tl {

/*!
 * ptx_stmatrix_x1, _x2, _x4 and their _trans forms, each (void* row, const void* registers): stores
 * one, two or four 8x8 matrices of 16-bit elements from the warp's registers. Lane 8 * m + r gives
 * the address of row r of matrix m, 16 bytes at a multiple of 16; lane l holds elements 2 * (l % 4)
 * and 2 * (l % 4) + 1 of row l / 4 of each matrix (of its transpose with _trans), 32 bits each. PTX
 * ISA, stmatrix (sm_90).
 */
#define TL_STMATRIX(name, form, count, operands, ...)                             \
  TL_DEVICE void name(void* row, const void* registers) {                         \
    uint32_t r[count];                                                            \
    memcpy(r, registers, sizeof(r));                                              \
    asm volatile("stmatrix.sync.aligned.m8n8." form ".shared.b16 [%0], " operands \
                 ";" ::"r"(detail::shared_address(row)),                          \
                 __VA_ARGS__                                                      \
                 : "memory");                                                     \
  }
#define TL_STMATRIX_X1(name, form) TL_STMATRIX(name, form, 1, "{%1}", "r"(r[0]))
#define TL_STMATRIX_X2(name, form) TL_STMATRIX(name, form, 2, "{%1, %2}", "r"(r[0]), "r"(r[1]))
#define TL_STMATRIX_X4(name, form) \
  TL_STMATRIX(name, form, 4, "{%1, %2, %3, %4}", "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]))
TL_STMATRIX_X1(ptx_stmatrix_x1, "x1")
TL_STMATRIX_X2(ptx_stmatrix_x2, "x2")
TL_STMATRIX_X4(ptx_stmatrix_x4, "x4")
TL_STMATRIX_X1(ptx_stmatrix_x1_trans, "x1.trans")
TL_STMATRIX_X2(ptx_stmatrix_x2_trans, "x2.trans")
TL_STMATRIX_X4(ptx_stmatrix_x4_trans, "x4.trans")
#undef TL_STMATRIX_X1
#undef TL_STMATRIX_X2
#undef TL_STMATRIX_X4
#undef TL_STMATRIX

}  // namespace tl
