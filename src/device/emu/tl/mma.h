/*! Matrix fragments of a warp. The last lane to arrive does the work of all. */
#pragma once

#include <tl/barrier.h>
#include <tl/mma_shapes.h>

namespace tl {
namespace emu {

struct LdmatrixArguments {
  const void* row;
  void* registers;
};

/*! Lane l receives row l / 4, elements 2 * (l % 4) and the next, of each matrix or its transpose.
 */
template <int matrices, bool transposed>
TL_UNOBSERVED void ldmatrix(void* const* arguments) {
  for (int m = 0; m < matrices; ++m) {
    uint16_t matrix[8][8];
    for (int r = 0; r < 8; ++r) {
      const auto* lane = static_cast<const LdmatrixArguments*>(arguments[m * 8 + r]);
      __builtin_memcpy(matrix[r], lane->row, sizeof(matrix[r]));
    }
    for (int l = 0; l < kWarpSize; ++l) {
      const int row = l / 4, column = 2 * (l % 4);
      uint16_t pair[2] = {matrix[row][column], matrix[row][column + 1]};
      if (transposed) {
        pair[0] = matrix[column][row];
        pair[1] = matrix[column + 1][row];
      }
      char* registers =
          static_cast<char*>(static_cast<LdmatrixArguments*>(arguments[l])->registers);
      __builtin_memcpy(registers + m * sizeof(pair), pair, sizeof(pair));
    }
  }
}

template <int matrices, bool transposed>
TL_DEVICE void ldmatrix_sync(const char* name, const void* row, void* registers, Location where) {
  const bool gives_a_row = worker->current->linear % kWarpSize < 8 * matrices;
  if (gives_a_row) {
    check_alignment(row, 16, "row address of an ldmatrix", where);
    check_read(row, 16, where);
  }
  LdmatrixArguments arguments{row, registers};
  collective_sync(name, ldmatrix<matrices, transposed>, &arguments, where);
  check_write(registers, matrices * sizeof(uint32_t), where);
}

struct MmaArguments {
  void* d;
  const void* a;
  const void* b;
};

/*! The number that an element stands for, in the type that products are formed in. */
template <typename T>
struct MmaNumber {
  static TL_DEVICE float of(T x) { return float(x); }
};
template <>
struct MmaNumber<double> {
  static TL_DEVICE double of(double x) { return x; }
};
template <>
struct MmaNumber<int8_t> {
  static TL_DEVICE int of(int8_t x) { return x; }
};
template <>
struct MmaNumber<uint8_t> {
  static TL_DEVICE int of(uint8_t x) { return x; }
};
// Rounded to nearest, ties away from zero (PTX ISA, cvt.rna.tf32).
template <>
struct MmaNumber<tfloat32_t> {
  static TL_DEVICE float of(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    return bit_cast<float>(finite ? (bits + 0x1000) & ~0x1fffu : bits);
  }
};

/*!
 * One operand of a warp, row after row, from the registers of each lane. With g = lane / 4, t =
 * lane % 4 and p elements to a register, register i of a lane is at row g + 8 * (i % (rows / 8)),
 * columns p * t + 4 * p * (i / (rows / 8)) and following (PTX ISA, Matrix Fragments for mma). All
 * elements are gathered first, so that their conversion is one loop over vectors.
 */
template <int rows, int K, typename T, template <typename> class Convert = MmaNumber,
          typename Number, typename Registers>
TL_DEVICE void mma_operand(Registers registers, Number* numbers) {
  using Memory = mma_memory<T>;
  constexpr int p = mma_pack<T>, kBlocks = rows / 8;
  Memory elements[rows * K];
  for (int l = 0; l < kWarpSize; ++l) {
    const auto* from = static_cast<const Memory*>(registers(l));
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < rows * K / 32 / p; ++i) {
      __builtin_memcpy(&elements[(g + 8 * (i % kBlocks)) * K + p * t + 4 * p * (i / kBlocks)],
                       from + p * i, p * sizeof(Memory));
    }
  }
  for (int i = 0; i < rows * K; ++i) numbers[i] = Convert<T>::of(elements[i]);
}

/*! Pair i of a lane's accumulators is at row g + 8 * i, column 2 * t. */
template <int M, int K, typename T, typename Accumulator>
TL_UNOBSERVED void mma(void* const* arguments) {
  using Number = decltype(MmaNumber<T>::of(mma_memory<T>()));
  constexpr int N = 8;
  alignas(32) Number a[M * K], stored_b[N * K], b[K * N], d[M * N];
  const auto lane = [&](int l) { return static_cast<const MmaArguments*>(arguments[l]); };
  mma_operand<M, K, T>([&](int l) { return lane(l)->a; }, a);
  mma_operand<N, K, T>([&](int l) { return lane(l)->b; }, stored_b);
  for (int k = 0; k < K; ++k) {
    for (int n = 0; n < N; ++n) b[k * N + n] = stored_b[n * K + k];
  }
  constexpr int kPerLane = M * N / kWarpSize;
  Accumulator sums[kPerLane];
  for (int l = 0; l < kWarpSize; ++l) {
    __builtin_memcpy(sums, static_cast<const MmaArguments*>(arguments[l])->d, sizeof(sums));
    for (int i = 0; i < kPerLane; ++i) {
      d[(l / 4 + 8 * (i / 2)) * N + 2 * (l % 4) + i % 2] = Number(sums[i]);
    }
  }
  for (int row = 0; row < M; ++row) {
    Number row_sums[N];
    for (int n = 0; n < N; ++n) row_sums[n] = d[row * N + n];
    for (int k = 0; k < K; ++k) {
      for (int n = 0; n < N; ++n) row_sums[n] += a[row * K + k] * b[k * N + n];
    }
    for (int n = 0; n < N; ++n) d[row * N + n] = row_sums[n];
  }
  for (int l = 0; l < kWarpSize; ++l) {
    for (int i = 0; i < kPerLane; ++i) {
      sums[i] = Accumulator(d[(l / 4 + 8 * (i / 2)) * N + 2 * (l % 4) + i % 2]);
    }
    __builtin_memcpy(static_cast<MmaArguments*>(arguments[l])->d, sums, sizeof(sums));
  }
}

}  // namespace emu

