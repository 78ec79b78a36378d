/*! Matrix products of a warp group on tensor cores, asynchronous (sm_90a): their fences and groups,
 * and what wgmma_ss.h and wgmma_rs.h share. */
#pragma once

#include <tl/wgmma_shapes.h>

namespace tl {
namespace detail {

// What follows the number of columns in the instruction's name, and its immediate arguments.
template <typename TA, typename TB, typename TC>
struct WgmmaTypes;
#define TL_WGMMA_TYPES(TA, TB, TC, types) \
  template <>                             \
  struct WgmmaTypes<TA, TB, TC> {         \
    static constexpr char text[] = types; \
  };
TL_WGMMA_TYPES(half_t, half_t, float, "k16.f32.f16.f16")
TL_WGMMA_TYPES(half_t, half_t, half_t, "k16.f16.f16.f16")
TL_WGMMA_TYPES(bfloat16_t, bfloat16_t, float, "k16.f32.bf16.bf16")
TL_WGMMA_TYPES(tfloat32_t, tfloat32_t, float, "k8.f32.tf32.tf32")
TL_WGMMA_TYPES(fp8_e4_t, fp8_e4_t, float, "k32.f32.e4m3.e4m3")
TL_WGMMA_TYPES(fp8_e4_t, fp8_e5_t, float, "k32.f32.e4m3.e5m2")
TL_WGMMA_TYPES(fp8_e5_t, fp8_e4_t, float, "k32.f32.e5m2.e4m3")
TL_WGMMA_TYPES(fp8_e5_t, fp8_e5_t, float, "k32.f32.e5m2.e5m2")
TL_WGMMA_TYPES(fp8_e4_t, fp8_e4_t, half_t, "k32.f16.e4m3.e4m3")
TL_WGMMA_TYPES(fp8_e4_t, fp8_e5_t, half_t, "k32.f16.e4m3.e5m2")
TL_WGMMA_TYPES(fp8_e5_t, fp8_e4_t, half_t, "k32.f16.e5m2.e4m3")
TL_WGMMA_TYPES(fp8_e5_t, fp8_e5_t, half_t, "k32.f16.e5m2.e5m2")
TL_WGMMA_TYPES(int8_t, int8_t, int, "k32.s32.s8.s8")
TL_WGMMA_TYPES(int8_t, uint8_t, int, "k32.s32.s8.u8")
TL_WGMMA_TYPES(uint8_t, int8_t, int, "k32.s32.u8.s8")
TL_WGMMA_TYPES(uint8_t, uint8_t, int, "k32.s32.u8.u8")
#undef TL_WGMMA_TYPES

// Products of floats have signs.
struct WgmmaNoRest {
  static constexpr char text[] = "";
};
template <bool a, bool b>
struct WgmmaSigns {
  static constexpr char text[] = {',', a ? '-' : ' ', '1', ',', b ? '-' : ' ', '1', 0};
};

// A product with a count of accumulator registers, of float or of 32 bits.
template <int registers>
struct WgmmaShared;
template <int registers>
struct WgmmaRegisters;

#define TL_FLOAT_REGISTER(x) "+f"(x)
#define TL_WORD_REGISTER(x) "+r"(x)

template <template <int> class Product, int N, typename Types, typename Rest, typename TC,
          typename A>
TL_DEVICE void wgmma(TC* d, A a, uint64_t b, bool sum) {
  constexpr int kRegisters = N / 2 * int(sizeof(TC)) / 4;
  if constexpr (is_same<TC, float>) {
    Product<kRegisters>::template run<N, Types, Rest>(d, a, b, int(sum));
  } else {
    uint32_t registers[kRegisters];
    memcpy(registers, d, sizeof(registers));
    Product<kRegisters>::template run<N, Types, Rest>(registers, a, b, int(sum));
    memcpy(d, registers, sizeof(registers));
  }
}

}  // namespace detail

/*! Orders this warp's accesses of registers before the products that it issues next. PTX ISA,
 * wgmma.fence. */
TL_DEVICE void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/*! Makes the products since the last commit a group. PTX ISA, wgmma.commit_group. */
TL_DEVICE void warpgroup_commit_batch() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/*! Waits until at most `groups` groups, 0 to 7, are in flight. PTX ISA, wgmma.wait_group. */
template <int groups>
TL_DEVICE void warpgroup_wait() {
  static_assert(groups >= 0 && groups <= 7, "tl::warpgroup_wait<groups> takes 0 to 7");
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

/*! Keeps the compiler from moving accesses of `count` accumulator elements across this point. */
template <int count, typename T>
TL_DEVICE void warpgroup_fence_operand(T* elements) {
  constexpr int kRegisters = count * int(sizeof(T)) / 4;
  if constexpr (is_same<T, float>) {
    TL_UNROLL for (int i = 0; i < count; ++i) asm volatile("" : "+f"(elements[i])::"memory");
  } else {
    uint32_t registers[kRegisters];
    memcpy(registers, elements, sizeof(registers));
    TL_UNROLL for (int i = 0; i < kRegisters; ++i) asm volatile("" : "+r"(registers[i])::"memory");
    memcpy(elements, registers, sizeof(registers));
  }
}

}  // namespace tl
