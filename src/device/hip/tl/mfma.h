/*!
 * Matrix products of a wavefront of 64 lanes (CDNA2, CDNA3 and CDNA4 ISA, MFMA). Which product an
 * architecture has is the compiler's to know: the others do not compile.
 */
#pragma once

#include <tl/mfma_shapes.h>

namespace tl {
namespace detail {

template <typename T, int n>
using Registers = T __attribute__((ext_vector_type(n)));

template <typename To>
TL_DEVICE To registers(const void* from) {
  To to;
  memcpy(&to, from, sizeof(To));
  return to;
}

/*! The product of M x K and K x M, with `run(a, b, c)`. */
template <int M, int K, typename T, typename C, typename TB = T>
struct Mfma {
  static constexpr bool kExists = false;
};

#define TL_MFMA(M, K, T, C, Operand, instruction) TL_MFMA_MIXED(M, K, T, T, C, Operand, instruction)
#define TL_MFMA_MIXED(M, K, TA, TB, C, Operand, instruction)                                      \
  template <>                                                                                     \
  struct Mfma<M, K, TA, C, TB> {                                                                  \
    static_assert(mfma_exists<M, M, K, TA, C, TB>, "tl/mfma_shapes.h does not have it");          \
    static constexpr bool kExists = true;                                                         \
    using Accumulator = Registers<C, M * M / 64>;                                                 \
    static TL_DEVICE Accumulator run(const void* a, const void* b, Accumulator c) {               \
      return __builtin_amdgcn_mfma_##instruction(registers<Operand>(a), registers<Operand>(b), c, \
                                                 0, 0, 0);                                        \
    }                                                                                             \
  };

#if __gfx90a__ || __gfx942__ || __gfx950__
using Halves4 = Registers<_Float16, 4>;
using Shorts4 = Registers<short, 4>;
TL_MFMA(32, 8, half_t, float, Halves4, f32_32x32x8f16)
TL_MFMA(16, 16, half_t, float, Halves4, f32_16x16x16f16)
TL_MFMA(32, 8, bfloat16_t, float, Shorts4, f32_32x32x8bf16_1k)
TL_MFMA(16, 16, bfloat16_t, float, Shorts4, f32_16x16x16bf16_1k)
TL_MFMA(32, 2, float, float, float, f32_32x32x2f32)
TL_MFMA(16, 4, float, float, float, f32_16x16x4f32)
TL_MFMA(16, 4, double, double, double, f64_16x16x4f64)
#endif
#if __gfx90a__
TL_MFMA(32, 8, int8_t, int, int, i32_32x32x8i8)
TL_MFMA(16, 16, int8_t, int, int, i32_16x16x16i8)
#endif
#if __gfx942__ || __gfx950__
TL_MFMA(32, 16, int8_t, int, long, i32_32x32x16_i8)
TL_MFMA(16, 32, int8_t, int, long, i32_16x16x32_i8)
// CDNA3 multiplies its own 8-bit floats, CDNA4 those of OCP.
#if __gfx942__
using Float8E4 = fp8_e4_fnuz_t;
using Float8E5 = fp8_e5_fnuz_t;
#else
using Float8E4 = fp8_e4_t;
using Float8E5 = fp8_e5_t;
#endif
TL_MFMA(32, 16, Float8E4, float, long, f32_32x32x16_fp8_fp8)
TL_MFMA(16, 32, Float8E4, float, long, f32_16x16x32_fp8_fp8)
TL_MFMA(32, 16, Float8E5, float, long, f32_32x32x16_bf8_bf8)
TL_MFMA(16, 32, Float8E5, float, long, f32_16x16x32_bf8_bf8)
TL_MFMA_MIXED(32, 16, Float8E4, Float8E5, float, long, f32_32x32x16_fp8_bf8)
TL_MFMA_MIXED(16, 32, Float8E4, Float8E5, float, long, f32_16x16x32_fp8_bf8)
TL_MFMA_MIXED(32, 16, Float8E5, Float8E4, float, long, f32_32x32x16_bf8_fp8)
TL_MFMA_MIXED(16, 32, Float8E5, Float8E4, float, long, f32_16x16x32_bf8_fp8)
#endif
#if __gfx942__
using Floats2 = Registers<float, 2>;
TL_MFMA(32, 4, tfloat32_t, float, Floats2, f32_32x32x4_xf32)
TL_MFMA(16, 8, tfloat32_t, float, Floats2, f32_16x16x8_xf32)
#endif
#if __gfx950__
using Halves8 = Registers<_Float16, 8>;
using Bfloats8 = Registers<__bf16, 8>;
using Words4 = Registers<int, 4>;
TL_MFMA(32, 16, half_t, float, Halves8, f32_32x32x16_f16)
TL_MFMA(16, 32, half_t, float, Halves8, f32_16x16x32_f16)
TL_MFMA(32, 16, bfloat16_t, float, Bfloats8, f32_32x32x16_bf16)
TL_MFMA(16, 32, bfloat16_t, float, Bfloats8, f32_16x16x32_bf16)
TL_MFMA(32, 32, int8_t, int, Words4, i32_32x32x32_i8)
TL_MFMA(16, 64, int8_t, int, Words4, i32_16x16x64_i8)
#endif
#undef TL_MFMA
#undef TL_MFMA_MIXED

#if __gfx950__
// CDNA4 ISA, V_MFMA_SCALE_F32_16X16X128_F8F6F4: the number of an operand's format.
template <typename T>
inline constexpr int mfma_format = -1;
template <>
inline constexpr int mfma_format<fp8_e4_t> = 0;
template <>
inline constexpr int mfma_format<fp8_e5_t> = 1;
template <>
inline constexpr int mfma_format<fp6_e2_t> = 2;
template <>
inline constexpr int mfma_format<fp6_e3_t> = 3;
template <>
inline constexpr int mfma_format<fp4_e2_t> = 4;

/*! 32 elements of an operand, of 32 bytes of registers; those of 6 bits take six registers, those
 * of 4 bits four. */
template <typename T>
TL_DEVICE Registers<int, 8> scaled_operand(const void* from) {
  if constexpr (is_sub_byte<T>) {
    // Whole registers, which LLVM's SROA does not take apart: it would lose what `load` says.
    const auto low = registers<Registers<int, 4>>(from);
    return __builtin_shufflevector(low, Registers<int, 4>{}, 0, 1, 2, 3, 4, 5, 6, 7);
  } else if constexpr (mma_bits<T> == 6) {
    Registers<int, 8> all{};
    TL_UNROLL for (int i = 0; i < 6; i += 2) {
      const auto two = registers<Registers<int, 2>>(static_cast<const char*>(from) + 4 * i);
      all[i] = two[0];
      all[i + 1] = two[1];
    }
    return all;
  } else {
    return registers<Registers<int, 8>>(from);
  }
}

/*! With scales that are the constant 0 LLVM takes the instruction that has none. */
#define TL_MFMA_F8F6F4(M, K, TA, TB)                                                \
  template <>                                                                       \
  struct Mfma<M, K, TA, float, TB> {                                                \
    static constexpr bool kExists = true;                                           \
    using Accumulator = Registers<float, M * M / 64>;                               \
    static TL_DEVICE Accumulator run(const void* a, const void* b, Accumulator c) { \
      constexpr int kA = mfma_format<TA>, kB = mfma_format<TB>;                     \
      return __builtin_amdgcn_mfma_scale_f32_##M##x##M##x##K##_f8f6f4(              \
          scaled_operand<TA>(a), scaled_operand<TB>(b), c, kA, kB, 0, 0, 0, 0);     \
    }                                                                               \
  };
