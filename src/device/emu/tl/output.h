/*! What leaves a kernel as text, and the end of one that found something wrong. */
#pragma once

#include <stdio.h>
#include <tl/platform.h>
#include <tl/polling.h>

// At once, so that what was printed before an error is not lost.
#define TL_PRINTF(...) (printf(__VA_ARGS__), fflush(stdout))

namespace tl {

namespace emu {

// What a program with this header prints depends on the order of its blocks.
inline const bool output_orders_blocks = ordered_blocks = true;

}  // namespace emu

/*! Ends the kernel with an error that has the message. */
TL_DEVICE void device_assert(bool condition, emu::Location where = emu::here()) {
  if (!condition) emu::fail(where, "Device assert failed");
}
TL_DEVICE void device_assert(bool condition, const char* message,
                             emu::Location where = emu::here()) {
  if (!condition) emu::fail(where, "Device assert failed: %s", message);
}
TL_DEVICE void device_assert(bool condition, const char* message, const char* place,
                             emu::Location where = emu::here()) {
  if (!condition) emu::fail(where, "Device assert failed: %s\n  at %s", message, place);
}

}  // namespace tl
