/*! The asynchronous copies of one thread that have been issued and not yet waited for, in order. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

namespace tl {
namespace emu {

struct Copy {
  void* to;
  const void* from;
  uint32_t group;
  uint16_t bytes;
  bool zeros;  // written instead of what `from` points to
};

struct CopyQueue {
  Copy* items;
  uint32_t first, last, capacity;
  uint32_t open_group;

  /*! False where there is no memory left for it. */
  bool push(const Copy& copy) {
    if (last == capacity && !make_room()) return false;
    items[last] = copy;
    items[last++].group = open_group;
    return true;
  }

  void commit() { ++open_group; }

  /*! Performs the copies of all but the `allowed` newest committed groups. */
  void wait(uint32_t allowed) {
    while (first != last && items[first].group + allowed < open_group) {
      const Copy& copy = items[first++];
      if (copy.zeros) {
        __builtin_memset(copy.to, 0, copy.bytes);
      } else {
        __builtin_memcpy(copy.to, copy.from, copy.bytes);
      }
    }
    if (first == last) first = last = 0;
  }

  void clear() { first = last = open_group = 0; }

  void free_items() { free(items); }

 private:
  bool make_room() {
    if (first > 0) {
      __builtin_memmove(items, items + first, (last - first) * sizeof(Copy));
      last -= first;
      first = 0;
    }
    if (last < capacity / 2) return true;
    const uint32_t wanted = capacity ? 2 * capacity : 64;
    void* grown = realloc(items, wanted * sizeof(Copy));
    if (!grown) return false;
    items = static_cast<Copy*>(grown);
    capacity = wanted;
    return true;
  }
};

}  // namespace emu
}  // namespace tl
