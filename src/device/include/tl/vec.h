/*! Vectors of 1 to 32 elements with elementwise operators, and conversions of element types. */
#pragma once

#include <tl/arithmetic.h>

namespace tl {
namespace detail {

// The largest power of two that divides the size, and no more than the widest memory access.
TL_DEVICE constexpr int vec_alignment(int bytes) {
  const int power = bytes & -bytes;
  return power < 16 ? power : 16;
}

/*! What a target does with two elements at once: add, sub, mul; those of 16 bits are in a word,
 * floats in two. See pair_operations.h. */
template <typename T>
struct PairArithmetic {
  static constexpr bool exists = false;
};
template <int bytes = 4, typename Word = uint32_t, typename T>
TL_DEVICE Word word_at(const T* from) {
  Word word = 0;
  TL_MEMCPY(&word, from, bytes);
  return word;
}
template <typename Word, typename T>
TL_DEVICE void put_word(Word word, T* to) {
  TL_MEMCPY(to, &word, sizeof(word));
}
template <int bytes>
struct Words {
  using type = uint32_t;
};
template <>
struct Words<8> {
  using type = uint64_t;
};

/*! How a target converts two elements to 16-bit ones: `pair(word, i)` has the i-th pair of a word
 * of elements. See pair_operations.h. */
template <typename To, typename From>
struct PairCast {
  static constexpr bool exists = false;
};

/*! The elements of a vector. Bytes are words, too: what NVVM copies as an aggregate, it takes apart
 * by its first type, and puts pairs of bytes together again with three instructions each. */
template <typename T, int N,
          int word = sizeof(T) != 1 ? 0
                     : N % 4 == 0   ? 4
                     : N % 2 == 0   ? 2
                                    : 0>
struct Elements {
  T data[N];
};
template <typename T, int N>
struct Elements<T, N, 4> {
  union {
    T data[N];
    uint32_t words[N / 4];
  };
};
template <typename T, int N>
struct Elements<T, N, 2> {
  union {
    T data[N];
    uint16_t words[N / 2];
  };
};

}  // namespace detail

/*!
 * N elements of T, one memory access where N * sizeof(T) is a power of two up to 16 bytes. An
 * aggregate: `tl::vec<float, 2>{1.0f, 2.0f}`.
 */
template <typename T, int N>
struct alignas(detail::vec_alignment(int(sizeof(T)) * N)) vec : detail::Elements<T, N> {
  static_assert(N >= 1 && N <= 32, "tl::vec has 1 to 32 elements");

  TL_DEVICE T get(int i) const { return this->data[i]; }
  TL_DEVICE void set(int i, T value) { this->data[i] = value; }

