/*! The bit operations of half_t, bfloat16_t and the 8-bit floats, bit for bit what the GPU's
 * instructions give. */
#pragma once

#include <tl/bits.h>
#include <tl/float8_bits.h>
#include <tl/platform.h>

namespace tl {
namespace detail {

constexpr uint16_t kCanonicalNaN = 0x7fff;

// Sums, differences and products of two 16-bit floats are rounded once by going through float:
// float has at least 2p + 2 digits (S. Figueroa, "When is double rounding innocuous?", 1995).
template <typename Format>
struct ThroughFloat {
  static TL_DEVICE uint16_t add(uint16_t a, uint16_t b) { return from(to(a) + to(b)); }
  static TL_DEVICE uint16_t sub(uint16_t a, uint16_t b) { return from(to(a) - to(b)); }
  static TL_DEVICE uint16_t mul(uint16_t a, uint16_t b) { return from(to(a) * to(b)); }
  static TL_DEVICE uint16_t max(uint16_t a, uint16_t b) { return from(maximum(to(a), to(b))); }
  static TL_DEVICE uint16_t min(uint16_t a, uint16_t b) { return from(minimum(to(a), to(b))); }
  static TL_DEVICE uint32_t from_floats(float low, float high) {
    return from(low) | uint32_t(from(high)) << 16;
  }

 private:
  static TL_DEVICE float to(uint16_t x) { return Format::to_float(x); }
  static TL_DEVICE uint16_t from(float x) { return Format::from_float(x); }
};

}  // namespace detail

/*! IEEE binary16. */
struct HalfFormat : detail::ThroughFloat<HalfFormat> {
  // The product moves the exponent's bias from 15 to 127 and is exact, for subnormals too. Without
  // branches, so that compilers make vectors of it.
  static TL_DEVICE float to_float(uint16_t x) {
    const uint32_t magnitude = uint32_t(x & 0x7fff) << 13;
    const uint32_t finite = bit_cast<uint32_t>(bit_cast<float>(magnitude) * 0x1p112f);
    const uint32_t special = magnitude < (31u << 23) ? 0 : 0x7f800000u;
    return bit_cast<float>(finite | special | uint32_t(x & 0x8000) << 16);
  }

  static TL_DEVICE uint16_t from_float(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000u) return detail::kCanonicalNaN;
    if (magnitude >= (143u << 23)) return uint16_t(sign | 0x7c00);
    if (magnitude < (113u << 23)) {
      // Adding 0.5 leaves a multiple of 2^-24, the subnormals' unit, and lets the addition round.
      const float sum = bit_cast<float>(magnitude) + 0.5f;
      return uint16_t(sign | (bit_cast<uint32_t>(sum) - (126u << 23)));
    }
    const uint32_t odd = magnitude >> 13 & 1;
    return uint16_t(sign | (magnitude - (112u << 23) + 0xfff + odd) >> 13);
  }
};

/*! The upper half of IEEE binary32. */
struct BFloat16Format : detail::ThroughFloat<BFloat16Format> {
  static TL_DEVICE float to_float(uint16_t x) { return bit_cast<float>(uint32_t(x) << 16); }

  static TL_DEVICE uint16_t from_float(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    if ((bits & 0x7fffffff) > 0x7f800000u) return detail::kCanonicalNaN;
    const uint32_t odd = bits >> 16 & 1;
    return uint16_t((bits + 0x7fff + odd) >> 16);
  }
};

namespace detail {

template <int kMantissa, int kBias, uint8_t kLargest>
struct Float8Format {
  static TL_DEVICE float to_float(uint8_t x) {
    return float8_to_float<kMantissa, kBias, kLargest>(x);
  }
  static TL_DEVICE uint8_t from_float(float x) {
    return float8_from_float<kMantissa, kBias, kLargest>(x);
  }
  static TL_DEVICE uint16_t from_floats(float low, float high) {
    return uint16_t(from_float(low) | from_float(high) << 8);
  }
};

}  // namespace detail

using E4M3Format = detail::Float8Format<3, 7, 0x7e>;
using E5M2Format = detail::Float8Format<2, 15, 0x7b>;

}  // namespace tl
