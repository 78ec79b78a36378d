/*! What may make the copies of a kernel from global to shared memory, before layouts and versions
 * of tiles are known. Its gemms have their instructions. */
#pragma once
#include "../../op/peers.h"
#include "placements.h"
#include "warp_roles.h"

namespace tl {

class TileLoads {
 public:
  TileLoads(const KernelInfo& kernel, const Views& views);
  /*! Why TMA cannot make a copy or an im2col ahead of its users, for every shape that a call may
   * bring, as words; "" if it can. `slots`: the tile may get several versions. */
  std::string WhyNotTma(const CallNode* load, bool slots) const;
  /*! The outermost dimension, counted among those longer than 1, in which TMA can load a part of
   * the tile for each block of the cluster. */
  std::optional<size_t> BlockDim(const CallNode* copy, bool slots) const;
  /*! Whether tiles of the kernel's pipelines may get several versions. */
  bool HasSlots() const { return has_slots_; }
  /*! Kernel has a pipelined loop. */
  bool HasPipelines() const { return has_pipelines_; }
  /*! The most of `bytes`, the fewest first, at multiples of which every row of a copy starts and
   * ends on both sides, whatever of it lies outside; 0 where none are proved, and for elements of
   * fewer bits than `least_bits`. VectorizeLoop asks for the same of a thread's accesses: they are
   * not there yet when warps get their roles, and it has no region. LowerAsyncCopy reports a bug
   * where the two disagree. */
  int64_t AlignedBytes(const CallNode* copy, const std::vector<int64_t>& bytes,
                       int least_bits = 8) const;

 private:
  /*! The layouts that users and gemms dictate. */
  const Placements& Dictated() const;
  std::string WhyNotTensor(const CallNode* load) const;

  const KernelInfo& kernel_;
  const Peers peers_;
  Placements annotated_;
  mutable std::optional<Placements> dictated_;
  bool has_slots_ = false, has_pipelines_ = false;
};

}  // namespace tl
