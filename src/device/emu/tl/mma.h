/*! Matrix fragments of a warp. The last lane to arrive does the work of all. */
#pragma once

#include <tl/barrier.h>
#include <tl/buffer.h>
#include <tl/mma_number.h>

namespace tl {
namespace emu {

static_assert(kWarpSize == 32, "ldmatrix and mma are instructions of warps of 32 lanes");

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
  uint32_t metadata;
  Location where;
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
  constexpr int p = mma_pack<T>, kBlocks = rows / 8, kRegister = p * mma_bits<T> / 8;
  alignas(8) uint8_t bytes[rows * K * mma_bits<T> / 8];
  for (int l = 0; l < kWarpSize; ++l) {
    const auto* from = static_cast<const uint8_t*>(registers(l));
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < rows * K / 32 / p; ++i) {
      const int row = g + 8 * (i % kBlocks), column = p * t + 4 * p * (i / kBlocks);
      __builtin_memcpy(bytes + (row * K + column) / p * kRegister, from + kRegister * i, kRegister);
    }
  }
  if constexpr (is_sub_byte<T>) {
    for (int i = 0; i < rows * K; ++i) numbers[i] = Convert<T>::of(get_sub_byte<T>(bytes, i));
  } else {
    mma_memory<T> elements[rows * K];
    __builtin_memcpy(elements, bytes, sizeof(bytes));
    for (int i = 0; i < rows * K; ++i) numbers[i] = Convert<T>::of(elements[i]);
  }
}

/*! Bits [first, first + 16) of a row's metadata: 32 or 64 bits, spread over four lanes (PTX ISA,
 * Matrix fragments for multiply-accumulate operation with sparse matrix A, selector 0). */
template <int bits>
TL_DEVICE uint32_t row_metadata(void* const* arguments, int row, int first) {
  auto word = [&](int lane) {
    return static_cast<const MmaArguments*>(arguments[row % 8 * 4 + lane])->metadata;
  };
  if constexpr (bits == 32) {
    return word(first / 16) >> (row / 8 * 16) & 0xffff;
  } else {
    return word(row / 8 + first / 32 * 2) >> (first % 32) & 0xffff;
  }
}

/*! A sparse A with its zeros. `stored` is M x K / 2. */
template <int M, int K, typename T, typename Number>
TL_DEVICE void expand(void* const* arguments, const Number* stored, Number* a) {
  constexpr int kGroup = mma_bits<T> == 32 ? 2 : 4, kBits = 4 * K / kGroup;
  for (int i = 0; i < M * K; ++i) a[i] = Number(0);
  for (int row = 0; row < M; ++row) {
    for (int group = 0; group < K / kGroup; ++group) {
      const uint32_t code =
          row_metadata<kBits>(arguments, row, group * 4 / 16 * 16) >> (group * 4 % 16) & 15;
      const int low = code & 3, high = code >> 2;
      if (kGroup == 2 ? code != 4 && code != 14 : low >= high) {
        fail(static_cast<const MmaArguments*>(arguments[0])->where,
             "metadata 0x%x of row %d, elements %d to %d along K, of an mma_sp_sync: it names no "
             "two elements in ascending order. %s",
             code, row, group * kGroup, group * kGroup + kGroup - 1,
             code == 0
                 ? "0 is what a copy gives for rows outside of E: let it give valid codes, by "
                   "T.annotate_safe_value({E: 0x4444})"
                 : "Fill E with tilelang.utils.sparse.compress");
      }
      if (kGroup == 2) {
        a[row * K + group * 2 + (code == 14)] = stored[row * K / 2 + group];
      } else {
        a[row * K + group * 4 + low] = stored[row * K / 2 + group * 2];
        a[row * K + group * 4 + high] = stored[row * K / 2 + group * 2 + 1];
      }
    }
  }
}

/*! A lane's part of the operands, which has to be defined. A sparse A is half as long. */
template <int M, int N, int K, typename TA, typename TB, typename TC, bool sparse>
TL_DEVICE void check_mma_operands(const TC* d, const void* a, const void* b, Location where) {
  constexpr int kA = M * K / (sparse ? 2 : 1) * mma_bits<TA> / 8;
  check_read(a, kA / kWarpSize, where);
  check_read(b, N * K * mma_bits<TB> / 8 / kWarpSize, where);
  check_read(d, M * N / kWarpSize * sizeof(TC), where);
}

