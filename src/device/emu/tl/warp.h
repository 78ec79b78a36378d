/*!
 * Values that the lanes of a warp, or the threads of a block, tell each other. The lanes in `mask`
 * take part, and each of them calls; the last one to arrive does the work of all.
 */
#pragma once

#include <tl/barrier.h>
#include <tl/bits.h>

namespace tl {
namespace emu {

template <typename T>
struct LaneValue {
  T value;
  int from;          // the lane to read
  LaneMask set;      // lanes that agree
  LaneMask present;  // lanes that take part
  LaneMask mask;
  Location where;
};

template <typename T>
void shuffle_lanes(void* const* lanes) {
  T values[kWarpSize];
  for (int l = 0; l < kWarpSize; ++l) {
    if (lanes[l]) values[l] = static_cast<const LaneValue<T>*>(lanes[l])->value;
  }
  for (int l = 0; l < kWarpSize; ++l) {
    auto* lane = static_cast<LaneValue<T>*>(lanes[l]);
    if (!lane) continue;
    // It was there when this lane came, and has exited since.
    if (!lanes[lane->from]) fail_for_absent_lane(l, lane->mask, lane->from, lane->where);
    lane->value = values[lane->from];
  }
}

template <typename T>
void match_lanes(void* const* lanes) {
  for (int l = 0; l < kWarpSize; ++l) {
    auto* lane = static_cast<LaneValue<T>*>(lanes[l]);
    for (int other = 0; lane && other < kWarpSize; ++other) {
      const auto* o = static_cast<const LaneValue<T>*>(lanes[other]);
      const bool same = o && __builtin_memcmp(&lane->value, &o->value, sizeof(T)) == 0;
      lane->set |= LaneMask(same) << other;
      lane->present |= LaneMask(o != nullptr) << other;
    }
  }
}

TL_DEVICE int lane_of_thread() { return int(worker->current->linear % kWarpSize); }

template <typename T>
TL_DEVICE T shuffle_from(const char* name, LaneMask mask, T value, int from, Location where) {
  check_source_lane(mask, from, where);
  LaneValue<T> lane{value, from, 0, 0, mask, where};
  masked_sync(name, mask, shuffle_lanes<T>, &lane, where);
  return lane.value;
}

}  // namespace emu

template <typename T>
TL_DEVICE T shfl_sync(emu::LaneMask mask, T value, int source, int width,
                      emu::Location where = emu::here()) {
  const int first = emu::lane_of_thread() & ~(width - 1);
  return emu::shuffle_from("shfl_sync", mask, value, first + (source & (width - 1)), where);
}
/*! Lanes whose source is outside of their `width` lanes keep their own value. */
#define TL_SHUFFLE(name, source)                                                            \
  template <typename T>                                                                     \
  TL_DEVICE T name(emu::LaneMask mask, T value, int delta, int width,                       \
                   emu::Location where = emu::here()) {                                     \
    const int lane = emu::lane_of_thread(), first = lane & ~(width - 1), wanted = (source); \
    const bool inside = wanted >= first && wanted < first + width;                          \
    return emu::shuffle_from(#name, mask, value, inside ? wanted : lane, where);            \
  }
TL_SHUFFLE(shfl_up_sync, lane - delta)
TL_SHUFFLE(shfl_down_sync, lane + delta)
#undef TL_SHUFFLE
/*! A source behind its `width` lanes is the lane's own, one before them is read (PTX ISA, shfl). */
template <typename T>
TL_DEVICE T shfl_xor_sync(emu::LaneMask mask, T value, int bits, int width,
                          emu::Location where = emu::here()) {
  const int lane = emu::lane_of_thread(), last = lane | (width - 1), wanted = lane ^ bits;
  return emu::shuffle_from("shfl_xor_sync", mask, value, wanted > last ? lane : wanted, where);
}

namespace emu {

template <typename T>
TL_DEVICE LaneValue<T> match(const char* name, LaneMask mask, T value, Location where) {
  LaneValue<T> lane{value, 0, 0, 0, mask, where};
  masked_sync(name, mask, match_lanes<T>, &lane, where);
  return lane;
}

}  // namespace emu

TL_DEVICE uint64_t ballot_sync(emu::LaneMask mask, bool predicate,
                               emu::Location where = emu::here()) {
  const emu::LaneValue<bool> lane = emu::match("a vote", mask, predicate, where);
  return predicate ? lane.set : lane.present & ~lane.set;
}
TL_DEVICE int any_sync(emu::LaneMask mask, bool predicate, emu::Location where = emu::here()) {
  return ballot_sync(mask, predicate, where) != 0;
}
TL_DEVICE int all_sync(emu::LaneMask mask, bool predicate, emu::Location where = emu::here()) {
  return ballot_sync(mask, !predicate, where) == 0;
}

/*! The lanes that have not exited: here all of them run together. */
TL_DEVICE uint64_t activemask() {
  return emu::this_block().warps[emu::worker->current->linear / emu::kWarpSize].live;
}

template <typename T>
TL_DEVICE emu::LaneMask match_any_sync(emu::LaneMask mask, T value,
                                       emu::Location where = emu::here()) {
  return emu::match("match_sync", mask, value, where).set;
}
template <typename T>
TL_DEVICE emu::LaneMask match_all_sync(emu::LaneMask mask, T value,
                                       emu::Location where = emu::here()) {
  const emu::LaneValue<T> lane = emu::match("match_sync", mask, value, where);
  return lane.set == lane.present ? lane.set : 0;
}

/*! How many threads of the block have a true predicate. */
TL_DEVICE int syncthreads_count(bool predicate, emu::Location where = emu::here()) {
  int& votes = emu::this_block().votes;
  votes += predicate;
  emu::barrier_sync(0, 0, where);
  const int count = votes;
  emu::barrier_sync(0, 0, where);
  votes = 0;
  emu::barrier_sync(0, 0, where);
  return count;
}
TL_DEVICE int syncthreads_and(bool predicate, emu::Location where = emu::here()) {
  return syncthreads_count(!predicate, where) == 0;
}
TL_DEVICE int syncthreads_or(bool predicate, emu::Location where = emu::here()) {
  return syncthreads_count(predicate, where) != 0;
}

}  // namespace tl
