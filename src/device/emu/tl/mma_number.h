/*! The numbers that products of matrices are formed of. */
#pragma once

#include <tl/mma_shapes.h>

namespace tl {
namespace emu {

/*! The number that an element stands for, in the type that products are formed in. */
template <typename T>
struct MmaNumber {
  static TL_DEVICE float of(T x) { return float(x); }
};
template <>
struct MmaNumber<double> {
  static TL_DEVICE double of(double x) { return x; }
};
template <>
struct MmaNumber<int8_t> {
  static TL_DEVICE int of(int8_t x) { return x; }
};
template <>
struct MmaNumber<uint8_t> {
  static TL_DEVICE int of(uint8_t x) { return x; }
};
template <bool is_signed>
struct MmaNumber<SubByte<Int4Format<is_signed>>> {
  static TL_DEVICE int of(SubByte<Int4Format<is_signed>> x) { return x; }
};
// Rounded to nearest, ties away from zero (PTX ISA, cvt.rna.tf32).
template <>
struct MmaNumber<tfloat32_t> {
  static TL_DEVICE float of(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    return bit_cast<float>(finite ? (bits + 0x1000) & ~0x1fffu : bits);
  }
};

template <typename T>
struct MmaElement {
  using type = mma_memory<T>;
};
template <typename Format>
struct MmaElement<SubByte<Format>> {
  using type = SubByte<Format>;
};
template <typename T>
using MmaNumberOf = decltype(MmaNumber<T>::of(typename MmaElement<T>::type()));

}  // namespace emu
}  // namespace tl
