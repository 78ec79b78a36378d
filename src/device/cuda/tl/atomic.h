/*!
 * Atomic operations on global and shared memory, for the whole device or, with an order of that
 * scope, for the system.
 *
 * fetch_add, fetch_max, fetch_min, fetch_or return what was there before; atomic_add and its like
 * return nothing, which is cheaper. Vectors are added element by element, each element atomically
 * (PTX ISA, atom and red). What the architecture has no instruction for is a loop around a
 * compare-and-swap. Floating-point extrema are those of tl::max and tl::min. A sequentially
 * consistent operation has a fence before it (PTX ISA, Memory Consistency Model).
 */
#pragma once

#include <tl/atomic_order.h>
#include <tl/atomic_update.h>
#include <tl/fetch_inc.h>

namespace tl {
namespace detail {

#define TL_CAS(type, letter)                                                              \
  asm volatile("atom.%4.cas." type " %0, [%1], %2, %3;"                                   \
               : "=" letter(found)                                                        \
               : "l"(at), letter(expected), letter(wanted), "C"(UpdateOrder<order>::text) \
               : "memory")

/*! Writes `wanted` where `expected` is; returns what was there. */
template <MemoryOrder order, typename Word>
TL_DEVICE Word compare_and_swap(void* at, Word expected, Word wanted) {
  Word found;
  if constexpr (sizeof(Word) == 2) {
    TL_CAS("b16", "h");
  } else if constexpr (sizeof(Word) == 4) {
    TL_CAS("b32", "r");
  } else {
    TL_CAS("b64", "l");
  }
  return found;
}
#undef TL_CAS

/*! Replaces the value at `at` by `change` of it; returns the old one. A call, since ptxas takes
 * time that grows with the square of the loops of a function: 143 s for 1024 of these, 3 s for
 * calls. */
template <MemoryOrder order, typename T, typename Change>
__device__ __noinline__ T update(T* at, Change change) {
  using Word = typename AtomicWord<sizeof(T)>::type;
  fence_before<order>();
  Word expected = *reinterpret_cast<volatile Word*>(at);
  while (true) {
    const Word wanted = bit_cast<Word>(change(bit_cast<T>(expected)));
    const Word found = compare_and_swap<order>(at, expected, wanted);
    if (found == expected) return bit_cast<T>(found);
    expected = found;
  }
}

#define TL_RED_AT(space, address, letter)                                                   \
  asm volatile("red.%2" space ".%3 [%0], %1;" ::address, letter(operand), "C"(Order::text), \
               "C"(Operation::text)                                                         \
               : "memory")

/*! An operation that is one instruction, on what holds a value in PTX; `atom` gives the old one. */
#define TL_RED(Register, letter)                   \
  template <typename Order, typename Operation>    \
  TL_DEVICE void red(void* at, Register operand) { \
    TL_SPACED(TL_RED_AT, letter)                   \
  }
#define TL_ATOM(Register, letter)                       \
  template <typename Order, typename Operation>         \
  TL_DEVICE Register atom(void* at, Register operand) { \
    Register old;                                       \
    TL_SPACED(TL_ATOM_AT, letter)                       \
    return old;                                         \
  }                                                     \
  TL_RED(Register, letter)
TL_ATOM(uint32_t, "r")
TL_ATOM(uint64_t, "l")
TL_ATOM(float, "f")
TL_ATOM(double, "d")
TL_RED(uint16_t, "h")
#undef TL_ATOM
#undef TL_RED
#undef TL_RED_AT

/*! Of 16-bit floats. */
template <typename Order, typename Operation>
TL_DEVICE uint16_t atom(void* at, uint16_t operand) {
  uint16_t old;
  asm volatile(TL_FLOAT16_RESULT("atom.%3.%4", "[%1], %2")
               : "=h"(old)
               : "l"(at), "h"(operand), "C"(Order::text), "C"(Operation::text)
               : "memory");
  return old;
}

}  // namespace detail

/*! An operation that is one instruction; `Register` is what holds a T in PTX. */
#define TL_NATIVE(name, T, Register, words)                                                  \
  namespace detail {                                                                         \
  template <typename Value>                                                                  \
  struct Operation_##name##_##T {                                                            \
    static constexpr char text[] = words;                                                    \
  };                                                                                         \
  }                                                                                          \
  template <MemoryOrder order>                                                               \
  TL_DEVICE T fetch_##name(T* at, T value) {                                                 \
    using Operation = detail::Operation_##name##_##T<T>;                                     \
    detail::fence_before<order>();                                                           \
    return bit_cast<T>(                                                                      \
        detail::atom<detail::UpdateOrder<order>, Operation>(at, bit_cast<Register>(value))); \
  }                                                                                          \
  template <MemoryOrder order>                                                               \
  TL_DEVICE void atomic_##name(T* at, T value) {                                             \
    if constexpr (plain(order) == relaxed || plain(order) == release) {                      \
      using Operation = detail::Operation_##name##_##T<T>;                                   \
      detail::red<detail::PtxOrder<order>, Operation>(at, bit_cast<Register>(value));        \
    } else {                                                                                 \
      fetch_##name<order>(at, value);                                                        \
    }                                                                                        \
  }

