/*! What leaves a kernel as text, and the end of one that found something wrong. */
#pragma once

#include <tl/platform.h>

#define TL_PRINTF(...) ::printf(__VA_ARGS__)

namespace tl {

/*! Ends the kernel with an error of the launch (PTX ISA, trap), without the stack frame and the
 * registers of a call of printf. */
TL_DEVICE void device_assert(bool condition) {
  if (!condition) __trap();
}
/*! The same, after a line that says why. */
TL_DEVICE void device_assert(bool condition, const char* message) {
  if (condition) return;
  ::printf("Device assert failed: %s\n", message);
  __trap();
}
TL_DEVICE void device_assert(bool condition, const char* message, const char* place) {
  if (condition) return;
  ::printf("Device assert failed: %s\n  at %s\n", message, place);
  __trap();
}

}  // namespace tl
