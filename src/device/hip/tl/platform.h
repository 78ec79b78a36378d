/*!
 * What the shared headers need from HIP, by clang's builtins alone.
 *
 * Neither HIP's headers nor ROCm's device library is included: clang then takes a tenth of a
 * second, and none of ROCm has to be there. Clang, "AMDGPU Support"; LLVM, "User Guide for AMDGPU
 * Backend".
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
using size_t = unsigned long;

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

#define TL_DEVICE __device__ __forceinline__
#define TL_UNROLL _Pragma("unroll")
#define TL_LIBM(name) ::tl::libm::name
#define TL_MEMCPY __builtin_memcpy
#define TL_ACCESS_RESTRICT __restrict__
#define memcpy __builtin_memcpy

// A block has exactly this many threads; `blocks` of them share a compute unit, whose four SIMDs
// have as many lanes together. tilelang/hip/compile.py asks for TL_WAVES_OF_SIMD at least, first;
// what LLVM does where nobody asks spills less than what it does for one.
#define __launch_bounds__(...) TL_BOUNDS(__VA_ARGS__, TL_BOUNDS2, TL_BOUNDS1)(__VA_ARGS__)
#define TL_BOUNDS(threads, blocks, name, ...) name
#ifdef TL_WAVES_OF_SIMD
#define TL_BOUNDS1(threads) TL_BOUNDS2(threads, 1)
#else
#define TL_WAVES_OF_SIMD 1
#define TL_BOUNDS1(threads) __attribute__((amdgpu_flat_work_group_size(threads, threads)))
#endif
#define TL_BOUNDS2(threads, blocks)                             \
  __attribute__((amdgpu_flat_work_group_size(threads, threads), \
                 amdgpu_waves_per_eu(tl::detail::waves_of_simd((threads) * (blocks)))))

/*! Lanes of a wavefront, which is what other targets call a warp. */
#if __GFX9__
#define TL_LANES 64
#else
#define TL_LANES 32
#endif

