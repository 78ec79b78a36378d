/*!
 * Where accesses come in: by name from the functions of the device headers, and for plain reads and
 * writes from the compiler.
 *
 * A program with checks is compiled with -fsanitize=thread and linked without its runtime library:
 * the functions that the compiler calls in front of each access are these. This code is compiled
 * without it. What the functions see of the emulator itself is neither shared memory nor a tensor
 * nor a declared array.
 */
#pragma once

#include "flights.h"

namespace tl {
namespace emu {

[[noreturn]] inline void stop(const Report& report) {
  worker->checker->reports.add(report);
  worker->failed = true;
  abandon();
}

/*! Leaves the thread: the bytes are outside of what the block has, or of the nearest tensor. */
[[noreturn]] inline void out_of_bounds(const Observation& now, unsigned long extent) {
  Report report = report_of(now, "out-of-bounds");
  report.extent = extent;
  stop(report);
}

/*! An access through a pointer into a buffer that does not lie in the buffer. */
[[noreturn]] inline void leave_buffer(const Bounds& bounds, size_t bytes, Site site) {
  Fiber& thread = *worker->current;
  const char *at = static_cast<const char*>(bounds.at),
             *begin = static_cast<const char*>(bounds.begin);
  Observation now = {{&thread, epoch_of(thread), Engine::kThread},
                     Access::kAny,
                     site,
                     Space::kLocal,
                     -1,
                     at,
                     static_cast<unsigned>(bytes),
                     1,
                     at - begin};
  Report report = report_of(now, "out-of-bounds");
  report.has_base = true;
  report.extent = static_cast<const char*>(bounds.end) - begin;
  if (lies_in(begin, worker->shared, worker->checker->shared_bytes)) {
    report.space = Space::kShared;
    const size_t place = begin - reinterpret_cast<const char*>(worker->shared);
    Block& owner = worker->blocks[place / kSharedStride];
    report.base = begin - reinterpret_cast<const char*>(owner.dynamic_shared());
    report.offset += report.base;
  }
  stop(report);
}

/*! A plain access that no pointer of a buffer has led to: in a function of the user's, or through a
 * pointer that the program has made itself. Where the thread has passed buffers to functions, such
 * an access belongs to one of these; it is outside of them where it is in another buffer. */
inline void check_raw(const Observation& now, unsigned place) {
  Checker& checker = *worker->checker;
  if (!checks(kCheckBounds) || !checker.passed || now.by.engine != Engine::kThread) return;
  const Passed& passed = checker.passed[now.by.thread - worker->fibers];
  if (passed.count == 0 || passed.count > Passed::kMost) return;
  for (unsigned i = 1; i <= kKnownBounds; ++i) {
    const KnownBounds& bounds = checker.bounds[(checker.next_bounds - i) % kKnownBounds];
    if (bounds.thread != now.by.thread) break;
    const char* const at = static_cast<const char*>(bounds.at);
    if (at <= now.at && now.at < at + 64) return;  // a vector's word, or the element itself
  }
  const Extent* nearest = nullptr;
  for (unsigned i = 0; i < passed.count; ++i) {
    const Extent& extent = passed.extents[i];
    if (place >= extent.begin && place + now.bytes <= extent.end) return;
    if (!nearest || (extent.end <= place && extent.end > nearest->end)) nearest = &extent;
  }
  for (unsigned i = 0; i < checker.declared_count; ++i) {
    const Extent& other = checker.declared[i];
    if (place < other.begin || place >= other.end) continue;
    Report report = report_of(now, "out-of-bounds");
    report.has_base = true;
    report.base = long(nearest->begin) - long(kMaxStaticSharedBytes);
    report.extent = nearest->end - nearest->begin;
    stop(report);
  }
}

inline void check_multiple(const Observation& now) {
  if ((reinterpret_cast<uintptr_t>(now.at) & (now.alignment - 1)) == 0) return;
  Report report = report_of(now, "misaligned");
  report.extent = now.alignment;
  stop(report);
}

/*! Remembers the latest access of each thread or engine at each place of the program. */
inline void note_remote(const Block& owner, const Observation& now) {
  if (!checks(kCheckRaces)) return;
  Checker& checker = *worker->checker;
  const Epoch& epoch = checker.epochs[now.by.epoch];
  uint32_t& slot = checker.recent_remote[(epoch.actor * 31u + epoch.block * 17u + now.site) % 1024];
  if (slot < checker.remote.count) {
    RemoteAccess& latest = checker.remote[slot];
    const Epoch& known = checker.epochs[latest.epoch];
    if (latest.owner == &owner && latest.report.now.site == now.site &&
        known.actor == epoch.actor && known.block == epoch.block) {
      latest.epoch = now.by.epoch;
      return;
    }
  }
  slot = checker.remote.add({&owner, now.by.epoch, report_of(now, "ended")});
}

inline void observe_shared(Observation& now) {
  const unsigned long place = now.at - reinterpret_cast<const char*>(worker->shared);
  const Block& block = worker->blocks[place / kSharedStride];
  const unsigned long offset = place % kSharedStride, end = offset + now.bytes;
  const bool dynamic = offset >= kMaxStaticSharedBytes;
  now.space = Space::kShared;
  now.offset = static_cast<long>(offset) - static_cast<long>(kMaxStaticSharedBytes);
  const unsigned long limit =
      dynamic ? kMaxStaticSharedBytes + block.shared_bytes : block.static_bytes;
  if (checks(kCheckBounds) && end > limit) {
    out_of_bounds(now, dynamic ? block.shared_bytes : block.static_bytes);
  }
  check_multiple(now);
  if (now.access <= Access::kWrite) check_raw(now, unsigned(offset));
  if (&block != now.by.thread->block) {
    if (block.live == 0) stop(report_of(now, "ended"));
    note_remote(block, now);
  }
  check_cells(worker->checker->shared_cells + place, now);
}

inline long distance(const Region& region, const char* at) {
  if (at < region.mapped) return region.mapped - at;
  const char* const end = region.mapped + region.bytes;
  return at >= end ? at - end + 1 : 0;
}

/*! The region of an address, or the one that is nearest. They are in the order of their places. */
inline Region& nearest_region(const char* at) {
  Checker& checker = *worker->checker;
  unsigned first = 0, last = checker.region_count;
  while (last - first > 1) {
    const unsigned middle = (first + last) / 2;
    (checker.regions[middle].mapped <= at ? first : last) = middle;
  }
  Region* const found = &checker.regions[first];
  const bool next = last < checker.region_count && distance(found[1], at) < distance(*found, at);
  return found[next];
}

/*! Whether an address is in the memory of another rank than the running thread's. */
inline bool is_of_peer(const void* at) {
  const Checker& checker = *worker->checker;
  if (!lies_in(at, checker.arena, checker.arena_bytes)) return false;
  return nearest_region(static_cast<const char*>(at)).rank != this_rank();
}

/*! Remembers the latest access of each thread or engine at each place of the program to the memory
 * of another rank. */
inline void note_peer(unsigned rank, const Observation& now) {
  Checker& checker = *worker->checker;
  const Epoch& epoch = checker.epochs[now.by.epoch];
  uint32_t& slot =
      checker.recent_peers[(epoch.actor * 31u + epoch.block * 17u + now.site + rank) % 1024];
  if (slot < checker.peer_accesses.count) {
    PeerAccess& latest = checker.peer_accesses[slot];
    const Epoch& known = checker.epochs[latest.epoch];
    if (latest.rank == rank && latest.report.now.site == now.site && known.actor == epoch.actor &&
        known.block == epoch.block) {
      latest.epoch = now.by.epoch;
      return;
    }
  }
  slot = checker.peer_accesses.add({rank, now.by.epoch, report_of(now, "ended")});
}

inline void observe_global(Observation& now) {
  Region& region = nearest_region(now.at);
  const bool is_write = writes(now.access);
  now.space = Space::kGlobal;
  now.argument = int(region.argument);
  now.offset = now.at - region.mapped;
  const bool inside = now.offset >= 0 && now.offset + now.bytes <= region.bytes;
  if (checks(kCheckBounds) && (!inside || (is_write && !region.written))) {
    out_of_bounds(now, region.bytes);
  }
  check_multiple(now);
  if (!inside || !region.written || !checks(kCheckRaces)) return;
  if (worker->ranks > 1 && region.rank != now.by.thread->block->cluster->gpu) {
    now.initial = worker->checker->begins[region.rank];
    if (now.access <= Access::kWrite) note_peer(region.rank, now);
  }
  check_cells(region.cells + now.offset, now);
}

inline void observe_local(Observation& now) {
  check_in_flight(now);
  if (now.access == Access::kWrite) {
    memset(known_bytes(now.at), kDefined, now.bytes);
  } else {
    check_local_defined(now);
  }
}

inline void observe(const Performer& by, Access access, const void* at, size_t bytes, Site site,
                    unsigned alignment = 1) {
  Checker& checker = *worker->checker;
  if (checker.suspect_count) judge_suspects();
  Observation now = {
      by,        access, site, Space::kShared, -1, static_cast<const char*>(at), unsigned(bytes),
      alignment, 0};
  if (lies_in(at, worker->shared, checker.shared_bytes)) {
    observe_shared(now);
  } else if (lies_in(at, checker.arena, checker.arena_bytes)) {
    observe_global(now);
  } else if (lies_in(at, worker->stacks, checker.stack_bytes)) {
    observe_local(now);
  }
}

inline void observe_thread(Access access, const void* at, size_t bytes, Site site,
                           unsigned alignment = 1) {
  Worker* const mine = worker;
  if (!mine || !mine->current) return;
  Fiber& thread = *mine->current;
  observe({&thread, epoch_of(thread), Engine::kThread}, access, at, bytes, site, alignment);
}

/*! A plain access that the compiler has announced. Of `aligned` ones it knows that the address is
 * a multiple of the size, up to 8. */
template <Access access, bool aligned>
inline void observe_plain(const void* at, size_t bytes, const void* code) {
  if (!worker || worker->engines) return;
  const unsigned alignment = !aligned ? 1 : bytes < 8 ? unsigned(bytes) : 8;
  observe_thread(access, at, bytes, site_of(code), alignment);
}

}  // namespace emu
}  // namespace tl
