/*! Matrix products of a wavefront of 32 lanes (RDNA3 ISA, "Wave Matrix Multiply Accumulate"). The
 * last lane to arrive does the work of all. */
#pragma once

#include <tl/barrier.h>
#include <tl/buffer.h>
#include <tl/mma_number.h>
#include <tl/wmma_shapes.h>

namespace tl {
namespace emu {

static_assert(kWarpSize == 32, "WMMA is an instruction of wavefronts of 32 lanes");

constexpr int kWmmaSide = 16;

struct WmmaArguments {
  void* c;
  const void* a;
  const void* b;
  Location where;
};

/*! Rows of A, or columns of B, one of each of the first 16 lanes; the others have to give the same.
 */
template <typename T, typename Number, typename Registers>
TL_DEVICE void wmma_operand(const char* name, Registers registers, Location where,
                            Number (*numbers)[kWmmaSide]) {
  T elements[kWmmaSide];
  for (int l = 0; l < kWmmaSide; ++l) {
    if (__builtin_memcmp(registers(l), registers(l + kWmmaSide), sizeof(elements))) {
      fail(where,
           "lanes %d and %d of a wmma give different elements of %s: both hold one row of A, and "
           "one "
           "column of B",
           l, l + kWmmaSide, name);
    }
    __builtin_memcpy(elements, registers(l), sizeof(elements));
    for (int k = 0; k < kWmmaSide; ++k) numbers[l][k] = MmaNumber<T>::of(elements[k]);
  }
}

template <typename T, typename C>
TL_UNOBSERVED void wmma(void* const* arguments) {
  using Number = decltype(MmaNumber<T>::of(T()));
  Number a[kWmmaSide][kWmmaSide], b[kWmmaSide][kWmmaSide];
  const auto lane = [&](int l) { return static_cast<const WmmaArguments*>(arguments[l]); };
  wmma_operand<T>("A", [&](int l) { return lane(l)->a; }, lane(0)->where, a);
  wmma_operand<T>("B", [&](int l) { return lane(l)->b; }, lane(0)->where, b);
  constexpr int kOfLane = kWmmaSide * kWmmaSide / kWarpSize;
  C own[kOfLane];
  for (int l = 0; l < kWarpSize; ++l) {
    __builtin_memcpy(own, lane(l)->c, sizeof(own));
    for (int r = 0; r < kOfLane; ++r) {
      Number sum(own[r]);
      const int row = 2 * r + l / kWmmaSide, column = l % kWmmaSide;
      for (int k = 0; k < kWmmaSide; ++k) sum += a[row][k] * b[column][k];
      own[r] = C(sum);
    }
    __builtin_memcpy(lane(l)->c, own, sizeof(own));
  }
}

}  // namespace emu

/*!
 * c += a * b on the registers of a wavefront, each pointer being to this lane's elements; sums are
 * formed in C. Register r of A is at row lane % 16, k = r, of B at k = r, column lane % 16: lanes l
 * and l + 16 give the same. Register r of C is in column lane % 16, at row 2 * r + lane / 16.
 */
template <int M, int N, int K, typename T, typename C>
TL_DEVICE void wmma(C* c, const T* a, const T* b, emu::Location where = emu::here()) {
  TL_ASSERT_WMMA_EXISTS(M, N, K, T, C);
  emu::check_read(a, 16 * sizeof(T), where);
  emu::check_read(b, 16 * sizeof(T), where);
  emu::check_read(c, 8 * sizeof(C), where);
  emu::WmmaArguments arguments{c, a, b, where};
  emu::collective_sync("wmma", emu::wmma<T, C>, &arguments, where);
}

}  // namespace tl
