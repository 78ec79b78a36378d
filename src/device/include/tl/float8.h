/*!
 * fp8_e4_t (e4m3 without infinities, largest number 448), fp8_e5_t (e5m2, largest number 57344),
 * fp8_e8_t (e8m0, powers of two), and CDNA3's fp8_e4_fnuz_t and fp8_e5_fnuz_t (largest numbers 240
 * and 57344): one class over five formats. Each target gives the conversions of the first two in
 * formats.h. OCP 8-bit Floating Point Specification.
 *
 * Every operation rounds its exact result once, to nearest even, and gives the largest number
 * instead of infinity. Subnormals are kept. float8_bits.h says how e8m0 differs.
 */
#pragma once

#include <tl/half.h>

namespace tl {
namespace detail {

template <typename Format>
inline constexpr bool has_sign = true;
template <>
inline constexpr bool has_sign<E8M0Format> = false;

// Whether another sign is another number, of zero, too.
template <typename Format>
inline constexpr bool has_negative_zero = has_sign<Format>;
template <int kMantissa, int kBias>
inline constexpr bool has_negative_zero<Float8FnuzFormat<kMantissa, kBias>> = false;

}  // namespace detail

template <typename Format>
struct Float8 {
  uint8_t bits;

  Float8() = default;
  TL_DEVICE explicit Float8(float x) : bits(Format::from_float(x)) {}
  TL_DEVICE explicit Float8(double x) : Float8(detail::round_to_odd(x)) {}
  TL_DEVICE explicit Float8(int x) : Float8(detail::round_to_odd(int32_t(x))) {}
  TL_DEVICE explicit Float8(unsigned x) : Float8(detail::round_to_odd(uint32_t(x))) {}
  TL_DEVICE explicit Float8(long x) : Float8(detail::round_to_odd(int64_t(x))) {}
  TL_DEVICE explicit Float8(unsigned long x) : Float8(detail::round_to_odd(uint64_t(x))) {}
  TL_DEVICE explicit Float8(long long x) : Float8(detail::round_to_odd(int64_t(x))) {}
  TL_DEVICE explicit Float8(unsigned long long x) : Float8(detail::round_to_odd(uint64_t(x))) {}

  static TL_DEVICE Float8 from_bits(uint8_t bits) {
    Float8 x;
    x.bits = bits;
    return x;
  }

  /*! Rounds a pair, which is one instruction on the GPU. */
  static TL_DEVICE void from_floats(float first, float second, Float8* to) {
    const uint16_t pair = Format::from_floats(first, second);
    TL_MEMCPY(to, &pair, sizeof(pair));
  }

  TL_DEVICE operator float() const { return Format::to_float(bits); }

  TL_DEVICE Float8 operator-() const {
    return detail::has_negative_zero<Format> ? from_bits(bits ^ 0x80) : Float8(-float(*this));
  }

  // Float has more than 2p + 2 digits, so that rounding its result again is exact: S. Figueroa,
  // "When is double rounding innocuous?", 1995.
  friend TL_DEVICE Float8 operator+(Float8 a, Float8 b) { return Float8(float(a) + float(b)); }
  friend TL_DEVICE Float8 operator-(Float8 a, Float8 b) { return Float8(float(a) - float(b)); }
  friend TL_DEVICE Float8 operator*(Float8 a, Float8 b) { return Float8(float(a) * float(b)); }
  friend TL_DEVICE Float8 operator/(Float8 a, Float8 b) { return Float8(float(a) / float(b)); }

  friend TL_DEVICE bool operator==(Float8 a, Float8 b) { return float(a) == float(b); }
  friend TL_DEVICE bool operator!=(Float8 a, Float8 b) { return float(a) != float(b); }
  friend TL_DEVICE bool operator<(Float8 a, Float8 b) { return float(a) < float(b); }
  friend TL_DEVICE bool operator<=(Float8 a, Float8 b) { return float(a) <= float(b); }
  friend TL_DEVICE bool operator>(Float8 a, Float8 b) { return float(a) > float(b); }
  friend TL_DEVICE bool operator>=(Float8 a, Float8 b) { return float(a) >= float(b); }
};

}  // namespace tl

using fp8_e4_t = tl::Float8<tl::E4M3Format>;
using fp8_e5_t = tl::Float8<tl::E5M2Format>;
using fp8_e8_t = tl::Float8<tl::E8M0Format>;
using fp8_e4_fnuz_t = tl::Float8<tl::E4M3FnuzFormat>;
using fp8_e5_fnuz_t = tl::Float8<tl::E5M2FnuzFormat>;
