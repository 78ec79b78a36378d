#include "named_barriers.h"

#include <algorithm>
#include <utility>

#include "../../target/mma.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"

namespace tl {
namespace {

using Mark = SyncNode::Mark;

/*! Named barriers of a block (PTX ISA, bar): 0 is that of the whole block, 1 and 2 are kept for
 * reductions over a part of it. */
constexpr int kFirstBarrier = 3, kBarriers = 16;

void CollectGroups(SyncNode* node, std::vector<SyncNode*>* nodes) {
  if (node->mark == Mark::kGroups) nodes->push_back(node);
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

NamedBarriers::NamedBarriers(const SyncNode& root, bool are_there, ThreadSubsets* subsets)
    : subsets_(*subsets) {
  NoteInstances(root, are_there);
}

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
    node->mark = id ? Mark::kGroups : Mark::kSubset;
    if (!id) continue;
    const Expr group = FloorDivOf(ThreadNumber(*ThreadAxes(node)), kWarpGroupThreads);
    node->barrier = {group + (*id - first), kWarpGroupThreads};
  }
  if (!id) AssignSubsets(root);
}

/*! Notes which ranges stand for several warp groups (kInstances), and for how many. */
void NamedBarriers::NoteInstances(const SyncNode& node, bool are_there) {
  const auto* loop = node.stmt.as<ForNode>();
  if (node.kind == SyncNode::Kind::kLoop && loop && loop->annotations.count(kInstances)) {
    if (!are_there) {
      ThrowAt(loop->span, "ValueError",
              "found T.ws(.., each=True), wanted a target with named barriers, at which warp "
              "groups wait each by itself; give each group a T.ws of its own");
    }
    instances_[node.range] = static_cast<int>(ToInt(loop->extent));
  }
  for (const auto& n : node.body) NoteInstances(*n, are_there);
  for (const auto& n : node.otherwise) NoteInstances(*n, are_there);
}

/*! How many warp groups run a node each by itself. */
int NamedBarriers::InstancesOf(const SyncNode& node) const {
  const auto it = instances_.find(node.range);
  return it == instances_.end() ? 1 : it->second;
}

/*! Notes the named barriers that the program uses: the pass takes others. */
void NamedBarriers::NoteTaken(const SyncNode& node) {
  for (int i = 0; node.named && i < InstancesOf(node); ++i) taken_.insert(node.named->id + i);
  for (const auto& n : node.body) NoteTaken(*n);
  for (const auto& n : node.otherwise) NoteTaken(*n);
}

void NamedBarriers::AssignSubsets(SyncNode* node) {
  if (node->mark == Mark::kSubset) {
    const int set = subsets_.At(node);
    const std::pair<int, int> meeting(set, InstancesOf(*node));
    auto it = barrier_of_.find(meeting);
    if (it == barrier_of_.end()) it = barrier_of_.emplace(meeting, FreeBarrier(*node)).first;
    node->barrier = {MakeInt(it->second), subsets_.Size(set)};
  }
  for (const auto& n : node->body) AssignSubsets(n.get());
  for (const auto& n : node->otherwise) AssignSubsets(n.get());
}

int NamedBarriers::FreeBarrier(const SyncNode& node) {
  const std::optional<int> id = FreeBarriers(InstancesOf(node));
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