  TL_DEVICE T& operator[](int i) { return this->data[i]; }
  TL_DEVICE const T& operator[](int i) const { return this->data[i]; }
};

#define TL_VEC_BINARY(op, Result)                                                     \
  template <typename T, int N>                                                        \
  TL_DEVICE vec<Result, N> operator op(const vec<T, N>& a, const vec<T, N>& b) {      \
    vec<Result, N> r;                                                                 \
    TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = Result(a.data[i] op b.data[i]); \
    return r;                                                                         \
  }
TL_VEC_BINARY(/, T)
TL_VEC_BINARY(%, T)
TL_VEC_BINARY(&, T)
TL_VEC_BINARY(|, T)
TL_VEC_BINARY(^, T)
TL_VEC_BINARY(<<, T)
TL_VEC_BINARY(>>, T)
TL_VEC_BINARY(==, bool)
TL_VEC_BINARY(!=, bool)
TL_VEC_BINARY(<, bool)
TL_VEC_BINARY(<=, bool)
TL_VEC_BINARY(>, bool)
TL_VEC_BINARY(>=, bool)
TL_VEC_BINARY(&&, bool)
TL_VEC_BINARY(||, bool)
#undef TL_VEC_BINARY

#define TL_VEC_ARITHMETIC(op, name)                                                     \
  template <typename T, int N>                                                          \
  TL_DEVICE vec<T, N> operator op(const vec<T, N>& a, const vec<T, N>& b) {             \
    vec<T, N> r;                                                                        \
    if constexpr (detail::PairArithmetic<T>::exists && N % 2 == 0) {                    \
      constexpr int kBytes = 2 * sizeof(T);                                             \
      using Word = typename detail::Words<kBytes>::type;                                \
      TL_UNROLL for (int i = 0; i < N; i += 2) {                                        \
        detail::put_word(                                                               \
            detail::PairArithmetic<T>::name(detail::word_at<kBytes, Word>(a.data + i),  \
                                            detail::word_at<kBytes, Word>(b.data + i)), \
            r.data + i);                                                                \
      }                                                                                 \
    } else {                                                                            \
      TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = name(a.data[i], b.data[i]);     \
    }                                                                                   \
    return r;                                                                           \
  }
TL_VEC_ARITHMETIC(+, add)
TL_VEC_ARITHMETIC(-, sub)
TL_VEC_ARITHMETIC(*, mul)
#undef TL_VEC_ARITHMETIC

#define TL_VEC_UNARY(op)                                                \
  template <typename T, int N>                                          \
  TL_DEVICE vec<T, N> operator op(const vec<T, N>& a) {                 \
    vec<T, N> r;                                                        \
    TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = T(op(a.data[i])); \
    return r;                                                           \
  }
TL_VEC_UNARY(-)
TL_VEC_UNARY(~)
TL_VEC_UNARY(!)
#undef TL_VEC_UNARY

/*! N copies of one value. */
template <typename T, int N>
TL_DEVICE vec<T, N> broadcast(T value) {
  vec<T, N> r;
  TL_UNROLL for (int i = 0; i < N; ++i) r.set(i, value);
  return r;
}

/*! base, base + stride, base + 2 * stride, ... */
template <typename T, int N>
TL_DEVICE vec<T, N> ramp(T base, T stride) {
  vec<T, N> r;
  TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = add(base, mul(T(i), stride));
  return r;
}

/*! `a` where the condition holds, else `b`; both are evaluated. */
template <typename T>
TL_DEVICE T select(bool condition, T a, T b) {
  return condition ? a : b;
}
template <typename T, int N>
TL_DEVICE vec<T, N> select(const vec<bool, N>& condition, const vec<T, N>& a, const vec<T, N>& b) {
  vec<T, N> r;
  TL_UNROLL for (int i = 0; i < N; ++i) r.set(i, condition.data[i] ? a.get(i) : b.get(i));
  return r;
}

/*!
 * The value as type To. Floats round to nearest even, and towards zero when they become integers,
 * which saturate; NaN becomes 0, or the value with only the top bit set where either type has 64
 * bits (PTX ISA, cvt). Integers wrap.
 */
template <typename To, typename From>
TL_DEVICE To cast(From x) {
  if constexpr (is_sub_byte<From>) {
    return cast<To>(typename From::Value(x));
  } else if constexpr (is_sub_byte<To> || is_same<To, bool> || is_float<To> || !is_float<From>) {
    return To(x);
  } else if constexpr (is_narrow_float<From>) {
    return cast<To>(float(x));
  } else if constexpr (sizeof(To) >= 4) {
    return detail::truncate<To>(x);
  } else {
    constexpr int kTop = 1 << (8 * sizeof(To) - is_signed<To>);
    constexpr int kLow = is_signed<To> ? -kTop : 0;
    const int wide = x != x ? 0 : detail::truncate<int>(x);
    return To(wide < kLow ? kLow : wide >= kTop ? kTop - 1 : wide);
  }
}

namespace detail {
/*! An integer of at most 32 bits as a float that rounds to any narrower one as the integer does. */
template <typename Integer>
TL_DEVICE float odd_float(Integer x) {
  if constexpr (sizeof(Integer) < sizeof(int32_t)) {
    return float(int32_t(x));
  } else {
    return round_to_odd(x);
  }
}

/*! Words of elements by `Pairs`, which makes two at once. */
template <typename Pairs, typename To, typename From, int N>
TL_DEVICE vec<To, N> cast_pairs(const vec<From, N>& x) {
  vec<To, N> r;
  // Pairs of a word, words, bytes behind them.
  constexpr int kBytes = int(sizeof(x.data)), kPairs = 2 * N / kBytes, kRest = kBytes % 4;
  const auto* bytes = reinterpret_cast<const uint8_t*>(x.data);
  TL_UNROLL for (int pair = 0; pair < kBytes / 4 * kPairs; ++pair) {
    const uint32_t word = word_at(bytes + pair / kPairs * 4);
    put_word(Pairs::pair(word, pair % kPairs), r.data + pair * 2);
  }
  if constexpr (kRest != 0) {
    const uint32_t word = word_at<kRest>(bytes + kBytes - kRest);
    TL_UNROLL for (int i = 0; i < kRest * kPairs / 4; ++i) {
      const int pair = kBytes / 4 * kPairs + i;
      put_word(Pairs::pair(word, i), r.data + pair * 2);
    }
  }
  return r;
}
}  // namespace detail

template <typename To, typename From, int N>
TL_DEVICE vec<To, N> cast(const vec<From, N>& x) {
  vec<To, N> r;
  if constexpr (is_narrow_float<To> && is_same<From, float> && N % 2 == 0) {
    TL_UNROLL for (int i = 0; i < N; i += 2) {
      To::from_floats(x.data[i], x.data[i + 1], &r.data[i]);
    }
  } else if constexpr (is_same<To, float> && is_same<From, bfloat16_t> && N % 2 == 0) {
    // By words: of a 16-bit number on its own, NVVM takes the bits out first, by a permutation.
    TL_UNROLL for (int i = 0; i < N; i += 2) {
      const uint32_t word = detail::word_at(x.data + i);
      r.data[i] = bit_cast<float>(word << 16);
      r.data[i + 1] = bit_cast<float>(word & 0xffff0000u);
    }
  } else if constexpr (detail::PairCast<To, From>::exists && N % 2 == 0) {
    return detail::cast_pairs<detail::PairCast<To, From>, To>(x);
  } else if constexpr (is_narrow_float<To> && N % 2 == 0 && !is_sub_byte<From> && !is_float<From> &&
                       sizeof(From) <= sizeof(int32_t)) {
    TL_UNROLL for (int i = 0; i < N; i += 2) {
      To::from_floats(detail::odd_float(x.data[i]), detail::odd_float(x.data[i + 1]), &r.data[i]);
    }
  } else {
    TL_UNROLL for (int i = 0; i < N; ++i) r.set(i, cast<To>(x.get(i)));
  }
  return r;
}

}  // namespace tl
