/*! What the atomic operations of both GPUs have in common: words of an element's size, and the
 * operations that no instruction makes. `tl/atomic.h` has `detail::update` of its GPU, and
 * undefines the macros. */
#pragma once

#include <tl/math.h>
#include <tl/memory_order.h>

namespace tl {
namespace detail {

template <int bytes>
using AtomicWord = UnsignedOf<bytes>;

}  // namespace detail
}  // namespace tl

/*! The operation whose result nobody reads, by the one that gives it. */
#define TL_WITHOUT_RESULT(name, T)               \
  template <MemoryOrder order>                   \
  TL_DEVICE void atomic_##name(T* at, T value) { \
    fetch_##name<order>(at, value);              \
  }
/*! An operation that is a loop. */
#define TL_LOOP(name, T, expression)                                            \
  template <MemoryOrder order>                                                  \
  TL_DEVICE T fetch_##name(T* at, T value) {                                    \
    return detail::update<order>(at, [value](T old) { return T(expression); }); \
  }                                                                             \
  TL_WITHOUT_RESULT(name, T)
#define TL_FLOAT_EXTREMA(T)            \
  TL_LOOP(max, T, tl::max(old, value)) \
  TL_LOOP(min, T, tl::min(old, value))
