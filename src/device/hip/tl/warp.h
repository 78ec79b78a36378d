/*!
 * Values that the lanes of a wavefront, or the threads of a block, tell each other. The lanes in
 * `mask` take part, and each of them calls.
 */
#pragma once

#include <tl/bits.h>
#include <tl/sync.h>

namespace tl {
namespace detail {

TL_DEVICE int lane_index() {
  const int low = __builtin_amdgcn_mbcnt_lo(~0u, 0);
  return TL_LANES == 64 ? __builtin_amdgcn_mbcnt_hi(~0u, low) : low;
}

TL_DEVICE LaneMask ballot(bool predicate) {
#if TL_LANES == 64
  return __builtin_amdgcn_ballot_w64(predicate);
#else
  return __builtin_amdgcn_ballot_w32(predicate);
#endif
}

TL_DEVICE int lowest_lane(LaneMask mask) { return __builtin_ctzl(mask); }

/*! What `exchange` makes of each word of a value. */
template <typename T, typename Exchange>
TL_DEVICE T word_by_word(T value, Exchange exchange) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(T));
  TL_UNROLL for (int i = 0; i < kWords; ++i) words[i] = exchange(words[i]);
  memcpy(&value, words, sizeof(T));
  return value;
}

/*! The value of lane `lane`, which takes part (CDNA3 ISA, DS_BPERMUTE_B32). */
template <typename T>
TL_DEVICE T shuffle(T value, int lane) {
  return word_by_word(value, [lane](uint32_t word) -> uint32_t {
    return __builtin_amdgcn_ds_bpermute(lane * 4, int(word));
  });
}

#if __gfx950__
/*! Two copies of a value, of which each lane has its own and that of the lane whose number differs
 * in `bits`, 16 or 32, in the order of their lanes (CDNA4 ISA, V_PERMLANE16_SWAP_B32,
 * V_PERMLANE32_SWAP_B32: rows that are odd in the first register change places with even ones of
 * the second). */
template <int bits, typename T>
TL_DEVICE void swap_rows(T* first, T* second) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  uint32_t x[kWords] = {}, y[kWords] = {};
  memcpy(x, first, sizeof(T));
  memcpy(y, second, sizeof(T));
  TL_UNROLL for (int i = 0; i < kWords; ++i) {
    const auto swapped = [&] {
      if constexpr (bits == 32) {
        return __builtin_amdgcn_permlane32_swap(x[i], y[i], false, true);
      } else {
        return __builtin_amdgcn_permlane16_swap(x[i], y[i], false, true);
      }
    }();
    x[i] = swapped[0], y[i] = swapped[1];
  }
  memcpy(first, x, sizeof(T));
  memcpy(second, y, sizeof(T));
}
#endif

/*! The value of the lane whose number differs in `bits`. In rows of 16 lanes an operand of an
 * instruction can be another lane's, in 32 lanes the swizzle needs no addresses (CDNA3 ISA, DPP,
 * DS_SWIZZLE_B32). */
template <int bits, typename T>
TL_DEVICE T shuffle_xor(T value) {
  return word_by_word(value, [](uint32_t word) -> uint32_t {
    constexpr int kQuads1 = 0xb1, kQuads2 = 0x4e, kQuads3 = 0x1b, kRotate8 = 0x128;
    constexpr int kMirror8 = 0x141, kEveryRow = 0xf;
    if constexpr (bits == 1 || bits == 2 || bits == 8) {
      constexpr int kControl = bits == 1 ? kQuads1 : bits == 2 ? kQuads2 : kRotate8;
      return __builtin_amdgcn_mov_dpp(int(word), kControl, kEveryRow, kEveryRow, true);
    } else if constexpr (bits == 4) {
      // The mirror image of eight lanes, and of each four of them.
      const int mirrored =
          __builtin_amdgcn_mov_dpp(int(word), kMirror8, kEveryRow, kEveryRow, true);
      return __builtin_amdgcn_mov_dpp(mirrored, kQuads3, kEveryRow, kEveryRow, true);
    } else if constexpr (bits < 32) {
      return __builtin_amdgcn_ds_swizzle(int(word), bits << 10 | 0x1f);
    } else {
      return __builtin_amdgcn_ds_bpermute((lane_index() ^ bits) * 4, int(word));
    }
  });
}

}  // namespace detail

