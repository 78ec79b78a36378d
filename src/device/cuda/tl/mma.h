/*! Matrix fragments of a warp: loads from shared memory and multiply-accumulate on tensor cores. */
#pragma once

#include <tl/copy.h>
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

// One specialisation for each instruction. D and AB are the registers of the accumulator and of the
// operands; a register of less than 64 bits holds as many elements as fit into 32.
template <int M, int K, typename T, typename Accumulator, typename B = T>
struct Mma;

#define TL_MMA(M, K, T, Accumulator, DRegister, Register, instruction, operands, outputs, inputs) \
  template <>                                                                                     \
  struct Mma<M, K, T, Accumulator> {                                                              \
    using D = DRegister;                                                                          \
    using AB = Register;                                                                          \
    static TL_DEVICE void run(D* d, const AB* a, const AB* b) {                                   \
      asm("mma.sync.aligned." instruction " " operands ";" : outputs : inputs);                   \
    }                                                                                             \
  };
#define TL_D4(kind) kind(d[0]), kind(d[1]), kind(d[2]), kind(d[3])
#define TL_D2(kind) kind(d[0]), kind(d[1])
#define TL_A4B2 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])
#define TL_A2B1 "r"(a[0]), "r"(a[1]), "r"(b[0])
#define TL_A1B1(kind) kind(a[0]), kind(b[0])
#define TL_D4A4B2 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}"
#define TL_D4A2B1 "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3}"
#define TL_D2A4B2 "{%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1}"
#define TL_D2A2B1 "{%0,%1}, {%2,%3}, {%4}, {%0,%1}"
#define TL_D2A1B1 "{%0,%1}, {%2}, {%3}, {%0,%1}"
// m16 with the larger K, and with half of it.
#define TL_MMA_LONG(K, T, Accumulator, DRegister, kind, instruction) \
  TL_MMA(16, K, T, Accumulator, DRegister, uint32_t, instruction, TL_D4A4B2, TL_D4(kind), TL_A4B2)
#define TL_MMA_SHORT(K, T, Accumulator, DRegister, kind, instruction) \
  TL_MMA(16, K, T, Accumulator, DRegister, uint32_t, instruction, TL_D4A2B1, TL_D4(kind), TL_A2B1)
#define TL_MMA_BYTES(T, name)                                                                  \
  TL_MMA_LONG(32, T, int, int, "+r", "m16n8k32.row.col.s32." name "." name ".s32")             \
  TL_MMA_SHORT(16, T, int, int, "+r", "m16n8k16.row.col.s32." name "." name ".s32")            \
  TL_MMA(8, 16, T, int, int, uint32_t, "m8n8k16.row.col.s32." name "." name ".s32", TL_D2A1B1, \
         TL_D2("+r"), TL_A1B1("r"))

TL_MMA_LONG(16, half_t, float, float, "+f", "m16n8k16.row.col.f32.f16.f16.f32")
TL_MMA_SHORT(8, half_t, float, float, "+f", "m16n8k8.row.col.f32.f16.f16.f32")
TL_MMA(16, 16, half_t, half_t, uint32_t, uint32_t, "m16n8k16.row.col.f16.f16.f16.f16", TL_D2A4B2,
       TL_D2("+r"), TL_A4B2)
TL_MMA(16, 8, half_t, half_t, uint32_t, uint32_t, "m16n8k8.row.col.f16.f16.f16.f16", TL_D2A2B1,
       TL_D2("+r"), TL_A2B1)
TL_MMA_LONG(16, bfloat16_t, float, float, "+f", "m16n8k16.row.col.f32.bf16.bf16.f32")
TL_MMA_SHORT(8, bfloat16_t, float, float, "+f", "m16n8k8.row.col.f32.bf16.bf16.f32")
TL_MMA_LONG(8, tfloat32_t, float, float, "+f", "m16n8k8.row.col.f32.tf32.tf32.f32")
TL_MMA_SHORT(4, tfloat32_t, float, float, "+f", "m16n8k4.row.col.f32.tf32.tf32.f32")
TL_MMA(8, 4, double, double, double, double, "m8n8k4.row.col.f64.f64.f64.f64", TL_D2A1B1,
       TL_D2("+d"), TL_A1B1("d"))
