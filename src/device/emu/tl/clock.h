/*!
 * Vector clocks: which accesses of which threads are ordered before a moment of a thread.
 *
 * Time of a thread advances at each release. A clock says for every actor up to which of its times
 * everything is ordered before the clock's moment (Flanagan and Freund, FastTrack, PLDI 2009). An
 * actor is a thread, or one of the engines that work for it; their operations complete in groups,
 * and the group's number is their time. Clocks are shared: after a barrier all threads of a block
 * have the same one, and each knows its own times beside it.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tl/runtime.h>

namespace tl {
namespace emu {

/*! Who performs an access for a thread. Reads and writes of a bulk group are waited for apart. */
enum class Engine : unsigned { kThread, kCpAsync, kBulkRead, kBulkWrite, kWgmma, kMbarrier };
// Those whose groups a thread counts. Operations that an mbarrier announces have its phases as
// time.
constexpr unsigned kEngines = 5;

/*! Times of the actors of one block: engine * threads + thread, then those of mbarriers. */
struct Times {
  unsigned references, count;
  uint32_t of[1];
};

struct Clock {
  struct Entry {
    unsigned block;
    Times* times;
  };
  unsigned references, count;
  uint64_t serial;   // of no other clock, ever: addresses are used again
  Entry entries[1];  // by block
};

inline thread_local uint64_t clock_serial = 0;

[[noreturn]] void fail_without_memory();  // error.h

TL_RUNTIME void* zeroed(size_t bytes) {
  void* memory = calloc(1, bytes);
  if (!memory) fail_without_memory();
  return memory;
}

TL_RUNTIME Times* make_times(unsigned count) {
  Times* made = static_cast<Times*>(zeroed(sizeof(Times) + count * sizeof(uint32_t)));
  made->references = 1;
  made->count = count;
  return made;
}

inline Times* keep(Times* times) {
  ++times->references;
  return times;
}

inline void drop(Times* times) {
  if (--times->references == 0) free(times);
}

TL_RUNTIME Clock* make_clock(unsigned count) {
  Clock* made = static_cast<Clock*>(zeroed(sizeof(Clock) + count * sizeof(Clock::Entry)));
  made->references = 1;
  made->count = count;
  made->serial = ++clock_serial;
  return made;
}

TL_RUNTIME void drop(Clock* clock) {
  if (!clock || --clock->references > 0) return;
  for (unsigned i = 0; i < clock->count; ++i) drop(clock->entries[i].times);
  free(clock);
}

/*! A counted reference. */
class ClockRef {
 public:
  ClockRef() = default;
  explicit ClockRef(Clock* owned) : clock_(owned) {}
  ClockRef(const ClockRef& other) : clock_(other.clock_) {
    if (clock_) ++clock_->references;
  }
  ClockRef(ClockRef&& other) : clock_(other.clock_) { other.clock_ = nullptr; }
  ClockRef& operator=(ClockRef other) {
    Clock* old = clock_;
    clock_ = other.clock_;
    other.clock_ = old;
    return *this;
  }
  ~ClockRef() { drop(clock_); }

  Clock* get() const { return clock_; }
  uint64_t serial() const { return clock_ ? clock_->serial : 0; }

  uint32_t time(unsigned block, unsigned actor) const {
    if (!clock_) return 0;
    for (unsigned i = 0; i < clock_->count; ++i) {
      const Clock::Entry& entry = clock_->entries[i];
      if (entry.block == block) return actor < entry.times->count ? entry.times->of[actor] : 0;
    }
    return 0;
  }

  /*! Raises one time. What others share with this reference stays as it is. */
  void raise(unsigned block, unsigned actor, uint32_t time) {
    Clock::Entry& entry = own_entry(block, actor + 1);
    if (entry.times->of[actor] < time) entry.times->of[actor] = time;
  }

 private:
  Clock::Entry& own_entry(unsigned block, unsigned actors);

  Clock* clock_ = nullptr;
};

inline Clock::Entry& ClockRef::own_entry(unsigned block, unsigned actors) {
  unsigned at = 0, count = clock_ ? clock_->count : 0;
  while (at < count && clock_->entries[at].block < block) ++at;
  const bool found = at < count && clock_->entries[at].block == block;
  if (!found || clock_->references > 1) {
    Clock* mine = make_clock(count + !found);
    for (unsigned i = 0; i < count; ++i) {
      const Clock::Entry& entry = clock_->entries[i];
      mine->entries[i + (!found && i >= at)] = {entry.block, keep(entry.times)};
    }
    if (!found) mine->entries[at] = {block, make_times(actors)};
    drop(clock_);
    clock_ = mine;
  }
  Clock::Entry& entry = clock_->entries[at];
  if (entry.times->references > 1 || entry.times->count < actors) {
    const unsigned had = entry.times->count;
    Times* mine = make_times(had < actors ? actors : had);
    memcpy(mine->of, entry.times->of, had * sizeof(uint32_t));
    drop(entry.times);
    entry.times = mine;
  }
  // Whoever remembers this clock by its serial remembers earlier times.
  clock_->serial = ++clock_serial;
  return entry;
}

/*! Whether `later` has every time that `earlier` has. */
TL_RUNTIME bool includes(const ClockRef& later, const ClockRef& earlier) {
  const Clock* const clock = earlier.get();
  for (unsigned i = 0; clock && i < clock->count; ++i) {
    const Clock::Entry& entry = clock->entries[i];
    for (unsigned actor = 0; actor < entry.times->count; ++actor) {
      if (later.time(entry.block, actor) < entry.times->of[actor]) return false;
    }
  }
  return true;
}

/*! The later times of both. The result is one of the arguments where that is enough. */
TL_RUNTIME Times* join(Times* a, Times* b) {
  if (a == b) return keep(a);
  if (a->count < b->count) {
    Times* shorter = a;
    a = b;
    b = shorter;
  }
  bool a_lacks = false, b_lacks = a->count > b->count;
  for (unsigned i = 0; i < b->count; ++i) {
    a_lacks |= a->of[i] < b->of[i];
    b_lacks |= b->of[i] < a->of[i];
  }
  if (!a_lacks) return keep(a);
  if (!b_lacks) return keep(b);
  Times* both = make_times(a->count);
  for (unsigned i = 0; i < a->count; ++i) {
    both->of[i] = i < b->count && b->of[i] > a->of[i] ? b->of[i] : a->of[i];
  }
  return both;
}

TL_RUNTIME ClockRef join(const ClockRef& a, const ClockRef& b) {
  const Clock *x = a.get(), *y = b.get();
  if (!y || x == y) return a;
  if (!x) return b;
  Clock* both = make_clock(x->count + y->count);
  unsigned n = 0, i = 0, j = 0;
  bool is_x = true, is_y = true;
  while (i < x->count || j < y->count) {
    const bool take_x =
        j == y->count || (i < x->count && x->entries[i].block <= y->entries[j].block);
    const bool take_y =
        i == x->count || (j < y->count && y->entries[j].block <= x->entries[i].block);
    Times* const from_x = take_x ? x->entries[i].times : nullptr;
    Times* const from_y = take_y ? y->entries[j].times : nullptr;
    const unsigned block = take_x ? x->entries[i].block : y->entries[j].block;
    Times* joined = !from_x ? keep(from_y) : !from_y ? keep(from_x) : join(from_x, from_y);
    is_x &= joined == from_x;
    is_y &= joined == from_y;
    both->entries[n++] = {block, joined};
    i += take_x;
    j += take_y;
  }
  both->count = n;
  ClockRef result(both);
  return is_x ? a : is_y ? b : result;
}

}  // namespace emu
}  // namespace tl
