/*! Matrix products of a warp group on tensor cores, asynchronous (sm_90a): their fences and groups,
 * and what wgmma_ss.h and wgmma_rs.h share. */
#pragma once

#include <tl/wgmma_registers.h>
#include <tl/wgmma_shapes.h>

namespace tl {
namespace detail {

// What follows the number of columns in the instruction's name, and its immediate arguments. The
// last parameter makes a template of each text: those of classes are data of every program.
template <typename TA, typename TB, typename TC, int unused = 0>
struct WgmmaTypes;
#define TL_WGMMA_TYPES(TA, TB, TC, types) \
  template <int unused>                   \
  struct WgmmaTypes<TA, TB, TC, unused> { \
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

// A product with a count of accumulator registers, of float or of 32 bits, and of steps along K.
template <typename T, int registers, int steps>
struct WgmmaShared;
template <typename T, int registers, int steps>
struct WgmmaRegisters;

// One statement for all steps: compilers pay for a statement's accumulators, not for its text.
// The first step adds to the accumulators where `sum` is not 0, the others do in any case.
#define TL_WGMMA_ASSEMBLY(T, n, steps, ...)                                                     \
  asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %128, 0;\nsetp.ne.b32 q, 1, 0;\n" steps "}" \
               : TL_OPERANDS_##n(TL_REGISTER_##T)                                               \
               : TL_PADDING_##n "r"(sum), "n"(N), "C"(Types::text), "C"(Rest::text), __VA_ARGS__)

// The steps along K from `first` on, as many to a statement as there may be.
template <template <typename, int, int> class Product, int registers, int N, typename Types,
          typename Rest, int steps, int first, typename T, typename A, typename B>
TL_DEVICE void wgmma_from(T* d, A a, B b, bool sum) {
  constexpr int kSteps = steps - first < TL_WGMMA_STEPS ? steps - first : TL_WGMMA_STEPS;
  Product<T, registers, kSteps>::template run<N, Types, Rest, first>(d, a, b, int(sum));
  if constexpr (first + kSteps < steps) {
    wgmma_from<Product, registers, N, Types, Rest, steps, first + kSteps>(d, a, b, true);
  }
}

template <template <typename, int, int> class Product, int N, typename Types, typename Rest,
          typename TC, typename A, typename B>
TL_DEVICE void wgmma(TC* d, A a, B b, bool sum) {
  constexpr int kRegisters = N / 2 * int(sizeof(TC)) / 4, kSteps = kWgmmaSteps<B>;
  if constexpr (is_same<TC, float>) {
    wgmma_from<Product, kRegisters, N, Types, Rest, kSteps, 0>(d, a, b, sum);
  } else {
    uint32_t registers[kRegisters];
    memcpy(registers, d, sizeof(registers));
    wgmma_from<Product, kRegisters, N, Types, Rest, kSteps, 0>(registers, a, b, sum);
    memcpy(d, registers, sizeof(registers));
  }
}

}  // namespace detail

/*! Orders this warp's accesses of registers before the products that it issues next. PTX ISA,
 * wgmma.fence. */
TL_DEVICE void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/*!
 * The same in front of products that begin anew in accumulators that were read in the same basic
 * block and are read again. ptxas of CUDA 13.0 to 13.5 does not see that such a product changes
 * them, takes an expression of them for the one in front of it, and deletes a product. A trap in a
 * grid without blocks, three instructions, ends the basic block.
 */
TL_DEVICE void warpgroup_arrive_apart() {
  asm volatile(
      "{.reg .u32 blocks; .reg .pred none; mov.u32 blocks, %nctaid.x; setp.eq.u32 none, blocks, 0; "
      "@none trap;}" ::
          : "memory");
  warpgroup_arrive();
}

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
