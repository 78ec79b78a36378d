/*! How a kernel's errors end the launch: a text for the caller, and back to the worker's own
 * context. */
#pragma once

#include <tl/ranks.h>
#include <tl/runtime.h>
#include <tl/worker.h>

namespace tl {
namespace emu {

/*! Starts the report of an error of the running thread: where it is, and who it is. */
TL_RUNTIME Text& begin_error(Location where) {
  worker->failed = true;
  Text& text = worker->report;
  if (where.file) text.add("%s:%d: ", where.file, where.line);
  text.add("thread ");
  text.add(worker->current->index);
  text.add(" of block ");
  text.add(this_block().index);
  add_rank(text, this_block());
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
  Text& text = begin_error(where);
  va_list arguments;
  va_start(arguments, format);
  text.add_all(format, arguments);
  va_end(arguments);
  abandon();
}

// Around what tilelang/emulator/reports.py makes words of: fields, with a separator between two.
constexpr char kMark = '\x1d', kField = '\x1f';

/*! Where in dynamic shared memory of its block an address is; false where it is in none's. */
inline bool find_in_shared(const void* at, long* offset) {
  const size_t place =
      reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(worker->shared);
  if (place >= worker->block_count * kSharedStride) return false;
  *offset = long(place % kSharedStride) - long(kMaxStaticSharedBytes);
  return true;
}

/*! Names the element at an address: of a buffer in shared memory, or of a tensor. */
TL_RUNTIME void add_place(Text& text, const void* at) {
  long offset = 0;
  if (find_in_shared(at, &offset)) {
    text.add("%cplace%cshared%c-1%c%ld%c", kMark, kField, kField, kField, offset, kMark);
    return;
  }
  const Arguments& arguments = *worker->arguments;
  for (unsigned i = 0; arguments.bytes && i < arguments.count; ++i) {
    if (arguments.kind(i) == Arguments::kValue || arguments.bytes[i] == kUnknownBytes) continue;
    const uintptr_t begin = *static_cast<const uintptr_t*>(arguments.values[i]);
    const uintptr_t past = reinterpret_cast<uintptr_t>(at) - begin;
    if (past >= arguments.bytes[i]) continue;
    text.add("%cplace%cglobal%c%u%c%lu%c", kMark, kField, kField, i, kField, past, kMark);
    return;
  }
  text.add("%p", at);
}

[[noreturn]] TL_RUNTIME void fail_misaligned(const void* address, unsigned bytes, const char* kind,
                                             Location where) {
  Text& text = begin_error(where);
  text.add("misaligned %s: ", kind);
  add_place(text, address);
  text.add(
      " is %u bytes past a multiple of %u. Make the first element's offset a multiple of the "
      "access, or use a narrower one",
      unsigned(reinterpret_cast<uintptr_t>(address) % bytes), bytes);
  abandon();
}

/*! What memory accesses of `bytes` bytes need: an address that is a multiple of it. */
inline void check_alignment(const void* address, unsigned bytes, const char* kind, Location where) {
  const unsigned past = reinterpret_cast<uintptr_t>(address) % bytes;
  if (__builtin_expect(past != 0, 0)) {
    fail_misaligned(address, bytes, kind, where);
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
