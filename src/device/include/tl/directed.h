/*!
 * Conversions between floats with the rounding in the name: rz towards zero, ru up, rd down, rs at
 * random. They start from the conversion to nearest and step to the neighbour where that is on the
 * wrong side, which is right for every pair of formats.
 */
#pragma once

#include <tl/float8.h>
#include <tl/vec.h>

namespace tl {
namespace detail {

// The neighbour of a number away from zero (by 1) or towards it (by -1): sign and magnitude.
template <typename T>
TL_DEVICE T neighbour(T x, int by) {
  using Bits = typename UnsignedOf<sizeof(T)>::type;
  return bit_cast<T>(Bits(bit_cast<Bits>(x) + by));
}

template <typename T>
TL_DEVICE bool is_negative(T x) {
  using Bits = typename UnsignedOf<sizeof(T)>::type;
  return bit_cast<Bits>(x) >> (8 * sizeof(T) - 1);
}

// Away from zero; where that is NaN or an infinity that the format does not use, the number stays.
template <typename To, typename From>
TL_DEVICE To away_from_zero(To x) {
  const To next = neighbour(x, 1);
  return From(To(From(next))) == From(next) ? next : x;
}

template <typename From>
TL_DEVICE From magnitude(From x) {
  return x < 0 ? -x : x;
}

}  // namespace detail

template <typename To, typename From>
TL_DEVICE To cast_rz(From x) {
  const To nearest = To(x);
  const bool past = detail::magnitude(From(nearest)) > detail::magnitude(x);
  return past ? detail::neighbour(nearest, -1) : nearest;
}

template <typename To, typename From>
TL_DEVICE To cast_ru(From x) {
  const To nearest = To(x);
  if (!(From(nearest) < x)) return nearest;
  return detail::is_negative(nearest) ? detail::neighbour(nearest, -1)
                                      : detail::away_from_zero<To, From>(nearest);
}

template <typename To, typename From>
TL_DEVICE To cast_rd(From x) {
  const To nearest = To(x);
  if (!(From(nearest) > x)) return nearest;
  return detail::is_negative(nearest) ? detail::away_from_zero<To, From>(nearest)
                                      : detail::neighbour(nearest, -1);
}

/*!
 * Away from zero with the probability of the part that is cut off, towards it otherwise: the part,
 * in units of 2^-32 of a step, is added to the random bits, and a carry rounds away (PTX ISA, cvt,
 * rounding .rs). What is larger than the largest finite number becomes it.
 */
template <typename To, typename From>
TL_DEVICE To cast_rs(From x, uint32_t random) {
  const To low = cast_rz<To>(x);
  const To high = detail::neighbour(low, 1);
  const From step = detail::magnitude(From(high)) - detail::magnitude(From(low));
  const From part = (detail::magnitude(x) - detail::magnitude(From(low))) / step;
  // Neither NaN nor the infinite step after the largest number rounds away.
  if (!(part > 0 && part < 1)) return low;
  const uint64_t sum = uint64_t(part * From(4294967296.0)) + random;
  return sum >> 32 ? high : low;
}

#define TL_CAST_LANES(name)                                                \
  template <typename To, typename From, int N>                             \
  TL_DEVICE vec<To, N> name(const vec<From, N>& x) {                       \
    vec<To, N> r;                                                          \
    TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = name<To>(x.data[i]); \
    return r;                                                              \
  }
TL_CAST_LANES(cast_rz)
TL_CAST_LANES(cast_ru)
TL_CAST_LANES(cast_rd)
#undef TL_CAST_LANES

template <typename To, typename From, int N>
TL_DEVICE vec<To, N> cast_rs(const vec<From, N>& x, const vec<uint32_t, N>& random) {
  vec<To, N> r;
  TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = cast_rs<To>(x.data[i], random.data[i]);
  return r;
}

}  // namespace tl
