/*!
 * How many lanes a warp has: 32 on NVIDIA's GPUs and RDNA, 64 on CDNA, whose ISA calls it a
 * wavefront. It is the target's `warp_threads`, which the command line gives.
 */
#pragma once

#include <stdint.h>

#ifndef TL_WARP_THREADS
#error "the emulator is compiled with -DTL_WARP_THREADS=32 or 64, as the target has them"
#endif

namespace tl {
namespace emu {

template <int lanes>
struct MaskOf;
template <>
struct MaskOf<32> {
  using type = uint32_t;
};
template <>
struct MaskOf<64> {
  using type = uint64_t;
};

constexpr int kWarpSize = TL_WARP_THREADS;

/*! A set of lanes: bit l for lane l. */
using LaneMask = MaskOf<kWarpSize>::type;
constexpr LaneMask kAllLanes = ~LaneMask(0);

inline int count_lanes(LaneMask mask) { return __builtin_popcountll(mask); }
/*! Of a mask that is not empty. */
inline int lowest_lane(LaneMask mask) { return __builtin_ctzll(mask); }

/*! A mask in a report: "0000ffff". */
struct LaneText {
  char characters[kWarpSize / 4 + 1];

  explicit LaneText(LaneMask mask) {
    for (int i = kWarpSize / 4 - 1; i >= 0; --i, mask >>= 4) {
      characters[i] = "0123456789abcdef"[mask & 15];
    }
    characters[kWarpSize / 4] = 0;
  }
};

}  // namespace emu
}  // namespace tl
