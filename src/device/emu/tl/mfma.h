/*!
 * Matrix products of a wavefront of 64 lanes. The last lane to arrive does the work of all.
 *
 * Layouts of registers: CDNA3 and CDNA4 ISA, MFMA; AMD matrix instruction calculator, "Register to
 * matrix element mapping".
 */
#pragma once

#include <tl/barrier.h>
#include <tl/buffer.h>
#include <tl/mfma_shapes.h>
#include <tl/mma_number.h>

namespace tl {
namespace emu {

static_assert(kWarpSize == 64, "MFMA is an instruction of wavefronts of 64 lanes");

/*! How A (and B, its columns for rows) of `rows` x K lies in a wavefront: register r of a lane is
 * at row lane % rows and `k`. A lane has runs of up to 16 bytes of elements along K; its 32
 * elements of 6 bits are one run of 24 bytes. */
template <int rows, int K, typename T>
struct MfmaOperand {
  static constexpr int kBits = mma_bits<T>, kOfLane = rows * K / kWarpSize;
  static constexpr int kRun = kOfLane * kBits <= 128 || kBits == 6 ? kOfLane : 128 / kBits;
  static constexpr int kBytes = kOfLane * kBits / 8;

  static constexpr int row(int lane) { return lane % rows; }
  static constexpr int k(int lane, int r) {
    return r / kRun * (kRun * kWarpSize / rows) + kRun * (lane / rows) + r % kRun;
  }
};

/*! Where register r of C is. */
template <int M, typename C>
constexpr int mfma_row(int lane, int r) {
  if (M == 32) return r / 4 * 8 + lane / 32 * 4 + r % 4;
  return is_same<C, double> ? r * 4 + lane / 16 : lane / 16 * 4 + r;
}

/*! xf32 has 10 bits of mantissa. The ISA does not say how the others are lost: to nearest even
 * here. */
template <typename T>
struct MfmaNumber : MmaNumber<T> {};
template <>
struct MfmaNumber<tfloat32_t> {
  static TL_DEVICE float of(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    return bit_cast<float>(finite ? (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu : bits);
  }
};

/*! An element of 6 bits, decoded: a sign, an exponent of which 0 is that of subnormal numbers, and
 * a mantissa (OCP Microscaling Formats, FP6). No code is an infinity or NaN. */
template <int kExponent, int kMantissa>
struct MfmaFloat6 {
  uint8_t bits;

