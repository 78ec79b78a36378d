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

#include <tl/atomic_update.h>
#include <tl/shared_address.h>

namespace tl {
namespace detail {

template <MemoryOrder order>
TL_DEVICE void fence_before() {
  if constexpr (order == seq_cst) asm volatile("fence.sc.gpu;" ::: "memory");
  if constexpr (order == seq_cst_system) asm volatile("fence.sc.sys;" ::: "memory");
}

#define TL_ORDER(TL_INSTRUCTION, ...)                \
  if constexpr (is_system(order)) {                  \
    TL_ORDER_AT(".sys", TL_INSTRUCTION, __VA_ARGS__) \
  } else {                                           \
    TL_ORDER_AT(".gpu", TL_INSTRUCTION, __VA_ARGS__) \
  }
#define TL_ORDER_AT(scope, TL_INSTRUCTION, ...)                              \
  if constexpr (plain(order) == relaxed) {                                   \
    TL_INSTRUCTION("relaxed" scope, __VA_ARGS__);                            \
  } else if constexpr (plain(order) == consume || plain(order) == acquire) { \
    TL_INSTRUCTION("acquire" scope, __VA_ARGS__);                            \
  } else if constexpr (plain(order) == release) {                            \
    TL_INSTRUCTION("release" scope, __VA_ARGS__);                            \
  } else {                                                                   \
    TL_INSTRUCTION("acq_rel" scope, __VA_ARGS__);                            \
  }
#define TL_CAS(order, type, letter)                            \
  asm volatile("atom." order ".cas." type " %0, [%1], %2, %3;" \
               : "=" letter(found)                             \
               : "l"(at), letter(expected), letter(wanted)     \
               : "memory")

/*! Writes `wanted` where `expected` is; returns what was there. */
template <MemoryOrder order, typename Word>
TL_DEVICE Word compare_and_swap(void* at, Word expected, Word wanted) {
  Word found;
  if constexpr (sizeof(Word) == 2) {
    TL_ORDER(TL_CAS, "b16", "h")
  } else if constexpr (sizeof(Word) == 4) {
    TL_ORDER(TL_CAS, "b32", "r")
  } else {
    TL_ORDER(TL_CAS, "b64", "l")
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

}  // namespace detail

/*! TL_SPACED(TL_INSTRUCTION, order, ..): by the instruction of the state space that `at` is in.
 * NVVM knows the spaces of a kernel's arguments and tiles. An instruction on a generic address goes
 * the long way of all spaces. */
#define TL_SPACED(TL_INSTRUCTION, order, ...)                                        \
  if (__isShared(at)) {                                                              \
    TL_INSTRUCTION(order ".shared", "r"(detail::shared_address(at)), __VA_ARGS__);   \
  } else if (__isGlobal(at)) {                                                       \
    TL_INSTRUCTION(order ".global", "l"(__cvta_generic_to_global(at)), __VA_ARGS__); \
  } else {                                                                           \
    TL_INSTRUCTION(order, "l"(at), __VA_ARGS__);                                     \
  }
#define TL_ATOM_AT(order, address, operation, letter)       \
  asm volatile("atom." order "." operation " %0, [%1], %2;" \
               : "=" letter(old)                            \
               : address, letter(operand)                   \
               : "memory")
#define TL_ATOM(order, operation, letter) TL_SPACED(TL_ATOM_AT, order, operation, letter)
#define TL_ATOM_FLOAT16(order, operation, letter)                         \
  asm volatile(TL_FLOAT16_RESULT("atom." order "." operation, "[%1], %2") \
               : "=" letter(old)                                          \
               : "l"(at), letter(operand)                                 \
               : "memory")
#define TL_RED_AT(order, address, operation, letter) \
  asm volatile("red." order "." operation " [%0], %1;" ::address, letter(operand) : "memory")
#define TL_RED(order, operation, letter) TL_SPACED(TL_RED_AT, order, operation, letter)

#define TL_RED_ORDER(operation, letter)           \
  if constexpr (order == relaxed) {               \
    TL_RED("relaxed.gpu", operation, letter);     \
  } else if constexpr (order == release) {        \
    TL_RED("release.gpu", operation, letter);     \
  } else if constexpr (order == relaxed_system) { \
    TL_RED("relaxed.sys", operation, letter);     \
  } else {                                        \
    TL_RED("release.sys", operation, letter);     \
  }

/*! An operation that is one instruction, fetched by `atom`; `Register` is what holds a T in PTX. */
#define TL_NATIVE_BY(atom, name, T, Register, operation, letter)        \
  template <MemoryOrder order>                                          \
  TL_DEVICE T fetch_##name(T* at, T value) {                            \
    const Register operand = bit_cast<Register>(value);                 \
    Register old;                                                       \
    detail::fence_before<order>();                                      \
    TL_ORDER(atom, operation, letter)                                   \
    return bit_cast<T>(old);                                            \
  }                                                                     \
  template <MemoryOrder order>                                          \
  TL_DEVICE void atomic_##name(T* at, T value) {                        \
    if constexpr (plain(order) == relaxed || plain(order) == release) { \
      const Register operand = bit_cast<Register>(value);               \
      TL_RED_ORDER(operation, letter)                                   \
    } else {                                                            \
      fetch_##name<order>(at, value);                                   \
    }                                                                   \
  }
#define TL_NATIVE(name, T, Register, operation, letter) \
  TL_NATIVE_BY(TL_ATOM, name, T, Register, operation, letter)
#define TL_NATIVE_FLOAT16(name, T, operation) \
  TL_NATIVE_BY(TL_ATOM_FLOAT16, name, T, uint16_t, operation, "h")

TL_NATIVE(add, int32_t, uint32_t, "add.u32", "r")
TL_NATIVE(add, uint32_t, uint32_t, "add.u32", "r")
TL_NATIVE(add, int64_t, uint64_t, "add.u64", "l")
TL_NATIVE(add, uint64_t, uint64_t, "add.u64", "l")
TL_NATIVE(add, float, float, "add.f32", "f")
TL_NATIVE(add, double, double, "add.f64", "d")
TL_NATIVE_FLOAT16(add, half_t, "add.noftz.f16")
using half2 = vec<half_t, 2>;
using bfloat2 = vec<bfloat16_t, 2>;
TL_NATIVE(add, half2, uint32_t, "add.noftz.f16x2", "r")
#if __CUDA_ARCH__ >= 900
TL_NATIVE_FLOAT16(add, bfloat16_t, "add.noftz.bf16")
TL_NATIVE(add, bfloat2, uint32_t, "add.noftz.bf16x2", "r")
#else
TL_LOOP(add, bfloat16_t, old + value)
TL_LOOP(add, bfloat2, old + value)
#endif
TL_NATIVE(max, int32_t, int32_t, "max.s32", "r")
TL_NATIVE(max, uint32_t, uint32_t, "max.u32", "r")
TL_NATIVE(max, int64_t, int64_t, "max.s64", "l")
TL_NATIVE(max, uint64_t, uint64_t, "max.u64", "l")
TL_NATIVE(min, int32_t, int32_t, "min.s32", "r")
TL_NATIVE(min, uint32_t, uint32_t, "min.u32", "r")
TL_NATIVE(min, int64_t, int64_t, "min.s64", "l")
TL_NATIVE(min, uint64_t, uint64_t, "min.u64", "l")
TL_FLOAT_EXTREMA(float)
TL_FLOAT_EXTREMA(double)
TL_FLOAT_EXTREMA(half_t)
TL_FLOAT_EXTREMA(bfloat16_t)
TL_NATIVE(or, int32_t, uint32_t, "or.b32", "r")
TL_NATIVE(or, uint32_t, uint32_t, "or.b32", "r")
TL_NATIVE(or, int64_t, uint64_t, "or.b64", "l")
TL_NATIVE(or, uint64_t, uint64_t, "or.b64", "l")

/*! Counts up, from `last` on to 0 (PTX ISA, atom, inc). */
template <MemoryOrder order, typename T>
TL_DEVICE T fetch_inc(T* at, T last) {
  static_assert(sizeof(T) == 4, "tl::fetch_inc counts in 32 bits");
  const uint32_t operand = bit_cast<uint32_t>(last);
  uint32_t old;
  detail::fence_before<order>();
  TL_ORDER(TL_ATOM, "inc.u32", "r")
  return bit_cast<T>(old);
}

#undef TL_NATIVE_FLOAT16
#undef TL_NATIVE
#undef TL_NATIVE_BY
#undef TL_LOOP
#undef TL_WITHOUT_RESULT
#undef TL_FLOAT_EXTREMA
#undef TL_RED_ORDER
#undef TL_RED
#undef TL_RED_AT
#undef TL_ATOM_FLOAT16
#undef TL_ATOM
#undef TL_ATOM_AT
#undef TL_SPACED

#if __CUDA_ARCH__ >= 900
namespace detail {

#define TL_ATOM_V2(order, operation, letter)                                   \
  asm volatile("atom." order ".global." operation " {%0, %1}, [%2], {%3, %4};" \
               : "=" letter(old[0]), "=" letter(old[1])                        \
               : "l"(at), letter(operand[0]), letter(operand[1])               \
               : "memory")
#define TL_ATOM_V4(order, operation, letter)                                                    \
  asm volatile("atom." order ".global." operation " {%0, %1, %2, %3}, [%4], {%5, %6, %7, %8};"  \
               : "=" letter(old[0]), "=" letter(old[1]), "=" letter(old[2]), "=" letter(old[3]) \
               : "l"(at), letter(operand[0]), letter(operand[1]), letter(operand[2]),           \
                 letter(operand[3])                                                             \
               : "memory")
#define TL_VECTOR(T, N, Register, TL_INSTRUCTION, operation, letter)                           \
  template <MemoryOrder order>                                                                 \
  TL_DEVICE vec<T, N> fetch_add_global(void* at, const vec<T, N>& value) {                     \
    Register operand[sizeof(value) / sizeof(Register)], old[sizeof(value) / sizeof(Register)]; \
    memcpy(operand, &value, sizeof(value));                                                    \
    TL_ORDER(TL_INSTRUCTION, operation, letter)                                                \
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
#undef TL_ORDER
#undef TL_ORDER_AT

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

#define TL_LOAD(order, type, letter) \
  asm volatile("ld." order "." type " %0, [%1];" : "=" letter(word) : "l"(at) : "memory")
#define TL_STORE(order, type, letter) \
  asm volatile("st." order "." type " [%0], %1;" ::"l"(at), letter(word) : "memory")
#define TL_BY_SIZE(TL_ACCESS, order)     \
  if constexpr (sizeof(T) == 2) {        \
    TL_ACCESS(order, "b16", "h");        \
  } else if constexpr (sizeof(T) == 4) { \
    TL_ACCESS(order, "b32", "r");        \
  } else {                               \
    TL_ACCESS(order, "b64", "l");        \
  }
#define TL_ACCESS_IN(TL_ACCESS, ordered)          \
  if constexpr (order == relaxed) {               \
    TL_BY_SIZE(TL_ACCESS, "relaxed.gpu")          \
  } else if constexpr (order == relaxed_system) { \
    TL_BY_SIZE(TL_ACCESS, "relaxed.sys")          \
  } else if constexpr (is_system(order)) {        \
    TL_BY_SIZE(TL_ACCESS, ordered ".sys")         \
  } else {                                        \
    TL_BY_SIZE(TL_ACCESS, ordered ".gpu")         \
  }

/*! PTX ISA, ld. */
template <MemoryOrder order, typename T>
TL_DEVICE T atomic_load(const T* at) {
  typename detail::AtomicWord<sizeof(T)>::type word;
  detail::fence_before<order>();
  TL_ACCESS_IN(TL_LOAD, "acquire")
  return bit_cast<T>(word);
}

/*! PTX ISA, st. */
template <MemoryOrder order, typename T>
TL_DEVICE void atomic_store(T* at, T value) {
  const auto word = bit_cast<typename detail::AtomicWord<sizeof(T)>::type>(value);
  detail::fence_before<order>();
  TL_ACCESS_IN(TL_STORE, "release")
}

#undef TL_ACCESS_IN
#undef TL_LOAD
#undef TL_STORE
#undef TL_BY_SIZE

}  // namespace tl
