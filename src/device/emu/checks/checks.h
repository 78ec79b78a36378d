/*! The functions of check.h, and those that the compiler calls in front of each access. */
#pragma once

#include <tl/blocks.h>

#include "arguments.h"
#include "maps.h"
#include "observe.h"

namespace tl {
namespace emu {

// --- threads and what orders them

static void check_release(Fiber& thread, SyncClock& clock) {
  if (!checks(kCheckRaces)) return;
  ThreadClock& mine = thread.clock;
  const unsigned block = number_of(*thread.block);
  clock.seen.add(mine.seen);
  for (unsigned e = 0; e < kEngines; ++e) {
    if (mine.times[e]) clock.seen.all.raise(block, actor_of(thread, Engine(e)), mine.times[e]);
  }
  if (mine.fenced_time) {
    clock.fenced.add(mine.fenced);
    clock.fenced.all.raise(block, actor_of(thread, Engine::kThread), mine.fenced_time);
  } else if (mine.fenced.get()) {
    clock.fenced.add(mine.fenced);
  }
  clock.happened.add(mine.happened);
  clock.happened_fenced.add(mine.happened_fenced);
  ++mine.times[0];
  mine.epoch = 0;
}

static void check_acquire(Fiber& thread, SyncClock& clock) {
  clock.seen.acquire(thread.clock.seen);
  clock.fenced.acquire(thread.clock.fenced);
  clock.happened.acquire(thread.clock.happened);
  clock.happened_fenced.acquire(thread.clock.happened_fenced);
}

void check_release(SyncClock& clock) { check_release(*worker->current, clock); }
void check_acquire(SyncClock& clock) { check_acquire(*worker->current, clock); }

void check_happened(SyncClock& clock) {
  ThreadClock& mine = worker->current->clock;
  mine.happened = join(join(mine.happened, clock.seen.all), clock.happened.all);
  mine.happened_fenced =
      join(join(mine.happened_fenced, clock.fenced.all), clock.happened_fenced.all);
}

/*! The threads of a rank know what its host did before the launch. */
void check_block_begins(Block& block) {
  if (checks(kCheckRaces)) forget_acquires(*worker->checker, &block);
  if (!checks(kCheckRaces) || worker->ranks == 1) return;
  const ClockRef& known = worker->checker->known[block.cluster->gpu];
  for (unsigned i = 0; i < block.threads; ++i) {
    block.fibers[i].clock.seen = known;
    block.fibers[i].clock.fenced = known;
  }
}

void check_exit() {
  if (!checks(kCheckRaces)) return;
  const ThreadClock& mine = worker->current->clock;
  if (worker->ranks > 1) worker->checker->ends[this_rank()].add(mine.seen);
  if (worker->cluster_blocks == 1) return;
  JoinedClock& end = worker->current->block->end.seen;
  end.add(mine.seen);
  end.add(mine.happened);
}

void check_cluster_ends(Cluster& cluster) {
  Table<RemoteAccess>& remote = worker->checker->remote;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < remote.count; ++i) {
    const RemoteAccess access = remote[i];
    if (access.owner->cluster != &cluster) {
      remote[kept++] = access;
      continue;
    }
    const Epoch& epoch = worker->checker->epochs[access.epoch];
    const ClockRef& end = access.owner->end.seen.all;
    if (end.time(epoch.block, epoch.actor) < epoch.time)
      worker->checker->reports.add(access.report);
  }
  remote.count = kept;
}

void check_phase_ends(WaitPoint& point) {
  if (!point.clock.seen.all.get()) return;
  for (Fiber* f = point.waiting.first; f; f = f->next) check_acquire(*f, point.clock);
  point.clock = {};
}

void check_phase_ends(SyncClock& clock, SyncClock& completed) {
  completed = clock;
  clock = {};
}

void check_fence_proxy_async() {
  ThreadClock& mine = worker->current->clock;
  mine.fenced = mine.seen;
  mine.fenced_time = mine.times[0]++;
  mine.epoch = 0;
}

void check_map_acquired(const void* map) {
  if (checks(kCheckRaces)) note_acquire(map, *worker->current);
}

void check_map_used(const void* map, Location where) {
  if (!checks(kCheckRaces) || is_parameter(map) || has_acquired(map, *worker->current)) return;
  fail(where,
       "a copy by a tensor map in global memory, which no fence.proxy.tensormap orders behind who "
       "wrote it. Let this thread acquire the map before (tl::peer_map)");
}

// --- asynchronous operations

Agent check_issue(Engine engine, unsigned group) {
  Fiber& thread = *worker->current;
  return {&thread, new_epoch(thread, engine, group + 1), engine};
}

Agent check_issue_product(unsigned group) {
  return {worker->current, new_epoch(first_lane(*worker->current), Engine::kWgmma, group + 1),
          Engine::kWgmma};
}

/*! The actor of an mbarrier's operations is one of the block that it is in. */
static unsigned actor_of(const MbarrierPhase& phase) {
  return static_cast<unsigned>(Engine::kMbarrier) * worker->block_threads + phase.index;
}

Agent check_issue(const MbarrierPhase& phase) {
  Fiber& thread = *worker->current;
  const Epoch epoch = {number_of(*phase.block), actor_of(phase), phase.phase + 1,
                       uint16_t(thread.linear), Engine::kMbarrier};
  return {&thread, worker->checker->epochs.add(epoch), Engine::kMbarrier};
}

unsigned check_phases_known(const MbarrierPhase& now) {
  if (!checks(kCheckRaces)) return now.phase;
  return worker->current->clock.seen.time(number_of(*now.block), actor_of(now));
}

bool check_knows_arrivals(const MbarrierPhase& phase, const SyncClock& completed) {
  const Fiber& thread = *worker->current;
  ClockRef known = thread.clock.seen;
  for (unsigned e = 0; e < kEngines; ++e) {
    known.raise(number_of(*thread.block), actor_of(thread, Engine(e)), thread.clock.times[e]);
  }
  // The end of the phase itself is what is asked.
  known.raise(number_of(*phase.block), actor_of(phase), phase.phase + 1);
  return includes(known, completed.seen.all);
}

void check_phase_ends(const MbarrierPhase& phase, SyncClock& arriving, SyncClock& completed) {
  if (checks(kCheckRaces)) {
    arriving.seen.all.raise(number_of(*phase.block), actor_of(phase), phase.phase + 1);
  }
  check_phase_ends(arriving, completed);
}

void check_copies_arrive(SyncClock& arriving, unsigned group) {
  if (!checks(kCheckRaces)) return;
  const Fiber& thread = *worker->current;
  arriving.seen.all.raise(number_of(*thread.block), actor_of(thread, Engine::kCpAsync), group);
}

void check_warp_groups_done(unsigned group) {
  Fiber* const lanes = &first_lane(*worker->current);
  end_flights(lanes, group);
  if (!checks(kCheckRaces)) return;
  const Block& block = *lanes->block;
  JoinedClock joined;
  joined.add(lanes->clock.seen);
  joined.all.raise(number_of(block), actor_of(*lanes, Engine::kWgmma), group);
  for (unsigned i = 0; i < kWarpSize && lanes->linear + i < block.threads; ++i) {
    joined.acquire(lanes[i].clock.seen);
  }
}

void check_engine_begins() { ++worker->engines; }
void check_engine_ends() { --worker->engines; }

void* check_relocated(void* address) {
  return relocated(*worker->checker, reinterpret_cast<uintptr_t>(address));
}

void check_groups_done(Engine engine, unsigned group) {
  uint32_t& time = worker->current->clock.times[unsigned(engine)];
  if (time < group) time = group;
}

// --- accesses

static Site site_of(Location where) { return worker->checker->locations.number_of(where); }

/*! The width of an access through a pointer of a buffer that has become a plain one. */
static void check_width(const void* at, size_t bytes, Site site) {
  if (!checks(kCheckBounds)) return;
  const Checker& checker = *worker->checker;
  for (unsigned i = 1; i <= kRecentBounds; ++i) {
    // Buffers that share bytes may have had pointers to the same place: the latest one counts.
    const Bounds& bounds = checker.bounds[(checker.next_bounds - i) % kKnownBounds];
    if (bounds.at != at) continue;
    const char* const end = static_cast<const char*>(bounds.end);
    if (static_cast<const char*>(at) + bytes > end) leave_buffer(bounds, bytes, site);
    return;
  }
}

static void check_named(Access access, const void* at, size_t bytes, Location where) {
  const Site site = site_of(where);
  check_width(at, bytes, site);
  observe_thread(access, at, bytes, site);
}

static void check_named(const Agent& agent, Access access, const void* at, size_t bytes,
                        Location where) {
  const Site site = site_of(where);
  check_width(at, bytes, site);
  observe({agent.issuer, agent.epoch, agent.engine}, access, at, bytes, site);
}

void check_extent(const void* at, size_t bytes, Location where) {
  check_width(at, bytes, site_of(where));
}

void check_read(const void* from, size_t bytes, Location where) {
  check_named(Access::kRead, from, bytes, where);
}

void check_write(void* to, size_t bytes, Location where) {
  check_named(Access::kWrite, to, bytes, where);
}

void check_read(const Agent& agent, const void* from, size_t bytes, Location where) {
  check_named(agent, Access::kRead, from, bytes, where);
}

void check_write(const Agent& agent, void* to, size_t bytes, Location where) {
  check_named(agent, Access::kWrite, to, bytes, where);
}

/*! What an atomic operation is for those of other ranks, by its scope. */
static Access atomic_access(const void* at, const AtomicOrder& order) {
  if (order.system || worker->ranks == 1) {
    if (!order.writes) return Access::kAtomicRead;
    return order.reads ? Access::kAtomic : Access::kAtomicWrite;
  }
  if (is_of_peer(at)) return order.writes ? Access::kWrite : Access::kRead;
  if (!order.writes) return Access::kNarrowAtomicRead;
  return order.reads ? Access::kNarrowAtomic : Access::kNarrowAtomicWrite;
}

/*! Reductions of bulk copies have the scope of one GPU (PTX ISA, cp.reduce.async.bulk). */
void check_reduce(const Agent& agent, void* at, size_t bytes, Location where) {
  check_named(agent, atomic_access(at, {false, false, true, true, false}), at, bytes, where);
}

void check_atomic(const void* at, size_t bytes, AtomicOrder order, Location where) {
  check_named(atomic_access(at, order), at, bytes, where);
}

/*! What a relaxed atomic operation releases: what its thread knew at its last fence. */
static void check_publish(Fiber& thread, SyncClock& clock) {
  ThreadClock& mine = thread.clock;
  clock.seen.add(mine.published);
  clock.seen.all.raise(number_of(*thread.block), actor_of(thread, Engine::kThread),
                       mine.published_time);
}

void check_atomic_order(const void* at, AtomicOrder order) {
  if (!checks(kCheckRaces)) return;
  Fiber& thread = *worker->current;
  AtomicClocks& clocks = worker->checker->atomics;
  const unsigned rank = thread.block->cluster->gpu;
  if (order.reads) note_signal(thread, at, order);
  clocks.each(at, [&](SyncClock& clock, unsigned tag) {
    // Both scopes have to include the other thread (PTX ISA, Morally strong operations).
    if (tag / 2 != rank && !(tag % 2 && order.system)) return;
    if (order.acquires) {
      check_acquire(thread, clock);
    } else if (order.reads) {
      thread.clock.found = join(thread.clock.found, clock.seen.all);
    }
  });
  if (!order.writes) return;
  note_announcement(thread, at, order);
  if (!order.reads) clocks.each(at, [](SyncClock& clock, unsigned) { clock = {}; });
  const unsigned tag = 2 * rank + order.system;
  if (order.releases) {
    check_release(thread, clocks.of(at, tag));
  } else if (thread.clock.published_time) {
    check_publish(thread, clocks.of(at, tag));
  }
}

void check_fence() {
  if (!checks(kCheckRaces)) return;
  ThreadClock& mine = worker->current->clock;
  mine.seen = join(mine.seen, mine.found);
  mine.found = {};
  mine.published = mine.seen;
  mine.published_time = mine.times[0]++;
  mine.epoch = 0;
}

void check_product_registers(const void* const* registers, size_t bytes, bool writes, bool reads,
                             unsigned group, Location where) {
  Fiber* const lanes = &first_lane(*worker->current);
  const Site site = site_of(where);
  for (int l = 0; reads && l < kWarpSize; ++l) {
    check_local_defined({{lanes + l, 0, Engine::kWgmma},
                         Access::kRead,
                         site,
                         Space::kLocal,
                         -1,
                         static_cast<const char*>(registers[l]),
                         static_cast<unsigned>(bytes),
                         1,
                         0});
  }
  begin_flight(*lanes, registers, static_cast<unsigned>(bytes), writes, group, site);
}

void check_array_begins(LocalArray& array) {
  LocalArray*& innermost = worker->current->arrays.innermost;
  array.outer = innermost;
  innermost = &array;
  if (checks(kCheckUninitialized)) memset(known_bytes(array.data), kUndefined, array.bytes);
}

void check_array_ends(LocalArray& array) {
  worker->current->arrays.innermost = array.outer;
  if (checks(kCheckUninitialized)) memset(known_bytes(array.data), kDefined, array.bytes);
}

void check_defined(void* array, size_t bytes) {
  if (checks(kCheckUninitialized)) memset(known_bytes(array), kDefined, bytes);
}

void check_bounds(const Bounds& bounds, size_t bytes) {
  if (!checks(kCheckBounds)) return;
  Checker& checker = *worker->checker;
  const char *at = static_cast<const char*>(bounds.at),
             *begin = static_cast<const char*>(bounds.begin),
             *end = static_cast<const char*>(bounds.end);
  if (at < begin || at + bytes > end) {
    leave_buffer(bounds, bytes, site_of(__builtin_return_address(0)));
  }
  checker.bounds[checker.next_bounds++ % kKnownBounds] = {bounds, worker->current};
}

/*! Where in its block's shared memory. */
static unsigned offset_in_block(const void* at) {
  return unsigned((static_cast<const unsigned char*>(at) - worker->shared) % kSharedStride);
}

void check_declared(const void* begin, const void* end) {
  if (!checks(kCheckBounds)) return;
  Checker& checker = *worker->checker;
  const unsigned first = offset_in_block(begin);
  const Extent extent = {
      first, first + unsigned(static_cast<const char*>(end) - static_cast<const char*>(begin))};
  for (unsigned i = 0; i < checker.declared_count; ++i) {
    const Extent& known = checker.declared[i];
    if (known.begin == extent.begin && known.end == extent.end) return;
  }
  constexpr unsigned kMost = sizeof(checker.declared) / sizeof(Extent);
  if (checker.declared_count < kMost) checker.declared[checker.declared_count++] = extent;
}

void check_passed(const Bounds& bounds) {
  Checker& checker = *worker->checker;
  if (!checks(kCheckBounds) || !lies_in(bounds.begin, worker->shared, checker.shared_bytes)) return;
  Fiber& thread = *worker->current;
  checker.bounds[checker.next_bounds++ % kKnownBounds] = {};
  if (!checker.passed) {
    const size_t threads = worker->block_capacity() * worker->block_threads;
    checker.passed = static_cast<Passed*>(zeroed(threads * sizeof(Passed)));
  }
  Passed& passed = checker.passed[&thread - worker->fibers];
  const unsigned begin = offset_in_block(bounds.begin),
                 end = begin + unsigned(static_cast<const char*>(bounds.end) -
                                        static_cast<const char*>(bounds.begin));
  for (unsigned i = 0; i < passed.count && i < Passed::kMost; ++i) {
    if (passed.extents[i].begin == begin && passed.extents[i].end == end) return;
  }
  if (passed.count < Passed::kMost) passed.extents[passed.count] = {begin, end};
  if (passed.count <= Passed::kMost) ++passed.count;
}

void check_index(long long index, long long extent, const char* buffer, int dimension,
                 Location where) {
  if (!checks(kCheckBounds)) return;
  fail(where,
       "out-of-bounds: index %lld of dimension %d of %s, which has %lld elements there. Guard the "
       "access, or make the value less",
       index, dimension, buffer, extent);
}

// --- launches

void check_shared_begins(const unsigned char* memory, size_t bytes) {
  Checker& checker = *worker->checker;
  memset(checker.shared_cells + (memory - worker->shared), 0, bytes * sizeof(Cell));
  checker.atomics.forget(memory, bytes);
}

/*! Points the arguments that are tensors to where they are while the kernel runs. */
static void redirect(Checker& checker, Arguments& arguments) {
  checker.values = static_cast<void**>(zeroed(arguments.count * sizeof(void*)));
  checker.pointers = static_cast<void**>(zeroed(arguments.count * sizeof(void*)));
  for (unsigned i = 0; i < arguments.count; ++i) {
    checker.values[i] = arguments.values[i];
    if (!describes(arguments, i)) continue;
    checker.pointers[i] = relocated(checker, address_in(arguments, i));
    checker.values[i] = &checker.pointers[i];
  }
  arguments.values = checker.values;
}

/*! What a rank's host did to its memory before the launch is a write at this moment. */
static void begin_ranks(Worker& of) {
  for (unsigned r = 0; r < of.ranks; ++r) {
    const unsigned host = number_of_host(r);
    of.checker->begins[r] = of.checker->epochs.add({host, 0, 1, 0, Engine::kThread});
    of.checker->known[r].raise(host, 0, 1);
  }
}

/*! Accesses of a rank's memory by others have to be over when its launch ends: then its host may
 * use the memory again. */
static void end_ranks(Checker& checker) {
  for (uint32_t i = 0; i < checker.peer_accesses.count; ++i) {
    const PeerAccess access = checker.peer_accesses[i];
    const Epoch& epoch = checker.epochs[access.epoch];
    const ClockRef& end = checker.ends[access.rank].all;
    if (end.time(epoch.block, epoch.actor) < epoch.time) checker.reports.add(access.report);
  }
}

bool check_launch_begins(Worker& of, Arguments& arguments) {
  Checker* made = static_cast<Checker*>(calloc(1, sizeof(Checker)));
  if (!made) return false;
  of.checker = made;
  made->epochs.add({});
  made->epochs.add({});  // kInitial
  made->shared_bytes = of.block_capacity() * kSharedStride;
  made->stack_bytes = of.block_capacity() * of.block_threads * stack_stride();
  made->shared_cells = static_cast<Cell*>(reserve(made->shared_bytes * sizeof(Cell)));
  made->local_bytes = static_cast<unsigned char*>(reserve(made->stack_bytes));
  if (!made->shared_cells || !made->local_bytes) return false;
  for (unsigned i = 0; i < arguments.count; ++i) {
    if (!describes(arguments, i)) continue;
    const bool written = arguments.kind(i) == Arguments::kWritable;
    const Region region = {address_in(arguments, i),
                           arguments.bytes[i],
                           i,
                           i / arguments.each,
                           written,
                           nullptr,
                           nullptr};
    if (!add_region(*made, region)) return false;
  }
  merge_regions(*made);
  if (!place_regions(*made)) return false;
  redirect(*made, arguments);
  if (of.ranks > 1 && checks(kCheckRaces)) begin_ranks(of);
  return true;
}

/*! Nothing of the launch is left. */
static void release_checker(Worker& of) {
  Checker& checker = *of.checker;
  for (unsigned i = 0; i < of.threads(); ++i) of.fibers[i].clock = {};
  for (unsigned b = 0; b < of.block_count; ++b) {
    for (Barrier& barrier : of.blocks[b].barriers) barrier.clock = {};
    for (Warp& warp : of.blocks[b].warps) {
      for (LaneSet& set : warp.sets) set.clock = {};
    }
    of.blocks[b].cluster->barrier = {};
    of.blocks[b].end = {};
  }
  for (unsigned r = 0; r < of.ranks; ++r) of.grid_barriers[r] = {};
  checker.atomics.forget(nullptr, ~size_t(0));
  end_flights(nullptr, 0);
  forget_acquires(checker, nullptr);
  copy_back_and_release(checker);
  if (checker.shared_cells) munmap(checker.shared_cells, checker.shared_bytes * sizeof(Cell));
  if (checker.local_bytes) munmap(checker.local_bytes, checker.stack_bytes);
  checker.epochs.release();
  checker.chains.release();
  checker.locations.release();
  checker.remote.release();
  checker.peer_accesses.release();
  for (unsigned r = 0; r < of.ranks; ++r) {
    checker.known[r] = {};
    checker.ends[r] = {};
  }
  free(checker.values);
  free(checker.passed);
  free(checker.pointers);
  free(of.checker);
  of.checker = nullptr;
}

void check_launch_ends(Worker& of, Text& text) {
  if (!of.checker) return;
  Checker& checker = *of.checker;
  judge_suspects();
  if (!of.failed) end_ranks(checker);
  if (!checker.reports.empty()) {
    of.failed = true;
    checker.reports.write(text, checker.locations);
  }
  release_checker(of);
}

}  // namespace emu
}  // namespace tl

