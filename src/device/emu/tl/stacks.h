/*! Memory of what a worker runs: shared memory, and stacks, each above a page that faults when it
 * is touched. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tl {
namespace emu {

constexpr size_t kStackBytes = 256 * 1024;
// CUDA C++ Programming Guide, Technical Specifications per Compute Capability.
constexpr unsigned kMaxSharedBytes = 227 * 1024;
constexpr unsigned kMaxStaticSharedBytes = 48 * 1024;
constexpr unsigned kWatchedBytes = 4096;
// A page behind the largest block, so that the next block's memory is never the one behind it.
constexpr size_t kSharedStride = kMaxStaticSharedBytes + kMaxSharedBytes + kWatchedBytes;

inline size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

inline size_t stack_stride() { return kStackBytes + page_bytes(); }

/*! Zeros, which take memory when they are touched; nullptr where there is no room for them. */
inline void* map_zeros(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

struct Memory {
  char* stacks;
  unsigned char* shared;
  unsigned stack_count, block_count;
  unsigned guarded;  // stacks whose page has been protected, but for the last one of all

  bool guard(unsigned i) {
    return mprotect(stacks + i * stack_stride(), page_bytes(), PROT_NONE) == 0;
  }

  /*! Makes the first `count` stacks ready to be used. */
  bool use_stacks(unsigned count) {
    while (guarded < count && guard(guarded)) ++guarded;
    return guarded >= count;
  }
};

inline void release_memory(Memory* memory) {
  if (memory->stacks) munmap(memory->stacks, memory->stack_count * stack_stride());
  if (memory->shared) munmap(memory->shared, memory->block_count * kSharedStride);
  free(memory);
}

/*! Nullptr where there is no room. */
inline Memory* map_memory(unsigned stacks, unsigned blocks) {
  Memory* memory = static_cast<Memory*>(calloc(1, sizeof(Memory)));
  if (!memory) return nullptr;
  // Later launches find room in it.
  for (memory->stack_count = 256; memory->stack_count < stacks;) memory->stack_count *= 2;
  memory->block_count = blocks;
  memory->stacks = static_cast<char*>(map_zeros(memory->stack_count * stack_stride()));
  memory->shared = static_cast<unsigned char*>(map_zeros(blocks * kSharedStride));
  if (memory->stacks && memory->shared && memory->guard(memory->stack_count - 1)) return memory;
  release_memory(memory);
  return nullptr;
}

constexpr int kKept = 16;
// Linux gives a process 65530 mappings; a stack and the page that guards it are two of them.
constexpr unsigned kMaxKeptStacks = 2048;

/*! Memory with room for so many, which an earlier launch may have left in one of the kKept places;
 * nullptr where there is none. */
inline Memory* take_memory(void** kept, unsigned stacks, unsigned blocks) {
  for (int i = 0; kept && i < kKept; ++i) {
    Memory* found = static_cast<Memory*>(__atomic_exchange_n(&kept[i], nullptr, __ATOMIC_ACQ_REL));
    if (!found) continue;
    if (found->stack_count >= stacks && found->block_count >= blocks) return found;
    // Launches that differ in what they need more of would replace each other's.
    if (found->stack_count > stacks) stacks = found->stack_count;
    if (found->block_count > blocks) blocks = found->block_count;
    release_memory(found);
    break;
  }
  return map_memory(stacks, blocks);
}

inline void keep_memory(void** kept, Memory* memory) {
  for (int i = 0; kept && i < kKept && memory->guarded <= kMaxKeptStacks; ++i) {
    void* expected = nullptr;
    if (__atomic_compare_exchange_n(&kept[i], &expected, memory, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
      return;
    }
  }
  release_memory(memory);
}

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
