/*!
 * How kernels declare their buffers. With checks they know their extents, and arrays of a thread
 * begin undefined; without, they are what they are on the GPU.
 */
#pragma once

#include <tl/check.h>
#include <tl/platform.h>

namespace tl {

#if TL_EMU_CHECKS

namespace emu {

/*! A pointer into a buffer that remembers the buffer. Where it becomes a plain pointer, or an
 * element, it has to be inside. */
template <typename T>
class Pointer {
 public:
  Pointer(T* at, T* begin, T* end) : at_(at), begin_(begin), end_(end) {}

  TL_DEVICE Pointer operator+(int64_t i) const { return {at_ + i, begin_, end_}; }
  TL_DEVICE Pointer operator-(int64_t i) const { return {at_ - i, begin_, end_}; }
  TL_DEVICE T& operator[](int64_t i) const { return *(*this + i).checked(sizeof(T)); }
  /*! For a function that the emulator checks the width of itself (check_bounds). */
  TL_DEVICE operator T*() const { return checked(sizeof(T)); }

  TL_DEVICE T* checked(size_t bytes) const {
    check_bounds({at_, begin_, end_}, bytes);
    return at_;
  }

  /*! For a function of the user's, whose accesses through it are to be in the buffer. */
  TL_DEVICE T* passed() const {
    T* const plain = checked(0);
    check_passed({at_, begin_, end_});
    return plain;
  }

  /*! The same place of the buffer whose copy `to` points into. */
  TL_DEVICE Pointer moved(T* to) const { return {to, to - (at_ - begin_), to + (end_ - at_)}; }

  template <typename To>
  TL_DEVICE Pointer<To> view() const {
    return {(To*)at_, (To*)begin_, (To*)end_};
  }

 private:
  T *at_, *begin_, *end_;
};

/*! The address that a lane gives to an instruction that takes the rows of `matrices` matrices;
 * nullptr from a lane whose address it ignores. */
template <int matrices, typename T>
TL_DEVICE T* row_of(const Pointer<T>& row) {
  const bool gives_a_row = worker->current->linear % kWarpSize < 8 * matrices;
  return gives_a_row ? row.checked(sizeof(T)) : nullptr;
}

/*! An array of a thread. */
template <typename T, int extent>
class Local {
 public:
  Local() : self_{nullptr, data_, sizeof(data_)} { check_array_begins(self_); }
  ~Local() { check_array_ends(self_); }
  Local(const Local&) = delete;
  Local& operator=(const Local&) = delete;

  TL_DEVICE T& operator[](int64_t i) { return pointer()[i]; }
  TL_DEVICE Pointer<T> operator+(int64_t i) { return pointer() + i; }
  TL_DEVICE operator T*() { return pointer(); }
  TL_DEVICE Pointer<T> pointer() { return {data_, data_, data_ + extent}; }

 private:
  T data_[extent];
  LocalArray self_;
};

}  // namespace emu

template <typename T, int extent>
using local = emu::Local<T, extent>;

template <typename T, int extent>
TL_DEVICE emu::Pointer<T> shared(unsigned char* memory) {
  T* const begin = reinterpret_cast<T*>(memory);
  emu::check_declared(begin, begin + extent);
  return {begin, begin, begin + extent};
}

/*! As many elements as the launch says. */
template <typename T>
TL_DEVICE emu::Pointer<T> shared(unsigned char* memory, int64_t extent) {
  T* const begin = reinterpret_cast<T*>(memory);
  T* const end = begin + (extent < 0 ? 0 : extent);
  emu::check_declared(begin, end);
  return {begin, begin, end};
}

/*! The other half of a byte may be undefined still. */
template <typename T, int extent>
TL_DEVICE void set_sub_byte(emu::Local<uint8_t, extent>& bytes, long long i, T value) {
  uint8_t* byte = &bytes[i >> 1];
  emu::check_defined(byte, 1);
  set_sub_byte(byte, i & 1, value);
}

template <typename To, typename From>
TL_DEVICE emu::Pointer<To> view(const emu::Pointer<From>& buffer) {
  return buffer.template view<To>();
}
template <typename To, typename From, int extent>
TL_DEVICE emu::Pointer<To> view(emu::Local<From, extent>& buffer) {
  return buffer.pointer().template view<To>();
}

#else

template <typename T, int extent>
using local = T[extent];

template <typename T, int extent>
TL_DEVICE T* shared(unsigned char* memory) {
  return reinterpret_cast<T*>(memory);
}

template <typename T>
TL_DEVICE T* shared(unsigned char* memory, int64_t) {
  return reinterpret_cast<T*>(memory);
}

#endif

/*! An index, which has to be less than `extent`, in one dimension of a buffer. */
template <typename Index, typename Extent>
TL_DEVICE Index in_extent(Index index, Extent extent, const char* buffer, int dimension,
                          emu::Location where = emu::here()) {
  if (index < 0 || index >= extent) {
    emu::check_index((long long)index, (long long)extent, buffer, dimension, where);
  }
  return index;
}

/*! A pointer for a function of the user's, which the checks hold to the buffer. */
template <typename T>
TL_DEVICE T* raw(T* pointer) {
  return pointer;
}
#if TL_EMU_CHECKS
template <typename T>
TL_DEVICE T* raw(const emu::Pointer<T>& pointer) {
  return pointer.passed();
}
#endif

template <typename To, typename From>
TL_DEVICE To* view(From* buffer) {
  return (To*)buffer;
}
template <typename To>
TL_DEVICE To* view(int64_t address) {
  return (To*)address;
}

}  // namespace tl
