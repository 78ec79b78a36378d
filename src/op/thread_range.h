/*! Threads of a block that run a part of the program alone: what a `tl.thread_range` attribute
 * says. */
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "../tvm/build.h"

namespace tl {

/*! Consecutive threads of a block, whole warp groups. */
struct ThreadRange {
  int64_t first = 0;
  int64_t threads = 0;
  bool operator==(const ThreadRange& o) const { return first == o.first && threads == o.threads; }
};

/*! The ranges of a `tl.thread_range` attribute, in ascending order and apart; empty for other
 * attributes. Tile operators work in one range only. */
std::vector<ThreadRange> ThreadRangesOf(const AttrStmtNode* op);

/*! A set of warp groups of a block. */
class WarpGroups {
 public:
  static WarpGroups All() { return WarpGroups(~uint32_t(0)); }
  /*! Those of a `tl.thread_range` attribute, nullopt for other attributes. */
  static std::optional<WarpGroups> Of(const AttrStmtNode* op);

  bool Contains(WarpGroups o) const { return (o.bits_ & ~bits_) == 0; }
  bool IsDisjoint(WarpGroups o) const { return (bits_ & o.bits_) == 0; }
  WarpGroups Union(WarpGroups o) const { return WarpGroups(bits_ | o.bits_); }
  bool operator==(WarpGroups o) const { return bits_ == o.bits_; }

 private:
  explicit WarpGroups(uint32_t bits) : bits_(bits) {}
  uint32_t bits_;
};

}  // namespace tl