#define TL_TSAN_HOOK extern "C" __attribute__((visibility("hidden"), used)) void
#define TL_TSAN_ACCESS(name, access, bytes, aligned)                                       \
  TL_TSAN_HOOK name(void* at) {                                                            \
    tl::emu::observe_plain<tl::emu::Access::access, aligned>(at, bytes,                    \
                                                             __builtin_return_address(0)); \
  }
#define TL_TSAN_ACCESSES(bytes)                                     \
  TL_TSAN_ACCESS(__tsan_read##bytes, kRead, bytes, true)            \
  TL_TSAN_ACCESS(__tsan_write##bytes, kWrite, bytes, true)          \
  TL_TSAN_ACCESS(__tsan_unaligned_read##bytes, kRead, bytes, false) \
  TL_TSAN_ACCESS(__tsan_unaligned_write##bytes, kWrite, bytes, false)
TL_TSAN_ACCESSES(1)
TL_TSAN_ACCESSES(2)
TL_TSAN_ACCESSES(4)
TL_TSAN_ACCESSES(8)
TL_TSAN_ACCESSES(16)
TL_TSAN_HOOK __tsan_read_range(void* at, unsigned long bytes) {
  tl::emu::observe_plain<tl::emu::Access::kRead, false>(at, bytes, __builtin_return_address(0));
}
TL_TSAN_HOOK __tsan_write_range(void* at, unsigned long bytes) {
  tl::emu::observe_plain<tl::emu::Access::kWrite, false>(at, bytes, __builtin_return_address(0));
}
TL_TSAN_HOOK __tsan_func_entry(void*) {}
TL_TSAN_HOOK __tsan_func_exit() {}
TL_TSAN_HOOK __tsan_init() {}
#undef TL_TSAN_ACCESSES
#undef TL_TSAN_ACCESS
#undef TL_TSAN_HOOK
