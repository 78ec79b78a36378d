/*! The few type questions that the headers ask; the standard library is too slow to compile for
 * them. */
#pragma once

#include <tl/half.h>

namespace tl {

template <typename A, typename B>
inline constexpr bool is_same = false;
template <typename A>
inline constexpr bool is_same<A, A> = true;

template <typename T>
inline constexpr bool is_half = is_same<T, half_t> || is_same<T, bfloat16_t>;

template <typename T>
inline constexpr bool is_float = is_same<T, float> || is_same<T, double> || is_half<T>;

template <typename T>
inline constexpr bool is_signed = T(-1) < T(0);

}  // namespace tl