struct uint3 {
  uint32_t x, y, z;
};
struct dim3 {
  uint32_t x, y, z;
  constexpr __device__ dim3(uint32_t x = 1, uint32_t y = 1, uint32_t z = 1) : x(x), y(y), z(z) {}
  constexpr __device__ dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
typedef uint32_t uint2 __attribute__((ext_vector_type(2)));
typedef uint32_t uint4 __attribute__((ext_vector_type(4)));

namespace tl {

/*! What the compiler may take for true. */
TL_DEVICE void assume(bool condition) { __builtin_assume(condition); }

namespace detail {

/*! Wavefronts of a SIMD, one of four, that have `threads` threads together; no fewer than wanted.
 */
constexpr int waves_of_simd(int threads) {
  const int waves = (threads + TL_LANES * 4 - 1) / (TL_LANES * 4);
  return waves > TL_WAVES_OF_SIMD ? waves : TL_WAVES_OF_SIMD;
}

// Kernel arguments that the runtime adds: numbers of blocks, then threads of a block in 16 bits
// (AMDGPU Backend, "Code Object V5 Metadata").
template <typename T>
TL_DEVICE uint32_t hidden_argument(int offset) {
  using Memory = const __attribute__((address_space(4))) char;
  const Memory* at = (Memory*)__builtin_amdgcn_implicitarg_ptr() + offset;
  return *(const __attribute__((address_space(4))) T*)at;
}

#define TL_INDEX(Name, x_value, y_value, z_value)               \
  struct Name {                                                 \
    TL_DEVICE static uint32_t get_x() { return x_value; }       \
    TL_DEVICE static uint32_t get_y() { return y_value; }       \
    TL_DEVICE static uint32_t get_z() { return z_value; }       \
    __declspec(property(get = get_x)) uint32_t x;               \
    __declspec(property(get = get_y)) uint32_t y;               \
    __declspec(property(get = get_z)) uint32_t z;               \
    TL_DEVICE operator dim3() const { return dim3(x, y, z); }   \
    TL_DEVICE operator uint3() const { return uint3{x, y, z}; } \
  };
TL_INDEX(ThreadIndex, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
         __builtin_amdgcn_workitem_id_z())
TL_INDEX(BlockIndices, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
         __builtin_amdgcn_workgroup_id_z())
TL_INDEX(GridExtents, hidden_argument<uint32_t>(0), hidden_argument<uint32_t>(4),
         hidden_argument<uint32_t>(8))
TL_INDEX(BlockExtents, hidden_argument<uint16_t>(12), hidden_argument<uint16_t>(14),
         hidden_argument<uint16_t>(16))
#undef TL_INDEX

}  // namespace detail
}  // namespace tl

extern const __device__ __attribute__((weak)) tl::detail::ThreadIndex threadIdx;
extern const __device__ __attribute__((weak)) tl::detail::BlockIndices blockIdx;
extern const __device__ __attribute__((weak)) tl::detail::GridExtents gridDim;
extern const __device__ __attribute__((weak)) tl::detail::BlockExtents blockDim;

namespace tl {
namespace detail {

/*! A set of lanes: bit l for lane l. */
#if TL_LANES == 64
using LaneMask = uint64_t;
#else
using LaneMask = uint32_t;
#endif

TL_DEVICE int count_leading_zeros(uint32_t x) { return x ? __builtin_clz(x) : 32; }
TL_DEVICE int count_leading_zeros(uint64_t x) { return x ? __builtin_clzl(x) : 64; }
TL_DEVICE int count_ones(uint32_t x) { return __builtin_popcount(x); }
TL_DEVICE int count_ones(uint64_t x) { return __builtin_popcountl(x); }

TL_DEVICE float maximum(float x, float y) { return __builtin_fmaxf(x, y); }
TL_DEVICE double maximum(double x, double y) { return __builtin_fmax(x, y); }
TL_DEVICE float minimum(float x, float y) { return __builtin_fminf(x, y); }
TL_DEVICE double minimum(double x, double y) { return __builtin_fmin(x, y); }

template <typename T>
TL_DEVICE T extremum(bool first, T x, T y) {
  return first ? x : y;
}

// The instruction takes a subnormal for zero (CDNA3 ISA, V_RSQ_F32).
TL_DEVICE float reciprocal_sqrt(float x) {
  const bool small = x < 0x1p-100f;
  return __builtin_amdgcn_rsqf(small ? x * 0x1p100f : x) * (small ? 0x1p50f : 1.0f);
}
TL_DEVICE double reciprocal_sqrt(double x) { return 1.0 / __builtin_sqrt(x); }

/*! 1 / x for x in [1, 2], without the scaling of IEEE division. */
TL_DEVICE float reciprocal_of_one_to_two(float x) {
  const float y = __builtin_amdgcn_rcpf(x);
  return __builtin_fmaf(y, __builtin_fmaf(-x, y, 1.0f), y);
}

// Rounding towards zero with saturation to 32 and 64 bits, as tl::cast has it. V_CVT_I32_F32 and
// V_CVT_U32_F32 give that, and 0 for NaN (CDNA3 ISA); a C++ cast of such values is undefined.
template <typename To, typename From>
TL_DEVICE To truncate(From x) {
  constexpr bool kSigned = To(-1) < To(0);
  if constexpr (sizeof(From) == 4 && sizeof(To) == 4) {
    To result;
    if constexpr (kSigned) {
      asm("v_cvt_i32_f32 %0, %1" : "=v"(result) : "v"(x));
    } else {
      asm("v_cvt_u32_f32 %0, %1" : "=v"(result) : "v"(x));
    }
    return result;
  } else {
    constexpr int kBits = int(sizeof(To)) * 8;
    constexpr To kTopBit = To(uint64_t(1) << (kBits - 1));
    constexpr To kLow = kSigned ? kTopBit : To(0);
    constexpr To kHigh = kSigned ? To(~kTopBit) : To(-1);
    constexpr From kLimit = From(uint64_t(1) << (kBits - 1)) * (kSigned ? 1 : 2);
    if (x != x) return kTopBit;
    if (x >= kLimit) return kHigh;
    if (x <= (kSigned ? -kLimit : From(0))) return kLow;
    return To(x);
  }
}

}  // namespace detail

/*!
 * The functions of C's <math.h>. LLVM makes code of some of them; those that it makes no exact code
 * of are in ROCm's device library (ocml), which tilelang/hip links where a kernel has one.
 */
namespace libm {

#define TL_BUILTIN(name)                                              \
  TL_DEVICE float name##f(float x) { return __builtin_##name##f(x); } \
  TL_DEVICE double name(double x) { return __builtin_##name(x); }
TL_BUILTIN(sqrt)
TL_BUILTIN(fabs)
TL_BUILTIN(floor)
TL_BUILTIN(ceil)
TL_BUILTIN(trunc)
TL_BUILTIN(rint)
TL_BUILTIN(round)
#undef TL_BUILTIN
TL_DEVICE float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
TL_DEVICE double copysign(double x, double y) { return __builtin_copysign(x, y); }
TL_DEVICE float fmodf(float x, float y) { return __builtin_fmodf(x, y); }
TL_DEVICE double fmod(double x, double y) { return __builtin_fmod(x, y); }
TL_DEVICE float ldexpf(float x, int n) { return __builtin_amdgcn_ldexpf(x, n); }
TL_DEVICE double ldexp(double x, int n) { return __builtin_amdgcn_ldexp(x, n); }

#define TL_OCML(name)                                         \
  extern "C" __device__ double __ocml_##name##_f64(double x); \
  TL_DEVICE double name(double x) { return __ocml_##name##_f64(x); }
#define TL_OCML_BOTH(name)                                  \
  TL_OCML(name)                                             \
  extern "C" __device__ float __ocml_##name##_f32(float x); \
  TL_DEVICE float name##f(float x) { return __ocml_##name##_f32(x); }
#define TL_BUILTIN_OR_OCML(name) \
  TL_OCML(name)                  \
  TL_DEVICE float name##f(float x) { return __builtin_##name##f(x); }
TL_BUILTIN_OR_OCML(exp)
TL_BUILTIN_OR_OCML(exp2)
TL_BUILTIN_OR_OCML(exp10)
TL_BUILTIN_OR_OCML(log)
TL_BUILTIN_OR_OCML(log2)
TL_BUILTIN_OR_OCML(log10)
TL_OCML_BOTH(sin)
TL_OCML_BOTH(cos)
TL_OCML_BOTH(tan)
TL_OCML_BOTH(sinh)
TL_OCML_BOTH(cosh)
TL_OCML_BOTH(tanh)
TL_OCML_BOTH(atan)
TL_OCML_BOTH(asin)
TL_OCML_BOTH(acos)
TL_OCML_BOTH(asinh)
TL_OCML_BOTH(acosh)
TL_OCML_BOTH(atanh)
TL_OCML_BOTH(log1p)
TL_OCML_BOTH(erf)
#undef TL_BUILTIN_OR_OCML
#undef TL_OCML_BOTH
#undef TL_OCML

#define TL_OCML2(name)                                                            \
  extern "C" __device__ float __ocml_##name##_f32(float x, float y);              \
  extern "C" __device__ double __ocml_##name##_f64(double x, double y);           \
  TL_DEVICE float name##f(float x, float y) { return __ocml_##name##_f32(x, y); } \
  TL_DEVICE double name(double x, double y) { return __ocml_##name##_f64(x, y); }
TL_OCML2(pow)
TL_OCML2(atan2)
TL_OCML2(hypot)
#undef TL_OCML2

}  // namespace libm
}  // namespace tl
