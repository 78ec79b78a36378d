/*! Which threads of a block run a statement, decided by evaluating the conditions around it. */
#pragma once
#include <map>
#include <vector>

#include "sync_tree.h"

namespace tl {

/*! The thread index around a node, x fastest; nullopt if an extent is not constant. */
std::optional<std::vector<Axis>> ThreadAxes(const SyncNode* node);

/*! Sets of threads of a block, each once, named by small numbers. */
class ThreadSubsets {
 public:
  static constexpr int kNone = 0;

  explicit ThreadSubsets(int64_t warp_threads);
  /*! The threads that run a node. More than those if a condition around it is about something else
   * than the thread. */
  int At(const SyncNode* node);
  /*! Number of threads of a subset that can meet at a barrier in front of a node: `At` is exact
   * and consists of whole warps. nullopt otherwise. */
  std::optional<int> Meeting(const SyncNode* node);
  /*! Whether those that can meet are two whole warp groups or more, each of which could by itself.
   */
  bool AreWarpGroups(const SyncNode* node);

  int Union(int a, int b);
  bool Contains(int set, int part);
  int Size(int set) const;
  /*! The lowest thread of a set that has some, and the one behind the highest. */
  int First(int set) const;
  int End(int set) const { return static_cast<int>(sets_[set].size()); }

 private:
  struct Place {
    int set;
    bool exact;
  };
  Place Find(const SyncNode* node);
  /*! Some threads, and with one of `of` consecutive ones all. */
  bool IsWhole(int set, int64_t of) const;
  int Intern(std::vector<bool> members);
  bool HasMembersOf(int set, int part) const;

  const int64_t warp_threads_;
  std::vector<std::vector<bool>> sets_;
  std::map<std::vector<bool>, int> numbers_;
  std::map<const SyncNode*, Place> places_;
  /*! What was asked before, by the numbers of both sets. */
  std::map<std::pair<int, int>, int> unions_;
  std::map<std::pair<int, int>, bool> contained_;
};

}  // namespace tl
