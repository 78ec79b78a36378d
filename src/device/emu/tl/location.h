/*! Where in the kernel's source a thread is. */
#pragma once

namespace tl {
namespace emu {

/*! A line of the kernel, or of the Python that a #line directive names. */
struct Location {
  const char* file;
  int line;
};

/*! As a default argument: where the function is called. */
constexpr Location here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line};
}

}  // namespace emu
}  // namespace tl
