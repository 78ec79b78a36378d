/*! Questions about the bits of a number, and its neighbour, for the types of math.h. */
#pragma once

#include <tl/math.h>

namespace tl {

// Looking at the bits keeps these true under every floating-point option of the compilers.
TL_DEVICE bool isnan(float x) { return (bit_cast<uint32_t>(x) & 0x7fffffffu) > 0x7f800000u; }
TL_DEVICE bool isnan(double x) {
  return (bit_cast<uint64_t>(x) & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
}
TL_DEVICE bool isinf(float x) { return (bit_cast<uint32_t>(x) & 0x7fffffffu) == 0x7f800000u; }
TL_DEVICE bool isinf(double x) {
  return (bit_cast<uint64_t>(x) & 0x7fffffffffffffffu) == 0x7ff0000000000000u;
}
TL_DEVICE bool isfinite(float x) { return (bit_cast<uint32_t>(x) & 0x7fffffffu) < 0x7f800000u; }
TL_DEVICE bool isfinite(double x) {
  return (bit_cast<uint64_t>(x) & 0x7fffffffffffffffu) < 0x7ff0000000000000u;
}
TL_VEC_MAP(isnan, bool)
TL_VEC_MAP(isinf, bool)
TL_VEC_MAP(isfinite, bool)

/*! Number of set bits. */
TL_DEVICE int popcount(uint32_t x) { return detail::count_ones(x); }
TL_DEVICE int popcount(uint64_t x) { return detail::count_ones(x); }
TL_DEVICE int popcount(int32_t x) { return detail::count_ones(uint32_t(x)); }
TL_DEVICE int popcount(int64_t x) { return detail::count_ones(uint64_t(x)); }
TL_VEC_MAP(popcount, int)

/*! Number of zero bits above the highest set one; the width of the type for 0. */
TL_DEVICE int clz(uint32_t x) { return detail::count_leading_zeros(x); }
TL_DEVICE int clz(uint64_t x) { return detail::count_leading_zeros(x); }
TL_DEVICE int clz(int32_t x) { return detail::count_leading_zeros(uint32_t(x)); }
TL_DEVICE int clz(int64_t x) { return detail::count_leading_zeros(uint64_t(x)); }
TL_VEC_MAP(clz, int)

namespace detail {

// A sign and a magnitude count from the largest negative number to the largest positive one.
template <typename Bits, typename T>
TL_DEVICE T number_beside(T x, T y) {
  constexpr Bits sign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));
  const Bits from = bit_cast<Bits>(x), to = bit_cast<Bits>(y);
  const Bits magnitude = Bits(from & Bits(~sign));
  const Bits target = Bits(to & Bits(~sign));
  if (from == to || (magnitude == 0 && target == 0)) return y;
  if (magnitude == 0) return bit_cast<T>(Bits((to & sign) | Bits(1)));
  const bool outwards = (from & sign) == (to & sign) && target > magnitude;
  return bit_cast<T>(Bits(outwards ? from + 1 : from - 1));
}

}  // namespace detail

/*! The number beside x towards y, which C has for float and double alone; NaN if one of them is. */
TL_DEVICE float nextafter(float x, float y) {
  return isnan(x) || isnan(y) ? x + y : detail::number_beside<uint32_t>(x, y);
}
TL_DEVICE double nextafter(double x, double y) {
  return isnan(x) || isnan(y) ? x + y : detail::number_beside<uint64_t>(x, y);
}
template <typename Format>
TL_DEVICE Float16<Format> nextafter(Float16<Format> x, Float16<Format> y) {
  if (isnan(float(x)) || isnan(float(y))) return Float16<Format>(float(x) + float(y));
  return detail::number_beside<uint16_t>(x, y);
}
template <typename Format>
TL_DEVICE Float8<Format> nextafter(Float8<Format> x, Float8<Format> y) {
  if (isnan(float(x)) || isnan(float(y))) return Float8<Format>(float(x) + float(y));
  return detail::number_beside<uint8_t>(x, y);
}
TL_VEC_MAP2(nextafter)

}  // namespace tl
