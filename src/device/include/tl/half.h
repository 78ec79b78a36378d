/*!
 * half_t and bfloat16_t: one class over two formats, whose bit operations each target gives in
 * formats.h.
 *
 * Every operation rounds its exact result once, to nearest even. Subnormals are kept. A NaN result
 * is 0x7fff.
 */
#pragma once

#include <tl/bits.h>
#include <tl/formats.h>

namespace tl {

template <typename Format>
struct Float16 {
  uint16_t bits;

  Float16() = default;
  TL_DEVICE explicit Float16(float x) : bits(Format::from_float(x)) {}
  TL_DEVICE explicit Float16(double x) : Float16(detail::round_to_odd(x)) {}
  TL_DEVICE explicit Float16(int x) : Float16(detail::round_to_odd(int32_t(x))) {}
  TL_DEVICE explicit Float16(unsigned x) : Float16(detail::round_to_odd(uint32_t(x))) {}
  TL_DEVICE explicit Float16(long x) : Float16(detail::round_to_odd(int64_t(x))) {}
  TL_DEVICE explicit Float16(unsigned long x) : Float16(detail::round_to_odd(uint64_t(x))) {}
  TL_DEVICE explicit Float16(long long x) : Float16(detail::round_to_odd(int64_t(x))) {}
  TL_DEVICE explicit Float16(unsigned long long x) : Float16(detail::round_to_odd(uint64_t(x))) {}

  static TL_DEVICE Float16 from_bits(uint16_t bits) {
    Float16 x;
    x.bits = bits;
    return x;
  }

  /*! Rounds a pair, which is one instruction on the GPU. */
  static TL_DEVICE void from_floats(float first, float second, Float16* to) {
    const uint32_t pair = Format::from_floats(first, second);
    TL_MEMCPY(to, &pair, sizeof(pair));
  }

  TL_DEVICE operator float() const { return Format::to_float(bits); }

  TL_DEVICE Float16 operator-() const { return from_bits(bits ^ 0x8000); }

  friend TL_DEVICE Float16 operator+(Float16 a, Float16 b) {
    return from_bits(Format::add(a.bits, b.bits));
  }
  friend TL_DEVICE Float16 operator-(Float16 a, Float16 b) {
    return from_bits(Format::sub(a.bits, b.bits));
  }
  friend TL_DEVICE Float16 operator*(Float16 a, Float16 b) {
    return from_bits(Format::mul(a.bits, b.bits));
  }
  // Float has at least 2p + 2 digits for both formats, so that rounding its quotient again is
  // exact: S. Figueroa, "When is double rounding innocuous?", 1995.
  friend TL_DEVICE Float16 operator/(Float16 a, Float16 b) { return Float16(float(a) / float(b)); }

  TL_DEVICE Float16& operator+=(Float16 b) { return *this = *this + b; }
  TL_DEVICE Float16& operator-=(Float16 b) { return *this = *this - b; }
  TL_DEVICE Float16& operator*=(Float16 b) { return *this = *this * b; }
  TL_DEVICE Float16& operator/=(Float16 b) { return *this = *this / b; }

  friend TL_DEVICE bool operator==(Float16 a, Float16 b) { return float(a) == float(b); }
  friend TL_DEVICE bool operator!=(Float16 a, Float16 b) { return float(a) != float(b); }
  friend TL_DEVICE bool operator<(Float16 a, Float16 b) { return float(a) < float(b); }
  friend TL_DEVICE bool operator<=(Float16 a, Float16 b) { return float(a) <= float(b); }
  friend TL_DEVICE bool operator>(Float16 a, Float16 b) { return float(a) > float(b); }
  friend TL_DEVICE bool operator>=(Float16 a, Float16 b) { return float(a) >= float(b); }
};

}  // namespace tl

using half_t = tl::Float16<tl::HalfFormat>;
using bfloat16_t = tl::Float16<tl::BFloat16Format>;
