/*! What Hopper's warps and warp groups do besides: sharing registers, electing a thread, waiting
 * for the kernel before. */
#pragma once

#include <tl/barrier.h>
#include <tl/platform.h>

namespace tl {
namespace emu {

constexpr unsigned kWarpsInGroup = 4;
constexpr unsigned kRegistersOfBlock = 64 * 1024;

inline void set_registers(void* const* arguments) {
  Warp& warp = this_block().warps[worker->current->linear / kWarpSize];
  warp.registers = *static_cast<const unsigned*>(arguments[0]);
}

/*! Lets the warp's threads have so many registers, of the block's 64 K. */
TL_RUNTIME void set_registers_sync(const char* name, unsigned registers, Location where) {
  const unsigned warps = this_block().threads / kWarpSize;
  if (this_block().threads % (kWarpsInGroup * kWarpSize) != 0) {
    fail(where, "%s in a block of %u threads. Launch whole warp groups of 128", name,
         this_block().threads);
  }
  collective_sync(name, set_registers, &registers, where);
  unsigned all = 0;
  for (unsigned i = 0; i < warps; ++i) all += this_block().warps[i].registers * kWarpSize;
  if (all > kRegistersOfBlock) {
    fail(where, "the warps of the block ask for %u registers. A block has %u", all,
         kRegistersOfBlock);
  }
}

inline void elect_first_lane(void* const*) {}

}  // namespace emu

/*! Gives the warp group's registers above `registers` for each thread back. */
template <int registers>
TL_DEVICE void warpgroup_reg_dealloc(emu::Location where = emu::here()) {
  static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                "a thread has 24, 32, ... 256 registers");
  emu::set_registers_sync("warpgroup_reg_dealloc", registers, where);
}

/*! Waits until the warp group's threads can have `registers` registers each. */
template <int registers>
TL_DEVICE void warpgroup_reg_alloc(emu::Location where = emu::here()) {
  static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                "a thread has 24, 32, ... 256 registers");
  emu::set_registers_sync("warpgroup_reg_alloc", registers, where);
}

/*! True in one lane of the warp, all of whose lanes call it. */
TL_DEVICE bool elect_one(emu::Location where = emu::here()) {
  emu::collective_sync("elect_one", emu::elect_first_lane, nullptr, where);
  return emu::worker->current->linear % emu::kWarpSize == 0;
}

/*! True in one thread of each `threads` consecutive ones, a multiple of 32, or with 0 of the block.
 */
template <int threads>
TL_DEVICE bool shuffle_elect(emu::Location where = emu::here()) {
  static_assert(threads >= 0 && threads % emu::kWarpSize == 0,
                "tl::shuffle_elect takes whole warps, or 0");
  emu::collective_sync("shuffle_elect", emu::elect_first_lane, nullptr, where);
  const unsigned linear = emu::worker->current->linear;
  return threads == 0 ? linear == 0 : linear % (threads == 0 ? 1 : threads) == 0;
}

/*! A thread's number. */
TL_DEVICE int thread_again(int number, int) { return number; }

/*! Waits until the kernels that this one depends on are complete: here they are. */
TL_DEVICE void pdl_sync() {}

/*! Lets the kernels that depend on this one start: here they start when it has ended. */
TL_DEVICE void pdl_trigger() {}

}  // namespace tl
