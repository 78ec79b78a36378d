#include "shared_lifetime.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/functor.h"
#include "uniformity.h"

namespace tl {
namespace {

class LifetimeWalk : public StmtExprVisitor {
 public:
  explicit LifetimeWalk(const Stmt& kernel) : uniformity_(kernel), views_(kernel) { Visit(kernel); }

  std::unordered_map<const Object*, Lifetime> Finish() {
    for (const Object* buffer : in_flight_) lives_[buffer].last = INT64_MAX;
    for (auto& [buffer, life] : lives_) {
      for (const Lifetime& together : ranges_) {
        if (!life.Overlaps(together)) continue;
        life = {std::min(life.first, together.first), std::max(life.last, together.last)};
      }
    }
    return std::move(lives_);
  }

 protected:
  using StmtExprVisitor::Visit_;

  void Visit_(const AllocBufferNode*) override {}
  void Visit_(const DeclBufferNode*) override {}
  void Visit_(const VarNode* op) override {
    if (!AsBuffer(GetRef<Var>(op)) || ScopeOf(GetRef<Var>(op)) != "shared.dyn") return;
    const Var buffer = views_.RootOf(GetRef<Var>(op));
    lives_.try_emplace(buffer.get(), Lifetime{now_, now_}).first->second.last = now_;
  }
  void Visit_(const CallNode* op) override {
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (p.access != Access::kAsyncWrite || !IsShared(p.buffer)) continue;
      in_flight_.insert(views_.RootOf(p.buffer).get());
    }
    const bool all = IsCallTo(GetRef<Expr>(op), kCpAsyncWait) && IsConst(op->args[0], 0);
    if (all && inside_ == 0 && branches_ == 0) Land();
    // All threads meet: ranges in front are done.
    if (IsCallTo(GetRef<Expr>(op), kSync) && inside_ == 0 && branches_ == 0) in_ranges_ = false;
    Default(op);
  }

  void Visit_(const AttrStmtNode* op) override {
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
    Default(op);
    --branches_;
  }
  void Visit_(const BufferStoreNode* op) override { Leaf(op); }
  void Visit_(const EvaluateNode* op) override { Leaf(op); }
  void Visit_(const BindNode* op) override { Leaf(op); }

 private:
  void Begin() { now_ += inside_ == 0; }
  void Leaf(const Object* op) {
    Begin();
    Default(op);
  }
  void AsOne(const Object* op) {
    Begin();
    ++inside_;
    Default(op);
    --inside_;
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
};

}  // namespace

std::unordered_map<const Object*, Lifetime> SharedLifetimes(const Stmt& kernel) {
  return LifetimeWalk(kernel).Finish();
}

}  // namespace tl
