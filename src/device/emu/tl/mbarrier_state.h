/*!
 * The mbarriers of a block.
 *
 * The 8 bytes of shared memory hold a key to the state, which is kept outside: a key that is not
 * there says that the mbarrier was not initialised, or that something else was written over it. A
 * phase ends when no arrival and no byte of a transaction is missing (PTX ISA, Phase of the
 * mbarrier object).
 */
#pragma once

#include <tl/barrier.h>
#include <tl/issue.h>

namespace tl {
namespace emu {

// PTX ISA, Contents of the mbarrier object.
constexpr unsigned kMaxArrivals = (1 << 20) - 1;
constexpr int kMaxTransactionBytes = (1 << 20) - 1;

// Of as many phases it is known what their ends release.
constexpr unsigned kKnownPhases = 8;

struct Mbarrier : WaitPoint {
  const void* at;  // nullptr after inval
  unsigned phase;  // how many have ended
  unsigned count;  // arrivals that a phase needs
  unsigned pending;
  int bytes;           // expected and not yet transferred
  AsyncQueue engines;  // what will transfer bytes or arrive here
  Location where;      // of the initialisation
  unsigned index;      // in the worker's table
  const Block* block;  // that initialised it
  // Of threads of its block; of other blocks, whose releases only a wait of the cluster acquires;
  // and of other blocks whose releases have the scope of their block, which no wait here acquires.
  SyncClock arriving, remote_arriving, freed_arriving;
  // By phase.
  SyncClock completed[kKnownPhases], remote_completed[kKnownPhases], freed[kKnownPhases];
  // Whether a phase waits for what engines do, too: bytes, or arrivals behind copies. By phase.
  bool has_engines[kKnownPhases + 1];

  MbarrierPhase now() const { return {block, index, phase}; }
  bool& needs_engines(unsigned of_phase) { return has_engines[of_phase % (kKnownPhases + 1)]; }

