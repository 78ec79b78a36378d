/*!
 * What the parts of the emulator tell the checks: who waits for whom, and who touches what.
 *
 * TL_EMU_CHECKS is the set of checks that a library is compiled with (tilelang/emulator/checks.py
 * has the same numbers); without any, all of this is nothing.
 *
 * A synchronisation object has a SyncClock: whoever arrives releases into it, whoever leaves
 * acquires from it. An asynchronous operation has an Agent, which is checked when it is issued: its
 * accesses count as ordered behind what the issuing thread knew then, and are ordered before
 * others only by what announces its end.
 */
#pragma once

#include <stddef.h>
#include <tl/clock.h>
#include <tl/location.h>

namespace tl {
namespace emu {

struct Block;
struct Checker;
struct Cluster;
struct Fiber;
struct Text;
struct WaitPoint;
struct Worker;

constexpr unsigned kCheckRaces = 1, kCheckUninitialized = 2, kCheckBounds = 4;

constexpr bool checks(unsigned kinds) { return (TL_EMU_CHECKS & kinds) != 0; }

#if TL_EMU_CHECKS

/*! What a thread knows: the accesses of others that are ordered before it, and how far it is
 * itself. */
struct ThreadClock {
  ClockRef seen;
  ClockRef fenced;                 // what the async proxy sees of generic writes
  uint32_t times[kEngines] = {1};  // its own, and of its engines the groups it has waited for
  uint32_t fenced_time = 0;
  // Beside the two: what other blocks released to waits at block scope. It is over, though what it
  // wrote is not acquired.
  ClockRef happened, happened_fenced;
  ClockRef published;  // what its relaxed atomic operations release, behind a fence
  uint32_t published_time = 0;
  ClockRef found;      // what its relaxed ones have met, which a fence acquires
  unsigned epoch = 0;  // number of the present time of this thread, 0 before it is needed
};

/*! Clocks joined, with a memory of the last ones: all threads of a barrier have the same. */
struct JoinedClock {
  ClockRef all;
  uint64_t joined = 0;  // serial of the clock that was joined last
  uint64_t asked = 0, asked_of = 0;
  ClockRef answer;  // `asked` joined with `all` when its serial was `asked_of`

  void add(const ClockRef& clock) {
    if (!clock.get() || clock.serial() == joined) return;
    all = join(all, clock);
    joined = clock.serial();
  }
  void acquire(ClockRef& clock) {
    if (!all.get()) return;
    if (!clock.get() || clock.serial() == joined) {
      clock = all;
      return;
    }
    if (asked != clock.serial() || asked_of != all.serial()) {
      asked = clock.serial();
      asked_of = all.serial();
      answer = join(all, clock);
    }
    clock = answer;
  }
};

struct SyncClock {
  JoinedClock seen, fenced;
  JoinedClock happened, happened_fenced;  // what is over for one thread is over for those behind it
};

/*! A declared array of a thread, while it lives. */
struct LocalArray {
  LocalArray* outer;
  void* data;
  size_t bytes;
};

/*! Those of a thread. */
struct LocalArrays {
  LocalArray* innermost = nullptr;
};

#else

struct ThreadClock {};
struct LocalArray;
struct LocalArrays {};
struct SyncClock {};

#endif

/*! An asynchronous operation of the running thread, from its issue on. */
struct Agent {
  Fiber* issuer;
  unsigned epoch;
  Engine engine;
};

/*! A phase of the worker's `index`-th mbarrier, which a block has initialised. */
struct MbarrierPhase {
  const Block* block;
  unsigned index, phase;
};

/*! The extent of a buffer, and an address that was computed from it. */
struct Bounds {
  const void* at;
  const void* begin;
  const void* end;
};

/*! The arguments of a launch. `bytes` are those that each pointer leads to; kUnknownBytes where the
 * caller does not say. */
struct Arguments {
  enum Kind : unsigned char { kValue, kReadOnly, kWritable };
  void** values;
  const unsigned long* bytes;  // nullptr: of none is it known
  const unsigned char* kinds;  // of one rank's
  unsigned each;               // how many a rank has
  unsigned count;              // of all ranks, one rank after the other

