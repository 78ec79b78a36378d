/*! What Hopper's warps and warp groups do besides: sharing registers, electing a thread, waiting
 * for the kernel before (sm_90). */
#pragma once

#include <tl/platform.h>

namespace tl {

/*!
 * Gives the warp group's registers above `registers` for each thread back; 24 to 256, a multiple
 * of 8. All its warps call it. PTX ISA, setmaxnreg (sm_90a): the kernel needs
 * __launch_bounds__(threads, 1).
 */
template <int registers>
TL_DEVICE void warpgroup_reg_dealloc() {
  static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                "a thread has 24, 32, ... 256 registers");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/*! Waits until the warp group's threads can have `registers` registers each. PTX ISA, setmaxnreg.
 */
template <int registers>
TL_DEVICE void warpgroup_reg_alloc() {
  static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                "a thread has 24, 32, ... 256 registers");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/*! True in one lane of the warp, all of whose lanes call it. PTX ISA, elect.sync. */
TL_DEVICE bool elect_one() {
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected));
  return elected;
}

/*!
 * True in one thread of each `threads` consecutive ones, a multiple of 32, or with 0 of the block:
 * in a lane of their first warp. All lanes of a warp call it.
 */
template <int threads>
TL_DEVICE bool shuffle_elect() {
  static_assert(threads >= 0 && threads % 32 == 0, "tl::shuffle_elect takes whole warps, or 0");
  const int linear = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  // The shuffle tells the compiler that all lanes have the same number.
  const int warp = __shfl_sync(0xffffffff, linear / 32, 0);
  return (threads == 0 ? warp : warp % (threads == 0 ? 1 : threads / 32)) == 0 && elect_one();
}

/*! A thread's number, of which compilers know no more than that it is below `threads`. */
TL_DEVICE int thread_again(int number, int threads) {
  asm volatile("" : "+r"(number));
  __builtin_assume(number >= 0 && number < threads);
  return number;
}

/*! Waits until the kernels that this one depends on are complete and their writes visible. PTX ISA,
 * griddepcontrol.wait. */
TL_DEVICE void pdl_sync() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/*! Lets the kernels that depend on this one start when all blocks have called it or ended. PTX ISA,
 * griddepcontrol.launch_dependents. */
TL_DEVICE void pdl_trigger() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace tl