TL_MFMA_F8F6F4(32, 64, fp8_e4_t, fp8_e4_t)
TL_MFMA_F8F6F4(16, 128, fp8_e4_t, fp8_e4_t)
TL_MFMA_F8F6F4(32, 64, fp8_e5_t, fp8_e5_t)
TL_MFMA_F8F6F4(16, 128, fp8_e5_t, fp8_e5_t)
TL_MFMA_F8F6F4(32, 64, fp8_e4_t, fp8_e5_t)
TL_MFMA_F8F6F4(16, 128, fp8_e4_t, fp8_e5_t)
TL_MFMA_F8F6F4(32, 64, fp8_e5_t, fp8_e4_t)
TL_MFMA_F8F6F4(16, 128, fp8_e5_t, fp8_e4_t)
#undef TL_MFMA_F8F6F4
#endif

/*! Whether an operand of which a lane has so many bytes may be several instructions' in turn. */
constexpr bool is_split(int bytes) { return bytes == 16 || bytes == 8; }

/*! The product of an architecture, or where it has none and a lane has up to 16 bytes of an operand
 * two with half the K, each of one half of a lane's elements, and so on. */
template <int M, int K, typename T, typename C, typename TB = T,
          bool exists = Mfma<M, K, T, C, TB>::kExists,
          bool splits = is_split(M * K / 64 * int(sizeof(mma_memory<T>)))>
struct MfmaOrHalves : Mfma<M, K, T, C, TB> {};
template <int M, int K, typename T, typename C, typename TB>
struct MfmaOrHalves<M, K, T, C, TB, false, true> {
  using Half = MfmaOrHalves<M, K / 2, T, C, TB>;
  static constexpr bool kExists = Half::kExists;
  static constexpr int kHalfBytes = M * K / 128 * sizeof(mma_memory<T>);
  using Accumulator = Registers<C, M * M / 64>;
  static TL_DEVICE Accumulator run(const void* a, const void* b, Accumulator c) {
    c = Half::run(a, b, c);
    return Half::run(static_cast<const char*>(a) + kHalfBytes,
                     static_cast<const char*>(b) + kHalfBytes, c);
  }
};

}  // namespace detail

