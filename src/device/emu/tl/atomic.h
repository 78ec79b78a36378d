/*!
 * Atomic operations on global and shared memory. They are atomic among the OS threads that run
 * blocks too, in one order for all, which every memory order allows. A load, and an operation that
 * changes nothing, lets the other threads go on, because it may be in a loop that waits for one of
 * them.
 */
#pragma once

#include <tl/barrier.h>
#include <tl/bits.h>
#include <tl/buffer.h>
#include <tl/math.h>
#include <tl/memory_order.h>
#include <tl/polling.h>

namespace tl {
namespace emu {

// What a program with this header computes may depend on the order of its blocks.
inline const bool atomics_order_blocks = ordered_blocks = true;

template <typename T>
using Bits = typename detail::UnsignedOf<sizeof(T)>::type;

constexpr bool acquires(MemoryOrder order) {
  return plain(order) != MemoryOrder::relaxed && plain(order) != MemoryOrder::release;
}
constexpr bool releases(MemoryOrder order) { return plain(order) >= MemoryOrder::release; }

template <typename T>
struct Same {
  using type = T;
};
/*! A pointer whose type follows from other arguments, so that it may be given as a buffer. */
template <typename T>
using PointerTo = typename Same<T>::type*;

/*! Takes note of what an atomic operation finds. The same at the same place leads nowhere, also in
 * a loop that polls several places in turn. */
template <typename T>
TL_DEVICE void note_found(const T* at, T value) {
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  // Knuth's multiplicative hash, so that a place and its value are one number.
  const uint64_t finding = bits ^ reinterpret_cast<uintptr_t>(at) * 0x9e3779b97f4a7c15u;
  if (worker->current->findings.is_new(finding)) {
    note_progress();
  } else {
    note_vain_poll();
  }
}

template <MemoryOrder order, bool stores = false, typename T, typename Change>
TL_UNOBSERVED inline T update(T* at, Location where, Change change) {
  worker->current->where = where;
  check_alignment(at, sizeof(T), "address of an atomic operation", where);
  maybe_stand_back();
  const AtomicOrder done = {acquires(order), releases(order), !stores, true, is_system(order)};
  check_atomic(at, sizeof(T), done, where);
  check_atomic_order(at, done);
  Bits<T>* const place = reinterpret_cast<Bits<T>*>(at);
  Bits<T> old = __atomic_load_n(place, __ATOMIC_SEQ_CST), now;
  do {
    now = bit_cast<Bits<T>>(change(bit_cast<T>(old)));
  } while (old != now && !__atomic_compare_exchange_n(place, &old, now, false, __ATOMIC_SEQ_CST,
                                                      __ATOMIC_SEQ_CST));
  if (old == now) {
    note_found(at, bit_cast<T>(old));
    yield(where);
  } else {
    note_progress();
  }
  return bit_cast<T>(old);
}

template <typename T>
TL_UNOBSERVED inline T poll(const T* at, MemoryOrder order, Location where) {
  check_alignment(at, sizeof(T), "address of an atomic operation", where);
  yield(where);
  const AtomicOrder done = {acquires(order), false, true, false, is_system(order)};
  check_atomic(at, sizeof(T), done, where);
  check_atomic_order(at, done);
  const T found =
      bit_cast<T>(__atomic_load_n(reinterpret_cast<const Bits<T>*>(at), __ATOMIC_SEQ_CST));
  note_found(at, found);
  return found;
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

/*! Counts up, from `last` on to 0. */
template <MemoryOrder order, typename T>
TL_DEVICE T fetch_inc(emu::PointerTo<T> at, T last, emu::Location where = emu::here()) {
  static_assert(sizeof(T) == 4, "tl::fetch_inc counts in 32 bits");
  return emu::update<order>(at, where, [last](T old) {
    return uint32_t(old) >= uint32_t(last) ? T(0) : T(uint32_t(old) + 1);
  });
}

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
  return emu::poll(at, order, where);
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
