/*!
 * Pairs of floats of 4 bits become pairs of half_t or bfloat16_t by a few integer instructions and
 * one of arithmetic, as integers do (nibble_pairs.h). The conversions are exact, and -0 stays -0.
 *
 * A float of few bits has its exponent and mantissa at the low end of those of the wider one; a
 * multiplication by a power of two makes up for the difference of their biases. It takes subnormal
 * numbers.
 */
#pragma once

#include <tl/nibble_pairs.h>

namespace tl {
struct E2M1Format;
template <typename Format>
struct SubByte;

namespace detail {

/*! The sign's bit goes to the top of the half, the other three to the end of the exponent and the
 * start of the mantissa. */
template <>
struct PairCast<half_t, SubByte<E2M1Format>> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    const uint32_t halves = permute_bytes(word << 4, word, 0x4000 + 0x1010 * i);
    return scaled(halves, halves >> 3);
  }
  static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) {
    return scaled(word << (12 - 4 * i), i < 3 ? word << (9 - 4 * i) : word >> 3);
  }

 private:
  static TL_DEVICE uint32_t scaled(uint32_t signs, uint32_t magnitudes) {
    const uint32_t bits = (signs & 0x80008000u) | (magnitudes & 0x0e000e00u);
    return PairArithmetic<half_t>::mul(bits, 0x74007400u);  // 2 ** 14
  }
};

/*! One product puts an element that is alone in its half to both places, six bits apart. */
template <>
struct PairCast<bfloat16_t, SubByte<E2M1Format>> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    const uint32_t even = word & 0x0f0f0f0fu, odd = word >> 4 & 0x0f0f0f0fu;
    // The sign of a byte, which is zero, is the byte above it.
    return scaled(permute_bytes(even, odd, 0x8480 + 0x1111 * i), 0x1040u);
  }
  static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) {
    const uint32_t halves = i < 2 ? word : word >> 8;
    return i % 2 ? scaled(halves & 0x00f000f0u, 0x104u) : scaled(halves & 0x000f000fu, 0x1040u);
  }

 private:
  static TL_DEVICE uint32_t scaled(uint32_t elements, uint32_t places) {
    return PairArithmetic<bfloat16_t>::mul(elements * places & 0x81c081c0u, 0x7e807e80u);  // 2**126
  }
};

}  // namespace detail
}  // namespace tl
