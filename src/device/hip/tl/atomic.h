/*!
 * Atomic operations on global and shared memory, for the whole device.
 *
 * fetch_add, fetch_max, fetch_min, fetch_or return what was there before; atomic_add and its like
 * return nothing. Vectors are added element by element, each element atomically. What the
 * architecture has no instruction for is a loop around a compare-and-swap. Floating-point extrema
 * are those of tl::max and tl::min. Orders are LLVM's, of scope "agent" (AMDGPU Backend, "Memory
 * Model"). Additions of floats are instructions, which memory of the host does not take.
 */
#pragma once

#include <tl/atomic_update.h>

namespace tl {
namespace detail {

// clang's orders have the numbers of C++, too. A failed exchange and a load release nothing.
constexpr int load_order(MemoryOrder order) {
  return order == release ? __ATOMIC_RELAXED : order == acq_rel ? __ATOMIC_ACQUIRE : int(order);
}

/*! Replaces the value at `at` by `change` of it; returns the old one. */
template <MemoryOrder order, typename T, typename Change>
TL_DEVICE T update(T* at, Change change) {
  using Word = typename AtomicWord<sizeof(T)>::type;
  auto* word = reinterpret_cast<Word*>(at);
  Word expected = __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  while (true) {
    const Word wanted = bit_cast<Word>(change(bit_cast<T>(expected)));
    if (__hip_atomic_compare_exchange_strong(word, &expected, wanted, int(order), load_order(order),
                                             __HIP_MEMORY_SCOPE_AGENT)) {
      return bit_cast<T>(expected);
    }
  }
}

}  // namespace detail

/*! An operation that LLVM has; it takes the instruction without a result where nobody reads it. */
#define TL_NATIVE(name, T)                                                             \
  template <MemoryOrder order>                                                         \
  TL_DEVICE T fetch_##name(T* at, T value) {                                           \
    return __hip_atomic_fetch_##name(at, value, int(order), __HIP_MEMORY_SCOPE_AGENT); \
  }                                                                                    \
  TL_WITHOUT_RESULT(name, T)
#define TL_INTEGER(T) \
  TL_NATIVE(add, T)   \
  TL_NATIVE(max, T)   \
  TL_NATIVE(min, T)   \
  TL_NATIVE(or, T)
TL_INTEGER(int32_t)
TL_INTEGER(uint32_t)
TL_INTEGER(int64_t)
TL_INTEGER(uint64_t)
#undef TL_INTEGER
TL_NATIVE(add, float)
TL_NATIVE(add, double)
TL_FLOAT_EXTREMA(float)
TL_FLOAT_EXTREMA(double)
TL_FLOAT_EXTREMA(half_t)
TL_FLOAT_EXTREMA(bfloat16_t)
TL_LOOP(add, half_t, old + value)
TL_LOOP(add, bfloat16_t, old + value)
using half2 = vec<half_t, 2>;
using bfloat2 = vec<bfloat16_t, 2>;

// CDNA3 ISA, FLAT_ATOMIC_PK_ADD_F16, FLAT_ATOMIC_PK_ADD_BF16. They order nothing by themselves.
#if __gfx942__ || __gfx950__
namespace detail {
using Halves = _Float16 __attribute__((ext_vector_type(2)));
using Shorts = short __attribute__((ext_vector_type(2)));
}  // namespace detail
#define TL_PACKED_ADD(T, Register, instruction)                                    \
  template <MemoryOrder order>                                                     \
  TL_DEVICE T fetch_add(T* at, T value) {                                          \
    if constexpr (order == relaxed) {                                              \
      return bit_cast<T>(__builtin_amdgcn_flat_atomic_fadd_##instruction(          \
          reinterpret_cast<Register*>(at), bit_cast<Register>(value)));            \
    } else {                                                                       \
      return detail::update<order>(at, [value](T old) { return T(old + value); }); \
    }                                                                              \
  }                                                                                \
  TL_WITHOUT_RESULT(add, T)
TL_PACKED_ADD(half2, detail::Halves, v2f16)
TL_PACKED_ADD(bfloat2, detail::Shorts, v2bf16)
#undef TL_PACKED_ADD
#else
TL_LOOP(add, half2, old + value)
TL_LOOP(add, bfloat2, old + value)
#endif

/*! Counts up, from `last` on to 0 (CDNA3 ISA, GLOBAL_ATOMIC_INC). */
template <MemoryOrder order, typename T>
TL_DEVICE T fetch_inc(T* at, T last) {
  static_assert(sizeof(T) == 4, "tl::fetch_inc counts in 32 bits");
  return bit_cast<T>(__builtin_amdgcn_atomic_inc32(reinterpret_cast<uint32_t*>(at),
                                                   bit_cast<uint32_t>(last), int(order), "agent"));
}

#undef TL_NATIVE
#undef TL_LOOP
#undef TL_WITHOUT_RESULT
#undef TL_FLOAT_EXTREMA

/*! Adds N elements at `at`, which is aligned as the vector is. */
template <MemoryOrder order, typename T, int N>
TL_DEVICE vec<T, N> fetch_add(T* at, const vec<T, N>& value) {
  if constexpr (sizeof(T) == 2 && N == 2) {
    return fetch_add<order>(reinterpret_cast<vec<T, N>*>(at), value);
  } else {
    vec<T, N> old;
    TL_UNROLL for (int i = 0; i < N; ++i) old.data[i] = fetch_add<order>(at + i, value.data[i]);
    return old;
  }
}
template <MemoryOrder order, typename T, int N>
TL_DEVICE void atomic_add(T* at, const vec<T, N>& value) {
  if constexpr (sizeof(T) == 2 && N == 2) {
    atomic_add<order>(reinterpret_cast<vec<T, N>*>(at), value);
  } else {
    TL_UNROLL for (int i = 0; i < N; ++i) atomic_add<order>(at + i, value.data[i]);
  }
}

template <MemoryOrder order, typename T>
TL_DEVICE T atomic_load(const T* at) {
  using Word = typename detail::AtomicWord<sizeof(T)>::type;
  return bit_cast<T>(__hip_atomic_load(reinterpret_cast<const Word*>(at), detail::load_order(order),
                                       __HIP_MEMORY_SCOPE_AGENT));
}

template <MemoryOrder order, typename T>
TL_DEVICE void atomic_store(T* at, T value) {
  using Word = typename detail::AtomicWord<sizeof(T)>::type;
  constexpr int kOrder = order == consume || order == acquire ? __ATOMIC_RELAXED
                         : order == acq_rel                   ? __ATOMIC_RELEASE
                                                              : int(order);
  __hip_atomic_store(reinterpret_cast<Word*>(at), bit_cast<Word>(value), kOrder,
                     __HIP_MEMORY_SCOPE_AGENT);
}

}  // namespace tl