  Kind kind(unsigned i) const { return Kind(kinds[i % each]); }
};
constexpr unsigned long kUnknownBytes = ~0ul;

#if TL_EMU_CHECKS
#define TL_CHECK(declaration) declaration;
#else
#define TL_CHECK(declaration) \
  inline declaration {}
#endif

/*! Threads that arrive release, threads that go on acquire. */
TL_CHECK(void check_release(SyncClock&))
TL_CHECK(void check_acquire(SyncClock&))
/*! All that wait go on: they acquire, and the next phase begins. */
TL_CHECK(void check_phase_ends(WaitPoint&))
/*! What was released goes to those that look for it later. */
TL_CHECK(void check_phase_ends(SyncClock&, SyncClock& /*completed*/))
TL_CHECK(void check_fence_proxy_async())
/*! What was released has happened, though its scope does not order it before the running thread. */
TL_CHECK(void check_happened(SyncClock&))
/*! The threads of a block are made. */
TL_CHECK(void check_block_begins(Block&))
/*! The running thread exits. */
TL_CHECK(void check_exit())
/*! All threads of a cluster have exited. */
TL_CHECK(void check_cluster_ends(Cluster&))

/*! The running thread acquires a tensor map in global memory; a copy of its uses one, in global
 * memory or not. */
TL_CHECK(void check_map_acquired(const void*))
TL_CHECK(void check_map_used(const void*, Location))

/*! Groups before `group` are complete for the running thread. */
TL_CHECK(void check_groups_done(Engine, unsigned /*group*/))

/*! The same for a group of the warp's products, for all its lanes. */
TL_CHECK(void check_warp_groups_done(unsigned /*group*/))

/*! A product of the running thread's warp uses registers of its lanes until its group is done. */
TL_CHECK(void check_product_registers(const void* const*, size_t, bool /*writes*/, bool /*reads*/,
                                      unsigned /*group*/, Location))

/*! The running thread's cp.async so far arrive at an mbarrier when they are complete. */
TL_CHECK(void check_copies_arrive(SyncClock&, unsigned /*group*/))
/*! A phase of an mbarrier ends, and with it the operations that it announces. */
TL_CHECK(void check_phase_ends(const MbarrierPhase&, SyncClock&, SyncClock& /*completed*/))

/*! Accesses between the two are those of an engine, which are known. */
TL_CHECK(void check_engine_begins())
TL_CHECK(void check_engine_ends())

/*! Bytes from a pointer of a buffer on are to be in the buffer. */
TL_CHECK(void check_extent(const void*, size_t, Location))

/*! Accesses of the running thread, which are not plain ones of the program, and of an agent. */
TL_CHECK(void check_read(const void*, size_t, Location))
TL_CHECK(void check_write(void*, size_t, Location))
TL_CHECK(void check_read(const Agent&, const void*, size_t, Location))
TL_CHECK(void check_write(const Agent&, void*, size_t, Location))
/*! Combines with what is there, each element atomically. */
TL_CHECK(void check_reduce(const Agent&, void*, size_t, Location))
/*! An atomic operation's memory order, and what it does. */
struct AtomicOrder {
  bool acquires, releases, reads, writes;
  bool system;  // its scope is all GPUs
};
/*! One whose scope is not the system is a plain access of another rank's memory (PTX ISA, Morally
 * strong operations). */
TL_CHECK(void check_atomic(const void*, size_t, AtomicOrder, Location))
/*! Its order. One that stores ends the release sequence (PTX ISA, Release Sequences). */
TL_CHECK(void check_atomic_order(const void*, AtomicOrder))
/*! A fence of acquire and release. */
TL_CHECK(void check_fence())

/*! Arrays of a thread: undefined when they begin, no memory of the program's when they end. */
TL_CHECK(void check_array_begins(LocalArray&))
TL_CHECK(void check_array_ends(LocalArray&))
TL_CHECK(void check_defined(void*, size_t))
TL_CHECK(void check_bounds(const Bounds&, size_t))
/*! A declared buffer of shared memory, and one that a function of the user's has a pointer into. */
TL_CHECK(void check_declared(const void* /*begin*/, const void* /*end*/))
TL_CHECK(void check_passed(const Bounds&))
/*! An index of one dimension is outside of its extent. */
TL_CHECK(void check_index(long long, long long /*extent*/, const char* /*buffer*/,
                          int /*dimension*/, Location))

/*! A block begins; bytes of its shared memory are new. */
TL_CHECK(void check_shared_begins(const unsigned char*, size_t))
TL_CHECK(void check_launch_ends(Worker&, Text&))
#undef TL_CHECK

#if TL_EMU_CHECKS
/*! An operation of the group that the running thread has open. */
Agent check_issue(Engine engine, unsigned group);
/*! A product of the running thread's warp. */
Agent check_issue_product(unsigned group);
/*! An operation that an mbarrier announces. */
Agent check_issue(const MbarrierPhase& phase);
/*! How many phases the running thread knows to have ended, because it, or who released to it,
 * waited for them. */
unsigned check_phases_known(const MbarrierPhase& now);
/*! Whether all that a phase's end has released is ordered before the running thread's moment. */
bool check_knows_arrivals(const MbarrierPhase& phase, const SyncClock& completed);
/*! Where memory that the caller knows by `address` is during the launch. */
void* check_relocated(void* address);
/*! False where there is no memory. The arguments then point to where the tensors are meanwhile. */
bool check_launch_begins(Worker& worker, Arguments& arguments);
#else
inline Agent check_issue(Engine, unsigned) { return {}; }
inline Agent check_issue_product(unsigned) { return {}; }
inline Agent check_issue(const MbarrierPhase&) { return {}; }
inline unsigned check_phases_known(const MbarrierPhase& now) { return now.phase; }
inline bool check_knows_arrivals(const MbarrierPhase&, const SyncClock&) { return true; }
inline void* check_relocated(void* address) { return address; }
inline bool check_launch_begins(Worker&, Arguments&) { return true; }
#endif

}  // namespace emu
}  // namespace tl
