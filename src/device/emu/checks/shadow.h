/*!
 * What is remembered of each byte that threads share: the last write, and the accesses since then
 * that a later one could conflict with.
 *
 * A moment of an actor (its thread's block, the actor, its time) is an epoch with a number of its
 * own. One plain read is kept in the cell; several reads, and atomic operations, are a chain of
 * nodes. Chains share their tails, and the same step from the same chain gives the same node, so
 * that all bytes that one set of threads has read in one order have one chain.
 */
#pragma once

#include <sys/mman.h>
#include <tl/check.h>
#include <tl/location.h>

namespace tl {
namespace emu {

/*! Where an access is in the program: an offset in the library's code, or the number of a Location
 * with the top bit. 0 is nowhere. */
using Site = uint32_t;
constexpr uint32_t kTopBit = 0x80000000u;

struct Epoch {
  unsigned block;  // its number in the grid
  unsigned actor;
  uint32_t time;
  uint16_t thread;  // that the actor is, or works for
  Engine engine;
};

/*! `write_site` of an atomic operation that found no write before it, and of one that is narrow. */
constexpr Site kAtomicWrite = 0x40000000u, kNarrowWrite = 0x20000000u;

/*! `reads`: the epoch of one plain read, or with the top bit a chain. Shared memory without a write
 * is undefined. */
struct Cell {
  uint32_t write;
  Site write_site;
  uint32_t reads;
  Site read_site;
};

inline bool operator==(const Cell& a, const Cell& b) { return memcmp(&a, &b, sizeof(a)) == 0; }

/*! Atomic operations are narrow if their scope is one GPU where several run: those of another GPU
 * are not atomic with them (PTX ISA, Morally strong operations). */
enum class Access : uint8_t {
  kRead,
  kWrite,
  kAtomicRead,
  kAtomicWrite,
  kAtomic,
  kNarrowAtomicRead,
  kNarrowAtomicWrite,
  kNarrowAtomic,
  kAny
};

inline bool is_atomic(Access access) { return access >= Access::kAtomicRead; }
inline bool is_narrow(Access access) {
  return access >= Access::kNarrowAtomicRead && access <= Access::kNarrowAtomic;
}
inline bool reads(Access access) {
  return access != Access::kWrite && access != Access::kAtomicWrite &&
         access != Access::kNarrowAtomicWrite;
}
inline bool writes_atomically(Access access) {
  return is_atomic(access) && access != Access::kAtomicRead && access != Access::kNarrowAtomicRead;
}
inline bool writes(Access access) { return access == Access::kWrite || writes_atomically(access); }

struct Node {
  uint32_t epoch;
  Site site;
  uint32_t next;  // as Cell::reads
  Site next_site;
  Access access;
  bool atomics;  // there are some that write from here on
};

/*! A growing array that is never moved under a reference that is held: indices only. */
template <typename T>
struct Table {
  T* items;
  uint32_t count, capacity;

  uint32_t add(const T& item) {
    if (count == capacity) {
      const uint32_t wanted = capacity ? 2 * capacity : 1024;
      void* grown = wanted < kTopBit ? realloc(items, wanted * sizeof(T)) : nullptr;
      if (!grown) fail_without_memory();
      items = static_cast<T*>(grown);
      capacity = wanted;
    }
    items[count] = item;
    return count++;
  }
  T& operator[](uint32_t i) { return items[i]; }
  void release() { free(items); }
};

/*! Memory of zeros that takes room only where it is written. */
inline void* reserve(size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  void* memory =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/*! Locations by number. */
class Locations {
 public:
  Site number_of(Location where) {
    if (!where.file) return 0;
    const uintptr_t hash = (reinterpret_cast<uintptr_t>(where.file) >> 3) + where.line * 31u;
    uint32_t& slot = recent_[hash % kRecent];
    if (slot < table_.count && same(table_[slot], where)) return slot | kTopBit;
    uint32_t found = 0;
    while (found < table_.count && !same(table_[found], where)) ++found;
    if (found == table_.count) table_.add(where);
    slot = found;
    return found | kTopBit;
  }
  Location operator[](Site site) { return table_[site & ~kTopBit]; }
  void release() { table_.release(); }

 private:
  static bool same(Location a, Location b) { return a.line == b.line && a.file == b.file; }

  static constexpr unsigned kRecent = 256;
  Table<Location> table_;
  uint32_t recent_[kRecent];
};

/*! Chains of accesses. */
class Chains {
 public:
  /*! The chain of `reads` with one more access in front. */
  uint32_t add(const Node& node) {
    const uint64_t mixed = (uint64_t(node.next) * 0x9e3779b97f4a7c15u) ^
                           (uint64_t(node.epoch) * 0xc2b2ae3d27d4eb4fu) ^
                           (uint64_t(node.site) << 32);
    uint32_t& slot = recent_[(mixed >> 40) % kRecent];
    if (slot && memcmp(&table_[slot - 1], &node, kCompared) == 0) return (slot - 1) | kTopBit;
    slot = table_.add(node) + 1;
    return (slot - 1) | kTopBit;
  }
  Node& operator[](uint32_t reads) { return table_[reads & ~kTopBit]; }
  void release() { table_.release(); }

 private:
  static constexpr unsigned kRecent = 8192,
                            kCompared = 4 * sizeof(uint32_t) + sizeof(Access) + sizeof(bool);
  Table<Node> table_;
  uint32_t recent_[kRecent];
};

}  // namespace emu
}  // namespace tl
