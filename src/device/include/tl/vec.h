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

}  // namespace detail

/*!
 * N elements of T, one memory access where N * sizeof(T) is a power of two up to 16 bytes. An
 * aggregate: `tl::vec<float, 2>{1.0f, 2.0f}`.
 */
template <typename T, int N>
struct alignas(detail::vec_alignment(int(sizeof(T)) * N)) vec {
  static_assert(N >= 1 && N <= 32, "tl::vec has 1 to 32 elements");
  T data[N];

  TL_DEVICE T get(int i) const { return data[i]; }
  TL_DEVICE void set(int i, T value) { data[i] = value; }

  TL_DEVICE T& operator[](int i) { return data[i]; }
  TL_DEVICE const T& operator[](int i) const { return data[i]; }
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

#define TL_VEC_ARITHMETIC(op, name)                                               \
  template <typename T, int N>                                                    \
  TL_DEVICE vec<T, N> operator op(const vec<T, N>& a, const vec<T, N>& b) {       \
    vec<T, N> r;                                                                  \
    TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = name(a.data[i], b.data[i]); \
    return r;                                                                     \
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

template <typename To, typename From, int N>
TL_DEVICE vec<To, N> cast(const vec<From, N>& x) {
  vec<To, N> r;
  if constexpr (is_narrow_float<To> && is_same<From, float> && N % 2 == 0) {
    TL_UNROLL for (int i = 0; i < N; i += 2) {
      To::from_floats(x.data[i], x.data[i + 1], &r.data[i]);
    }
  } else {
    TL_UNROLL for (int i = 0; i < N; ++i) r.set(i, cast<To>(x.get(i)));
  }
  return r;
}

}  // namespace tl
