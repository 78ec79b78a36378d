#include "thread_subset.h"

#include <algorithm>

#include "../../target/mma.h"
#include "../../tvm/attrs.h"

namespace tl {
namespace {

/*! Restricts the box by what holds at `node`; false if a condition that the threads do not share
 * cannot be evaluated. */
bool RequireAt(const SyncNode* node, IndexBox* box) {
  bool exact = true;
  for (const SyncNode* n = node; n->parent; n = n->parent) {
    const SyncNode* around = n->parent;
    const bool required =
        around->kind == SyncNode::Kind::kIf && box->Require(around->condition, !n->in_otherwise);
    exact &= required || around->uniform;
  }
  return exact;
}

}  // namespace

std::optional<std::vector<Axis>> ThreadAxes(const SyncNode* node) {
  std::map<std::string, Axis> by_tag;
  for (const SyncNode* n = node; n; n = n->parent) {
    const auto* op = n->stmt.as<AttrStmtNode>();
    if (!op || op->attr_key != kThreadExtent) continue;
    const IterVar axis = op->node.cast<IterVar>();
    const std::string tag = axis->thread_tag;
    if (tag.rfind("threadIdx", 0) != 0) continue;
    const std::optional<int64_t> extent = AsInt(op->value);
    if (!extent) return std::nullopt;
    by_tag.emplace(tag, Axis{axis->var, 0, *extent});
  }
  std::vector<Axis> axes;
  for (const auto& [tag, axis] : by_tag) axes.push_back(axis);
  return axes;
}

ThreadSubsets::ThreadSubsets(int64_t warp_threads) : warp_threads_(warp_threads) { Intern({}); }

int ThreadSubsets::Intern(std::vector<bool> members) {
  while (!members.empty() && !members.back()) members.pop_back();
  auto [it, fresh] = numbers_.emplace(members, static_cast<int>(sets_.size()));
  if (fresh) sets_.push_back(members);
  return it->second;
}

ThreadSubsets::Place ThreadSubsets::Find(const SyncNode* node) {
  auto it = places_.find(node);
  if (it != places_.end()) return it->second;
  std::vector<bool> members;
  bool exact = false;
  if (const std::optional<std::vector<Axis>> axes = ThreadAxes(node)) {
    IndexBox box(*axes);
    exact = RequireAt(node, &box);
    members.resize(static_cast<size_t>(box.Points()));
    box.ForEach([&](const std::vector<int64_t>& point) {
      size_t linear = 0;
      for (size_t i = point.size(); i-- > 0;) linear = linear * (*axes)[i].extent + point[i];
      return members[linear] = true;
    });
  }
  return places_.emplace(node, Place{Intern(std::move(members)), exact}).first->second;
}

int ThreadSubsets::At(const SyncNode* node) { return Find(node).set; }

std::optional<int> ThreadSubsets::Meeting(const SyncNode* node) {
  const Place place = Find(node);
  if (!place.exact || !IsWhole(place.set, warp_threads_)) return std::nullopt;
  return Size(place.set);
}

bool ThreadSubsets::AreWarpGroups(const SyncNode* node) {
  const std::optional<int> threads = Meeting(node);
  return threads && *threads > kWarpGroupThreads && IsWhole(Find(node).set, kWarpGroupThreads);
}

bool ThreadSubsets::IsWhole(int set, int64_t of) const {
  const std::vector<bool>& members = sets_[set];
  for (size_t first = 0; first < members.size(); first += of) {
    if (first + of > members.size()) return false;
    const auto part = members.begin() + static_cast<std::ptrdiff_t>(first);
    if (std::count(part, part + of, *part) != of) return false;
  }
  return !members.empty();
}

int ThreadSubsets::Union(int a, int b) {
  if (a == b || b == kNone) return a;
  if (a == kNone) return b;
  const auto known = unions_.find({a, b});
  if (known != unions_.end()) return known->second;
  std::vector<bool> both = sets_[a];
  both.resize(std::max(sets_[a].size(), sets_[b].size()));
  for (size_t i = 0; i < sets_[b].size(); ++i) both[i] = both[i] || sets_[b][i];
  return unions_[{a, b}] = Intern(std::move(both));
}

bool ThreadSubsets::Contains(int set, int part) {
  if (set == part || part == kNone) return true;
  const auto [known, is_new] = contained_.try_emplace({set, part}, false);
  if (is_new) known->second = HasMembersOf(set, part);
  return known->second;
}

bool ThreadSubsets::HasMembersOf(int set, int part) const {
  if (sets_[part].size() > sets_[set].size()) return false;
  for (size_t i = 0; i < sets_[part].size(); ++i) {
    if (sets_[part][i] && !sets_[set][i]) return false;
  }
  return true;
}

int ThreadSubsets::Size(int set) const {
  return static_cast<int>(std::count(sets_[set].begin(), sets_[set].end(), true));
}

int ThreadSubsets::First(int set) const {
  const auto first = std::find(sets_[set].begin(), sets_[set].end(), true);
  return static_cast<int>(first - sets_[set].begin());
}

}  // namespace tl
