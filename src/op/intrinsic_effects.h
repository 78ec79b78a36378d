/*! What a call of an intrinsic does beside reading and writing through its pointers, as columns
 * that passes ask. */
#pragma once
#include <cstdint>

#include "../target/copies.h"

namespace tl {

/*! What a call does to its queue. */
enum class QueueStep : uint8_t {
  kNone,
  kOperand,  // prepares an operand: a descriptor
  kIssue,    // starts an operation
  kFence,    // orders registers and earlier writes with what is issued next
  kCommit,   // makes a group of what was issued
  kWait      // <n>(): until at most n groups are in flight
};

/*! What a result depends on. */
enum class CallResult : uint8_t {
  kOfOperands,  // the operands: equal in all threads that give equal ones
  kOfThread,    // the thread, whatever the operands
  kOfBlock      // the block: one value in all its threads, whatever the operands
};

/*!
 * Built from `IntrinsicEffects::None()` and what differs from it; there are no default effects, so
 * that each row of the table says its own.
 */
struct IntrinsicEffects {
  /*! The threads that have to call it together: a barrier, a vote, a shuffle, a matrix
   * instruction. */
  ThreadScope meets;
  /*! A barrier: what these threads did to memory before it comes before what they do behind it. */
  bool orders;
  /*! The first operand is the mask of the lanes that call it. */
  bool has_lane_mask;
  /*! Each lane gives the address of a row of so many bytes, whose elements other lanes of the warp
   * hold or get; 0 without rows. */
  int row_bytes;
  /*! Whose threads may go on, or learn of writes, by this call: an arrival, an atomic operation. */
  ThreadScope tells;
  /*! What an atomic operation does to an element; those that do the same commute. */
  const char* update;
  CallResult result;
  /*! All lanes of a warp get one value. */
  bool agrees_in_warp;
  AsyncQueue queue;
  QueueStep step;
  /*! A program that calls it schedules its threads and its asynchronous operations itself; warp
   * specialisation leaves such a kernel alone. */
  bool schedules;
  /*! Somebody outside of the kernel sees it: text, an error. */
  bool is_observable;

  IntrinsicEffects() = delete;

  /*! Its value, and what it reads and writes through pointers, is all that there is. */
  constexpr bool IsPlain() const {
    return meets == ThreadScope::kThread && tells == ThreadScope::kThread && !orders &&
           queue == AsyncQueue::kNone && !schedules && !is_observable;
  }
  /*! Starts or changes something that another unit than this thread then does to memory. */
  constexpr bool StartsAsync() const {
    return step == QueueStep::kIssue && queue != AsyncQueue::kCpAsync;
  }

  /*! It touches memory through its pointers at most, and gives a function of its operands. */
  static constexpr IntrinsicEffects None() {
    return IntrinsicEffects(ThreadScope::kThread, ThreadScope::kThread, CallResult::kOfOperands);
  }
  constexpr IntrinsicEffects Meets(ThreadScope scope) const {
    IntrinsicEffects e = *this;
    e.meets = scope;
    return e;
  }
  /*! A barrier of these threads; of kThread, a fence. */
  constexpr IntrinsicEffects Barrier(ThreadScope scope) const {
    IntrinsicEffects e = Meets(scope);
    e.orders = true;
    e.tells = scope;
    return e;
  }
  constexpr IntrinsicEffects LaneMask() const {
    IntrinsicEffects e = Meets(ThreadScope::kLanes);
    e.has_lane_mask = true;
    return e;
  }
  constexpr IntrinsicEffects SharesRows(int bytes) const {
    IntrinsicEffects e = *this;
    e.row_bytes = bytes;
    return e;
  }
  constexpr IntrinsicEffects Updates(const char* how) const {
    IntrinsicEffects e = *this;
    e.update = how;
    return e;
  }
  constexpr IntrinsicEffects Tells(ThreadScope scope) const {
    IntrinsicEffects e = *this;
    e.tells = scope;
    return e;
  }
  constexpr IntrinsicEffects Gives(CallResult what) const {
    IntrinsicEffects e = *this;
    e.result = what;
    return e;
  }
  constexpr IntrinsicEffects AgreesInWarp() const {
    IntrinsicEffects e = *this;
    e.agrees_in_warp = true;
    return e;
  }
  constexpr IntrinsicEffects Queue(AsyncQueue which, QueueStep does) const {
    IntrinsicEffects e = *this;
    e.queue = which;
    e.step = does;
    return e;
  }
  constexpr IntrinsicEffects Schedules() const {
    IntrinsicEffects e = *this;
    e.schedules = true;
    return e;
  }
  constexpr IntrinsicEffects Observable() const {
    IntrinsicEffects e = *this;
    e.is_observable = true;
    return e;
  }

 private:
  constexpr IntrinsicEffects(ThreadScope meets, ThreadScope tells, CallResult result)
      : meets(meets),
        orders(false),
        has_lane_mask(false),
        row_bytes(0),
        tells(tells),
        update(""),
        result(result),
        agrees_in_warp(false),
        queue(AsyncQueue::kNone),
        step(QueueStep::kNone),
        schedules(false),
        is_observable(false) {}
};

}  // namespace tl
