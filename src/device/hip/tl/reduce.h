/*! Reductions and scans over the lanes of a wavefront. All lanes that have not exited take part. */
#pragma once

#include <tl/reduce_ops.h>
#include <tl/warp.h>

namespace tl {

/*! Op over `threads` lanes (a power of two), `scale` apart (one too), all of which exist; each of
 * them has the same result. */
template <typename Op, int threads, int scale, typename T>
TL_DEVICE T AllReduce(T value) {
  static_assert(threads * scale <= TL_LANES, "tl::AllReduce is over the lanes of one warp");
  if constexpr (threads > 1) {
    constexpr int kBits = threads / 2 * scale;
#if __gfx950__
    if constexpr (kBits == 16 || kBits == 32) {
      T other = value;
      detail::swap_rows<kBits>(&value, &other);
      return AllReduce<Op, threads / 2, scale>(Op::run(value, other));
    }
#endif
    value = Op::run(value, detail::shuffle_xor<kBits>(value));
    return AllReduce<Op, threads / 2, scale>(value);
  } else {
    return value;
  }
}

/*! AllReduce where the block may lack lanes of a group. The lanes of such a group take part,
 * because the wavefront runs together; their result is undefined, as is what they read. */
template <typename Op, int threads, int scale, typename T>
TL_DEVICE T AllReduceIfWhole(T value) {
  return AllReduce<Op, threads, scale>(value);
}

/*! Op over the lanes of `mask`, each of which calls; each of them has the same result. */
template <typename Op, typename T>
TL_DEVICE T reduce_lanes(detail::LaneMask mask, T value) {
  T result = detail::shuffle(value, detail::lowest_lane(mask));
  for (detail::LaneMask rest = mask & (mask - 1); rest != 0; rest &= rest - 1) {
    result = Op::run(result, detail::shuffle(value, detail::lowest_lane(rest)));
  }
  return result;
}

/*! Op over lanes 0 to this one, of the wavefront's first `lanes` lanes. */
template <typename Op, int lanes, typename T>
TL_DEVICE T warp_scan(T value) {
  const int lane = detail::lane_index();
  TL_UNROLL for (int step = 1; step < lanes; step *= 2) {
    const T before = detail::shuffle(value, lane >= step ? lane - step : lane);
    if (lane >= step) value = Op::run(before, value);
  }
  return value;
}

/*! The value of lane `lane`. */
template <int lane, typename T>
TL_DEVICE T warp_broadcast(T value) {
  return detail::word_by_word(
      value, [](uint32_t word) -> uint32_t { return __builtin_amdgcn_readlane(int(word), lane); });
}

}  // namespace tl