template <typename T>
TL_DEVICE T shfl_sync(detail::LaneMask, T value, int source, int width) {
  const int first = detail::lane_index() & ~(width - 1);
  return detail::shuffle(value, first + (source & (width - 1)));
}
/*! Lanes whose source is outside of their `width` lanes keep their own value. */
template <typename T>
TL_DEVICE T shfl_up_sync(detail::LaneMask, T value, int delta, int width) {
  const int lane = detail::lane_index(), first = lane & ~(width - 1);
  return detail::shuffle(value, lane - delta < first ? lane : lane - delta);
}
template <typename T>
TL_DEVICE T shfl_down_sync(detail::LaneMask, T value, int delta, int width) {
  const int lane = detail::lane_index(), last = lane | (width - 1);
  return detail::shuffle(value, lane + delta > last ? lane : lane + delta);
}
/*! A source behind its `width` lanes is the lane's own, one before them is read. */
template <typename T>
TL_DEVICE T shfl_xor_sync(detail::LaneMask, T value, int bits, int width) {
  const int lane = detail::lane_index(), last = lane | (width - 1);
  return detail::shuffle(value, (lane ^ bits) > last ? lane : lane ^ bits);
}

TL_DEVICE uint64_t ballot_sync(detail::LaneMask mask, bool predicate) {
  return detail::ballot(predicate) & mask;
}
TL_DEVICE int any_sync(detail::LaneMask mask, bool predicate) {
  return ballot_sync(mask, predicate) != 0;
}
TL_DEVICE int all_sync(detail::LaneMask mask, bool predicate) {
  return ballot_sync(mask, !predicate) == 0;
}
TL_DEVICE uint64_t activemask() { return detail::ballot(true); }

/*! The lanes whose value has the same bits: one of them after the other tells its value. */
template <typename T>
TL_DEVICE detail::LaneMask match_any_sync(detail::LaneMask mask, T value) {
  const auto bits = [](T x) {
    if constexpr (sizeof(T) == 8) {
      return bit_cast<uint64_t>(x);
    } else {
      return bit_cast<uint32_t>(x);
    }
  };
  detail::LaneMask mine = 0;
  for (detail::LaneMask rest = mask & detail::ballot(true); rest != 0;) {
    const T told = detail::shuffle(value, detail::lowest_lane(rest));
    const bool same = bits(told) == bits(value);
    const detail::LaneMask lanes = detail::ballot(same) & mask;
    if (same) mine = lanes;
    rest &= ~lanes;
  }
  return mine;
}
/*! All lanes of `mask` if their values have the same bits, else 0. */
template <typename T>
TL_DEVICE detail::LaneMask match_all_sync(detail::LaneMask mask, T value) {
  const detail::LaneMask present = mask & detail::ballot(true);
  return match_any_sync(mask, value) == present ? present : 0;
}

/*! How many threads of the block have a true predicate. */
TL_DEVICE int syncthreads_count(bool predicate) {
  static __shared__ int votes;
  sync_threads();  // behind the reads of the vote before
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) votes = 0;
  sync_threads();
  const detail::LaneMask lanes = detail::ballot(predicate);
  if (detail::lane_index() == detail::lowest_lane(detail::ballot(true))) {
    __hip_atomic_fetch_add(&votes, detail::count_ones(lanes), __ATOMIC_RELAXED,
                           __HIP_MEMORY_SCOPE_WORKGROUP);
  }
  sync_threads();
  return votes;
}
TL_DEVICE int syncthreads_and(bool predicate) { return syncthreads_count(!predicate) == 0; }
TL_DEVICE int syncthreads_or(bool predicate) { return syncthreads_count(predicate) != 0; }

}  // namespace tl
