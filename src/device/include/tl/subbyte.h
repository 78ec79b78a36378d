/*!
 * Types of 4 bits: int4b_t, uint4b_t, and fp4_e2_t, the E2M1 format of OCP Microscaling. (CUDA has
 * an int4, which is four ints.)
 *
 * In memory two elements share a byte, the first one in its low half; arrays of them are arrays of
 * bytes. A single element is read by get_sub_byte; only a thread's own memory is written by
 * set_sub_byte, since another thread may be writing the other half.
 */
#pragma once

#include <tl/subbyte_pairs.h>
#include <tl/vec.h>

namespace tl {

/*! Values -8 to 7 or 0 to 15. Integers wrap, floats round towards zero and saturate, NaN is 0. */
template <bool is_signed>
struct Int4Format {
  using Value = int;
  static TL_DEVICE Value decode(uint8_t bits) { return is_signed ? (bits ^ 8) - 8 : bits; }
  template <typename From>
  static TL_DEVICE uint8_t encode(From x) {
    if constexpr (is_float<From>) {
      constexpr int kLow = is_signed ? -8 : 0, kHigh = is_signed ? 7 : 15;
      const int wide = cast<int>(x);
      return uint8_t((x != x ? 0 : wide < kLow ? kLow : wide > kHigh ? kHigh : wide) & 15);
    } else {
      return uint8_t(x) & 15;
    }
  }
};

/*!
 * 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. Values round to nearest, ties to the even code,
 * and saturate; NaN is 6 (PTX ISA, cvt with .satfinite to .e2m1x2).
 */
struct E2M1Format {
  using Value = float;
  static TL_DEVICE Value decode(uint8_t bits) {
    const uint32_t exponent = bits >> 1 & 3, mantissa = bits & 1;
    const uint32_t magnitude =
        exponent ? (exponent + 126) << 23 | mantissa << 22 : mantissa * (126u << 23);
    return bit_cast<float>(magnitude | uint32_t(bits & 8) << 28);
  }
  static TL_DEVICE uint8_t encode(float x) {
    if (x != x) return 7;
    const uint32_t bits = bit_cast<uint32_t>(x);
    const float a = bit_cast<float>(bits & 0x7fffffff);
    const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                     (a >= 3.5f) + (a > 5.0f);
    return uint8_t(code | (bits >> 31) << 3);
  }
  template <typename From>
  static TL_DEVICE uint8_t encode(From x) {
    // The format has 6 as its largest value: of what float cannot hold exactly, only doubles round
    // to anything else, and those to odd first, so that the second rounding is the only one.
    if constexpr (is_same<From, double>) {
      return encode(detail::round_to_odd(x));
    } else {
      return encode(float(x));
    }
  }
};

/*! One element in the low half of a byte of its own. */
template <typename Format>
struct SubByte {
  using Value = typename Format::Value;
  uint8_t bits;

  SubByte() = default;
  template <typename From>
  explicit TL_DEVICE SubByte(From x) : bits(Format::encode(x)) {}
  static TL_DEVICE SubByte from_bits(uint8_t bits) {
    SubByte x;
    x.bits = bits;
    return x;
  }
  TL_DEVICE operator Value() const { return Format::decode(bits); }
};

template <typename Format>
inline constexpr bool is_sub_byte<SubByte<Format>> = true;

template <typename T, typename Bytes>
TL_DEVICE T get_sub_byte(Bytes&& bytes, long long i) {
  return T::from_bits(bytes[i >> 1] >> (i & 1) * 4 & 15);
}
template <typename T, typename Bytes>
TL_DEVICE void set_sub_byte(Bytes& bytes, long long i, T value) {
  const int shift = int(i & 1) * 4;
  bytes[i >> 1] = uint8_t((bytes[i >> 1] & ~(15 << shift)) | value.bits << shift);
}

/*! An even number of elements, two in a byte. */
template <typename Format, int N>
struct alignas(detail::vec_alignment(N / 2)) vec<SubByte<Format>, N> {
  static_assert(N >= 2 && N <= 32 && N % 2 == 0, "tl::vec has an even number of sub-byte elements");
  uint8_t data[N / 2];

