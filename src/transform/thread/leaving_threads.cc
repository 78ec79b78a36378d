#include "leaving_threads.h"

#include "../../op/intrinsics.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"

namespace tl {
namespace {

using Kind = SyncNode::Kind;

/*! Calls at which all threads of the block meet, beside its barriers. */
bool IsMeeting(const SyncNode& node) {
  return node.kind == Kind::kLeaf ? node.meets : node.kind == Kind::kBarrier;
}

bool IsDivergent(const SyncNode& node) {
  for (const SyncNode* n = node.parent; n; n = n->parent) {
    if (!n->uniform) return true;
  }
  return false;
}

/*! Walks in the order of a run, a loop's body twice. */
class Walk {
 public:
  explicit Walk(ThreadSubsets* subsets) : subsets_(subsets) {}

  void Visit(const SyncNode& node) {
    if (node.plan->mark != SyncNode::Mark::kNone || IsMeeting(node)) Check(node);
    if (node.returns && IsDivergent(node)) Leave(node);
    const SyncNode* before = left_;
    const int set = set_;
    VisitAll(node.body);
    if (node.kind == Kind::kLoop && left_ != before) VisitAll(node.body);
    if (node.kind != Kind::kIf) return;
    const SyncNode* then = left_;
    const int then_set = set_;
    left_ = before;
    set_ = set;
    VisitAll(node.otherwise);
    if (!left_) left_ = then;
    set_ = subsets_->Union(set_, then_set);
  }

 private:
  void VisitAll(const std::vector<std::unique_ptr<SyncNode>>& nodes) {
    for (const auto& n : nodes) Visit(*n);
  }

  void Leave(const SyncNode& node) {
    left_ = &node;
    const int here = subsets_->At(&node);
    unknown_ |= here == ThreadSubsets::kNone;
    set_ = subsets_->Union(set_, here);
  }

  void Check(const SyncNode& node) const {
    if (!left_) return;
    const int here = subsets_->At(&node);
    const bool known = !unknown_ && here != ThreadSubsets::kNone;
    const int both = subsets_->Size(subsets_->Union(set_, here));
    if (known && both == subsets_->Size(set_) + subsets_->Size(here)) return;
    const std::string where = Where(left_->stmt->span);
    ThrowAt(node.stmt->span, "ValueError",
            "found a barrier, or an access of shared memory that needs one, after some of its "
            "threads may have left by T.thread_return" +
                (where.empty() ? "" : " (" + where + ")") +
                ", wanted all of them to reach it; put what the others do into an `if` instead");
  }

  ThreadSubsets* subsets_;
  /*! The latest place where threads may have left, and which. */
  const SyncNode* left_ = nullptr;
  int set_ = ThreadSubsets::kNone;
  bool unknown_ = false;
};

}  // namespace

void RefuseBarriersWithoutAll(const SyncNode& root, ThreadSubsets* subsets) {
  Walk(subsets).Visit(root);
}

}  // namespace tl