/*! Pair i of a lane's accumulators is at row g + 8 * i, column 2 * t. */
template <int M, int K, typename T, typename TB, typename Accumulator, bool sparse>
TL_UNOBSERVED void mma(void* const* arguments) {
  using Number = MmaNumberOf<T>;
  constexpr int N = 8;
  alignas(32) Number a[M * K], stored_b[N * K], b[K * N], d[M * N];
  const auto lane = [&](int l) { return static_cast<const MmaArguments*>(arguments[l]); };
  const auto lane_a = [&](int l) { return lane(l)->a; };
  if constexpr (sparse) {
    Number stored_a[M * K / 2];
    mma_operand<M, K / 2, T>(lane_a, stored_a);
    expand<M, K, T>(arguments, stored_a, a);
  } else {
    mma_operand<M, K, T>(lane_a, a);
  }
  mma_operand<N, K, TB>([&](int l) { return lane(l)->b; }, stored_b);
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

// The addresses of lanes that give no row are not looked at, and may lead out of a buffer.
#if TL_EMU_CHECKS
#define TL_LDMATRIX_FROM_BUFFER(name, matrices)                    \
  template <typename T>                                            \
  TL_DEVICE void name(const emu::Pointer<T>& row, void* registers, \
                      emu::Location where = emu::here()) {         \
    name(emu::row_of<matrices>(row), registers, where);            \
  }
#else
#define TL_LDMATRIX_FROM_BUFFER(name, matrices)
#endif
#define TL_LDMATRIX(name, matrices, transposed)                                              \
  TL_DEVICE void name(const void* row, void* registers, emu::Location where = emu::here()) { \
    emu::ldmatrix_sync<matrices, transposed>(#name, row, registers, where);                  \
  }                                                                                          \
  TL_LDMATRIX_FROM_BUFFER(name, matrices)
TL_LDMATRIX(ptx_ldmatrix_x1, 1, false)
TL_LDMATRIX(ptx_ldmatrix_x2, 2, false)
TL_LDMATRIX(ptx_ldmatrix_x4, 4, false)
TL_LDMATRIX(ptx_ldmatrix_x1_trans, 1, true)
TL_LDMATRIX(ptx_ldmatrix_x2_trans, 2, true)
TL_LDMATRIX(ptx_ldmatrix_x4_trans, 4, true)
#undef TL_LDMATRIX
#undef TL_LDMATRIX_FROM_BUFFER

/*! d += a * b on the fragments of a warp; sums are formed in float, double or int. */
template <int M, int N, int K, typename TA, typename TB, typename TC>
TL_DEVICE void mma_sync(TC* d, const mma_memory<TA>* a, const mma_memory<TB>* b,
                        emu::Location where = emu::here()) {
  TL_ASSERT_MMA_EXISTS(M, N, K, TA, TB, TC);
  emu::check_mma_operands<M, N, K, TA, TB, TC, false>(d, a, b, where);
  emu::MmaArguments arguments{d, a, b, 0, where};
  emu::collective_sync("mma_sync", emu::mma<M, K, TA, TB, TC, false>, &arguments, where);
}

/*! The same with half of the elements of a stored, as the lanes' metadata `e` tells. */
template <int M, int N, int K, typename TA, typename TB, typename TC>
TL_DEVICE void mma_sp_sync(TC* d, const mma_memory<TA>* a, const mma_memory<TB>* b, uint32_t e,
                           emu::Location where = emu::here()) {
  TL_ASSERT_MMA_SP_EXISTS(M, N, K, TA, TB, TC);
  emu::check_mma_operands<M, N, K, TA, TB, TC, true>(d, a, b, where);
  emu::MmaArguments arguments{d, a, b, e, where};
  emu::collective_sync("mma_sp_sync", emu::mma<M, K, TA, TB, TC, true>, &arguments, where);
}

}  // namespace tl
