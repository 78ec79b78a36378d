/*! How much shared memory a kernel will take, for passes that would give it more before
 * PlanSharedMemory places what there is. What they took may still be too much: reductions and
 * changes of layouts exchange elements through memory that is not there yet. A function with
 * kTakesShared that PlanSharedMemory refuses is therefore lowered again with kSpareShared
 * (tilelang/engine/lower.py), with which these passes take nothing. */
#pragma once
#include <optional>
#include <unordered_map>

#include "../../op/views.h"
#include "../../target/target.h"
#include "buffer_bytes.h"

namespace tl {

/*! Function attribute: a pass has given kernels more shared memory than the program asks for. */
inline constexpr const char* kTakesShared = "tl.takes_shared";
/*! Key of the configuration. */
inline constexpr const char* kSpareShared = "tl.second_choice.spare_shared";

class SharedEstimate {
 public:
  explicit SharedEstimate(const Stmt& kernel);

  /*! Bytes of all tiles, with what later passes may add; nullopt where the launch decides. */
  std::optional<int64_t> bytes;

  /*! Blocks of `threads` that a multiprocessor has room for, 0 where the launch decides. A second
   * one has room if tiles that no loop uses have bytes of those that loops use: PlanSharedMemory
   * lets them share these then. */
  int64_t BlocksThatFit(const Target& target, int64_t threads) const;

  /*! As many as the stages of the pipelined loops that write the tile, or 1. */
  int64_t VersionsOf(const Var& tile) const;
  /*! Bytes of the tiles that pipelined loops in a statement of the kernel load. */
  int64_t LoadedBytes(const Stmt& s) const;

 private:
  int64_t least_bytes_ = 0;
  std::unordered_map<const Object*, int64_t> versions_;
};

}  // namespace tl
