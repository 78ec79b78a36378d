/*! Matrix fragments of a warp: loads from shared memory and multiply-accumulate on tensor cores. */
#pragma once

#include <tl/copy.h>
#include <tl/half.h>
#include <tl/mma_shapes.h>

namespace tl {

/*!
 * ptx_ldmatrix_x1, _x2, _x4 and their _trans forms, each (const void* row, void* registers): loads
 * one, two or four 8x8 matrices of 16-bit elements into the warp's registers. Lane 8 * m + r gives
 * the address of row r of matrix m, 16 bytes at a multiple of 16; lane l receives elements 2 * (l %
 * 4) and 2 * (l % 4) + 1 of row l / 4 of each matrix (of its transpose with _trans), 32 bits each.
 * PTX ISA, ldmatrix.
 */
#define TL_LDMATRIX(name, form, count, operands, address, ...)                               \
  TL_DEVICE void name(const void* row, void* registers) {                                    \
    uint32_t r[count];                                                                       \
    asm volatile("ldmatrix.sync.aligned.m8n8." form ".shared.b16 " operands ", " address ";" \
                 : __VA_ARGS__                                                               \
                 : "r"(detail::shared_address(row))                                          \
                 : "memory");                                                                \
    memcpy(registers, r, sizeof(r));                                                         \
  }
#define TL_LDMATRIX_X1(name, form) TL_LDMATRIX(name, form, 1, "{%0}", "[%1]", "=r"(r[0]))
#define TL_LDMATRIX_X2(name, form) \
  TL_LDMATRIX(name, form, 2, "{%0, %1}", "[%2]", "=r"(r[0]), "=r"(r[1]))
#define TL_LDMATRIX_X4(name, form)                                                           \
  TL_LDMATRIX(name, form, 4, "{%0, %1, %2, %3}", "[%4]", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), \
              "=r"(r[3]))
TL_LDMATRIX_X1(ptx_ldmatrix_x1, "x1")
TL_LDMATRIX_X2(ptx_ldmatrix_x2, "x2")
TL_LDMATRIX_X4(ptx_ldmatrix_x4, "x4")
TL_LDMATRIX_X1(ptx_ldmatrix_x1_trans, "x1.trans")
TL_LDMATRIX_X2(ptx_ldmatrix_x2_trans, "x2.trans")
TL_LDMATRIX_X4(ptx_ldmatrix_x4_trans, "x4.trans")
#undef TL_LDMATRIX_X1
#undef TL_LDMATRIX_X2
#undef TL_LDMATRIX_X4
#undef TL_LDMATRIX

namespace detail {

// One specialisation for each instruction; a register of A, B and a half_t accumulator holds two
// elements.
template <int K, typename T, typename Accumulator>
struct Mma;

#define TL_MMA(K, T, Accumulator, Register, instruction, operands, outputs, inputs) \
  template <>                                                                       \
  struct Mma<K, T, Accumulator> {                                                   \
    using D = Register;                                                             \
    static TL_DEVICE void run(D* d, const uint32_t* a, const uint32_t* b) {         \
      asm("mma.sync.aligned." instruction " " operands ";" : outputs : inputs);     \
    }                                                                               \
  };
#define TL_FLOATS "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define TL_HALVES "+r"(d[0]), "+r"(d[1])
#define TL_K16 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])
#define TL_K8 "r"(a[0]), "r"(a[1]), "r"(b[0])
#define TL_FLOATS_K16 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}"
#define TL_FLOATS_K8 "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3}"
#define TL_HALVES_K16 "{%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1}"
#define TL_HALVES_K8 "{%0,%1}, {%2,%3}, {%4}, {%0,%1}"

TL_MMA(16, half_t, float, float, "m16n8k16.row.col.f32.f16.f16.f32", TL_FLOATS_K16, TL_FLOATS,
       TL_K16)
TL_MMA(16, bfloat16_t, float, float, "m16n8k16.row.col.f32.bf16.bf16.f32", TL_FLOATS_K16, TL_FLOATS,
       TL_K16)
TL_MMA(16, half_t, half_t, uint32_t, "m16n8k16.row.col.f16.f16.f16.f16", TL_HALVES_K16, TL_HALVES,
       TL_K16)
TL_MMA(8, half_t, float, float, "m16n8k8.row.col.f32.f16.f16.f32", TL_FLOATS_K8, TL_FLOATS, TL_K8)
TL_MMA(8, bfloat16_t, float, float, "m16n8k8.row.col.f32.bf16.bf16.f32", TL_FLOATS_K8, TL_FLOATS,
       TL_K8)
TL_MMA(8, half_t, half_t, uint32_t, "m16n8k8.row.col.f16.f16.f16.f16", TL_HALVES_K8, TL_HALVES,
       TL_K8)

#undef TL_MMA
#undef TL_FLOATS
#undef TL_HALVES
#undef TL_K16
#undef TL_K8
#undef TL_FLOATS_K16
#undef TL_FLOATS_K8
#undef TL_HALVES_K16
#undef TL_HALVES_K8

}  // namespace detail

/*!
 * d += a * b on the fragments of a warp; a is M x K by rows, b is K x N by columns, d is M x N.
 * Each pointer is to this lane's elements in the order of the PTX ISA's fragment tables (Matrix
 * Fragments for mma.m16n8k8 and .m16n8k16). PTX ISA, mma.
 */
template <int M, int N, int K, typename TA, typename TB, typename TC>
TL_DEVICE void mma_sync(TC* d, const TA* a, const TB* b) {
  TL_ASSERT_MMA_EXISTS(M, N, K, TA, TB, TC);
  if constexpr (mma_exists<M, N, K, TA, TB, TC>) {
    using Mma = detail::Mma<K, TA, TC>;
    uint32_t a_registers[K / 4], b_registers[K / 8];
    typename Mma::D d_registers[4 * sizeof(TC) / sizeof(typename Mma::D)];
    memcpy(a_registers, a, sizeof(a_registers));
    memcpy(b_registers, b, sizeof(b_registers));
    memcpy(d_registers, d, sizeof(d_registers));
    Mma::run(d_registers, a_registers, b_registers);
    memcpy(d, d_registers, sizeof(d_registers));
  }
}

}  // namespace tl
