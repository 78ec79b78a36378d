/*! Sums, differences and products of which those of integers wrap; C++ leaves an overflow of signed
 * ones undefined, and compilers build on that. */
#pragma once

#include <tl/traits.h>

namespace tl {
namespace detail {

// What the integers of each size compute in; C++ makes the smaller ones signed.
template <int bytes>
struct Modular {
  using Type = uint32_t;
};
template <>
struct Modular<8> {
  using Type = uint64_t;
};

}  // namespace detail

#define TL_WRAPPING(name, op)                                     \
  template <typename T>                                           \
  TL_DEVICE T name(T x, T y) {                                    \
    if constexpr (is_integer<T>) {                                \
      using Unsigned = typename detail::Modular<sizeof(T)>::Type; \
      return T(Unsigned(x) op Unsigned(y));                       \
    } else {                                                      \
      return T(x op y);                                           \
    }                                                             \
  }
TL_WRAPPING(add, +)
TL_WRAPPING(sub, -)
TL_WRAPPING(mul, *)
#undef TL_WRAPPING

}  // namespace tl
