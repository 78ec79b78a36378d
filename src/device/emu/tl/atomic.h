/*!
 * Atomic operations on global and shared memory. A fiber gives the processor away only where it
 * waits, so plain reads and writes are atomic; memory orders add nothing. A load lets the other
 * threads of the block go on, because it may be in a loop that waits for one of them.
 */
#pragma once

#include <tl/math.h>
#include <tl/memory_order.h>

namespace tl {
namespace emu {

template <typename T, typename Change>
TL_DEVICE T update(T* at, Location where, Change change) {
  worker->current->where = where;
  check_alignment(at, sizeof(T), "address of an atomic operation", where);
  const T old = *at;
  *at = change(old);
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
  emu::Fiber* self = emu::worker->current;
  self->where = where;
  emu::check_alignment(at, sizeof(T), "address of an atomic operation", where);
  emu::worker->ready.push(self);
  emu::hand_over(self);
  return *at;
}

template <MemoryOrder order, typename T>
TL_DEVICE void atomic_store(T* at, T value, emu::Location where = emu::here()) {
  emu::update(at, where, [value](T) { return value; });
}

}  // namespace tl
