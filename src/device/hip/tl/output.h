/*! The end of a kernel that found something wrong. Text from a kernel needs ROCm's runtime. */
#pragma once

#include <tl/platform.h>

#define TL_PRINTF(...) ::tl::detail::print(__VA_ARGS__)

namespace tl {
namespace detail {

/*! Is nowhere: tilelang/hip/compile_error.py says so. */
__device__ void print(const char*, ...);

}  // namespace detail

/*! Ends the kernel with an error of the launch; the message is in the source only. */
TL_DEVICE void device_assert(bool condition) {
  if (!condition) __builtin_trap();
}
TL_DEVICE void device_assert(bool condition, const char*) { device_assert(condition); }
TL_DEVICE void device_assert(bool condition, const char*, const char*) { device_assert(condition); }

}  // namespace tl