  TL_DEVICE SubByte<Format> get(int i) const { return get_sub_byte<SubByte<Format>>(data, i); }
  TL_DEVICE void set(int i, SubByte<Format> value) { set_sub_byte(data, i, value); }
};

namespace detail {

/*! The word of elements of which two are at hand; what else is in it counts for nothing. */
template <typename Bytes>
TL_DEVICE uint32_t word_of(Bytes& bytes, int first, int second) {
  return uint32_t(bytes[first / 2]) << first % 8 / 2 * 8 | uint32_t(bytes[second / 2])
                                                               << second % 8 / 2 * 8;
}
/*! Whole, since a byte of a register costs an instruction. */
template <int extent>
TL_DEVICE uint32_t word_of(uint8_t (&bytes)[extent], int first, int second) {
  if constexpr (extent % 4 == 0) {
    return word_at(bytes + first / 8 * 4);
  } else {
    uint8_t* begin = bytes;
    return word_of(begin, first, second);
  }
}

}  // namespace detail

/*! N elements of an array of a thread, `stride` apart. */
template <typename T, int N, int stride, typename Bytes>
TL_DEVICE vec<T, N> lanes(Bytes& bytes, long long first) {
  vec<T, N> r;
  TL_UNROLL for (int i = 0; i < N; ++i) r.set(i, get_sub_byte<T>(bytes, first + i * stride));
  return r;
}

/*! The elements as type To, and `added` to each: integers that the type has. */
template <typename To, int added, typename T, int N>
TL_DEVICE vec<To, N> cast_sum(const vec<T, N>& x) {
  if constexpr (detail::PairCast<To, T>::exists) {
    return detail::cast_pairs<detail::PairSum<detail::PairCast<To, T>, added>, To>(x);
  } else {
    return cast<To>(x) + broadcast<To, N>(To(float(added)));
  }
}

namespace detail {

/*! The same as type To: pairs of a word at once by `Pairs`. */
template <typename Pairs, typename To, typename T, int N, int stride, typename Bytes>
TL_DEVICE vec<To, N> cast_words(Bytes& bytes, int first) {
  vec<To, N> r;
  TL_UNROLL for (int i = 0; i < N; i += 2) {
    const int at = first + i * stride;
    if (at % (2 * stride) >= stride) {
      return cast_pairs<Pairs, To>(lanes<T, N, stride>(bytes, first));
    }
    const uint32_t word = word_of(bytes, at, at + stride);
    put_word(stride == 1 ? Pairs::pair(word, at % 8 / 2) : Pairs::distant_pair(word, at % 4),
             r.data + i);
  }
  return r;
}

/*! Elements that lie so are pairs of words, where the target has that. */
template <typename To, typename T, int N, int stride>
inline constexpr bool are_pairs =
    PairCast<To, T>::exists && N % 2 == 0 && (stride == 1 || stride == 4);

}  // namespace detail

/*! The same as type To. */
template <typename To, typename T, int N, int stride, typename Bytes>
TL_DEVICE vec<To, N> cast_lanes(Bytes& bytes, long long first) {
  if constexpr (detail::are_pairs<To, T, N, stride>) {
    return detail::cast_words<detail::PairCast<To, T>, To, T, N, stride>(bytes, int(first));
  } else {
    return cast<To>(lanes<T, N, stride>(bytes, first));
  }
}

/*! The same, and `added` to each. */
template <typename To, int added, typename T, int N, int stride, typename Bytes>
TL_DEVICE vec<To, N> cast_sum_lanes(Bytes& bytes, long long first) {
  if constexpr (detail::are_pairs<To, T, N, stride>) {
    using Pairs = detail::PairSum<detail::PairCast<To, T>, added>;
    return detail::cast_words<Pairs, To, T, N, stride>(bytes, int(first));
  } else {
    return cast_sum<To, added>(lanes<T, N, stride>(bytes, first));
  }
}

}  // namespace tl

using int4b_t = tl::SubByte<tl::Int4Format<true>>;
using uint4b_t = tl::SubByte<tl::Int4Format<false>>;
using fp4_e2_t = tl::SubByte<tl::E2M1Format>;
