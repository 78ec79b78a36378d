#include "named_barriers.h"

#include <algorithm>
#include <utility>

#include "../../target/mma.h"
#include "../../tvm/error.h"

namespace tl {
namespace {

using Mark = SyncNode::Mark;

/*! Named barriers of a block (PTX ISA, bar): 0 is that of the whole block, 1 and 2 are kept for
 * reductions over a part of it. */
constexpr int kFirstBarrier = 3, kBarriers = 16;

void CollectGroups(SyncNode* node, std::vector<SyncNode*>* nodes) {
  if (node->plan->mark == Mark::kGroups) nodes->push_back(node);
  for (const auto& n : node->body) CollectGroups(n.get(), nodes);
  for (const auto& n : node->otherwise) CollectGroups(n.get(), nodes);
}

/*! The number of the thread in the block; x counts fastest. */
Expr ThreadNumber(const std::vector<Axis>& axes) {
  Expr number = axes.back().var;
  for (size_t i = axes.size() - 1; i-- > 0;) number = number * axes[i].extent + axes[i].var;
  return number;
}

}  // namespace

void NamedBarriers::Assign(SyncNode* root) {
  NoteTaken(*root);
  AssignSubsets(root);
  std::vector<SyncNode*> nodes;
  CollectGroups(root, &nodes);
  if (nodes.empty()) return;
  int first = kBarriers, end = 0;
  for (const SyncNode* node : nodes) {
    const int set = subsets_.At(node);
    first = std::min<int>(first, subsets_.First(set) / kWarpGroupThreads);
    end = std::max<int>(end, subsets_.End(set) / kWarpGroupThreads);
  }
  const std::optional<int> id = FreeBarriers(end - first);
  for (SyncNode* node : nodes) {
    node->plan->mark = id ? Mark::kGroups : Mark::kSubset;
    if (!id) continue;
    const Expr group = FloorDivOf(ThreadNumber(*ThreadAxes(node)), kWarpGroupThreads);
    node->plan->barrier = {group + (*id - first), kWarpGroupThreads};
  }
  if (!id) AssignSubsets(root);
}

/*! Notes the named barriers that the program uses: the pass takes others. */
void NamedBarriers::NoteTaken(const SyncNode& node) {
  if (node.named) taken_.insert(node.named->id);
  for (const auto& n : node.body) NoteTaken(*n);
  for (const auto& n : node.otherwise) NoteTaken(*n);
}

void NamedBarriers::AssignSubsets(SyncNode* node) {
  if (node->plan->mark == Mark::kSubset && !node->is_copy) {
    const int set = subsets_.At(node);
    const std::pair<int, int> meeting(set, node->instances);
    auto it = barrier_of_.find(meeting);
    if (it == barrier_of_.end()) it = barrier_of_.emplace(meeting, FreeBarrier(*node)).first;
    node->plan->barrier = {MakeInt(it->second), subsets_.Size(set)};
  }
  for (const auto& n : node->body) AssignSubsets(n.get());
  for (const auto& n : node->otherwise) AssignSubsets(n.get());
}

int NamedBarriers::FreeBarrier(const SyncNode& node) {
  const std::optional<int> id = FreeBarriers(node.instances);
  if (!id) {
    ThrowAt(node.stmt->span, "ValueError",
            "found more sets of threads that need a barrier of their own than the " +
                std::to_string(kBarriers - kFirstBarrier) +
                " that a block has for them, wanted fewer; let regions have the same condition");
  }
  return *id;
}

/*! Takes `count` consecutive named barriers and gives the first; nullopt if there are too few. */
std::optional<int> NamedBarriers::FreeBarriers(int count) {
  int id = kFirstBarrier;
  for (int end = id; end < id + count; ++end) {
    if (end == kBarriers) return std::nullopt;
    if (taken_.count(end)) id = end + 1;
  }
  for (int end = id; end < id + count; ++end) taken_.insert(end);
  return id;
}

}  // namespace tl
