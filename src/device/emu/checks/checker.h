/*! The state of the checks of one launch, and the rules of what conflicts. */
#pragma once

#include "report.h"

namespace tl {
namespace emu {

/*! Bytes of tensors of a launch, at `mapped` while it runs. */
struct Region {
  uintptr_t original;
  unsigned long bytes;
  unsigned argument;
  bool written;  // the kernel may write to it
  char* mapped;
  Cell* cells;
};

constexpr unsigned kMaxRegions = 64;

/*! A write that conflicts with another one, until it is known whether it changes anything. */
struct Suspect {
  const void* at;
  unsigned bytes;
  unsigned char before[16];
  Report report;
};

constexpr unsigned kRecentBounds = 8;

/*! What atomic operations have released, by address. */
class AtomicClocks {
 public:
  SyncClock* find(const void* at) {
    for (Item* item = items_[bucket(at)]; item; item = item->next) {
      if (item->at == at) return &item->clock;
    }
    return nullptr;
  }
  SyncClock& add(const void* at) {
    Item* item = static_cast<Item*>(zeroed(sizeof(Item)));
    item->at = at;
    item->next = items_[bucket(at)];
    items_[bucket(at)] = item;
    return item->clock;
  }
  /*! Those in `bytes` bytes of memory. */
  void forget(const void* memory, size_t bytes) {
    for (Item*& first : items_) {
      for (Item** link = &first; *link;) {
        Item* const item = *link;
        if (reinterpret_cast<uintptr_t>(item->at) - reinterpret_cast<uintptr_t>(memory) >= bytes) {
          link = &item->next;
          continue;
        }
        *link = item->next;
        item->clock = {};
        free(item);
      }
    }
  }

 private:
  struct Item {
    const void* at;
    Item* next;
    SyncClock clock;
  };
  static constexpr unsigned kBuckets = 256;
  static unsigned bucket(const void* at) {
    return (reinterpret_cast<uintptr_t>(at) >> 2) % kBuckets;
  }
  Item* items_[kBuckets];
};

/*! What is known of a byte of a thread's stack. */
enum LocalByte : unsigned char { kDefined, kUndefined, kInFlight };

/*! Registers of a warp's lanes that products up to those of `group` use. */
struct Flight {
  Flight* next;
  const Fiber* warp;  // its first lane
  void* registers[kWarpSize];
  unsigned bytes, group;
  Site site;  // of the latest one
};

/*! All zeros when made. */
struct Checker {
  Table<Epoch> epochs;
  Chains chains;
  Locations locations;
  Reports reports;
  Cell* shared_cells;          // one for each byte of the worker's shared memory
  unsigned char* local_bytes;  // a LocalByte for each byte of the worker's stacks
  size_t shared_bytes, stack_bytes;
  char* arena;
  size_t arena_bytes;
  Region regions[kMaxRegions];
  unsigned region_count;
  Suspect suspects[8];
  unsigned suspect_count;
  Bounds bounds[kRecentBounds];  // of the pointers that became plain ones last
  unsigned next_bounds;
  AtomicClocks atomics;
  Flight* flights;
  void **values, **pointers;  // of the kernel, as it sees them
  struct {
    uint32_t reads;
    uint64_t serial;
  } ordered[1024];  // chains that are ordered before all threads with a clock
};

// Numbers of epochs. What is reported once counts as ordered before all others from then on.
constexpr uint32_t kNever = 0, kInitial = 1;

inline unsigned number_of(const Block& block) {
  return (block.index.z * gridDim.y + block.index.y) * gridDim.x + block.index.x;
}

inline unsigned threads_of(const Fiber& thread) { return thread.block->threads; }

inline unsigned actor_of(const Fiber& thread, Engine engine) {
  return static_cast<unsigned>(engine) * threads_of(thread) + thread.linear;
}

inline uint32_t new_epoch(const Fiber& thread, Engine engine, uint32_t time) {
  return worker->checker->epochs.add(
      {number_of(*thread.block), actor_of(thread, engine), time, uint16_t(thread.linear), engine});
}

/*! The running thread's present moment. */
inline uint32_t epoch_of(Fiber& thread) {
  uint32_t& epoch = thread.clock.epoch;
  if (epoch == 0) {
    epoch = new_epoch(thread, Engine::kThread, thread.clock.times[0]);
  }
  return epoch;
}

/*! Who performs an access. */
struct Performer {
  const Fiber* thread;
  uint32_t epoch;
  Engine engine;

  bool async_proxy() const { return engine >= Engine::kBulkRead; }
};

/*! Whether what `number` did is ordered before the access that `by` performs now; `fenced` where
 * one of the two writes: the async proxy comes after generic accesses only behind fence.proxy.async
 * (PTX ISA, Async proxy). */
inline bool ordered(uint32_t number, const Performer& by, bool fenced) {
  if (number == by.epoch || number == kInitial) return true;
  const Epoch& epoch = worker->checker->epochs[number];
  const ThreadClock& clock = by.thread->clock;
  const unsigned block = number_of(*by.thread->block);
  fenced &= by.async_proxy() && epoch.engine == Engine::kThread;
  if (epoch.block == block && epoch.actor == actor_of(*by.thread, epoch.engine) &&
      epoch.engine < Engine::kWgmma) {
    if (epoch.engine == Engine::kThread) return !fenced || epoch.time <= clock.fenced_time;
    if (epoch.time <= clock.times[unsigned(epoch.engine)]) return true;
  }
  return (fenced ? clock.fenced : clock.seen).time(epoch.block, epoch.actor) >= epoch.time;
}

}  // namespace emu
}  // namespace tl