TL_MMA_BYTES(int8_t, "s8")
TL_MMA_BYTES(uint8_t, "u8")
TL_MMA_LONG(32, fp8_e4_t, float, float, "+f", "m16n8k32.row.col.f32.e4m3.e4m3.f32")
TL_MMA_LONG(32, fp8_e5_t, float, float, "+f", "m16n8k32.row.col.f32.e5m2.e5m2.f32")
#define TL_MMA_TWO_TYPES(A, B, types)                                          \
  template <>                                                                  \
  struct Mma<16, 32, A, float, B> {                                            \
    using D = float;                                                           \
    using AB = uint32_t;                                                       \
    static TL_DEVICE void run(D* d, const AB* a, const AB* b) {                \
      asm("mma.sync.aligned.m16n8k32.row.col.f32." types ".f32 " TL_D4A4B2 ";" \
          : TL_D4("+f")                                                        \
          : TL_A4B2);                                                          \
    }                                                                          \
  };
TL_MMA_TWO_TYPES(fp8_e4_t, fp8_e5_t, "e4m3.e5m2")
TL_MMA_TWO_TYPES(fp8_e5_t, fp8_e4_t, "e5m2.e4m3")
#undef TL_MMA_TWO_TYPES
TL_MMA_LONG(64, int4b_t, int, int, "+r", "m16n8k64.row.col.s32.s4.s4.s32")
TL_MMA_LONG(64, uint4b_t, int, int, "+r", "m16n8k64.row.col.s32.u4.u4.s32")

// The same with half of A stored; K is that of B. Selector 0: see the fragments of metadata.
template <int K, typename T, typename Accumulator>
struct MmaSp;

#define TL_MMA_SP(K, T, Accumulator, DRegister, instruction, operands, outputs)          \
  template <>                                                                            \
  struct MmaSp<K, T, Accumulator> {                                                      \
    using D = DRegister;                                                                 \
    using AB = uint32_t;                                                                 \
    static TL_DEVICE void run(D* d, const AB* a, const AB* b, uint32_t e) {              \
      asm("mma.sp::ordered_metadata.sync.aligned." instruction " " operands ", 0x0;"     \
          : outputs                                                                      \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), \
            "r"(b[3]), "r"(e));                                                          \
    }                                                                                    \
  };
#define TL_MMA_SP_D4(K, T, Accumulator, kind, instruction) \
  TL_MMA_SP(K, T, Accumulator, Accumulator, instruction,   \
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12", TL_D4(kind))
TL_MMA_SP_D4(32, half_t, float, "+f", "m16n8k32.row.col.f32.f16.f16.f32")
TL_MMA_SP(32, half_t, half_t, uint32_t, "m16n8k32.row.col.f16.f16.f16.f16",
          "{%0,%1}, {%2,%3,%4,%5}, {%6,%7,%8,%9}, {%0,%1}, %10", TL_D2("+r"))
TL_MMA_SP_D4(32, bfloat16_t, float, "+f", "m16n8k32.row.col.f32.bf16.bf16.f32")
TL_MMA_SP_D4(16, tfloat32_t, float, "+f", "m16n8k16.row.col.f32.tf32.tf32.f32")
TL_MMA_SP_D4(64, int8_t, int, "+r", "m16n8k64.row.col.s32.s8.s8.s32")
TL_MMA_SP_D4(64, uint8_t, int, "+r", "m16n8k64.row.col.s32.u8.u8.s32")
TL_MMA_SP_D4(64, fp8_e4_t, float, "+f", "m16n8k64.row.col.f32.e4m3.e4m3.f32")
TL_MMA_SP_D4(64, fp8_e5_t, float, "+f", "m16n8k64.row.col.f32.e5m2.e5m2.f32")
#undef TL_MMA_SP
#undef TL_MMA_SP_D4

#undef TL_MMA
#undef TL_D4
#undef TL_D2
#undef TL_A4B2
#undef TL_A2B1
#undef TL_A1B1
#undef TL_D4A4B2
#undef TL_D4A2B1
#undef TL_D2A4B2
#undef TL_D2A2B1
#undef TL_D2A1B1
#undef TL_MMA_LONG
#undef TL_MMA_SHORT
#undef TL_MMA_BYTES

/*! Rounds to the nearest tf32, ties away from zero. PTX ISA, cvt.rna.tf32. */
TL_DEVICE uint32_t round_to_tf32(uint32_t bits) {
  uint32_t d;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(d) : "f"(__uint_as_float(bits)));
  return d;
}

