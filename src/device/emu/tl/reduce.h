/*! Reductions and scans over the lanes of a warp. The last lane to arrive moves the values of all.
 */
#pragma once

#include <tl/barrier.h>
#include <tl/reduce_ops.h>

namespace tl {
namespace emu {

template <typename T>
struct ShuffleArguments {
  T* value;
  int from;  // the lane to read
};

/*! A lane that does not exist gives a value of ones only, which is NaN in a float. */
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

template <typename T>
TL_DEVICE T shuffle_sync(const char* name, T value, int from, Location where) {
  ShuffleArguments<T> arguments{&value, from};
  collective_sync(name, shuffle<T>, &arguments, where, true);
  return value;
}

}  // namespace emu

/*! Op over `threads` lanes (a power of two), `scale` apart (one too); each of them has the same
 * result. */
template <typename Op, int threads, int scale, typename T>
TL_DEVICE T AllReduce(T value, emu::Location where = emu::here()) {
  static_assert(threads * scale <= emu::kWarpSize, "tl::AllReduce is over the lanes of one warp");
  for (int step = threads / 2; step > 0; step /= 2) {
    const int from = emu::lane_index() ^ (step * scale);
    value = Op::run(value, emu::shuffle_sync("AllReduce", value, from, where));
  }
  return value;
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
