/*!
 * Pairs of floats of 4 bits become pairs of half_t or bfloat16_t by tables of eight bytes, of which
 * one instruction picks four: the bytes of 0, 0.5, 1, 1.5, 2, 3, 4 and 6. The conversions are
 * exact, and -0 stays -0. Interface: nibble_pairs.h.
 */
#pragma once

#include <tl/half.h>
#include <tl/nibble_pairs.h>

namespace tl {
struct E2M1Format;
template <typename Format>
struct SubByte;
template <typename Format>
struct Float8;

namespace detail {

/*! The bytes of a table whose numbers are in the low three bits of each byte of `numbers`. */
TL_DEVICE uint32_t looked_up(uint64_t table, uint32_t numbers) {
  return bytes_at(uint32_t(table), uint32_t(table >> 32), numbers & 0x07070707u);
}

/*! The upper bytes of four elements in the low halves of bytes, with their signs. */
TL_DEVICE uint32_t upper_bytes(uint64_t table, uint32_t elements) {
  return looked_up(table, elements) | (elements << 4 & 0x80808080u);
}

/*! The lower byte is zero for all of them. */
template <>
struct PairCast<half_t, SubByte<E2M1Format>> {
  static constexpr bool exists = true;
  static constexpr uint64_t kUpper = 0x464442403e3c3800u;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    return bytes_at(upper_bytes(kUpper, word), upper_bytes(kUpper, word >> 4),
                    0x040c000cu + 0x01000100u * i);
  }
  static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) {
    const uint32_t upper = upper_bytes(kUpper, word >> i % 2 * 4);
    return bytes_at(upper, 0, 0x020c000cu + 0x01000100u * (i / 2));
  }
};

template <>
struct PairCast<bfloat16_t, SubByte<E2M1Format>> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    return permute_bytes(both(word, i / 2), both(word >> 4, i / 2), i % 2 ? 0x7632 : 0x5410);
  }
  static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) {
    const uint32_t elements = word >> i % 2 * 4;
    return permute_bytes(both(elements, 0), both(elements, 1), i / 2 ? 0x7632 : 0x5410);
  }

 private:
  /*! The elements 2 i and 2 i + 1 of four. */
  static TL_DEVICE uint32_t both(uint32_t elements, int i) {
    return permute_bytes(looked_up(0xc0804000c0800000u, elements),
                         upper_bytes(0x404040403f3f3f00u, elements), i ? 0x7362 : 0x5140);
  }
};

template <>
struct PairCast<half_t, Float8<E5M2Format>> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    return bytes_at(word, 0, 0x010c000cu + 0x02000200u * i);
  }
};

template <>
struct PairCast<half_t, Float8<E4M3Format>> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    using Pairs = PairArithmetic<half_t>;
    const uint32_t upper = bytes_at(word, 0, 0x010c000cu + 0x02000200u * i);
    const uint32_t bits = (upper & 0x80008000u) | (upper >> 1 & 0x3f803f80u);
    const uint32_t value = Pairs::mul(bits, 0x5c005c00u);  // 2 ** 8
    // The code behind 448, which would be 480, is NaN: its product with 140 is infinite.
    return Pairs::add(value, Pairs::mul(Pairs::mul(value, 0x58605860u), 0u));
  }
};

}  // namespace detail
}  // namespace tl
