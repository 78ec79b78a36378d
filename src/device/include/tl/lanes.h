/*!
 * How a function of scalars becomes one of other types: of vectors, lane by lane, and of the 16-bit
 * and 8-bit floats, by way of float.
 *
 * A form finds only the functions of built-in types that stand above it.
 */
#pragma once

#include <tl/vec.h>

#define TL_VEC_MAP(name, Result)                                       \
  template <typename T, int N>                                         \
  TL_DEVICE vec<Result, N> name(const vec<T, N>& x) {                  \
    vec<Result, N> r;                                                  \
    TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = name(x.data[i]); \
    return r;                                                          \
  }
#define TL_VEC_MAP2(name)                                                         \
  template <typename T, int N>                                                    \
  TL_DEVICE vec<T, N> name(const vec<T, N>& x, const vec<T, N>& y) {              \
    vec<T, N> r;                                                                  \
    TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = name(x.data[i], y.data[i]); \
    return r;                                                                     \
  }
#define TL_VEC_MAP3(name)                                                                    \
  template <typename T, int N>                                                               \
  TL_DEVICE vec<T, N> name(const vec<T, N>& x, const vec<T, N>& y, const vec<T, N>& z) {     \
    vec<T, N> r;                                                                             \
    TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = name(x.data[i], y.data[i], z.data[i]); \
    return r;                                                                                \
  }
#define TL_NARROW(name)                               \
  template <typename Format>                          \
  TL_DEVICE Float16<Format> name(Float16<Format> x) { \
    return Float16<Format>(name(float(x)));           \
  }                                                   \
  template <typename Format>                          \
  TL_DEVICE Float8<Format> name(Float8<Format> x) {   \
    return Float8<Format>(name(float(x)));            \
  }
#define TL_NARROW2(name)                                              \
  template <typename Format>                                          \
  TL_DEVICE Float8<Format> name(Float8<Format> x, Float8<Format> y) { \
    return Float8<Format>(name(float(x), float(y)));                  \
  }

// Functions of C, which TL_LIBM finds.
#define TL_UNARY(name, float_function, double_function)                   \
  TL_DEVICE float name(float x) { return TL_LIBM(float_function)(x); }    \
  TL_DEVICE double name(double x) { return TL_LIBM(double_function)(x); } \
  TL_NARROW(name)                                                         \
  TL_VEC_MAP(name, T)
#define TL_BINARY(name, float_function, double_function)                               \
  TL_DEVICE float name(float x, float y) { return TL_LIBM(float_function)(x, y); }     \
  TL_DEVICE double name(double x, double y) { return TL_LIBM(double_function)(x, y); } \
  template <typename Format>                                                           \
  TL_DEVICE Float16<Format> name(Float16<Format> x, Float16<Format> y) {               \
    return Float16<Format>(name(float(x), float(y)));                                  \
  }                                                                                    \
  TL_NARROW2(name)                                                                     \
  TL_VEC_MAP2(name)
