/*!
 * Atomic operations on global and shared memory. A fiber gives the processor away only where it
 * waits, so plain reads and writes are atomic; memory orders add nothing. A load, and an operation
 * that changes nothing, lets the other threads go on, because it may be in a loop that waits for
 * one of them.
 */
#pragma once

#include <tl/barrier.h>
#include <tl/buffer.h>
#include <tl/math.h>
#include <tl/memory_order.h>

namespace tl {
namespace emu {

constexpr bool acquires(MemoryOrder order) {
  return order != MemoryOrder::relaxed && order != MemoryOrder::release;
}
constexpr bool releases(MemoryOrder order) { return order >= MemoryOrder::release; }

template <typename T>
struct Same {
  using type = T;
};
/*! A pointer whose type follows from other arguments, so that it may be given as a buffer. */
template <typename T>
using PointerTo = typename Same<T>::type*;

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

template <MemoryOrder order, bool stores = false, typename T, typename Change>
TL_UNOBSERVED inline T update(T* at, Location where, Change change) {
  worker->current->where = where;
  check_alignment(at, sizeof(T), "address of an atomic operation", where);
  check_atomic(at, sizeof(T), true, where);
  check_atomic_order(at, acquires(order), releases(order), stores);
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

template <typename T>
TL_UNOBSERVED inline T poll(const T* at, bool acquires, Location where) {
  check_alignment(at, sizeof(T), "address of an atomic operation", where);
  yield(where);
  check_atomic(at, sizeof(T), false, where);
  check_atomic_order(at, acquires, false, false);
  note_found(at, *at);
  return *at;
}

}  // namespace emu

#define TL_ATOMIC(name, expression)                                                                \
  template <MemoryOrder order, typename T>                                                         \
  TL_DEVICE T fetch_##name(emu::PointerTo<T> at, T value, emu::Location where = emu::here()) {     \
    return emu::update<order>(at, where, [value](T old) { return T(expression); });                \
  }                                                                                                \
  template <MemoryOrder order, typename T>                                                         \
  TL_DEVICE void atomic_##name(emu::PointerTo<T> at, T value, emu::Location where = emu::here()) { \
    emu::update<order>(at, where, [value](T old) { return T(expression); });                       \
  }
TL_ATOMIC(add, old + value)
TL_ATOMIC(max, tl::max(old, value))
TL_ATOMIC(min, tl::min(old, value))
TL_ATOMIC(or, old | value)
#undef TL_ATOMIC

/*! Adds N elements at `at`, which is aligned as the vector is. */
template <MemoryOrder order, typename T, int N>
TL_DEVICE vec<T, N> fetch_add(emu::PointerTo<T> at, const vec<T, N>& value,
                              emu::Location where = emu::here()) {
  emu::check_alignment(at, sizeof(value), "address of an atomic operation", where);
  vec<T, N> old;
  for (int i = 0; i < N; ++i) old.data[i] = fetch_add<order>(at + i, value.data[i], where);
  return old;
}
template <MemoryOrder order, typename T, int N>
TL_DEVICE void atomic_add(emu::PointerTo<T> at, const vec<T, N>& value,
                          emu::Location where = emu::here()) {
  fetch_add<order>(at, value, where);
}

template <MemoryOrder order, typename T>
TL_DEVICE T atomic_load(const T* at, emu::Location where = emu::here()) {
  return emu::poll(at, emu::acquires(order), where);
}

template <MemoryOrder order, typename T>
TL_DEVICE void atomic_store(emu::PointerTo<T> at, T value, emu::Location where = emu::here()) {
  emu::update<order, true>(at, where, [value](T) { return value; });
}

#if TL_EMU_CHECKS
template <MemoryOrder order, typename T>
TL_DEVICE T atomic_load(const emu::Pointer<T>& at, emu::Location where = emu::here()) {
  return atomic_load<order>(static_cast<const T*>(at), where);
}
#endif

}  // namespace tl