TL_NATIVE(add, int32_t, uint32_t, "add.u32")
TL_NATIVE(add, uint32_t, uint32_t, "add.u32")
TL_NATIVE(add, int64_t, uint64_t, "add.u64")
TL_NATIVE(add, uint64_t, uint64_t, "add.u64")
TL_NATIVE(add, float, float, "add.f32")
TL_NATIVE(add, double, double, "add.f64")
TL_NATIVE(add, half_t, uint16_t, "add.noftz.f16")
using half2 = vec<half_t, 2>;
using bfloat2 = vec<bfloat16_t, 2>;
TL_NATIVE(add, half2, uint32_t, "add.noftz.f16x2")
#if __CUDA_ARCH__ >= 900
TL_NATIVE(add, bfloat16_t, uint16_t, "add.noftz.bf16")
TL_NATIVE(add, bfloat2, uint32_t, "add.noftz.bf16x2")
#else
TL_LOOP(add, bfloat16_t, old + value)
TL_LOOP(add, bfloat2, old + value)
#endif
TL_NATIVE(max, int32_t, uint32_t, "max.s32")
TL_NATIVE(max, uint32_t, uint32_t, "max.u32")
TL_NATIVE(max, int64_t, uint64_t, "max.s64")
TL_NATIVE(max, uint64_t, uint64_t, "max.u64")
TL_NATIVE(min, int32_t, uint32_t, "min.s32")
TL_NATIVE(min, uint32_t, uint32_t, "min.u32")
TL_NATIVE(min, int64_t, uint64_t, "min.s64")
TL_NATIVE(min, uint64_t, uint64_t, "min.u64")
TL_FLOAT_EXTREMA(float)
TL_FLOAT_EXTREMA(double)
TL_FLOAT_EXTREMA(half_t)
TL_FLOAT_EXTREMA(bfloat16_t)
TL_NATIVE(or, int32_t, uint32_t, "or.b32")
TL_NATIVE(or, uint32_t, uint32_t, "or.b32")
TL_NATIVE(or, int64_t, uint64_t, "or.b64")
TL_NATIVE(or, uint64_t, uint64_t, "or.b64")

#undef TL_NATIVE
#undef TL_LOOP
#undef TL_WITHOUT_RESULT
#undef TL_FLOAT_EXTREMA

