/*! Shared memory, and vector loads and stores, which the GPU refuses at misaligned addresses. */
#pragma once

#include <tl/buffer.h>
#include <tl/vec.h>

namespace tl {

/*! The block's dynamic shared memory, at a multiple of 1024. */
TL_DEVICE unsigned char* dynamic_shared() { return emu::this_block().dynamic_shared(); }

/*! The block's static shared memory of `bytes` bytes; one size for each kernel. */
template <unsigned bytes>
TL_DEVICE unsigned char* static_shared() {
  static_assert(bytes <= emu::kMaxStaticSharedBytes, "a block has 48 KiB of static shared memory");
  return emu::static_shared(bytes);
}

/*! N elements from `from`, which is aligned as vec<T, N> is. */
template <typename T, int N>
TL_DEVICE vec<T, N> load(const void* from, emu::Location where = emu::here()) {
  constexpr unsigned kWord = alignof(vec<T, N>);
  emu::check_vector(from, kWord, "address of a vector load", where);
  vec<T, N> value;
  for (unsigned i = 0; i < sizeof(value); i += kWord) {
    __builtin_memcpy(reinterpret_cast<char*>(&value) + i, static_cast<const char*>(from) + i,
                     kWord);
  }
  return value;
}

/*! Writes `value` to `to`, which is aligned as vec<T, N> is. */
template <typename T, int N>
TL_DEVICE void store(void* to, const vec<T, N>& value, emu::Location where = emu::here()) {
  constexpr unsigned kWord = alignof(vec<T, N>);
  emu::check_vector(to, kWord, "address of a vector store", where);
  for (unsigned i = 0; i < sizeof(value); i += kWord) {
    __builtin_memcpy(static_cast<char*>(to) + i, reinterpret_cast<const char*>(&value) + i, kWord);
  }
}

/*! An element of memory that nobody writes while the kernel runs. */
template <typename T>
TL_DEVICE T load_read_only(const T* from, emu::Location where = emu::here()) {
  emu::worker->current->where = where;
  return *from;
}

/*! An element of global memory, asked for where this stands. */
template <typename T>
TL_DEVICE T load_here(const T* from, emu::Location where = emu::here()) {
  emu::worker->current->where = where;
  return *from;
}

/*! An element, or a vector of `lanes`; zeros and no access where the condition is false. */
template <int lanes, typename T>
TL_DEVICE auto load_if(const T* from, bool condition, emu::Location where = emu::here()) {
  if constexpr (lanes == 1) {
    return condition ? load_here(from, where) : T{};
  } else {
    return condition ? load<T, lanes>(from, where) : vec<T, lanes>{};
  }
}

/*! Asks for bytes of global memory in L2. The emulator has no caches. */
template <typename From>
TL_DEVICE void prefetch_l2(const From&, int) {}

namespace detail {

TL_DEVICE int dot_bytes(const vec<int8_t, 4>& x, const vec<int8_t, 4>& y, int sum) {
  for (int i = 0; i < 4; ++i) sum += int(x.data[i]) * int(y.data[i]);
  return sum;
}

}  // namespace detail
#if TL_EMU_CHECKS
template <typename T>
TL_DEVICE T load_here(const emu::Pointer<T>& from, emu::Location where = emu::here()) {
  return load_here(from.checked(sizeof(T)), where);
}
template <int lanes, typename T>
TL_DEVICE auto load_if(const emu::Pointer<const T>& from, bool condition,
                       emu::Location where = emu::here()) {
  return load_if<lanes>(condition ? from.checked(lanes * sizeof(T)) : nullptr, condition, where);
}
template <typename T, int N, typename From>
TL_DEVICE vec<T, N> load(const emu::Pointer<From>& from, emu::Location where = emu::here()) {
  return load<T, N>(static_cast<const void*>(from.checked(sizeof(vec<T, N>))), where);
}
template <typename T, int N, typename From, int extent>
TL_DEVICE vec<T, N> load(emu::Local<From, extent>& from, emu::Location where = emu::here()) {
  return load<T, N>(from.pointer(), where);
}
template <typename T, int N, typename To>
TL_DEVICE void store(const emu::Pointer<To>& to, const vec<T, N>& value,
                     emu::Location where = emu::here()) {
  store(static_cast<void*>(to.checked(sizeof(value))), value, where);
}
template <typename T, int N, typename To, int extent>
TL_DEVICE void store(emu::Local<To, extent>& to, const vec<T, N>& value,
                     emu::Location where = emu::here()) {
  store(to.pointer(), value, where);
}
#endif

/*! Converts elements of an array of the thread into another one. */
template <typename To, int N, typename Target, typename Source>
TL_DEVICE void convert(Target&& to, Source&& from, emu::Location where = emu::here()) {
  store(to, cast<To>(load<float, N>(from, where)), where);
}

}  // namespace tl
