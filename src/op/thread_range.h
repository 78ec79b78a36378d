/*! Threads of a block that run a part of the program alone: what a `tl.thread_range` attribute
 * says. */
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "../tvm/attrs.h"
#include "../tvm/build.h"

namespace tl {

/*! Consecutive threads of a block, whole warps. */
struct ThreadRange {
  int64_t first = 0;
  int64_t threads = 0;
  bool operator==(const ThreadRange& o) const { return first == o.first && threads == o.threads; }
};

/*! The ranges of a `tl.thread_range` attribute, in ascending order and apart; empty for other
 * attributes. Tile operators work in one range only. */
std::vector<ThreadRange> ThreadRangesOf(const AttrStmtNode* op);

/*! Whether the program orders what the range's threads do with what others do at the same time
 * (T.ws, warp specialisation). Else the range is what a condition on the thread's number leaves of
 * the block, and stands in the program's order. */
bool IsApart(const AttrStmtNode* op);

/*! Whether a loop is over warp groups, each of which runs the body once (T.ws(.., each=True)). */
inline bool IsInstances(const ForNode* loop) { return loop->annotations.count(kInstances) != 0; }

/*! A set of warps of a block. */
class WarpSet {
 public:
  static WarpSet All() { return WarpSet(~uint32_t(0)); }
  /*! Those of a `tl.thread_range` attribute, nullopt for other attributes. */
  static std::optional<WarpSet> Of(const AttrStmtNode* op);

  bool Contains(WarpSet o) const { return (o.bits_ & ~bits_) == 0; }
  bool IsDisjoint(WarpSet o) const { return (bits_ & o.bits_) == 0; }
  WarpSet Union(WarpSet o) const { return WarpSet(bits_ | o.bits_); }
  bool operator==(WarpSet o) const { return bits_ == o.bits_; }

 private:
  explicit WarpSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_;
};

}  // namespace tl
