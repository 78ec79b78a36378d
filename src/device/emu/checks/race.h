/*!
 * When two accesses of a byte race: they are of different actors, one of them writes, not both are
 * atomic, and nothing orders them (PTX ISA, Memory Consistency Model, Data races).
 *
 * Two plain writes of threads that leave the same value are none: threads that hold copies of a
 * value write all of them. A write is known to change something only after it has happened, so it
 * is a suspect until the next access.
 */
#pragma once

#include "checker.h"

namespace tl {
namespace emu {

/*! One access while its bytes are gone through. */
struct Observation {
  Performer by;
  Access access;
  Site site;
  Space space;
  int argument;
  const char* at;
  unsigned bytes;
  unsigned alignment;  // a power of two, which the address has to be a multiple of
  long offset;         // of `at`, as in a report
  uint32_t initial;    // the write before all others, of memory of another rank; 0 elsewhere
};

inline Report report_of(const Observation& now, const char* kind) {
  const Performer& by = now.by;
  Report report = {};
  report.kind = kind;
  report.missing = "";
  report.now = {now.access, number_of(*by.thread->block), by.thread->linear, by.engine, now.site};
  report.space = now.space;
  report.argument = now.argument;
  report.offset = now.offset;
  report.bytes = now.bytes;
  return report;
}

/*! Whether one of two atomic operations of two ranks is narrow. */
inline bool too_narrow(const Observation& now, Access before, const Epoch& epoch) {
  if (!is_narrow(now.access) && !is_narrow(before)) return false;
  return !is_host(epoch) &&
         epoch.block / grid_blocks() != number_of(*now.by.thread->block) / grid_blocks();
}

/*! What would order two accesses, where more than their kinds has to be known; "" else. */
inline const char* missing_between(const Observation& now, Access access, uint32_t number) {
  const Epoch& before = worker->checker->epochs[number];
  const Fiber& thread = *now.by.thread;
  const unsigned block = number_of(*thread.block);
  if (is_atomic(access) && is_atomic(now.access) && too_narrow(now, access, before)) {
    return "the scope of the system in both atomic operations";
  }
  if (before.engine != Engine::kThread) return "";
  if (now.by.async_proxy() && ordered(number, now.by, false)) return "fence.proxy.async";
  if (over(before, now.by, false)) {
    if (now.by.async_proxy() && !writes(access)) return "fence.proxy.async";
    return "a wait for the mbarrier that acquires at cluster scope (mbarrier_wait_cluster)";
  }
  if (now.by.engine != Engine::kThread) return "";
  const WeakSignal& weak = weak_signal(before.block, block);
  const bool plain = !is_atomic(access) && !is_atomic(now.access);
  if (plain && weak.known && weak.from == before.block && weak.to == block) {
    if (weak.narrow) return "the scope of the system in both atomic operations";
    return weak.acquires ? "release order in the atomic operation that announces it"
           : weak.releases
               ? "acquire order in the atomic operation that looks for it"
               : "release order in the atomic operation that announces it, or a fence "
                 "before it, and acquire order in the one that looks for it, or a fence "
                 "behind it";
  }
  if (before.block != block || now.argument >= 0) return "";
  if (before.thread / kWarpSize == thread.linear / kWarpSize) {
    return "a barrier of the warp between the two (T.sync_warp), or of the block";
  }
  if (worker->mbarrier_count == 0) return "";
  return "a barrier for both threads (T.sync_threads) between the two; where they have different "
         "roles, an arrival behind the first and a wait for it before the second";
}

/*! A conflict of byte `at` of the access with an earlier one. */
inline Report race_of(const Observation& now, unsigned at, Access access, uint32_t epoch,
                      Site site) {
  const Epoch& before = worker->checker->epochs[epoch];
  Report report = report_of(now, "race");
  report.offset += at;
  report.bytes = now.bytes - at;
  report.before = {access, before.block, before.thread, before.engine,
                   site & ~(kAtomicWrite | kNarrowWrite)};
  report.missing = missing_between(now, access, epoch);
  return report;
}

struct Earlier {
  Access access;
  uint32_t epoch;
  Site site;
};

inline bool conflict(const Observation& now, const Earlier& earlier) {
  if (!writes(now.access) && !writes(earlier.access)) return false;
  if (!is_atomic(now.access) || !is_atomic(earlier.access)) return true;
  return too_narrow(now, earlier.access, worker->checker->epochs[earlier.epoch]);
}

/*! The accesses of a cell since its last write, newest first. */
template <typename Visit>
inline void for_each(uint32_t reads, Site site, Visit visit) {
  while (reads & kTopBit) {
    const Node& node = worker->checker->chains[reads];
    if (!visit(Earlier{node.access, node.epoch, node.site})) return;
    reads = node.next;
    site = node.next_site;
  }
  if (reads) visit(Earlier{Access::kRead, reads, site});
}

/*! Looks for one of them that conflicts with the access and is not ordered before it. Returns
 * whether all are ordered before it, conflict or not. */
inline bool all_ordered(const Cell& cell, const Observation& now, Earlier* found) {
  const Performer& by = now.by;
  auto& memory = worker->checker->ordered[(cell.reads * 2654435761u) >> 22];
  const ClockRef& seen = by.thread->clock.seen;
  // Loads may still be on their way when a barrier that follows them is complete.
  const bool fenced = now.access == Access::kWrite && by.async_proxy();
  if (!fenced && cell.reads & kTopBit && memory.reads == cell.reads &&
      memory.serial == seen.serial()) {
    return true;
  }
  bool all = true, by_clock = true;
  for_each(cell.reads, cell.read_site, [&](const Earlier& earlier) {
    const Epoch& epoch = worker->checker->epochs[earlier.epoch];
    const bool in_clock = !fenced && seen.time(epoch.block, epoch.actor) >= epoch.time;
    const bool needs_no_more = now.access == Access::kWrite && !writes(earlier.access) &&
                               (by.async_proxy() || epoch.engine != Engine::kThread);
    const bool is_ordered =
        in_clock || ordered(earlier.epoch, by, fenced) || (needs_no_more && over(epoch, by, true));
    by_clock &= in_clock;
    all &= is_ordered;
    if (is_ordered || !conflict(now, earlier)) return true;
    if (!found->epoch) *found = earlier;
    return false;
  });
  if (by_clock && cell.reads & kTopBit) memory = {cell.reads, seen.serial()};
  return all;
}

inline void suspect(const Observation& now, unsigned at, const Report& report) {
  Checker& checker = *worker->checker;
  const unsigned bytes = now.bytes - at, most = sizeof(Suspect::before);
  constexpr unsigned kMost = sizeof(checker.suspects) / sizeof(Suspect);
  if (checker.suspect_count == kMost) return;
  Suspect& made = checker.suspects[checker.suspect_count++];
  made.at = now.at + at;
  made.bytes = bytes < most ? bytes : most;
  made.report = report;
  memcpy(made.before, made.at, made.bytes);
}

/*! The writes that were suspects have happened. */
inline void judge_suspects() {
  Checker& checker = *worker->checker;
  for (unsigned i = 0; i < checker.suspect_count; ++i) {
    const Suspect& s = checker.suspects[i];
    if (memcmp(s.before, s.at, s.bytes) != 0) checker.reports.add(s.report);
  }
  checker.suspect_count = 0;
}

/*! The last write before this access. */
inline void check_last_write(const Cell& cell, const Observation& now, unsigned at) {
  Checker& checker = *worker->checker;
  const bool atomic = cell.write_site & kAtomicWrite;
  const Access access = !atomic                          ? Access::kWrite
                        : cell.write_site & kNarrowWrite ? Access::kNarrowAtomic
                                                         : Access::kAtomic;
  if (!cell.write || !conflict(now, {access, cell.write, cell.write_site})) return;
  if (ordered(cell.write, now.by, true)) return;
  const Epoch& before = checker.epochs[cell.write];
  const bool engines = before.engine != Engine::kThread && now.by.async_proxy();
  if (engines && now.access == Access::kWrite && over(before, now.by, false)) return;
  const Report report = race_of(now, at, access, cell.write, cell.write_site);
  const bool plain = now.access == Access::kWrite && !atomic && !is_host(before) &&
                     report.now.engine == Engine::kThread &&
                     report.before.engine == Engine::kThread;
  if (plain) {
    suspect(now, at, report);
  } else {
    checker.reports.add(report);
  }
}

inline bool has_atomics(const Cell& cell) {
  return cell.reads & kTopBit && worker->checker->chains[cell.reads].atomics;
}

/*! Puts the access in front of those since the last write. */
inline void remember(Cell& cell, const Observation& now, bool all_are_ordered) {
  Chains& chains = worker->checker->chains;
  const uint32_t epoch = now.by.epoch;
  if (all_are_ordered) cell.reads = kNever;
  if (cell.reads == kNever && now.access == Access::kRead) {
    cell.reads = epoch;
    cell.read_site = now.site;
    return;
  }
  const bool atomics = writes_atomically(now.access) || has_atomics(cell);
  if (cell.reads & kTopBit) {
    const Node& head = chains[cell.reads];
    if (head.epoch == epoch && head.access == now.access) return;
  }
  cell.reads = chains.add({epoch, now.site, cell.reads, cell.read_site, now.access, atomics});
  cell.read_site = now.site;
}

inline void check_race(Cell& cell, const Observation& now, unsigned at) {
  const uint32_t epoch = now.by.epoch;
  if (now.access == Access::kRead && cell.reads == epoch) return;
  if (now.access == Access::kWrite && cell.write == epoch && cell.reads == kNever) return;
  check_last_write(cell, now, at);
  const bool only_reads = now.access == Access::kRead && !has_atomics(cell);
  Earlier found = {};
  bool all = true;
  if (only_reads && cell.reads & kTopBit &&
      !ordered(worker->checker->chains[cell.reads].epoch, now.by, false)) {
    all = false;  // as the newest of them is not
  } else if (cell.reads) {
    all = all_ordered(cell, now, &found);
  }
  if (found.epoch) {
    worker->checker->reports.add(race_of(now, at, found.access, found.epoch, found.site));
  }
  if (now.access == Access::kWrite) {
    cell = {epoch, now.site, kNever, 0};
  } else {
    remember(cell, now, all);
    if (!cell.write && writes_atomically(now.access)) {
      cell.write = epoch;
      cell.write_site = now.site | kAtomicWrite | (is_narrow(now.access) ? kNarrowWrite : 0);
    }
  }
}

/*! All bytes of an access; neighbours with the same past are judged once. */
inline void check_cells(Cell* cells, const Observation& now) {
  for (unsigned i = 0; i < now.bytes;) {
    const Cell before = cells[i];
    Cell after = before;
    // Atomic operations may come before the rank's launch: what they update lasts.
    if (!before.write && now.initial) {
      after.write = now.initial;
      after.write_site = kAtomicWrite;
    }
    const bool undefined = now.space == Space::kShared && !before.write;
    if (checks(kCheckUninitialized) && undefined && reads(now.access)) {
      Report report = report_of(now, "uninitialized");
      report.offset += i;
      report.bytes = now.bytes - i;
      worker->checker->reports.add(report);
      after.write = kInitial;
    }
    if (checks(kCheckRaces)) {
      check_race(after, now, i);
    } else if (writes(now.access)) {
      after.write = kInitial;
    }
    do {
      cells[i++] = after;
    } while (i < now.bytes && cells[i] == before);
  }
}

}  // namespace emu
}  // namespace tl
