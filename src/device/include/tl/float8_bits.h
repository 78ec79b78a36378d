/*!
 * The 8-bit floats' bit operations in integers, for chips without the instruction and for the
 * emulator: what cvt gives (PTX ISA, cvt with .satfinite), bit for bit.
 */
#pragma once

#include <tl/bits.h>

namespace tl {
namespace detail {

/*!
 * Of the 8 bits, one is the sign and `kMantissa` are the fraction; the exponent has `kBias`.
 * `kLargest` is the code of the largest finite number. Values round to nearest even; those beyond
 * the largest, infinities too, become it; NaN becomes 0x7f.
 */
template <int kMantissa, int kBias, uint8_t kLargest>
TL_DEVICE uint8_t float8_from_float(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffff;
  const uint32_t sign = bits >> 24 & 0x80;
  if (magnitude > 0x7f800000u) return 0x7f;
  constexpr uint32_t kSmallestNormal = uint32_t(128 - kBias) << 23;
  uint32_t code;
  if (magnitude < kSmallestNormal) {
    // The sum's last digit is the subnormals' unit, so that the addition rounds to it.
    constexpr uint32_t kShift = uint32_t(128 - kBias - kMantissa + 23) << 23;
    code = bit_cast<uint32_t>(bit_cast<float>(magnitude) + bit_cast<float>(kShift)) - kShift;
  } else {
    constexpr int kLost = 23 - kMantissa;
    const uint32_t odd = magnitude >> kLost & 1;
    code = (magnitude - (uint32_t(127 - kBias) << 23) + (1u << (kLost - 1)) - 1 + odd) >> kLost;
  }
  return uint8_t(sign | (code < kLargest ? code : kLargest));
}

/*! Exact. Codes above `kLargest` are NaN, but that of e5m2's infinity. */
template <int kMantissa, int kBias, uint8_t kLargest>
TL_DEVICE float float8_to_float(uint8_t x) {
  const uint32_t sign = uint32_t(x & 0x80) << 24, code = x & 0x7f;
  constexpr uint32_t kInfinity = kLargest == 0x7b ? 0x7c : 0x80;
  if (code == kInfinity) return bit_cast<float>(sign | 0x7f800000u);
  if (code > kLargest) return bit_cast<float>(0x7fffffffu);
  const uint32_t fraction = code << (23 - kMantissa);
  constexpr uint32_t kBiases = uint32_t(127 - kBias) << 23, kOne = 1u << 23;
  const float subnormal =
      bit_cast<float>(fraction + kBiases + kOne) - bit_cast<float>(kBiases + kOne);
  const float value = fraction < kOne ? subnormal : bit_cast<float>(fraction + kBiases);
  return bit_cast<float>(sign | bit_cast<uint32_t>(value));
}

}  // namespace detail

/*!
 * The formats of CDNA3 (CDNA3 ISA, "FP8 and BF8"): as those above, with a bias that is one more, no
 * infinity, and no negative zero, whose code is NaN.
 */
template <int kMantissa, int kBias>
struct Float8FnuzFormat {
  static TL_DEVICE float to_float(uint8_t x) {
    if (x == 0x80) return bit_cast<float>(0x7fffffffu);
    return detail::float8_to_float<kMantissa, kBias, 0x7f>(x);
  }
  static TL_DEVICE uint8_t from_float(float x) {
    if (x != x) return 0x80;
    const uint8_t code = detail::float8_from_float<kMantissa, kBias, 0x7f>(x);
    return code == 0x80 ? 0 : code;
  }
  static TL_DEVICE uint16_t from_floats(float low, float high) {
    return uint16_t(from_float(low) | from_float(high) << 8);
  }
};
using E4M3FnuzFormat = Float8FnuzFormat<3, 8>;
using E5M2FnuzFormat = Float8FnuzFormat<2, 16>;

/*!
 * e8m0 (OCP Microscaling Formats, "E8M0"): an exponent with bias 127 and nothing else, so powers of
 * two from 2^-127 to 2^127 and NaN, 0xff. Values round to the nearest, and what is as near to two
 * of them to the larger one; zero becomes the smallest. Numbers that are negative, infinite or
 * would be 2^128 become NaN.
 */
struct E8M0Format {
  static TL_DEVICE float to_float(uint8_t x) {
    constexpr uint32_t kSmallest = 1u << 22, kNaN = 0x7fffffffu;
    return bit_cast<float>(x == 0 ? kSmallest : x == 0xff ? kNaN : uint32_t(x) << 23);
  }
  static TL_DEVICE uint8_t from_float(float x) {
    constexpr uint32_t kHalf = 1u << 22, kInfinity = 0x7f800000u;
    // 2^-127, the smallest, is a subnormal of float32: half of the way to 2^-126 is 1.5 * 2^-127.
    constexpr uint32_t kSubnormalHalf = 3u << 21;
    const uint32_t bits = bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
    if (magnitude >= kInfinity || (magnitude != bits && magnitude != 0)) return 0xff;
    const uint32_t exponent = magnitude >> 23, fraction = magnitude & 0x7fffffu;
    const bool up = fraction >= (exponent == 0 ? kSubnormalHalf : kHalf);
    return uint8_t(exponent + up);
  }
  static TL_DEVICE uint16_t from_floats(float low, float high) {
    return uint16_t(from_float(low) | from_float(high) << 8);
  }
};

}  // namespace tl
