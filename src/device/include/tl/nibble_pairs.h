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

/*! An element in the low four bits of its half is 1024 + u; four bits higher it is 64 + u. */
template <bool is_signed>
struct PairCast<half_t, SubByte<Int4Format<is_signed>>> {
  static constexpr bool exists = true;
  static constexpr uint32_t kLow = is_signed ? 0x6408u : 0x6400u;
  static constexpr uint32_t kHigh = is_signed ? 0x5480u : 0x5400u;

  /*! Of the byte i in both halves. */
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    const uint32_t halves = permute_bytes(word, 0, 0x4040 + 0x101 * i);
    return less(halves & kept_in_register<0x00f0000fu>(), kHigh << 16 | kLow);
  }
  static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) {
    const uint32_t halves = i < 2 ? word : word >> 8;
    return i % 2 ? less(halves & kept_in_register<0x00f000f0u>(), kHigh << 16 | kHigh)
                 : less(halves & kept_in_register<0x000f000fu>(), kLow << 16 | kLow);
  }

 private:
  /*! A signed element has its sign's bit flipped, and is 8 more then. */
  static TL_DEVICE uint32_t less(uint32_t elements, uint32_t powers) {
    return PairArithmetic<half_t>::add(elements ^ powers, powers | 0x80008000u);
  }
};

/*! Each element in the low four bits of its half: there is no room for it four bits higher. */
template <bool is_signed>
struct PairCast<bfloat16_t, SubByte<Int4Format<is_signed>>> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    return less(permute_bytes(word, word >> 4, 0x400 + 0x101 * i));
  }
  static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) { return less(word >> 4 * i); }

 private:
  static TL_DEVICE uint32_t less(uint32_t halves) {
    constexpr uint32_t kPowers = is_signed ? 0x43084308u : 0x43004300u;
    return PairArithmetic<bfloat16_t>::add((halves & kept_in_register<0x000f000fu>()) ^ kPowers,
                                           kPowers | 0x80008000u);
  }
};

}  // namespace detail
}  // namespace tl
