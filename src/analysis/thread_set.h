/*! Sets of threads of a block, decided by evaluating conditions on the thread's number. */
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../layout/index_box.h"
#include "../op/thread_range.h"

namespace tl {

/*! A set of lanes of a warp, bit l for lane l, as intrinsics take it. */
IntImm LaneMask(uint64_t lanes, int64_t warp_threads);
/*! All of them. */
IntImm AllLanes(int64_t warp_threads);
/*! A value that the lanes of a warp have from the first one. */
Expr FromFirstLane(const Expr& value, int64_t warp_threads);

class ThreadSet {
 public:
  ThreadSet() = default;
  /*! All threads of a block with these axes, x first. */
  explicit ThreadSet(const std::vector<Axis>& axes);
  static ThreadSet Of(const std::vector<Axis>& axes, const std::vector<ThreadRange>& ranges);

  /*! Those for which `keep` holds of their linear number. */
  ThreadSet Where(const std::function<bool(int64_t)>& keep) const;
  /*! Those for which `condition` has `value`; nullopt if it is about something else, too. */
  std::optional<ThreadSet> Where(const Expr& condition, bool value) const;
  /*! Whether `e` is a function of the thread's number alone that has one value in each `unit`
   * threads of the block that begin at a multiple of it, 0 for all threads of the set. */
  bool IsConstant(const Expr& e, int64_t unit) const;

  bool Has(int64_t thread) const { return members_[static_cast<size_t>(thread)]; }
  /*! The lanes of a warp that are in the set, a bit for each. */
  uint64_t LanesOf(int64_t warp, int64_t warp_threads) const;
  int64_t Size() const;
  int64_t First() const;
  int64_t BlockSize() const { return static_cast<int64_t>(members_.size()); }
  /*! Consecutive threads; nullopt for others and for none. */
  std::optional<ThreadRange> AsConsecutive() const;
  /*! Consecutive whole warps. */
  std::optional<ThreadRange> AsWarps(int64_t warp_threads) const;
  bool operator==(const ThreadSet& o) const { return members_ == o.members_; }
  /*! "thread 0", "threads 0 to 99", "64 threads that do not follow each other". */
  std::string Text() const;
  const std::vector<Axis>& axes() const { return axes_; }

 private:
  /*! Visits members with the values of `e`, until `visit` returns false. */
  bool ForEachValue(const Expr& e, const std::function<bool(int64_t, int64_t)>& visit) const;

  std::vector<Axis> axes_;
  std::vector<bool> members_;  // by linear number, x fastest
};

/*! The axes of a kernel's threads, x first: those of the thread_extent attributes around its
 * body. */
std::vector<Axis> ThreadAxesOf(const Stmt& kernel);

}  // namespace tl
