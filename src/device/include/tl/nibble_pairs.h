/*!
 * Pairs of integers of 4 bits become pairs of half_t or bfloat16_t by a few integer instructions
 * and one of arithmetic. The conversions are exact.
 *
 * `pair(word, i)` has the elements 2 i and 2 i + 1 of a word of eight, `distant_pair(word, i)` the
 * elements i and i + 4. The latter are four bits in each half of the word, and need no permutation.
 *
 * An integer of few bits becomes a float when it is put below the bits of a power of two whose
 * mantissa has room for it: 0x6400 | u is the half_t 1024 + u, 0x4300 | u the bfloat16_t 128 + u.
 * An addition takes the power away (Y. J. Kim et al., "Who Says Elephants Can't Run", 2022, section
 * 4.3).
 *
 * PairArithmetic, permute_bytes and kept_in_register are the target's, in its pair_operations.h.
 */
#pragma once

#include <tl/pair_operations.h>

namespace tl {
template <bool is_signed>
struct Int4Format;
template <typename Format>
struct SubByte;

namespace detail {

/*! The bits of -number in a float of 16 bits, of which so many are the mantissa's: an integer that
 * the type has. */
TL_DEVICE constexpr uint32_t minus_bits(int number, int mantissa) {
  int exponent = 0;
  while (number >> (exponent + 1)) ++exponent;
  const int bias = mantissa == 10 ? 15 : 127;
  const int fraction = (number << mantissa >> exponent) - (1 << mantissa);
  return 0x8000u | uint32_t(exponent + bias) << mantissa | uint32_t(fraction);
}

/*! An element in the low four bits of its half is 1024 + u; four bits higher it is 64 + u. */
template <bool is_signed>
struct PairCast<half_t, SubByte<Int4Format<is_signed>>> {
  static constexpr bool exists = true;
  static constexpr uint32_t kLow = is_signed ? 0x6408u : 0x6400u;
  static constexpr uint32_t kHigh = is_signed ? 0x5480u : 0x5400u;

  /*! Of the byte i in both halves, each element and `added` together. */
  template <int added = 0>
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    constexpr uint32_t kDifferences = minus<added>(64) << 16 | minus<added>(1024);
    const uint32_t halves = permute_bytes(word, 0, 0x4040 + 0x101 * i);
    return less(halves & kept_in_register<0x00f0000fu>(), kHigh << 16 | kLow, kDifferences);
  }
  template <int added = 0>
  static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) {
    constexpr uint32_t kOfHigh = minus<added>(64) * 0x10001u;
    constexpr uint32_t kOfLow = minus<added>(1024) * 0x10001u;
    const uint32_t halves = i < 2 ? word : word >> 8;
    return i % 2 ? less(halves & kept_in_register<0x00f000f0u>(), kHigh << 16 | kHigh, kOfHigh)
                 : less(halves & kept_in_register<0x000f000fu>(), kLow << 16 | kLow, kOfLow);
  }

 private:
  /*! A signed element has its sign's bit flipped, and is 8 more then. */
  template <int added>
  static TL_DEVICE constexpr uint32_t minus(int power) {
    return minus_bits(power + (is_signed ? 8 : 0) - added, 10);
  }
  static TL_DEVICE uint32_t less(uint32_t elements, uint32_t powers, uint32_t difference) {
    return PairArithmetic<half_t>::add(elements ^ powers, difference);
  }
};

/*! Each element in the low four bits of its half: there is no room for it four bits higher. */
template <bool is_signed>
struct PairCast<bfloat16_t, SubByte<Int4Format<is_signed>>> {
  static constexpr bool exists = true;
  template <int added = 0>
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    return less<added>(permute_bytes(word, word >> 4, 0x400 + 0x101 * i));
  }
  template <int added = 0>
  static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) {
    return less<added>(word >> 4 * i);
  }

 private:
  template <int added>
  static TL_DEVICE uint32_t less(uint32_t halves) {
    constexpr uint32_t kPowers = is_signed ? 0x43084308u : 0x43004300u;
    constexpr uint32_t kDifference = minus_bits(is_signed ? 136 - added : 128 - added, 7);
    return PairArithmetic<bfloat16_t>::add((halves & kept_in_register<0x000f000fu>()) ^ kPowers,
                                           kDifference << 16 | kDifference);
  }
};

/*! What PairCast makes of two elements, and `added` to each: one sum for two. */
template <typename Pairs, int added>
struct PairSum {
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    return Pairs::template pair<added>(word, i);
  }
  static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) {
    return Pairs::template distant_pair<added>(word, i);
  }
};

}  // namespace detail
}  // namespace tl
