/*! Matrix fragments of a warp. The last lane to arrive does the work of all. */
#pragma once

#include <tl/barrier.h>
#include <tl/half.h>
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
void ldmatrix(void* const* arguments) {
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
  if (gives_a_row) check_alignment(row, 16, "row address of an ldmatrix", where);
  LdmatrixArguments arguments{row, registers};
  collective_sync(name, ldmatrix<matrices, transposed>, &arguments, where);
}

struct MmaArguments {
  void* d;
  const void* a;
  const void* b;
};

constexpr int kMmaM = 16, kMmaN = 8;

// All of a warp's 16-bit elements are gathered first, so that their conversion is one loop over
// vectors.
template <typename T, int count>
TL_DEVICE void to_floats(const uint16_t* bits, float* floats) {
  for (int i = 0; i < count; ++i) floats[i] = float(T::from_bits(bits[i]));
}

/*!
 * Places of a lane's elements (PTX ISA, Matrix Fragments for mma.m16n8k8 and mma.m16n8k16): with g
 * = lane / 4 and t = lane % 4, pair i of A is at row g + 8 * (i % 2), column 2 * t + 8 * (i / 2);
 * pair i of B is at rows 2 * t + 8 * i, column g; pair i of C is at row g + 8 * i, column 2 * t.
 */
template <int K, typename T, typename Accumulator>
void mma(void* const* arguments) {
  uint16_t a_bits[kMmaM * K], b_bits[K * kMmaN];
  alignas(32) float a[kMmaM * K], b[K * kMmaN], d[kMmaM * kMmaN];
  for (int l = 0; l < kWarpSize; ++l) {
    const auto* lane = static_cast<const MmaArguments*>(arguments[l]);
    const int g = l / 4, t = l % 4;
    uint16_t elements[K / 2];
    __builtin_memcpy(elements, lane->a, sizeof(elements));
    for (int i = 0; i < K / 4; ++i) {
      __builtin_memcpy(&a_bits[(g + 8 * (i % 2)) * K + 2 * t + 8 * (i / 2)], elements + 2 * i, 4);
    }
    __builtin_memcpy(elements, lane->b, sizeof(elements) / 2);
    for (int i = 0; i < K / 4; ++i) {
      b_bits[(2 * t + 8 * (i / 2) + i % 2) * kMmaN + g] = elements[i];
    }
    Accumulator sums[4];
    __builtin_memcpy(sums, lane->d, sizeof(sums));
    for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * kMmaN + 2 * t + i % 2] = float(sums[i]);
  }
  to_floats<T, kMmaM * K>(a_bits, a);
  to_floats<T, K * kMmaN>(b_bits, b);
  for (int row = 0; row < kMmaM; ++row) {
    float sums[kMmaN];
    for (int n = 0; n < kMmaN; ++n) sums[n] = d[row * kMmaN + n];
    for (int k = 0; k < K; ++k) {
      for (int n = 0; n < kMmaN; ++n) sums[n] += a[row * K + k] * b[k * kMmaN + n];
    }
    for (int n = 0; n < kMmaN; ++n) d[row * kMmaN + n] = sums[n];
  }
  for (int l = 0; l < kWarpSize; ++l) {
    const int g = l / 4, t = l % 4;
    Accumulator sums[4];
    for (int i = 0; i < 4; ++i) {
      sums[i] = Accumulator(d[(g + 8 * (i / 2)) * kMmaN + 2 * t + i % 2]);
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

/*! d += a * b on the fragments of a warp; sums are formed in float. */
template <int M, int N, int K, typename TA, typename TB, typename TC>
TL_DEVICE void mma_sync(TC* d, const TA* a, const TB* b, emu::Location where = emu::here()) {
  TL_ASSERT_MMA_EXISTS(M, N, K, TA, TB, TC);
  emu::MmaArguments arguments{d, a, b};
  emu::collective_sync("mma_sync", emu::mma<K, TA, TC>, &arguments, where);
}

}  // namespace tl
