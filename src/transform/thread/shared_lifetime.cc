#include "shared_lifetime.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "../../analysis/uniformity.h"
#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"

namespace tl {
namespace {

class LifetimeWalk : public StmtExprVisitor {
 public:
  explicit LifetimeWalk(const Stmt& kernel) : uniformity_(kernel), views_(kernel) { Visit(kernel); }

  std::unordered_map<const Object*, Lifetime> Finish() {
    for (const Object* buffer : in_flight_) lives_[buffer].last = INT64_MAX;
    for (const Object* buffer : filled_) lives_[buffer].last = INT64_MAX;
    // Other blocks may be ahead of this one or behind it.
    for (const Object* buffer : remote_) lives_[buffer] = {0, INT64_MAX};
    // Only the other block sees the end of the copy.
    for (const Object* buffer : sent_) lives_[buffer].last = INT64_MAX;
    for (const auto* reads : {&stored_, &multiplied_}) {
      for (const auto& [buffer, path] : *reads) lives_[buffer].last = INT64_MAX;
    }
    for (auto& [buffer, life] : lives_) {
      for (const Lifetime& together : ranges_) {
        if (!life.Overlaps(together)) continue;
        life = {std::min(life.first, together.first), std::max(life.last, together.last)};
      }
    }
    return std::move(lives_);
  }

 protected:
  void Visit_(const AllocBufferNode*) override {}
  void Visit_(const DeclBufferNode*) override {}
  void Visit_(const VarNode* op) override {
    if (!AsBuffer(GetRef<Var>(op)) || ScopeOf(GetRef<Var>(op)) != "shared.dyn") return;
    const Var buffer = views_.RootOf(GetRef<Var>(op));
    lives_.try_emplace(buffer.get(), Lifetime{now_, now_}).first->second.last = now_;
    filled_.erase(buffer.get());
  }
  void Visit_(const CallNode* op) override {
    if (WaitsForAll(op, AsyncQueue::kCpAsync) && inside_ == 0 && branches_ == 0) Land();
    // All threads meet: ranges in front are done.
    if (IsCallTo(op, kSync) && inside_ == 0 && branches_ == 0) in_ranges_ = false;
    Default(op);
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (!IsShared(p.buffer)) continue;
      const Object* buffer = views_.RootOf(p.buffer).get();
      if (p.access == Access::kAsyncWrite) in_flight_.insert(buffer);
      if (p.access == Access::kAsyncProxyWrite && FillsOtherBlocks(op)) remote_.insert(buffer);
      if (p.access == Access::kAsyncProxyRead && FillsOtherBlocks(op)) sent_.insert(buffer);
      if (p.access == Access::kAsyncProxyWrite) filled_.insert(buffer);
      if (IsBulkStore(op) && p.access == Access::kAsyncProxyRead) stored_[buffer] = path_;
      if (IsOperandOfWgmma(op, p.access)) Multiply(buffer);
    }
    if (WaitsForAll(op, AsyncQueue::kTmaStore)) LandReads(&stored_);
    if (WaitsForAll(op, AsyncQueue::kWgmma)) LandReads(&multiplied_);
  }

  void Visit_(const AttrStmtNode* op) override {
    // What it names is no use.
    if (op->attr_key == kRewrites) return Visit(op->body);
    if (op->attr_key != kThreadRange) return Default(op);
    AsOne(op);
    if (in_ranges_) {
      ranges_.back().last = now_;
    } else {
      ranges_.push_back({now_, now_});
    }
    in_ranges_ = true;
  }
  void Visit_(const ForNode* op) override { AsOne(op); }
  void Visit_(const WhileNode* op) override { AsOne(op); }
  void Visit_(const IfThenElseNode* op) override {
    if (!uniformity_.IsUniform(op->condition)) return AsOne(op);
    Begin();
    ++branches_;
    path_.push_back(op);
    Default(op);
    path_.pop_back();
    --branches_;
  }
  void Visit_(const BufferStoreNode* op) override { Leaf(op); }
  void Visit_(const EvaluateNode* op) override { Leaf(op); }
  void Visit_(const BindNode* op) override { Leaf(op); }

 private:
  using Path = std::vector<const Object*>;

  void Begin() { now_ += inside_ == 0; }
  void Leaf(const Object* op) {
    Begin();
    Default(op);
  }
  void AsOne(const Object* op) {
    Begin();
    ++inside_;
    path_.push_back(op);
    Default(op);
    path_.pop_back();
    --inside_;
  }
  void Multiply(const Object* buffer) {
    auto [it, is_new] = multiplied_.try_emplace(buffer, path_);
    if (is_new) return;
    // Only a wait around both ends both.
    Path& path = it->second;
    const auto common = std::mismatch(path.begin(), path.end(), path_.begin(), path_.end()).first;
    path.erase(common, path.end());
  }
  /*! A wait in a loop or branch says nothing of what was issued outside of it. */
  void LandReads(std::unordered_map<const Object*, Path>* reads) {
    for (auto it = reads->begin(); it != reads->end();) {
      const Path& path = it->second;
      const bool inside =
          path.size() >= path_.size() && std::equal(path_.begin(), path_.end(), path.begin());
      if (inside) lives_[it->first].last = now_;
      it = inside ? reads->erase(it) : std::next(it);
    }
  }
  void Land() {
    for (const Object* buffer : in_flight_) lives_[buffer].last = now_;
    in_flight_.clear();
  }

  const Uniformity uniformity_;
  const Views views_;
  int64_t now_ = 0;
  int inside_ = 0;    // statements around that count as one
  int branches_ = 0;  // conditions around
  /*! From the first to the last of ranges that may run at the same time. */
  std::vector<Lifetime> ranges_;
  bool in_ranges_ = false;
  std::unordered_map<const Object*, Lifetime> lives_;
  std::unordered_set<const Object*> in_flight_;
  Path path_;  // loops and branches around
  /*! What the async proxy was the last to write: it may still do. */
  std::unordered_set<const Object*> filled_;
  std::unordered_set<const Object*> remote_;  // what copies of other blocks may fill
  std::unordered_set<const Object*> sent_;    // what copies to other blocks read
  /*! What bulk copies and wgmma may still read, with the loops and branches around their issue. */
  std::unordered_map<const Object*, Path> stored_, multiplied_;
};

}  // namespace

std::unordered_map<const Object*, Lifetime> SharedLifetimes(const Stmt& kernel) {
  return LifetimeWalk(kernel).Finish();
}

}  // namespace tl
