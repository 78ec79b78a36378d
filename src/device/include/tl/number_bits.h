/*! Questions about the bits of a number, for the types of math.h. */
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

}  // namespace tl