#define TL_LDMATRIX(name, matrices, transposed)                                              \
  TL_DEVICE void name(const void* row, void* registers, emu::Location where = emu::here()) { \
    emu::ldmatrix_sync<matrices, transposed>(#name, row, registers, where);                  \
  }
TL_LDMATRIX(ptx_ldmatrix_x1, 1, false)
TL_LDMATRIX(ptx_ldmatrix_x2, 2, false)
TL_LDMATRIX(ptx_ldmatrix_x4, 4, false)
TL_LDMATRIX(ptx_ldmatrix_x1_trans, 1, true)
TL_LDMATRIX(ptx_ldmatrix_x2_trans, 2, true)
TL_LDMATRIX(ptx_ldmatrix_x4_trans, 4, true)
#undef TL_LDMATRIX

/*! d += a * b on the fragments of a warp; sums are formed in float, double or int. */
template <int M, int N, int K, typename TA, typename TB, typename TC>
TL_DEVICE void mma_sync(TC* d, const mma_memory<TA>* a, const mma_memory<TB>* b,
                        emu::Location where = emu::here()) {
  TL_ASSERT_MMA_EXISTS(M, N, K, TA, TB, TC);
  constexpr int kLanes = emu::kWarpSize;
  emu::check_read(a, M * K / kLanes * sizeof(*a), where);
  emu::check_read(b, N * K / kLanes * sizeof(*b), where);
  emu::check_read(d, M * N / kLanes * sizeof(*d), where);
  emu::MmaArguments arguments{d, a, b};
  emu::collective_sync("mma_sync", emu::mma<M, K, TA, TC>, &arguments, where);
}

}  // namespace tl