  void forget() {
    arriving = remote_arriving = freed_arriving = {};
    for (unsigned i = 0; i < kKnownPhases; ++i) completed[i] = remote_completed[i] = freed[i] = {};
  }
};

constexpr uint64_t kMbarrierKey = 0x7ba881e55ca1ab1e;

/*! The initialised mbarrier at an address, or nullptr. */
TL_RUNTIME Mbarrier* find_mbarrier(const void* at) {
  uint64_t key;
  __builtin_memcpy(&key, at, sizeof(key));
  const uint64_t index = key ^ kMbarrierKey;
  if (index >= worker->mbarrier_count) return nullptr;
  Mbarrier* barrier = worker->mbarriers[index];
  return barrier->at == at ? barrier : nullptr;
}

TL_RUNTIME Mbarrier& mbarrier_at(const void* at, const char* operation, Location where) {
  worker->current->where = where;
  check_alignment(at, 8, "address of an mbarrier", where);
  Mbarrier* barrier = find_mbarrier(at);
  if (!barrier) {
    Text& text = begin_error(where);
    text.add("%s of an mbarrier that is not initialised: ", operation);
    add_place(text, at);
    text.add(
        ". Initialise it, then let all threads of the block synchronise; no other data may lie "
        "there");
    abandon();
  }
  check_atomic(at, sizeof(uint64_t), {false, false, true, false, true}, where);
  return *barrier;
}

/*! Names an mbarrier by its buffer, or where it was initialised. */
TL_RUNTIME void add_mbarrier(Text& text, const Mbarrier& barrier) {
  long offset = 0;
  const bool known = find_in_shared(barrier.at, &offset);
  text.add("%cmbarrier%c", kMark, kField);
  if (known) text.add("%ld", offset);
  text.add("%c%s:%d%c", kField, barrier.where.file, barrier.where.line, kMark);
}

TL_RUNTIME void describe_mbarrier(const WaitPoint& point, Text& text) {
  const auto& barrier = static_cast<const Mbarrier&>(point);
  text.add("the end of phase %u (parity %u) of ", barrier.phase, barrier.phase & 1);
  add_mbarrier(text, barrier);
  text.add(": %u of %u arrivals", barrier.count - barrier.pending, barrier.count);
  if (barrier.bytes > 0) text.add(", %d bytes of transactions to come", barrier.bytes);
  if (barrier.bytes < 0) text.add(", %d bytes more than it expects", -barrier.bytes);
}

TL_RUNTIME void advise_at_mbarrier(const WaitPoint& point, Text& text) {
  const auto& barrier = static_cast<const Mbarrier&>(point);
  const unsigned arrived = barrier.count - barrier.pending;
  if (barrier.bytes > 0) {
    text.add(". Bytes are missing at ");
    add_mbarrier(text, barrier);
    text.add(
        ": issue the copies that are to arrive there, and expect as many bytes as they have "
        "(%d less)",
        barrier.bytes);
  } else if (barrier.bytes < 0) {
    text.add(". Copies bring more bytes than expected to ");
    add_mbarrier(text, barrier);
    text.add(": expect %d bytes more, or copy less", -barrier.bytes);
  } else {
    text.add(". Arrivals are missing at ");
    add_mbarrier(text, barrier);
    text.add(": let %u more threads arrive in phase %u", barrier.pending, barrier.phase);
    if (arrived > 0) text.add(", or initialise it for the %u arrivals that come", arrived);
  }
}

/*! A new entry of the worker's table, which keeps those of earlier blocks for reuse. */
TL_RUNTIME Mbarrier* make_mbarrier(Location where) {
  if (worker->mbarrier_count == worker->mbarrier_capacity) {
    const unsigned capacity = worker->mbarrier_capacity ? 2 * worker->mbarrier_capacity : 16;
    auto* grown = static_cast<Mbarrier**>(realloc(worker->mbarriers, capacity * sizeof(Mbarrier*)));
    if (!grown) fail(where, "no memory for another mbarrier");
    for (unsigned i = worker->mbarrier_capacity; i < capacity; ++i) grown[i] = nullptr;
    worker->mbarriers = grown;
    worker->mbarrier_capacity = capacity;
  }
  Mbarrier*& entry = worker->mbarriers[worker->mbarrier_count];
  if (!entry) entry = static_cast<Mbarrier*>(calloc(1, sizeof(Mbarrier)));
  if (!entry) fail(where, "no memory for another mbarrier");
  ++worker->mbarrier_count;
  return entry;
}

TL_RUNTIME void init_mbarrier(void* at, unsigned count, Location where) {
  worker->current->where = where;
  check_alignment(at, 8, "address of an mbarrier", where);
  if (count == 0 || count > kMaxArrivals) {
    fail(where, "an mbarrier that expects %u arrivals. Use 1 to %u", count, kMaxArrivals);
  }
  if (const Mbarrier* other = find_mbarrier(at)) {
    fail(where,
         "this mbarrier was initialised at %s:%d and not invalidated. Initialise it once, by one "
         "thread",
         other->where.file, other->where.line);
  }
  Mbarrier* barrier = make_mbarrier(where);
  barrier->at = at;
  barrier->describe = describe_mbarrier;
  barrier->advise = advise_at_mbarrier;
  barrier->scope = worker->cluster_blocks > 1 ? Scope::kCluster : Scope::kBlock;
  barrier->waiting = {};
  barrier->needs_engines(barrier->phase = 0) = false;
  barrier->count = barrier->pending = count;
  barrier->bytes = 0;
  barrier->engines.clear();
  barrier->where = where;
  barrier->index = worker->mbarrier_count - 1;
  barrier->block = &this_block();
  barrier->forget();
  check_write(at, sizeof(uint64_t), where);
  const uint64_t key = kMbarrierKey ^ (worker->mbarrier_count - 1);
  __builtin_memcpy(at, &key, sizeof(key));
}

/*! Ends the phase where nothing is missing. */
TL_RUNTIME void complete_phase(Mbarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  const unsigned i = barrier.phase % kKnownPhases;
  check_phase_ends(barrier.now(), barrier.arriving, barrier.completed[i]);
  check_phase_ends(barrier.remote_arriving, barrier.remote_completed[i]);
  check_phase_ends(barrier.freed_arriving, barrier.freed[i]);
  barrier.needs_engines(++barrier.phase) = false;
  barrier.pending = barrier.count;
  note_progress();
  release(barrier);
}

TL_RUNTIME void arrive(Mbarrier& barrier, unsigned count, Location where) {
  if (count == 0 || count > barrier.pending) {
    Text& text = begin_error(where);
    text.add("%u arrivals at an mbarrier where %u of %u are missing in phase %u: ", count,
             barrier.pending, barrier.count, barrier.phase);
    add_mbarrier(text, barrier);
    text.add(
        ". Initialise it for as many arrivals as come in a phase, or let the threads wait for a "
        "phase before they arrive in the next one");
    abandon();
  }
  if (is_noted()) note_arrival(barrier, where);
  barrier.pending -= count;
  complete_phase(barrier);
}

/*! Adds to the bytes that the phase waits for; transferred ones are negative. */
TL_RUNTIME void transact(Mbarrier& barrier, int bytes, Location where) {
  const int sum = barrier.bytes + bytes;
  if (bytes > kMaxTransactionBytes || bytes < -kMaxTransactionBytes || sum > kMaxTransactionBytes ||
      sum < -kMaxTransactionBytes) {
    fail(where,
         "%d more bytes of transactions at an mbarrier that waits for %d. It counts from -%d to "
         "%d: transfer less in a phase",
         bytes, barrier.bytes, kMaxTransactionBytes, kMaxTransactionBytes);
  }
  barrier.bytes = sum;
  barrier.needs_engines(barrier.phase) = true;
  complete_phase(barrier);
}

/*! Issues an operation that transfers bytes or arrives at the mbarrier. */
template <typename Operation>
void issue_at(Mbarrier& barrier, const Operation& operation, Location where) {
  issue(barrier.engines, operation, where);
  // Those who wait will need it: let them find it.
  note_progress();
  release(barrier);
}

/*! Whether the phase of this parity has ended, the current one's predecessor having the other
 * parity. */
TL_RUNTIME bool phase_ended(const Mbarrier& barrier, unsigned parity) {
  return (barrier.phase & 1) != (parity & 1);
}

/*! Whose releases a wait acquires (PTX ISA, mbarrier.test_wait, .sem and .scope). */
enum class WaitScope { kBlock, kCluster };

/*!
 * How many phases had ended when the running thread's wait, which passes now, could have passed
 * first: of those that it does not know to have ended, the first one of the same parity.
 *
 * It knows an end that it, or who released to it, has waited for. It knows it as well where all
 * arrivals come before it by other synchronisation: they end the phase in every schedule. What
 * engines do ends at no moment that others know, but by a wait here.
 */
inline unsigned phases_waited_for(Mbarrier& barrier) {
  MbarrierPhase next = barrier.now();
  for (next.phase = check_phases_known(next); barrier.phase - next.phase > 1; ++next.phase) {
    const unsigned i = next.phase % kKnownPhases;
    if (barrier.phase - next.phase > kKnownPhases || barrier.needs_engines(next.phase) ||
        !check_knows_arrivals(next, barrier.completed[i]) ||
        !check_knows_arrivals(next, barrier.remote_completed[i]) ||
        !check_knows_arrivals(next, barrier.freed[i])) {
      break;
    }
  }
  return next.phase + (barrier.phase - next.phase) % 2;
}

/*! A thread that comes late may find a later phase of the same parity than the one that would have
 * let it pass: it acquires what that one released. Of one that is too long ago, nothing. */
inline void acquire_phase(Mbarrier& barrier, WaitScope scope) {
  const unsigned ended = phases_waited_for(barrier);
  if (ended == 0 || barrier.phase - ended >= kKnownPhases) return;
  const unsigned i = (ended - 1) % kKnownPhases;
  check_acquire(barrier.completed[i]);
  if (scope == WaitScope::kCluster) {
    check_acquire(barrier.remote_completed[i]);
  } else {
    check_happened(barrier.remote_completed[i]);
  }
  check_happened(barrier.freed[i]);
}

TL_RUNTIME void wait_for_phase(Mbarrier& barrier, unsigned parity, WaitScope scope,
                               Location where) {
  if (phase_ended(barrier, parity)) return acquire_phase(barrier, scope);
  const unsigned phase = barrier.phase;
  const void* at = barrier.at;
  while (barrier.at == at && barrier.phase == phase) {
    barrier.engines.perform_all();
    if (barrier.phase == phase) wait_at(barrier);
  }
  if (barrier.at != at) fail(where, "the mbarrier was invalidated while this thread waits there");
  if (barrier.phase - phase > 1) {
    Text& text = begin_error(where);
    add_mbarrier(text, barrier);
    text.add(
        " ended phase %u and %u more while this thread waited for the first: by their parity it "
        "cannot tell them apart. Let this thread arrive, or signal, before the next phase can end",
        phase, barrier.phase - phase - 1);
    abandon();
  }
  acquire_phase(barrier, scope);
}

/*! One look at the phase, which lets others go on where it has not ended. */
TL_RUNTIME bool poll_phase(Mbarrier& barrier, unsigned parity, Location where) {
  if (!phase_ended(barrier, parity)) yield(where);
  if (phase_ended(barrier, parity)) {
    acquire_phase(barrier, WaitScope::kBlock);
    worker->current->attempt = 0;
    return true;
  }
  barrier.engines.perform_all();
  note_vain_poll();
  return false;
}

/*! Whether an address is in the shared memory of a cluster: in the worker's, or in a __shared__
 * array, which only a program has that runs one block at a time. */
inline bool lies_in(const Cluster& cluster, const void* at) {
  const uintptr_t offset =
      reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(worker->shared);
  const size_t bytes = worker->cluster_blocks * kSharedStride;
  const size_t clusters = worker->cluster_count();
  return offset / bytes == size_t(&cluster - worker->clusters) || offset / bytes >= clusters;
}

/*! What is wrong with the bytes of a phase that did not end. */
inline void add_unbalanced(Text& text, const Mbarrier& barrier) {
  if (barrier.bytes > 0) {
    text.add("the block ends while this mbarrier expects %d bytes of transactions: ",
             barrier.bytes);
    add_mbarrier(text, barrier);
    text.add(
        ". Issue the copies that are to bring them, or expect no more bytes than come, and wait "
        "for phase %u",
        barrier.phase);
  } else {
    text.add("the block ends after copies brought %d bytes more to this mbarrier than it expects: ",
             -barrier.bytes);
    add_mbarrier(text, barrier);
    text.add(
        ". Expect the bytes of all copies that arrive in a phase (mbarrier_arrive_expect_tx), and "
        "wait for phase %u",
        barrier.phase);
  }
}

/*! Invalidates those of a cluster, and reports transactions that nobody waited for. */
TL_RUNTIME bool finish_mbarriers(const Cluster& cluster, Text& text) {
  bool all = true;
  for (unsigned i = 0; i < worker->mbarrier_count; ++i) {
    Mbarrier& barrier = *worker->mbarriers[i];
    const bool mine = barrier.at && lies_in(cluster, barrier.at);
    all = all && (mine || !barrier.at);
    if (!mine) continue;
    if (barrier.bytes == 0 && barrier.engines.empty()) {
      barrier.at = nullptr;
      continue;
    }
    const Location where = barrier.engines.empty() ? barrier.where : barrier.engines.front().where;
    text.add("%s:%d: ", where.file, where.line);
    if (barrier.engines.empty()) {
      add_unbalanced(text, barrier);
    } else {
      text.add("the block ends while this operation is in flight. Wait for phase %u of ",
               barrier.phase);
      add_mbarrier(text, barrier);
    }
    return false;
  }
  if (all) worker->mbarrier_count = 0;
  return true;
}

TL_RUNTIME void free_mbarriers(Worker& owner) {
  for (unsigned i = 0; i < owner.mbarrier_capacity; ++i) {
    if (!owner.mbarriers[i]) continue;
    owner.mbarriers[i]->engines.free_items();
    owner.mbarriers[i]->forget();
    free(owner.mbarriers[i]);
  }
  free(owner.mbarriers);
}

}  // namespace emu
}  // namespace tl
