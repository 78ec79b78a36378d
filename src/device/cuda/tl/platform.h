/*!
 * What the shared headers need from CUDA C++.
 *
 * NVRTC knows the built-in variables and functions without any header, but not the fixed-width
 * integers. They are the types that <stdint.h> has on 64-bit Linux.
 */
#pragma once

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;

#define TL_DEVICE __device__ __forceinline__
#define TL_UNROLL _Pragma("unroll")
#define TL_LIBM(name) ::name
#define TL_MEMCPY ::memcpy

namespace tl {

/*! What the compiler may take for true. */
TL_DEVICE void assume(bool condition) { __builtin_assume(condition); }

namespace detail {

TL_DEVICE int count_leading_zeros(uint32_t x) { return __clz(int(x)); }
TL_DEVICE int count_leading_zeros(uint64_t x) { return __clzll(static_cast<long long>(x)); }
TL_DEVICE int count_ones(uint32_t x) { return __popc(x); }
TL_DEVICE int count_ones(uint64_t x) { return __popcll(x); }

TL_DEVICE float maximum(float x, float y) { return fmaxf(x, y); }
TL_DEVICE double maximum(double x, double y) { return fmax(x, y); }
TL_DEVICE float minimum(float x, float y) { return fminf(x, y); }
TL_DEVICE double minimum(double x, double y) { return fmin(x, y); }

// ptxas before CUDA 13.4 loses the minus in max(x, max(y, -z)) of signed integers, and in min, for
// chips with an extremum of three (sm_90 on). It finds none in selections by assembly.
template <typename T>
TL_DEVICE T extremum(bool first, T x, T y) {
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1304
  constexpr bool kSigned = T(-1) < T(0);
  if constexpr (kSigned && sizeof(T) == 8) {
    asm("{.reg .pred p; setp.ne.b32 p, %1, 0; selp.b64 %0, %0, %2, p;}"
        : "+l"(x)
        : "r"(int(first)), "l"(y));
    return x;
  } else if constexpr (kSigned) {
    int r = x;
    asm("{.reg .pred p; setp.ne.b32 p, %1, 0; selp.b32 %0, %0, %2, p;}"
        : "+r"(r)
        : "r"(int(first)), "r"(int(y)));
    return T(r);
  }
#endif
  return first ? x : y;
}

TL_DEVICE float reciprocal_sqrt(float x) { return rsqrtf(x); }
TL_DEVICE double reciprocal_sqrt(double x) { return ::rsqrt(x); }

/*! 1 / x for x in [1, 2]. IEEE division has a branch for subnormals, across which ptxas moves no
 * load. */
TL_DEVICE float reciprocal_of_one_to_two(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return fmaf(y, fmaf(-x, y, 1.0f), y);
}

// Rounding towards zero with saturation to 32 and 64 bits; the intrinsics are defined for every
// input, a C++ cast is not.
template <typename To, typename From>
TL_DEVICE To truncate(From x) {
  constexpr bool kSigned = To(-1) < To(0);
  constexpr bool kWide = sizeof(To) == 8;
  if constexpr (sizeof(From) == 4) {
    if constexpr (kSigned) {
      if constexpr (kWide) return __float2ll_rz(x);
      return __float2int_rz(x);
    } else {
      if constexpr (kWide) return __float2ull_rz(x);
      return __float2uint_rz(x);
    }
  } else {
    if constexpr (kSigned) {
      if constexpr (kWide) return __double2ll_rz(x);
      return __double2int_rz(x);
    } else {
      if constexpr (kWide) return __double2ull_rz(x);
      return __double2uint_rz(x);
    }
  }
}

}  // namespace detail
}  // namespace tl
