/*! How a kernel's errors end the launch: a text for the caller, and back to the worker's own
 * context. */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <tl/runtime.h>
#include <tl/worker.h>

namespace tl {
namespace emu {

/*! Appends to the caller's buffer, cutting off what does not fit. */
struct Text {
  char* at;
  unsigned long left;

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(at, left, format, arguments);
    va_end(arguments);
    if (written <= 0 || left == 0) return;
    const unsigned long used = static_cast<unsigned long>(written) < left ? written : left - 1;
    at += used;
    left -= used;
  }

  void add(uint3 v) { add("(%u, %u, %u)", v.x, v.y, v.z); }
};

/*! Starts the report of an error of the running thread: where it is, and who it is. */
TL_RUNTIME Text begin_error(Location where) {
  worker->failed = true;
  Text text{worker->error, worker->error_size};
  if (where.file) text.add("%s:%d: ", where.file, where.line);
  text.add("thread ");
  text.add(worker->current->index);
  text.add(" of block ");
  text.add(this_block().index);
  text.add(" of %s: ", worker->kernel);
  return text;
}

/*! Leaves the running thread for good. */
[[noreturn]] TL_RUNTIME void abandon() {
  switch_context(worker->current->context, worker->scheduler);
  __builtin_unreachable();
}

[[noreturn]] __attribute__((format(printf, 2, 3))) TL_RUNTIME void fail(Location where,
                                                                        const char* format, ...) {
  Text text = begin_error(where);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text.at, text.left, format, arguments);
  va_end(arguments);
  abandon();
}

/*! What memory accesses of `bytes` bytes need: an address that is a multiple of it. */
inline void check_alignment(const void* address, unsigned bytes, const char* kind, Location where) {
  const unsigned past = reinterpret_cast<uintptr_t>(address) % bytes;
  if (__builtin_expect(past != 0, 0)) {
    fail(where,
         "misaligned %s: the address %p is %u bytes past a multiple of %u. Make the first "
         "element's offset a "
         "multiple of the access, or use a narrower one",
         kind, address, past, bytes);
  }
}

/*! The running thread accesses a vector. */
TL_RUNTIME void check_vector(const void* address, unsigned bytes, const char* kind,
                             Location where) {
  worker->current->where = where;
  check_alignment(address, bytes, kind, where);
}

[[noreturn]] TL_RUNTIME void fail_without_memory() {
  fail(worker->current->where, "no memory for the emulator's checks");
}

}  // namespace emu
}  // namespace tl
