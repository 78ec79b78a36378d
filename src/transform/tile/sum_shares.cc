#include <algorithm>

#include "../../analysis/effects.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/tma_reduce.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "block_axis.h"
#include "pipeline_barriers.h"
#include "product_clears.h"
#include "warp_roles.h"

namespace tl {
namespace {

/*! Reads a block: clears of accumulators, one loop of loads and products, additions of
 * accumulators. */
class ShareReader {
 public:
  ShareReader(const SBlockNode* block, const Var& v) : block_(block), v_(v) {}

  const ForNode* loop = nullptr;

  bool Reads(const Stmt& s) {
    if (s.as<SeqStmtNode>()) {
      const std::vector<Stmt> all = FlatSeq(s);
      return std::all_of(all.begin(), all.end(), [&](const Stmt& t) { return Reads(t); });
    }
    if (const auto* attr = s.as<AttrStmtNode>()) {
      return attr->attr_key == kSwizzle && Reads(attr->body);
    }
    if (const auto* decl = s.as<DeclBufferNode>()) return ViewedBy(decl).defined();
    if (const auto* op = s.as<ForNode>()) return ReadsLoop(op);
    const CallNode* call = AsTileOp(s);
    if (!call || !TileOpAttrs(call).empty() || Uses(GetRef<Expr>(call), v_)) return false;
    if (IsCallTo(call, kFill)) return !loop && Clears(call);
    return loop && IsCallTo(call, kAtomic) && Adds(call);
  }

  /*! Each accumulator begins at 0, is that of one product, and is added once. */
  bool IsSum() const {
    return loop && !added_.empty() && added_.size() == sums_.size() &&
           AllOf(sums_, [&](const Var& sum) {
             constexpr int kMentions = 3;
             return Contains(added_, sum) && Contains(cleared_, sum) &&
                    CountMentions(block_->body, sum) == kMentions;
           });
  }

 private:
  bool Clears(const CallNode* call) {
    const TileRegion tile = TileRegion::From(call->args[0]);
    const auto* value = call->args[1].as<FloatImmNode>();
    if (!tile.IsWhole() || !value || value->value != 0) return false;
    cleared_.push_back(tile.buffer);
    return true;
  }

  bool Adds(const CallNode* call) {
    if (!call->args[1].as<TensorRegionNode>() || ToString(call->args[2]) != "add" ||
        ToString(call->args[3]) != "relaxed") {
      return false;
    }
    const TileRegion sum = TileRegion::From(call->args[1]);
    added_.push_back(sum.buffer);
    return sum.IsWhole() && IsGlobal(TileRegion::From(call->args[0]).buffer);
  }

  /*! Iteration k of block v is iteration k + n of the block in front. */
  bool ReadsLoop(const ForNode* op) {
    const std::optional<int64_t> count = AsInt(op->extent);
    if (loop || op->kind != ForKind::kSerial || !IsConst(op->min, 0) || !count) return false;
    loop = op;
    Analyzer analyzer;
    const auto follows = [&](const Expr& e) {
      const Expr next = Substitute(e, v_, v_ + MakeInt(v_->dtype(), 1));
      const Expr later = Substitute(e, op->loop_var, op->loop_var + *count);
      return analyzer.CanProveEqual(next, later);
    };
    bool is_share = false;
    for (const Stmt& s : FlatSeq(op->body)) {
      const CallNode* call = AsTileOp(s);
      if (!call || !TileOpAttrs(call).empty()) return false;
      if (IsGemm(s)) {
        if (Uses(GetRef<Expr>(call), v_) || !Multiplies(s)) return false;
        continue;
      }
      if (!IsTileLoad(s) || !IsCallTo(call, kCopy)) return false;
      if (Uses(call->args[1], v_)) return false;
      is_share |= Uses(call->args[0], v_);
      for (const Range& range : TileRegion::From(call->args[0]).ranges) {
        if (!follows(range->min) || Uses(range->extent, v_)) return false;
      }
    }
    return is_share;
  }

  bool Multiplies(const Stmt& s) {
    const Var sum = AddedToBy(s);
    if (!sum.defined() || Contains(sums_, sum)) return false;
    sums_.push_back(sum);
    return true;
  }

  const SBlockNode* block_;
  const Var v_;
  std::vector<Var> cleared_, sums_, added_;
};

}  // namespace

const ForNode* SharedLoop(const SBlockNode* block, const Var& v) {
  ShareReader reader(block, v);
  return reader.Reads(block->body) && reader.IsSum() ? reader.loop : nullptr;
}

}  // namespace tl