/*! `mfma` of an A and a B of two types of 8-bit floats. */
template <int M, int N, int K, typename TA, typename TB, typename C>
TL_DEVICE void mfma_mixed(C* c, const mma_memory<TA>* a, const mma_memory<TB>* b) {
  TL_ASSERT_MFMA_EXISTS(M, N, K, TA, C, TB);
  using Product = detail::MfmaOrHalves<M, K, TA, C, TB>;
  static_assert(Product::kExists, "this architecture has no such MFMA");
  using Accumulator = typename Product::Accumulator;
  const auto sums = Product::run(a, b, detail::registers<Accumulator>(c));
  memcpy(c, &sums, sizeof(sums));
}

/*!
 * c += a * b on the registers of a wavefront, each pointer being to this lane's elements; sums are
 * formed in C. With g = lane / M, register r of A is at row lane % M, k = K * M / 64 * g + r, of B
 * at that k, column lane % M. Register r of C is in column lane % M, at row 4 * g + r (M = 16;
 * double: g + 4 * r) or r / 4 * 8 + 4 * g + r % 4 (M = 32). 8-bit floats with K = 2048 / M lie as
 * those of mfma_scale.
 */
template <int M, int N, int K, typename T, typename C>
TL_DEVICE void mfma(C* c, const mma_memory<T>* a, const mma_memory<T>* b) {
  mfma_mixed<M, N, K, T, T, C>(c, a, b);
}

/*!
 * The order of the block of instructions around, for the compiler's scheduler: `first` reads of
 * LDS, then `times` times a matrix instruction and `each` reads; what is left follows as it likes
 * (LLVM, llvm.amdgcn.sched.group.barrier). LLVM by itself has all reads of a step behind the matrix
 * instructions of the step before, which then wait for LDS. */
template <int first, int each, int times>
TL_DEVICE void schedule_reads() {
  constexpr int kMatrix = 0x8, kLdsRead = 0x100;
  __builtin_amdgcn_sched_group_barrier(kLdsRead, first, 0);
  TL_UNROLL for (int i = 0; i < times; ++i) {
    __builtin_amdgcn_sched_group_barrier(kMatrix, 1, 0);
    __builtin_amdgcn_sched_group_barrier(kLdsRead, each, 0);
  }
}

#if __gfx950__
namespace detail {

/*! mfma_scale by the bytes `s` of two registers of scales (OP_SEL of the instruction). */
template <int M, int N, int K, typename TA, typename TB, int s>
TL_DEVICE void mfma_scaled(float* c, const void* a, const void* b, int scales_a, int scales_b) {
  TL_ASSERT_MFMA_SCALE_EXISTS(M, N, K, TA, TB);
  constexpr int kA = mfma_format<TA>, kB = mfma_format<TB>;
  const auto x = scaled_operand<TA>(a), y = scaled_operand<TB>(b);
  auto sums = registers<Registers<float, M * M / 64>>(c);
  if constexpr (M == 16) {
    sums = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(x, y, sums, kA, kB, s, scales_a, s,
                                                            scales_b);
  } else {
    sums = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(x, y, sums, kA, kB, s, scales_a, s,
                                                           scales_b);
  }
  memcpy(c, &sums, sizeof(sums));
}

}  // namespace detail

/*!
 * The same of 8-bit, 6-bit and 4-bit floats, where each 32 elements along K have a scale: lane l
 * gives those of row (column) l % M, elements 32 * (l / M) to 32 * (l / M) + 31 along K. Elements
 * of 8 bits lie in runs of 16: register r is at k = r / 16 * (1024 / M) + 16 * (l / M) + r % 16.
 * Those of a lane of 6 and 4 bits are the 32 of its scale.
 */
template <int M, int N, int K, typename TA, typename TB>
TL_DEVICE void mfma_scale(float* c, const mma_memory<TA>* a, const mma_memory<TB>* b,
                          fp8_e8_t scale_a, fp8_e8_t scale_b) {
  detail::mfma_scaled<M, N, K, TA, TB, 0>(c, a, b, scale_a.bits, scale_b.bits);
}

/*! The same with scale `s`, 0 to 3, of four at a multiple of 4 bytes: the instruction takes it from
 * their register. */
template <int M, int N, int K, typename TA, typename TB, int s>
TL_DEVICE void mfma_scale_of_word(float* c, const mma_memory<TA>* a, const mma_memory<TB>* b,
                                  const fp8_e8_t* scales_a, const fp8_e8_t* scales_b) {
  detail::mfma_scaled<M, N, K, TA, TB, s>(c, a, b, detail::registers<int>(scales_a),
                                          detail::registers<int>(scales_b));
}
#endif

}  // namespace tl
