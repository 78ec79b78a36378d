/*!
 * Atomic operations on global and shared memory. A fiber gives the processor away only where it
 * waits, so plain reads and writes are atomic; memory orders add nothing. A load, and an operation
 * that changes nothing, lets the other threads go on, because it may be in a loop that waits for
 * one of them.
 */
#pragma once

#include <tl/barrier.h>
#include <tl/math.h>
#include <tl/memory_order.h>

namespace tl {
namespace emu {

/*! Takes note of what an atomic operation finds. The same at the same place leads nowhere. */
template <typename T>
TL_DEVICE void note_found(const T* at, T value) {
  Fiber* self = worker->current;
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  if (self->polled_at != at || self->polled_bits != bits) worker->fruitless = 0;
  self->polled_at = at;
  self->polled_bits = bits;
}

template <typename T, typename Change>
TL_DEVICE T update(T* at, Location where, Change change) {
  worker->current->where = where;
  check_alignment(at, sizeof(T), "address of an atomic operation", where);
  const T old = *at, now = change(old);
  *at = now;
  if (__builtin_memcmp(&old, &now, sizeof(T)) == 0) {
    note_found(at, old);
    yield(where);
  } else {
    worker->fruitless = 0;
  }
  return old;
}

}  // namespace emu

#define TL_ATOMIC(name, expression)                                                 \
  template <MemoryOrder order, typename T>                                          \
  TL_DEVICE T fetch_##name(T* at, T value, emu::Location where = emu::here()) {     \
    return emu::update(at, where, [value](T old) { return T(expression); });        \
  }                                                                                 \
  template <MemoryOrder order, typename T>                                          \
  TL_DEVICE void atomic_##name(T* at, T value, emu::Location where = emu::here()) { \
    emu::update(at, where, [value](T old) { return T(expression); });               \
  }
TL_ATOMIC(add, old + value)
TL_ATOMIC(max, tl::max(old, value))
TL_ATOMIC(min, tl::min(old, value))
TL_ATOMIC(or, old | value)
#undef TL_ATOMIC

/*! Adds N elements at `at`, which is aligned as the vector is. */
template <MemoryOrder order, typename T, int N>
TL_DEVICE vec<T, N> fetch_add(T* at, const vec<T, N>& value, emu::Location where = emu::here()) {
  emu::check_alignment(at, sizeof(value), "address of an atomic operation", where);
  vec<T, N> old;
  for (int i = 0; i < N; ++i) old.data[i] = fetch_add<order>(at + i, value.data[i], where);
  return old;
}
template <MemoryOrder order, typename T, int N>
TL_DEVICE void atomic_add(T* at, const vec<T, N>& value, emu::Location where = emu::here()) {
  fetch_add<order>(at, value, where);
}

template <MemoryOrder order, typename T>
TL_DEVICE T atomic_load(const T* at, emu::Location where = emu::here()) {
  emu::check_alignment(at, sizeof(T), "address of an atomic operation", where);
  emu::yield(where);
  emu::note_found(at, *at);
  return *at;
}

template <MemoryOrder order, typename T>
TL_DEVICE void atomic_store(T* at, T value, emu::Location where = emu::here()) {
  emu::update(at, where, [value](T) { return value; });
}

}  // namespace tl
