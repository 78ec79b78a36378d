/*! The few type questions that the headers ask; the standard library is too slow to compile for
 * them. */
#pragma once

#include <tl/float8.h>
#include <tl/half.h>

namespace tl {

template <typename A, typename B>
inline constexpr bool is_same = false;
template <typename A>
inline constexpr bool is_same<A, A> = true;

template <typename T>
inline constexpr bool is_half = is_same<T, half_t> || is_same<T, bfloat16_t>;

template <typename T>
inline constexpr bool is_float8 = false;
template <typename Format>
inline constexpr bool is_float8<Float8<Format>> = true;

/*! Floats that compute by way of float. */
template <typename T>
inline constexpr bool is_narrow_float = is_half<T> || is_float8<T>;

template <typename T>
inline constexpr bool is_float = is_same<T, float> || is_same<T, double> || is_narrow_float<T>;

template <typename T>
inline constexpr bool is_integer = false;
#define TL_INTEGER(T) \
  template <>         \
  inline constexpr bool is_integer<T> = true;
TL_INTEGER(signed char)
TL_INTEGER(unsigned char)
TL_INTEGER(short)
TL_INTEGER(unsigned short)
TL_INTEGER(int)
TL_INTEGER(unsigned int)
TL_INTEGER(long)
TL_INTEGER(unsigned long)
TL_INTEGER(long long)
TL_INTEGER(unsigned long long)
#undef TL_INTEGER

/*! Types of 4 bits (subbyte.h). */
template <typename T>
inline constexpr bool is_sub_byte = false;

template <typename T>
inline constexpr bool is_signed = T(-1) < T(0);

}  // namespace tl
