/*!
 * Fibers, the queues they stand in, and what they wait at.
 *
 * A fiber runs until it has to wait. Then it joins the queue of a wait point and hands over to the
 * next ready fiber (worker.h); whoever completes the wait point moves the whole queue back among
 * the ready ones.
 */
#pragma once

#include <stdint.h>
#include <tl/async.h>
#include <tl/check.h>
#include <tl/context.h>
#include <tl/dim3.h>
#include <tl/location.h>

namespace tl {
namespace emu {

struct Block;
struct Fiber;
struct SignalWait;
struct Text;

struct Queue {
  Fiber* first;
  Fiber* last;

  void push(Fiber* fiber);
  Fiber* pop();
  void take_all(Queue& other);
};

/*! Whose threads may arrive at a wait point. */
enum class Scope : unsigned char { kBlock, kWarp, kCluster, kGrid };

/*! What threads wait at; barriers and collectives derive from it. */
struct WaitPoint {
  /*! Says in a report what is waited for: "barrier 3: 32 of 64 threads have arrived". */
  void (*describe)(const WaitPoint& self, Text& text);
  /*! Adds a sentence on what to do in a deadlock; nullptr where its scope says that. */
  void (*advise)(const WaitPoint& self, Text& text);
  unsigned arrived;
  unsigned expected;
  Queue waiting;
  Scope scope;
  SyncClock clock;
  unsigned attempt;  // the largest of the threads that wait here (Fiber)
};

/*! Places with their values that a thread's atomic operations have found without changing them. */
struct Findings {
  static constexpr unsigned kMost = 32;
  uint64_t recent[kMost];
  unsigned oldest;

  /*! Whether this is none of the last ones. */
  bool is_new(uint64_t finding) {
    for (uint64_t known : recent) {
      if (known == finding) return false;
    }
    recent[oldest] = finding;
    oldest = (oldest + 1) % kMost;
    return true;
  }
};

struct Fiber {
  Context context;
  Fiber* next;
  Block* block;
  uint3 index;
  unsigned linear;
  unsigned role;  // in an adversarial schedule
  bool exited;
  bool cluster_arrived;  // at the cluster's barrier, without having waited yet
  unsigned cluster_phase;
  const WaitPoint* waits_at;
  Location where;  // the last one known
  Findings findings;
  // In how many of its next barriers and collectives this thread comes with nothing but a poll in
  // vain: a loop around them that polls leads nowhere.
  unsigned attempt;
  const SignalWait* signal;  // that it polls for
  ThreadQueues queues;
  ThreadClock clock;
  LocalArrays arrays;
};

inline void Queue::push(Fiber* fiber) {
  fiber->next = nullptr;
  (last ? last->next : first) = fiber;
  last = fiber;
}

inline Fiber* Queue::pop() {
  Fiber* fiber = first;
  if (fiber) {
    first = fiber->next;
    if (!first) last = nullptr;
  }
  return fiber;
}

inline void Queue::take_all(Queue& other) {
  if (!other.first) return;
  (last ? last->next : first) = other.first;
  last = other.last;
  other.first = other.last = nullptr;
}

}  // namespace emu
}  // namespace tl
