/*!
 * Pairs of integers of 8 bits become pairs of half_t by one permutation of bytes and one of
 * arithmetic, as integers of 4 bits do (nibble_pairs.h). The conversions are exact.
 *
 * PairArithmetic and permute_bytes are the target's. Its pair_operations.h, which has them,
 * includes this file at its end.
 */
#pragma once

#include <tl/pair_operations.h>

namespace tl {
namespace detail {

/*! 0x6400 | u is the half_t 1024 + u, which is 1024 more than the integer; a signed one has its
 * sign's bit flipped, and is 128 more. */
template <bool is_signed>
struct ByteToHalf {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    const uint32_t u = is_signed ? word ^ 0x80808080u : word;
    const uint32_t wide = permute_bytes(u, 0x64, i ? 0x4342 : 0x4140);
    return PairArithmetic<half_t>::sub(wide, is_signed ? 0x64806480u : 0x64006400u);
  }
};
template <>
struct PairCast<half_t, int8_t> : ByteToHalf<true> {};
template <>
struct PairCast<half_t, uint8_t> : ByteToHalf<false> {};

}  // namespace detail
}  // namespace tl
