#include "tensor_traffic.h"

#include "../../analysis/uniformity.h"
#include "../../op/copy_instruction.h"
#include "../../op/intrinsics.h"
#include "../../op/rank_intrinsics.h"
#include "../../tvm/attrs.h"

namespace tl {

class TrafficCollector : public StmtExprVisitor {
 public:
  TrafficCollector(TensorTraffic* traffic, const Stmt& kernel)
      : traffic_(traffic), uniformity_(kernel) {}

 protected:
  void Visit_(const EvaluateNode* op) final {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    if (!call) return Default(op);
    const BufferUse use = OperatorOf(GetRef<Stmt>(op))->Use();
    const bool copy = IsCallTo(op->value, kCopy) && !divergent_;
    for (const Var& v : use.reads) Other(v);
    for (const Var& v : use.writes) {
      if (copy && IsShared(TileRegion::From(call->args[0]).buffer)) {
        TensorTraffic::Copies& copies = traffic_->copies_[Root(v)];
        copies.regions.push_back(TileRegion::From(call->args[1]));
        copies.in_loop |= loops_ > 0;
      } else {
        Other(v);
      }
    }
    for (const Expr& arg : call->args) VisitIndices(arg);
  }
  void Visit_(const BufferStoreNode* op) final {
    Other(op->buffer);
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
  }
  void Visit_(const TensorLoadNode* op) final {
    Other(op->source.as_or_throw<Var>());
    for (const Expr& i : op->indices) Visit(i);
  }
  void Visit_(const CallNode* op) final {
    // It names the memory, and touches nothing there.
    if (IsCallTo(op, kPeer)) return;
    const Intrinsic* row = FindIntrinsic(op);
    for (const Expr& arg : op->args) {
      const TensorLoadNode* pointee = AsAddressOf(arg);
      if (pointee && !row) traffic_->pointed_to_.insert(Root(pointee->source.as_or_throw<Var>()));
    }
    if (const TensorLoadNode* pointee = AsAddressOf(GetRef<Expr>(op))) {
      traffic_->pointed_to_.insert(Root(pointee->source.as_or_throw<Var>()));
    }
    Default(op);
  }
  void Visit_(const VarNode* op) final {
    if (!AsBuffer(GetRef<Var>(op))) return;
    Other(GetRef<Var>(op));
    traffic_->pointed_to_.insert(Root(GetRef<Var>(op)));
  }
  void Visit_(const DeclBufferNode* op) final {
    if (!ViewedBy(op).defined() && !traffic_->peers_.IsPeer(op->buffer)) Default(op);
  }
  void Visit_(const SBlockNode* op) final { Visit(op->body); }
  void Visit_(const ForNode* op) final {
    const bool repeats = op->kind != ForKind::kParallel && !IsConst(op->extent, 1);
    loops_ += repeats;
    Default(op);
    loops_ -= repeats;
  }
  void Visit_(const WhileNode* op) final {
    ++loops_;
    Default(op);
    --loops_;
  }
  void Visit_(const IfThenElseNode* op) final {
    const bool outside = divergent_;
    divergent_ |= !uniformity_.IsUniform(op->condition);
    Default(op);
    divergent_ = outside;
  }
  void Visit_(const AttrStmtNode* op) final {
    const bool outside = divergent_;
    if (op->attr_key == kThreadRange) divergent_ = false;
    Visit(op->value);
    Visit(op->body);
    divergent_ = outside;
  }

 private:
  const Object* Root(const Var& v) const { return traffic_->Root(v); }
  void Other(const Var& v) { traffic_->others_.insert(Root(v)); }
  void VisitIndices(const Expr& arg) {
    const auto* region = arg.as<TensorRegionNode>();
    if (!region) return Visit(arg);
    for (const Range& r : region->region) {
      Visit(r->min);
      Visit(r->extent);
    }
  }

  TensorTraffic* traffic_;
  const Uniformity uniformity_;
  int loops_ = 0;
  bool divergent_ = false;
};

TensorTraffic::TensorTraffic(const Stmt& kernel) : views_(kernel), peers_(kernel) {
  TrafficCollector(this, kernel)(kernel);
}

StoreTraffic TensorTraffic::StoresTo(const Var& tensor) const {
  const Object* root = Root(tensor);
  auto it = copies_.find(root);
  const Copies copies = it == copies_.end() ? Copies() : it->second;
  return {!others_.count(root), copies.regions.size() != 1 || copies.in_loop, copies.regions};
}

}  // namespace tl