template <typename T, int N>
TL_DEVICE void round_operand(uint32_t (&registers)[N]) {
  if constexpr (is_same<T, tfloat32_t>) {
    TL_UNROLL for (int i = 0; i < N; ++i) registers[i] = round_to_tf32(registers[i]);
  }
}
template <typename T, int N>
TL_DEVICE void round_operand(double (&)[N]) {}

/*! Elements of the operands from and to registers, `run` on those. */
template <typename Mma, int AElements, int BElements, int DElements, typename T, typename TB,
          typename TC, typename... Metadata>
TL_DEVICE void run_mma(TC* d, const mma_memory<T>* a, const mma_memory<TB>* b, Metadata... e) {
  using AB = typename Mma::AB;
  using D = typename Mma::D;
  AB a_registers[AElements * mma_bits<T> / 8 / sizeof(AB)];
  AB b_registers[BElements * mma_bits<TB> / 8 / sizeof(AB)];
  D d_registers[DElements * sizeof(TC) / sizeof(D)];
  memcpy(a_registers, a, sizeof(a_registers));
  memcpy(b_registers, b, sizeof(b_registers));
  memcpy(d_registers, d, sizeof(d_registers));
  round_operand<T>(a_registers);
  round_operand<TB>(b_registers);
  Mma::run(d_registers, a_registers, b_registers, e...);
  memcpy(d, d_registers, sizeof(d_registers));
}

}  // namespace detail

/*!
 * d += a * b on the fragments of a warp; a is M x K by rows, b is K x N by columns, d is M x N.
 * Each pointer is to this lane's elements in the order of the PTX ISA's fragment tables (Matrix
 * Fragments for mma). PTX ISA, mma.
 */
template <int M, int N, int K, typename TA, typename TB, typename TC>
TL_DEVICE void mma_sync(TC* d, const mma_memory<TA>* a, const mma_memory<TB>* b) {
  TL_ASSERT_MMA_EXISTS(M, N, K, TA, TB, TC);
  if constexpr (mma_exists<M, N, K, TA, TB, TC>) {
    detail::run_mma<detail::Mma<M, K, TA, TC, TB>, M * K / 32, N * K / 32, M * N / 32, TA, TB>(d, a,
                                                                                               b);
  }
}

/*!
 * The same with half of the elements of a stored, M x K / 2: of every four (two of tf32) those that
 * the lane's metadata `e` tells, in ascending order. PTX ISA, mma.sp::ordered_metadata with
 * sparsity selector 0; Sparse matrix storage.
 */
template <int M, int N, int K, typename TA, typename TB, typename TC>
TL_DEVICE void mma_sp_sync(TC* d, const mma_memory<TA>* a, const mma_memory<TB>* b, uint32_t e) {
  TL_ASSERT_MMA_SP_EXISTS(M, N, K, TA, TB, TC);
  if constexpr (mma_sp_exists<M, N, K, TA, TB, TC>) {
    detail::run_mma<detail::MmaSp<K, TA, TC>, M * K / 64, N * K / 32, M * N / 32, TA, TA>(d, a, b,
                                                                                          e);
  }
}

}  // namespace tl
