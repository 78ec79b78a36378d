/*! The stacks of a block's fibers, each above a page that faults when it is touched. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tl {
namespace emu {

constexpr size_t kStackBytes = 256 * 1024;

inline size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

inline size_t stack_stride() { return kStackBytes + page_bytes(); }

/*! Stacks of `count` fibers, or nullptr where there is no memory. */
inline char* map_stacks(unsigned count) {
  void* memory = mmap(nullptr, count * stack_stride(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* stacks = static_cast<char*>(memory);
  for (unsigned i = 0; i < count; ++i) {
    if (mprotect(stacks + i * stack_stride(), page_bytes(), PROT_NONE) != 0) {
      munmap(memory, count * stack_stride());
      return nullptr;
    }
  }
  return stacks;
}

inline void unmap_stacks(char* stacks, unsigned count) { munmap(stacks, count * stack_stride()); }

/*!
 * Where stack `i` begins to grow down. Equal offsets in all pages would put the variables of all
 * threads into the same few sets of the cache, so that every fourth of a page another one begins.
 */
inline char* stack_top(char* stacks, unsigned i) {
  constexpr size_t kColours = 16, kColourBytes = 256;
  return stacks + (i + 1) * stack_stride() - (i % kColours) * kColourBytes;
}

inline bool in_guard_page(const char* stacks, unsigned count, const void* address) {
  const uintptr_t offset =
      reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(stacks);
  return offset < count * stack_stride() && offset % stack_stride() < page_bytes();
}

}  // namespace emu
}  // namespace tl
