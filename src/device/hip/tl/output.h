/*! The end of a kernel that found something wrong. Text from a kernel needs ROCm's runtime. */
#pragma once

#include <tl/platform.h>

namespace tl {

/*! Ends the kernel with an error of the launch; the message is in the source only. */
TL_DEVICE void device_assert(bool condition, const char*) {
  if (!condition) __builtin_trap();
}
TL_DEVICE void device_assert(bool condition, const char*, const char*) {
  if (!condition) __builtin_trap();
}

}  // namespace tl
