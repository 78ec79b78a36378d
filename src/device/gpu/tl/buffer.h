/*! How kernels declare their buffers. The emulator knows more of them than where they begin. */
#pragma once

#include <tl/platform.h>

namespace tl {

/*! An array of each thread. */
template <typename T, int extent>
using local = T[extent];

/*! `extent` elements of the block's shared memory. */
template <typename T, int extent>
TL_DEVICE T* shared(unsigned char* memory) {
  return reinterpret_cast<T*>(memory);
}

/*! The same where the launch says how many. */
template <typename T>
TL_DEVICE T* shared(unsigned char* memory, int64_t) {
  return reinterpret_cast<T*>(memory);
}

/*! An index, which is less than `extent`. */
template <typename Index, typename Extent>
TL_DEVICE Index in_extent(Index index, Extent, const char*, int) {
  return index;
}

/*! A pointer for a function of the user's. */
template <typename T>
TL_DEVICE T* raw(T* pointer) {
  return pointer;
}

/*! The same memory as elements of another type. */
template <typename To, typename From>
TL_DEVICE To* view(From* buffer) {
  return (To*)buffer;
}
template <typename To>
TL_DEVICE To* view(int64_t address) {
  return (To*)address;
}

}  // namespace tl
