/*! Text of any length. */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <tl/dim3.h>

namespace tl {
namespace emu {

/*! All zeros when made; whoever makes it frees `characters`, where it is not nullptr. */
struct Text {
  char* characters;
  unsigned long length, capacity;

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_all(format, arguments);
    va_end(arguments);
  }

  /*! Adds nothing where there is no memory for it. */
  void add_all(const char* format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    const int bytes = vsnprintf(nullptr, 0, format, arguments);
    if (bytes >= 0 && make_room(static_cast<unsigned long>(bytes) + 1)) {
      vsnprintf(characters + length, capacity - length, format, again);
      length += static_cast<unsigned long>(bytes);
    }
    va_end(again);
  }

  void add(uint3 v) { add("(%u, %u, %u)", v.x, v.y, v.z); }

 private:
  bool make_room(unsigned long bytes) {
    if (capacity - length >= bytes) return true;
    const unsigned long wanted = 2 * capacity + bytes + 256;
    char* const grown = static_cast<char*>(realloc(characters, wanted));
    if (!grown) return false;
    characters = grown;
    capacity = wanted;
    return true;
  }
};

}  // namespace emu
}  // namespace tl
