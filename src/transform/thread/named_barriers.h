/*! The hardware's named barriers, which the barriers get that ThreadSync has marked for some
 * threads of a block: each set of threads one, and each of several warp groups by itself one of its
 * own. */
#pragma once
#include <map>
#include <optional>
#include <set>

#include "thread_subset.h"

namespace tl {

class NamedBarriers {
 public:
  explicit NamedBarriers(ThreadSubsets* subsets) : subsets_(*subsets) {}

  /*! Gives each set of threads a named barrier, and each warp group that meets by itself its own.
   * If there are too few for the warp groups, all threads that run the node meet at one. Refuses
   * (ValueError) more sets of threads than there are barriers. */
  void Assign(SyncNode* root);

 private:
  void NoteTaken(const SyncNode& node);
  void AssignSubsets(SyncNode* node);
  int FreeBarrier(const SyncNode& node);
  std::optional<int> FreeBarriers(int count);

  ThreadSubsets& subsets_;
  std::set<int> taken_;
  /*! By the set of threads, and how many warp groups it stands for. */
  std::map<std::pair<int, int>, int> barrier_of_;
};

}  // namespace tl
