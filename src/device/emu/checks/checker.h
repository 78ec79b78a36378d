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
  unsigned rank;  // whose memory it is
  bool written;   // the kernel may write to it
  char* mapped;
  Cell* cells;
};

constexpr unsigned kMaxRegions = 1024;

/*! A write that conflicts with another one, until it is known whether it changes anything. */
struct Suspect {
  const void* at;
  unsigned bytes;
  unsigned char before[16];
  Report report;
};

// Pointers of buffers that became plain ones: those that a width is looked up for, and all that are
// remembered.
constexpr unsigned kRecentBounds = 8, kKnownBounds = 64;

struct KnownBounds : Bounds {
  const Fiber* thread;  // that made the pointer; nullptr: what is before has been done
};

/*! Bytes of a block's shared memory. */
struct Extent {
  unsigned begin, end;
};

/*! Those that functions of the user's have got from a thread. */
struct Passed {
  static constexpr unsigned kMost = 8;
  const Fiber* thread;
  unsigned count;  // more than kMost: no longer known
  Extent extents[kMost];
};

/*! What atomic operations have released, by address, and by who reads it: `tag` is twice the rank
 * of the releasing thread, and 1 more where the scope was the system. */
class AtomicClocks {
 public:
  /*! Calls `visit(clock, tag)` for each clock at an address. */
  template <typename Visit>
  void each(const void* at, Visit visit) {
    for (Item* item = items_[bucket(at)]; item; item = item->next) {
      if (item->at == at) visit(item->clock, item->tag);
    }
  }
  SyncClock& of(const void* at, unsigned tag) {
    for (Item* item = items_[bucket(at)]; item; item = item->next) {
      if (item->at == at && item->tag == tag) return item->clock;
    }
    Item* item = static_cast<Item*>(zeroed(sizeof(Item)));
    item->at = at;
    item->tag = tag;
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
    unsigned tag;
    Item* next;
    SyncClock clock;
  };
  static constexpr unsigned kBuckets = 256;
  static unsigned bucket(const void* at) {
    return (reinterpret_cast<uintptr_t>(at) >> 2) % kBuckets;
  }
  Item* items_[kBuckets];
};

/*! An access of the shared memory of another block, which may not end before. */
struct RemoteAccess {
  const Block* owner;
  uint32_t epoch;
  Report report;
};

/*! An access of the memory of another rank, which may not end its launch before. */
struct PeerAccess {
  unsigned rank;
  uint32_t epoch;
  Report report;
};

/*! An atomic operation that wrote where another one looked. */
struct Announcement {
  const void* at;
  unsigned block, thread;
  bool releases, system;
};

/*! Threads of a block have heard of another block, or of each other, through an atomic operation
 * that does not order what was before it. */
struct WeakSignal {
  bool known, releases, acquires;
  bool narrow;        // of two ranks, and one's scope is not the system
  unsigned from, to;  // blocks
};

/*! What is known of a byte of a thread's stack. */
enum LocalByte : unsigned char { kDefined, kUndefined, kInFlight };

/*! Registers of a warp's lanes that products up to those of `group` use. */
struct Flight {
  Flight* next;
  const Fiber* warp;  // its first lane
  const void* registers[kWarpSize];
  unsigned bytes, group;
  bool written;  // an accumulator; else an operand
  Site site;     // of the latest one
};

struct MapAcquire;

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
  KnownBounds bounds[kKnownBounds];  // of the pointers that became plain ones last
  unsigned next_bounds;
  Extent declared[64];  // buffers in shared memory
  unsigned declared_count;
  Passed* passed;  // by the worker's threads; nullptr as long as none has passed any
  AtomicClocks atomics;
  Table<RemoteAccess> remote;
  uint32_t recent_remote[1024];
  // Of launches by several ranks: the moment in which a rank's launch begins, what its threads know
  // then, what they knew when they exited, and accesses of the memory of other ranks.
  uint32_t begins[kMaxRanks];
  ClockRef known[kMaxRanks];
  JoinedClock ends[kMaxRanks];
  Table<PeerAccess> peer_accesses;
  uint32_t recent_peers[1024];
  Announcement announcements[256];  // by address: the latest ones
  WeakSignal weak_signals[64];
  Flight* flights;
  MapAcquire* map_acquires;
  void **values, **pointers;  // of the kernel, as it sees them
  struct {
    uint32_t reads;
    uint64_t serial;
  } ordered[1024];  // chains that are ordered before all threads with a clock
};

// Numbers of epochs. What is reported once counts as ordered before all others from then on.
constexpr uint32_t kNever = 0, kInitial = 1;

inline unsigned grid_blocks() { return gridDim.x * gridDim.y * gridDim.z; }

/*! Blocks are numbered over the grids of all ranks; behind them come the ranks' hosts. */
inline unsigned number_of(const Block& block) {
  const unsigned in_grid = (block.index.z * gridDim.y + block.index.y) * gridDim.x + block.index.x;
  return block.cluster->gpu * grid_blocks() + in_grid;
}
inline unsigned number_of_host(unsigned rank) { return worker->ranks * grid_blocks() + rank; }
inline bool is_host(const Epoch& epoch) { return epoch.block >= number_of_host(0); }

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

inline WeakSignal& weak_signal(unsigned from, unsigned to) {
  return worker->checker->weak_signals[(from * 31 + to) % 64];
}

inline void note_announcement(const Fiber& thread, const void* at, AtomicOrder order) {
  worker->checker->announcements[(reinterpret_cast<uintptr_t>(at) >> 2) % 256] = {
      at, number_of(*thread.block), thread.linear, order.releases, order.system};
}

/*! Within a block, only a thread that polls looks for a signal. */
inline void note_signal(const Fiber& thread, const void* at, AtomicOrder order) {
  const Announcement& found =
      worker->checker->announcements[(reinterpret_cast<uintptr_t>(at) >> 2) % 256];
  const unsigned block = number_of(*thread.block);
  const bool narrow = worker->ranks > 1 && found.block / grid_blocks() != block / grid_blocks() &&
                      !(found.system && order.system);
  if (found.at != at || (found.releases && order.acquires && !narrow)) return;
  if (found.block == block && (order.writes || found.thread == thread.linear)) return;
  weak_signal(found.block, block) = {true,   found.releases, order.acquires,
                                     narrow, found.block,    block};
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

/*!
 * Whether an access is over for a thread that has waited at block scope for what another block of
 * the cluster released, or that has met one that has. That makes room: it orders a write of the
 * async proxy behind the reads, and behind what engines wrote, whose bytes tell of themselves, and
 * a thread's write behind what engines read. It acquires nothing that a thread wrote (PTX ISA,
 * Memory Consistency Model, Scope).
 */
inline bool over(const Epoch& epoch, const Performer& by, bool fenced) {
  const ThreadClock& clock = by.thread->clock;
  fenced &= by.async_proxy() && epoch.engine == Engine::kThread;
  return (fenced ? clock.happened_fenced : clock.happened).time(epoch.block, epoch.actor) >=
         epoch.time;
}

}  // namespace emu
}  // namespace tl
