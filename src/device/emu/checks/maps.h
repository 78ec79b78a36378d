/*!
 * Who has acquired a tensor map in global memory. The host writes it by the generic proxy, and
 * copies read it by the tensormap proxy: fence.proxy.tensormap stands between, in the thread that
 * copies or in one of its block that is ordered before it (PTX ISA, Memory Consistency Model,
 * Causality order). Maps that are parameters of the kernel need none.
 */
#pragma once

#include "flights.h"

namespace tl {
namespace emu {

/*! When each thread of a block has acquired a map for the first time; 0: it has not. */
struct MapAcquire {
  const void* map;
  const Block* block;
  MapAcquire* next;
  uint32_t times[kMaxThreads];
};

inline MapAcquire* find_acquire(const void* map, const Block& block) {
  MapAcquire* item = worker->checker->map_acquires;
  while (item && (item->map != map || item->block != &block)) item = item->next;
  return item;
}

inline void note_acquire(const void* map, const Fiber& thread) {
  MapAcquire* item = find_acquire(map, *thread.block);
  if (!item) {
    item = static_cast<MapAcquire*>(zeroed(sizeof(MapAcquire)));
    item->map = map;
    item->block = thread.block;
    item->next = worker->checker->map_acquires;
    worker->checker->map_acquires = item;
  }
  uint32_t& time = item->times[thread.linear];
  if (time == 0) time = thread.clock.times[0];
}

/*! Whether the thread, or one that is ordered before it, has acquired the map. */
inline bool has_acquired(const void* map, const Fiber& thread) {
  const MapAcquire* item = find_acquire(map, *thread.block);
  if (!item) return false;
  const ClockRef& seen = thread.clock.seen;
  const unsigned block = number_of(*thread.block);
  for (unsigned i = 0; i < thread.block->threads; ++i) {
    const uint32_t time = item->times[i];
    if (time == 0) continue;
    const unsigned actor = actor_of(thread.block->fibers[i], Engine::kThread);
    if (i == thread.linear || seen.time(block, actor) >= time) return true;
  }
  return false;
}

/*! Those of a block, or all where it is nullptr. */
inline void forget_acquires(Checker& checker, const Block* block) {
  for (MapAcquire** link = &checker.map_acquires; *link;) {
    MapAcquire* const item = *link;
    if (block && item->block != block) {
      link = &item->next;
      continue;
    }
    *link = item->next;
    free(item);
  }
}

/*! Whether a map is a parameter of the kernel: each thread has them on its stack. */
inline bool is_parameter(const void* map) {
  return lies_in(map, worker->stacks, worker->checker->stack_bytes);
}

}  // namespace emu
}  // namespace tl