  TL_DEVICE operator float() const {
    constexpr int kBias = (1 << (kExponent - 1)) - 1;
    const int exponent = bits >> kMantissa & ((1 << kExponent) - 1);
    const int mantissa = bits & ((1 << kMantissa) - 1);
    const int whole = exponent ? mantissa | 1 << kMantissa : mantissa;
    // Times 2 to the (exponent - bias - mantissa's bits).
    const int power = (exponent ? exponent : 1) - kBias - kMantissa;
    return (bits & 32 ? -whole : whole) * bit_cast<float>(uint32_t(127 + power) << 23);
  }
};
template <>
struct MmaElement<fp6_e2_t> {
  using type = MfmaFloat6<2, 3>;
};
template <>
struct MmaElement<fp6_e3_t> {
  using type = MfmaFloat6<3, 2>;
};
template <>
struct MfmaNumber<fp6_e2_t> : MmaNumber<MfmaFloat6<2, 3>> {};
template <>
struct MfmaNumber<fp6_e3_t> : MmaNumber<MfmaFloat6<3, 2>> {};

struct MfmaArguments {
  void* c;
  const void* a;
  const void* b;
  float scale_a, scale_b;
};

/*! An operand by rows, or with `by_columns` by K, from the registers of each lane. */
template <int rows, int K, typename T, bool by_columns, typename Number, typename Registers>
TL_DEVICE void mfma_operand(Registers registers, Number* numbers) {
  using Layout = MfmaOperand<rows, K, T>;
  for (int l = 0; l < kWarpSize; ++l) {
    typename MmaElement<T>::type elements[Layout::kOfLane];
    if constexpr (is_sub_byte<T>) {
      const auto* bytes = static_cast<const uint8_t*>(registers(l));
      for (int r = 0; r < Layout::kOfLane; ++r) elements[r] = get_sub_byte<T>(bytes, r);
    } else if constexpr (Layout::kBits == 6) {
      const auto* bytes = static_cast<const uint8_t*>(registers(l));
      for (int r = 0; r < Layout::kOfLane; ++r) {
        // The last element of four ends with the byte that it lies in.
        const int first = 6 * r / 8, word = bytes[first] | (r % 4 == 3 ? 0 : bytes[first + 1] << 8);
        elements[r].bits = uint8_t(word >> 6 * r % 8 & 63);
      }
    } else {
      __builtin_memcpy(elements, registers(l), Layout::kBytes);
    }
    for (int r = 0; r < Layout::kOfLane; ++r) {
      const int row = Layout::row(l), k = Layout::k(l, r);
      numbers[by_columns ? k * rows + row : row * K + k] = MfmaNumber<T>::of(elements[r]);
    }
  }
}

/*! The sums of the products of `count` elements along K from `first` on, to those of a row. */
template <int N, int K, typename Number>
TL_DEVICE void add_products(const Number* a, const Number* b, int row, int first, int count,
                            Number* sums) {
  for (int k = first; k < first + count; ++k) {
    for (int n = 0; n < N; ++n) sums[n] += a[row * K + k] * b[k * N + n];
  }
}

template <int M, int K, typename TA, typename TB, typename C, bool scaled>
TL_UNOBSERVED void mfma(void* const* arguments) {
  using Number = decltype(MfmaNumber<TA>::of(typename MmaElement<TA>::type()));
  constexpr int N = M, kOfLane = M * N / kWarpSize;
  alignas(32) Number a[M * K], b[K * N], c[M * N];
  const auto lane = [&](int l) { return static_cast<const MfmaArguments*>(arguments[l]); };
  mfma_operand<M, K, TA, false>([&](int l) { return lane(l)->a; }, a);
  mfma_operand<N, K, TB, true>([&](int l) { return lane(l)->b; }, b);
  C own[kOfLane];
  for (int l = 0; l < kWarpSize; ++l) {
    __builtin_memcpy(own, lane(l)->c, sizeof(own));
    for (int r = 0; r < kOfLane; ++r) c[mfma_row<M, C>(l, r) * N + l % N] = Number(own[r]);
  }
  for (int row = 0; row < M; ++row) {
    if constexpr (!scaled) {
      add_products<N, K>(a, b, row, 0, K, c + row * N);
    } else {
      // The scales of a row's or column's blocks come from the lanes whose number is row + M *
      // block.
      for (int block = 0; block < K / mfma_scale_k; ++block) {
        Number sums[N] = {};
        add_products<N, K>(a, b, row, block * mfma_scale_k, mfma_scale_k, sums);
        const float scale = lane(row + M * block)->scale_a;
        for (int n = 0; n < N; ++n) {
          c[row * N + n] += sums[n] * scale * lane(n + N * block)->scale_b;
        }
      }
    }
  }
  for (int l = 0; l < kWarpSize; ++l) {
    for (int r = 0; r < kOfLane; ++r) own[r] = C(c[mfma_row<M, C>(l, r) * N + l % N]);
    __builtin_memcpy(static_cast<MfmaArguments*>(arguments[l])->c, own, sizeof(own));
  }
}

/*! A lane's part of the operands has to be defined. */
template <int M, int K, typename TA, typename TB, typename C, bool scaled>
TL_DEVICE void mfma_sync(const char* name, const MfmaArguments& arguments, Location where) {
  check_read(arguments.a, MfmaOperand<M, K, TA>::kBytes, where);
  check_read(arguments.b, MfmaOperand<M, K, TB>::kBytes, where);
  check_read(arguments.c, M * M / kWarpSize * sizeof(C), where);
  MfmaArguments own = arguments;
  collective_sync(name, mfma<M, K, TA, TB, C, scaled>, &own, where);
}

}  // namespace emu

/*! An order for the scheduler of a GPU's compiler; here things happen as the source says. */
template <int first, int each, int times>
TL_DEVICE void schedule_reads() {}

/*!
 * c += a * b on the registers of a wavefront, each pointer being to this lane's elements; sums are
 * formed in C. With g = lane / M, register r of A is at row lane % M, k = K * M / 64 * g + r, of B
 * at that k, column lane % M. Register r of C is in column lane % M, at row 4 * g + r (M = 16;
 * double: g + 4 * r) or r / 4 * 8 + 4 * g + r % 4 (M = 32). 8-bit floats with K = 2048 / M lie as
 * those of mfma_scale.
 */
template <int M, int N, int K, typename T, typename C>
TL_DEVICE void mfma(C* c, const mma_memory<T>* a, const mma_memory<T>* b,
                    emu::Location where = emu::here()) {
  TL_ASSERT_MFMA_EXISTS(M, N, K, T, C, T);
  emu::mfma_sync<M, K, T, T, C, false>("mfma", {c, a, b, 1, 1}, where);
}

/*! The same of an A and a B of two types of 8-bit floats. */
template <int M, int N, int K, typename TA, typename TB, typename C>
TL_DEVICE void mfma_mixed(C* c, const mma_memory<TA>* a, const mma_memory<TB>* b,
                          emu::Location where = emu::here()) {
  TL_ASSERT_MFMA_EXISTS(M, N, K, TA, C, TB);
  emu::mfma_sync<M, K, TA, TB, C, false>("mfma_mixed", {c, a, b, 1, 1}, where);
}

/*!
 * The same of 8-bit, 6-bit and 4-bit floats, where each 32 elements along K have a scale: lane l
 * gives those of row (column) l % M, elements 32 * (l / M) to 32 * (l / M) + 31 along K. Elements
 * of 8 bits lie in runs of 16: register r is at k = r / 16 * (1024 / M) + 16 * (l / M) + r % 16.
 * Those of a lane of 6 and 4 bits are the 32 of its scale.
 */
template <int M, int N, int K, typename TA, typename TB>
TL_DEVICE void mfma_scale(float* c, const mma_memory<TA>* a, const mma_memory<TB>* b,
                          fp8_e8_t scale_a, fp8_e8_t scale_b, emu::Location where = emu::here()) {
  TL_ASSERT_MFMA_SCALE_EXISTS(M, N, K, TA, TB);
  emu::mfma_sync<M, K, TA, TB, float, true>("mfma_scale", {c, a, b, float(scale_a), float(scale_b)},
                                            where);
}

/*! The same with scale `s`, 0 to 3, of four at a multiple of 4 bytes. */
template <int M, int N, int K, typename TA, typename TB, int s>
TL_DEVICE void mfma_scale_of_word(float* c, const mma_memory<TA>* a, const mma_memory<TB>* b,
                                  const fp8_e8_t* scales_a, const fp8_e8_t* scales_b,
                                  emu::Location where = emu::here()) {
  emu::check_read(scales_a, 4, where);
  emu::check_read(scales_b, 4, where);
  mfma_scale<M, N, K, TA, TB>(c, a, b, scales_a[s], scales_b[s], where);
}

}  // namespace tl
