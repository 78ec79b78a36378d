/*! Vector loads and stores, which the GPU refuses at misaligned addresses. */
#pragma once

#include <tl/vec.h>

namespace tl {

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

}  // namespace tl
