/*! Reading a value's bits as another type, and rounding to odd. */
#pragma once

#include <tl/platform.h>

namespace tl {

/*! The bits of `from` as a value of type To: `bit_cast<float>(0x7f800000u)` is infinity. */
template <typename To, typename From>
TL_DEVICE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "tl::bit_cast needs two types of the same size");
  To to;
  TL_MEMCPY(&to, &from, sizeof(To));
  return to;
}

namespace detail {

/*! The unsigned integer of so many bytes. */
template <int bytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = uint8_t;
};
template <>
struct UnsignedOf<2> {
  using type = uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = uint64_t;
};

// A 16-bit float has no direct conversion from double or integers on every chip, and going through
// float rounds twice. Rounding to odd on the way keeps the sticky bit, so that the second rounding
// is the only one: S. Boldo, G. Melquiond, "When double rounding is odd", 2005.
TL_DEVICE float round_to_odd(double x) {
  const float nearest = float(x);
  const double back = nearest;
  if (back == x || x != x) return nearest;
  uint32_t bits = bit_cast<uint32_t>(nearest);
  const bool away_from_zero = x < 0 ? back < x : back > x;
  if (away_from_zero) --bits;
  return bit_cast<float>(bits | 1u);
}

template <typename Unsigned>
TL_DEVICE float round_to_odd_magnitude(Unsigned magnitude) {
  constexpr int kFloatDigits = 24;
  const int excess = int(sizeof(Unsigned)) * 8 - kFloatDigits - count_leading_zeros(magnitude);
  if (excess <= 0) return float(magnitude);
  const Unsigned lost = magnitude & ((Unsigned(1) << excess) - 1);
  const Unsigned kept = (magnitude >> excess) | Unsigned(lost != 0);
  const float scale = bit_cast<float>(uint32_t(127 + excess) << 23);
  return float(kept) * scale;
}

TL_DEVICE float round_to_odd(uint64_t x) { return round_to_odd_magnitude(x); }
// A float has all integers of 24 bits. Of wider ones the last 8 bits become one that says whether
// any was set; a shift of a negative number to the right rounds down, so that the same holds for
// it. There is no branch: threads convert many numbers at a time.
TL_DEVICE float round_to_odd(uint32_t x) {
  const bool wide = x >> 24 != 0;
  const uint32_t kept = wide ? (x >> 8) | uint32_t((x & 255) != 0) : x;
  return float(kept) * (wide ? 256.0f : 1.0f);
}
TL_DEVICE float round_to_odd(int32_t x) {
  const bool wide = (uint32_t(x) + (1u << 24)) >> 25 != 0;
  const int32_t kept = wide ? (x >> 8) | int32_t((x & 255) != 0) : x;
  return float(kept) * (wide ? 256.0f : 1.0f);
}
TL_DEVICE float round_to_odd(int64_t x) {
  return x < 0 ? -round_to_odd(uint64_t(0) - uint64_t(x)) : round_to_odd(uint64_t(x));
}

}  // namespace detail
}  // namespace tl