#if __CUDA_ARCH__ >= 900
namespace detail {

#define TL_ATOM_V2(operation, letter)                                                           \
  asm volatile("atom.%5.global." operation " {%0, %1}, [%2], {%3, %4};"                         \
               : "=" letter(old[0]), "=" letter(old[1])                                         \
               : "l"(at), letter(operand[0]), letter(operand[1]), "C"(UpdateOrder<order>::text) \
               : "memory")
#define TL_ATOM_V4(operation, letter)                                                           \
  asm volatile("atom.%9.global." operation " {%0, %1, %2, %3}, [%4], {%5, %6, %7, %8};"         \
               : "=" letter(old[0]), "=" letter(old[1]), "=" letter(old[2]), "=" letter(old[3]) \
               : "l"(at), letter(operand[0]), letter(operand[1]), letter(operand[2]),           \
                 letter(operand[3]), "C"(UpdateOrder<order>::text)                              \
               : "memory")
#define TL_VECTOR(T, N, Register, TL_INSTRUCTION, operation, letter)                           \
  template <MemoryOrder order>                                                                 \
  TL_DEVICE vec<T, N> fetch_add_global(void* at, const vec<T, N>& value) {                     \
    Register operand[sizeof(value) / sizeof(Register)], old[sizeof(value) / sizeof(Register)]; \
    memcpy(operand, &value, sizeof(value));                                                    \
    TL_INSTRUCTION(operation, letter);                                                         \
    vec<T, N> result;                                                                          \
    memcpy(&result, old, sizeof(result));                                                      \
    return result;                                                                             \
  }
TL_VECTOR(float, 2, float, TL_ATOM_V2, "add.v2.f32", "f")
TL_VECTOR(float, 4, float, TL_ATOM_V4, "add.v4.f32", "f")
TL_VECTOR(half_t, 4, uint32_t, TL_ATOM_V2, "add.noftz.v2.f16x2", "r")
TL_VECTOR(bfloat16_t, 4, uint32_t, TL_ATOM_V2, "add.noftz.v2.bf16x2", "r")
#undef TL_VECTOR
#undef TL_ATOM_V2
#undef TL_ATOM_V4

}  // namespace detail
#endif

/*! Adds N elements at `at`, which is aligned as the vector is. */
template <MemoryOrder order, typename T, int N>
TL_DEVICE vec<T, N> fetch_add(T* at, const vec<T, N>& value) {
  if constexpr (sizeof(T) == 2 && N == 2) {
    return fetch_add<order>(reinterpret_cast<vec<T, N>*>(at), value);
  } else {
    detail::fence_before<order>();
#if __CUDA_ARCH__ >= 900
    if (__isGlobal(at)) return detail::fetch_add_global<order>(at, value);
#endif
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
#if __CUDA_ARCH__ >= 900
    if (__isGlobal(at)) {
      fetch_add<order>(at, value);
      return;
    }
#endif
    TL_UNROLL for (int i = 0; i < N; ++i) atomic_add<order>(at + i, value.data[i]);
  }
}

#define TL_LOAD_AT(space, address, letter)                     \
  asm volatile("ld.%2" space ".b%3 %0, [%1];"                  \
               : "=" letter(word)                              \
               : address, "C"(Order::text), "n"(8 * sizeof(T)) \
               : "memor"                                       \
                 "y")
#define TL_STORE_AT(space, address, letter)                                              \
  asm volatile("st.%2" space ".b%3 [%0], %1;" ::address, letter(word), "C"(Order::text), \
               "n"(8 * sizeof(T))                                                        \
               : "memory")
#define TL_BY_SIZE(TL_ACCESS)            \
  if constexpr (sizeof(T) == 2) {        \
    TL_SPACED(TL_ACCESS, "h")            \
  } else if constexpr (sizeof(T) == 4) { \
    TL_SPACED(TL_ACCESS, "r")            \
  } else {                               \
    TL_SPACED(TL_ACCESS, "l")            \
  }

/*! PTX ISA, ld. */
template <MemoryOrder order, typename T>
TL_DEVICE T atomic_load(const T* at) {
  using Order = detail::AccessOrder<order, acquire>;
  typename detail::AtomicWord<sizeof(T)>::type word;
  detail::fence_before<order>();
  TL_BY_SIZE(TL_LOAD_AT)
  return bit_cast<T>(word);
}

/*! PTX ISA, st. */
template <MemoryOrder order, typename T>
TL_DEVICE void atomic_store(T* at, T value) {
  using Order = detail::AccessOrder<order, release>;
  const auto word = bit_cast<typename detail::AtomicWord<sizeof(T)>::type>(value);
  detail::fence_before<order>();
  TL_BY_SIZE(TL_STORE_AT)
}

#undef TL_LOAD_AT
#undef TL_STORE_AT
#undef TL_BY_SIZE

}  // namespace tl
