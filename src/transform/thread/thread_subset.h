/*! Which threads of a block run a statement, decided by evaluating the conditions around it. */
#pragma once
#include <map>
#include <vector>

#include "../../layout/index_box.h"
#include "sync_tree.h"

namespace tl {

/*! The thread index around a node, x fastest; nullopt if an extent is not constant. */
std::optional<std::vector<Axis>> ThreadAxes(const SyncNode* node);

/*! Sets of threads of a block, each once, named by small numbers. */
class ThreadSubsets {
 public:
  static constexpr int kNone = 0;

  ThreadSubsets();
  /*! The threads that run a node. More than those if a condition around it is about something else
   * than the thread. */
  int At(const SyncNode* node);
  /*! Number of threads of a subset that can meet at a barrier in front of a node: `At` is exact
   * and consists of whole warps. nullopt otherwise. */
  std::optional<int> Meeting(const SyncNode* node);

  int Union(int a, int b);
  bool Contains(int set, int part) const;
  int Size(int set) const;

 private:
  struct Place {
    int set;
    bool exact;
  };
  Place Find(const SyncNode* node);
  int Intern(std::vector<bool> members);

  std::vector<std::vector<bool>> sets_;
  std::map<std::vector<bool>, int> numbers_;
  std::map<const SyncNode*, Place> places_;
};

}  // namespace tl
