/*!
 * Fibers, the queues they stand in, and the worker that runs them: one block at a time, one fiber
 * for each thread.
 *
 * A fiber runs until it has to wait. Then it joins the queue of a wait point and hands over to the
 * next ready fiber; whoever completes the wait point moves the whole queue back among the ready
 * ones. When nobody is ready, the worker's own context goes on: the block is done, or its threads
 * wait for each other.
 */
#pragma once

#include <stdint.h>
#include <tl/context.h>
#include <tl/copy_queue.h>
#include <tl/dim3.h>

namespace tl {
namespace emu {

/*! A line of the kernel, or of the Python that a #line directive names. */
struct Location {
  const char* file;
  int line;
};

/*! As a default argument: where the function is called. */
constexpr Location here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line};
}

struct Fiber;

struct Queue {
  Fiber* first;
  Fiber* last;

  void push(Fiber* fiber);
  Fiber* pop();
  void take_all(Queue& other);
};

/*! What threads wait at: a barrier of the block or a collective of a warp. */
struct WaitPoint {
  const char* name;
  bool collective;
  unsigned arrived;
  unsigned expected;  // 0: all threads of the block that have not exited
  Queue waiting;
};

struct Fiber {
  Context context;
  Fiber* next;
  uint3 index;
  unsigned linear;
  bool exited;
  const WaitPoint* waits_at;
  Location where;  // the last one known
  CopyQueue copies;
};

constexpr int kWarpSize = 32;
constexpr int kBarriers = 16;  // PTX ISA, bar
constexpr unsigned kMaxThreads = 1024;

/*! What the last lane to arrive does for its warp, with the arguments of all lanes. */
using Collective = void (*)(void* const* arguments);

struct Warp {
  WaitPoint point;
  Collective collective;
  Location where;
  void* arguments[kWarpSize];
  WaitPoint barrier;  // sync_warp
  uint32_t barrier_mask;
};

/*! All zeros when made. */
struct Worker {
  Fiber* current;  // nullptr while the worker's own context runs
  Queue ready;
  Context scheduler;
  unsigned threads, live;  // of this block; live ones have not exited
  void (*invoke)(const void* closure);
  const void* closure;
  const char* kernel;
  Fiber fibers[kMaxThreads];
  Warp warps[kMaxThreads / kWarpSize];
  WaitPoint barriers[kBarriers];
  char* stacks;
  char* error;
  unsigned long error_size;
  bool failed;
};

inline thread_local Worker* worker = nullptr;

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

/*! Gives the processor away; returns when this fiber is ready and its turn comes. */
inline void hand_over(Fiber* self) {
  Fiber* next = worker->ready.pop();
  if (next) {
    if (next == self) return;
    worker->current = next;
    switch_context(self->context, next->context);
  } else {
    switch_context(self->context, worker->scheduler);
  }
}

inline void wait_at(WaitPoint& point) {
  Fiber* self = worker->current;
  self->waits_at = &point;
  point.waiting.push(self);
  hand_over(self);
  self->waits_at = nullptr;
}

inline void release(WaitPoint& point) {
  point.arrived = 0;
  worker->ready.take_all(point.waiting);
}

}  // namespace emu
}  // namespace tl
