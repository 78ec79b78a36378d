/*!
 * What T.print writes: `msg='..' BlockIdx=(x, y, z), ThreadIdx=(x, y, z): dtype=.. value=..`, and
 * for an element `buffer=.., index=.., ` before its dtype. A line is one call of printf, so that
 * lines of other threads do not get into it.
 */
#pragma once

#include <tl/output.h>
#include <tl/vec.h>

namespace tl {
namespace detail {

#define TL_PLACE "msg='%s' BlockIdx=(%d, %d, %d), ThreadIdx=(%d, %d, %d)"
#define TL_PLACE_ARGUMENTS \
  message, block.x, block.y, block.z, int(threadIdx.x), int(threadIdx.y), int(threadIdx.z)

struct BlockIndex {
  int x, y, z;
};

/*! One line with the value as `format` shows it. */
#define TL_LINE(format, ...)                                                                     \
  if (buffer) {                                                                                  \
    TL_PRINTF(TL_PLACE ": buffer=%s, index=%d, dtype=%s value=" format "\n", TL_PLACE_ARGUMENTS, \
              buffer, index, type, __VA_ARGS__);                                                 \
  } else {                                                                                       \
    TL_PRINTF(TL_PLACE ": dtype=%s value=" format "\n", TL_PLACE_ARGUMENTS, type, __VA_ARGS__);  \
  }

template <typename T>
TL_DEVICE void print_line(const char* message, BlockIndex block, const char* buffer, int index,
                          const char* type, T value) {
  // As many digits as tell two values of the type apart.
  if constexpr (is_same<T, bool>) {
    TL_LINE("%s", value ? "true" : "false")
  } else if constexpr (is_same<T, double>) {
    TL_LINE("%.17g", value)
  } else if constexpr (is_same<T, float>) {
    TL_LINE("%.9g", double(value))
  } else if constexpr (is_narrow_float<T> || is_sub_byte<T>) {
    TL_LINE("%.5g", double(float(value)))
  } else if constexpr (is_signed<T>) {
    TL_LINE("%lld", static_cast<long long>(value))
  } else {
    TL_LINE("%llu", static_cast<unsigned long long>(value))
  }
}

}  // namespace detail

TL_DEVICE void print_message(const char* message, int x, int y, int z) {
  const detail::BlockIndex block{x, y, z};
  TL_PRINTF(TL_PLACE "\n", TL_PLACE_ARGUMENTS);
}

template <typename T>
TL_DEVICE void print_value(const char* message, int x, int y, int z, const char* type, T value) {
  detail::print_line(message, {x, y, z}, nullptr, 0, type, value);
}
template <typename T, int N>
TL_DEVICE void print_value(const char* message, int x, int y, int z, const char* type,
                           const vec<T, N>& value) {
  for (int i = 0; i < N; ++i) print_value(message, x, y, z, type, value.get(i));
}

template <typename T>
TL_DEVICE void print_element(const char* message, int x, int y, int z, const char* buffer,
                             int index, const char* type, T value) {
  detail::print_line(message, {x, y, z}, buffer, index, type, value);
}

#undef TL_LINE
#undef TL_PLACE
#undef TL_PLACE_ARGUMENTS

}  // namespace tl
