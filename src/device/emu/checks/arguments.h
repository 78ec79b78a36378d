/*!
 * Tensors of a launch, moved to where nothing else is near: each access outside of all tensors is
 * then in a gap, and says which tensor it left. Tensors that share memory stay together.
 */
#pragma once

#include "checker.h"

namespace tl {
namespace emu {

// Wider than what an index that is wrong by a tile misses by; it takes address space only.
constexpr size_t kGap = size_t(16) << 20;

inline size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

inline bool describes(const Arguments& arguments, unsigned i) {
  return arguments.bytes && arguments.kind(i) != Arguments::kValue &&
         arguments.bytes[i] != kUnknownBytes;
}

inline uintptr_t address_in(const Arguments& arguments, unsigned i) {
  return *static_cast<const uintptr_t*>(arguments.values[i]);
}

/*! Takes one tensor into the regions, which are sorted; false where there are too many. */
inline bool add_region(Checker& checker, const Region& region) {
  unsigned at = checker.region_count;
  if (at == kMaxRegions) return false;
  for (; at > 0 && checker.regions[at - 1].original > region.original; --at) {
    checker.regions[at] = checker.regions[at - 1];
  }
  checker.regions[at] = region;
  ++checker.region_count;
  return true;
}

inline void merge_regions(Checker& checker) {
  unsigned last = 0;
  for (unsigned i = 1; i < checker.region_count; ++i) {
    Region& before = checker.regions[last];
    const Region& next = checker.regions[i];
    if (next.original >= before.original + before.bytes) {
      checker.regions[++last] = next;
      continue;
    }
    const unsigned long end = next.original - before.original + next.bytes;
    if (end > before.bytes) before.bytes = end;
    before.written |= next.written;
  }
  if (checker.region_count) checker.region_count = last + 1;
}

/*! Makes both the same. Pages that are so already take no room: of a large tensor, few may have
 * been touched. */
inline void copy_differences(void* to, const void* from, size_t bytes) {
  constexpr size_t kChunk = 4096;
  for (size_t i = 0; i < bytes; i += kChunk) {
    char* const target = static_cast<char*>(to) + i;
    const char* const source = static_cast<const char*>(from) + i;
    const size_t n = bytes - i < kChunk ? bytes - i : kChunk;
    if (memcmp(target, source, n) != 0) memcpy(target, source, n);
  }
}

/*! False where there is no memory. */
inline bool place_regions(Checker& checker) {
  const size_t page = page_bytes();
  size_t total = kGap;
  for (unsigned i = 0; i < checker.region_count; ++i) {
    total += round_up(checker.regions[i].bytes + page, page) + kGap;
  }
  checker.arena = static_cast<char*>(reserve(total, PROT_NONE));
  if (!checker.arena) return false;
  checker.arena_bytes = total;
  char* at = checker.arena + kGap;
  for (unsigned i = 0; i < checker.region_count; ++i) {
    Region& region = checker.regions[i];
    const size_t room = round_up(region.bytes + page, page);
    if (mprotect(at, room, PROT_READ | PROT_WRITE) != 0) return false;
    region.mapped = at + region.original % page;
    copy_differences(region.mapped, reinterpret_cast<const void*>(region.original), region.bytes);
    at += room + kGap;
    if (!region.written || !region.bytes || !checks(kCheckRaces)) continue;
    region.cells = static_cast<Cell*>(reserve(region.bytes * sizeof(Cell)));
    if (!region.cells) return false;
  }
  return true;
}

/*! Where the memory of an address outside of the launch is during it. */
inline void* relocated(const Checker& checker, uintptr_t address) {
  for (unsigned i = 0; i < checker.region_count; ++i) {
    const Region& region = checker.regions[i];
    const uintptr_t offset = address - region.original;
    if (offset < region.bytes || offset == 0) return region.mapped + offset;
  }
  return reinterpret_cast<void*>(address);
}

inline void copy_back_and_release(Checker& checker) {
  for (unsigned i = 0; i < checker.region_count; ++i) {
    const Region& region = checker.regions[i];
    if (region.written && region.mapped) {
      copy_differences(reinterpret_cast<void*>(region.original), region.mapped, region.bytes);
    }
    if (region.cells) munmap(region.cells, region.bytes * sizeof(Cell));
  }
  if (checker.arena) munmap(checker.arena, checker.arena_bytes);
}

}  // namespace emu
}  // namespace tl
