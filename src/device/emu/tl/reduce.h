/*! Reductions and scans over the lanes of a warp. The last lane to arrive moves the values of all.
 */
#pragma once

#include <tl/barrier.h>
#include <tl/reduce_ops.h>
#include <tl/warp.h>

namespace tl {
namespace emu {

template <typename T>
struct ShuffleArguments {
  T* value;
  int from;  // the lane to read
};

template <typename T>
TL_UNOBSERVED void shuffle(void* const* arguments) {
  T values[kWarpSize];
  __builtin_memset(values, 0xff, sizeof(values));
  for (int l = 0; l < kWarpSize; ++l) {
    const auto* lane = static_cast<const ShuffleArguments<T>*>(arguments[l]);
    if (lane) values[l] = *lane->value;
  }
  for (int l = 0; l < kWarpSize; ++l) {
    const auto* lane = static_cast<const ShuffleArguments<T>*>(arguments[l]);
    if (lane) *lane->value = values[lane->from];
  }
}

TL_DEVICE int lane_index() { return int(worker->current->linear % kWarpSize); }

/*! Whether the block has lane `lane` of the running thread's warp, exited or not. */
TL_DEVICE bool has_lane(int lane) {
  const unsigned first = worker->current->linear / kWarpSize * kWarpSize;
  return first + unsigned(lane) < this_block().threads;
}

template <typename T>
TL_DEVICE T exchange(const char* name, T value, int from, Location where) {
  ShuffleArguments<T> arguments{&value, from};
  collective_sync(name, shuffle<T>, &arguments, where, true);
  return value;
}

template <typename T>
TL_DEVICE T shuffle_sync(const char* name, T value, int from, Location where) {
  check_source_lane(kAllLanes, from, where);
  return exchange(name, value, from, where);
}

}  // namespace emu

/*! Op over `threads` lanes (a power of two), `scale` apart (one too), all of which exist; each of
 * them has the same result. */
template <typename Op, int threads, int scale, typename T>
TL_DEVICE T AllReduce(T value, emu::Location where = emu::here()) {
  static_assert(threads * scale <= emu::kWarpSize, "tl::AllReduce is over the lanes of one warp");
  for (int step = threads / 2; step > 0; step /= 2) {
    const int from = emu::lane_index() ^ (step * scale);
    value = Op::run(value, emu::shuffle_sync("AllReduce", value, from, where));
  }
  return value;
}

/*! AllReduce where the block may lack lanes of a group. The lanes of such a group take part,
 * because the warp shuffles together; their result is undefined: here bits that are all ones. */
template <typename Op, int threads, int scale, typename T>
TL_DEVICE T AllReduceIfWhole(T value, emu::Location where = emu::here()) {
  const int last = emu::lane_index() | ((threads - 1) * scale);
  if (emu::has_lane(last)) return AllReduce<Op, threads, scale>(value, where);
  for (int step = threads / 2; step > 0; step /= 2) {
    emu::exchange("AllReduce", value, emu::lane_index() ^ (step * scale), where);
  }
  __builtin_memset(static_cast<void*>(&value), 0xff, sizeof(value));
  return value;
}

/*! Op over the lanes of `mask`, each of which calls; each of them has the same result. */
template <typename Op, typename T>
TL_DEVICE T reduce_lanes(emu::LaneMask mask, T value, emu::Location where = emu::here()) {
  T result = shfl_sync(mask, value, emu::lowest_lane(mask), emu::kWarpSize, where);
  for (emu::LaneMask rest = mask & (mask - 1); rest != 0; rest &= rest - 1) {
    result = Op::run(result, shfl_sync(mask, value, emu::lowest_lane(rest), emu::kWarpSize, where));
  }
  return result;
}

/*! Op over lanes 0 to this one, of the warp's first `lanes` lanes. */
template <typename Op, int lanes, typename T>
TL_DEVICE T warp_scan(T value, emu::Location where = emu::here()) {
  const int lane = emu::lane_index();
  for (int step = 1; step < lanes; step *= 2) {
    const int from = lane >= step ? lane - step : lane;
    const T before = emu::shuffle_sync("warp_scan", value, from, where);
    if (lane >= step) value = Op::run(before, value);
  }
  return value;
}

/*! The value of lane `lane`. */
template <int lane, typename T>
TL_DEVICE T warp_broadcast(T value, emu::Location where = emu::here()) {
  return emu::shuffle_sync("warp_broadcast", value, lane, where);
}

}  // namespace tl
