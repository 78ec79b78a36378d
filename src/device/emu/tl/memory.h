/*! Shared memory, and vector loads and stores, which the GPU refuses at misaligned addresses. */
#pragma once

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
  emu::worker->current->where = where;
  emu::check_alignment(from, alignof(vec<T, N>), "address of a vector load", where);
  vec<T, N> value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

/*! Writes `value` to `to`, which is aligned as vec<T, N> is. */
template <typename T, int N>
TL_DEVICE void store(void* to, const vec<T, N>& value, emu::Location where = emu::here()) {
  emu::worker->current->where = where;
  emu::check_alignment(to, alignof(vec<T, N>), "address of a vector store", where);
  __builtin_memcpy(to, &value, sizeof(value));
}

/*! An element of memory that nobody writes while the kernel runs. */
template <typename T>
TL_DEVICE T load_read_only(const T* from, emu::Location where = emu::here()) {
  emu::worker->current->where = where;
  return *from;
}

namespace detail {

TL_DEVICE int dot_bytes(const vec<int8_t, 4>& x, const vec<int8_t, 4>& y, int sum) {
  for (int i = 0; i < 4; ++i) sum += int(x.data[i]) * int(y.data[i]);
  return sum;
}

}  // namespace detail
}  // namespace tl
