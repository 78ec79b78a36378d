/*!
 * Operations of vectors on two elements at once. Arithmetic is done element by element; what the
 * conversions of elements of 4 bits are made of is here, so that they run as on a GPU.
 */
#pragma once

#include <tl/vec.h>

namespace tl {
namespace detail {

/*! Four bytes of `a`, by numbers 0 to 3, and of `b`, 4 to 7; with 8 more the byte's sign, eight
 * times (PTX ISA, prmt). */
TL_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t d = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t chosen = selector >> 4 * i;
    const uint32_t byte = (chosen & 4 ? b : a) >> 8 * (chosen & 3) & 0xff;
    d |= (chosen & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << 8 * i;
  }
  return d;
}

/*! The same by a number in each byte of `numbers`, 12 for zero (CDNA3 ISA, V_PERM_B32). */
TL_DEVICE uint32_t bytes_at(uint32_t a, uint32_t b, uint32_t numbers) {
  uint32_t d = 0;
  for (int i = 0; i < 32; i += 8) {
    const uint32_t chosen = numbers >> i & 15;
    d |= (chosen & 8 ? 0u : (chosen & 4 ? b : a) >> 8 * (chosen & 3) & 0xff) << i;
  }
  return d;
}

template <uint32_t constant>
TL_DEVICE uint32_t kept_in_register() {
  return constant;
}

template <typename Format>
struct PairArithmetic<Float16<Format>> {
  static constexpr bool exists = false;  // for vectors
  static TL_DEVICE uint32_t add(uint32_t x, uint32_t y) {
    return Format::add(uint16_t(x), uint16_t(y)) |
           uint32_t(Format::add(uint16_t(x >> 16), uint16_t(y >> 16))) << 16;
  }
  static TL_DEVICE uint32_t mul(uint32_t x, uint32_t y) {
    return Format::mul(uint16_t(x), uint16_t(y)) |
           uint32_t(Format::mul(uint16_t(x >> 16), uint16_t(y >> 16))) << 16;
  }
};

}  // namespace detail
}  // namespace tl

#if TL_WARP_THREADS == 64
#include <tl/narrow_pairs.h>
#else
#include <tl/float4_pairs.h>
#endif
