#include "independent_blocks.h"

#include <algorithm>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "warp_roles.h"
#include "ws_schedule.h"

namespace tl {
namespace {

class LaunchReader : public StmtExprVisitor {
 public:
  Launch launch;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const IterVar axis = op->node.cast<IterVar>();
      if (std::string(axis->thread_tag).rfind("blockIdx", 0) == 0) {
        launch.grid.vars.push_back(axis->var);
        launch.grid.extents.push_back(op->value);
      }
    }
    for (const char* key : {kClusterDims, kMinBlocks, kThreadRange, kWsOp}) {
      launch.is_special |= op->attr_key == key;
    }
    if (op->attr_key == kSwizzle) {
      // Several orders, or one of chiplets, go by the number of the block.
      launch.is_special |= !launch.order.empty();
      launch.order = op->value.as_or_throw<StringImm>()->value;
      launch.is_special |= launch.order.find(',') != std::string::npos;
    }
    Default(op);
  }
};

/*! What of a kernel's statements keeps its blocks from running in any order. */
class Independence : public StmtExprVisitor {
 public:
  explicit Independence(const Grid& grid) {
    for (const Var& v : grid.vars) of_block_.insert(v.get());
  }

  bool has_products = false;
  /*! Blocks depend on each other, or their tiles may take different times. */
  bool is_refused = false;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const SBlockNode* op) final {
    is_refused |= op->annotations.count(kWsSchedule) || op->annotations.count(kBarrierInit);
    Default(op);
  }
  void Visit_(const BindNode* op) final {
    if (!IsOfAllBlocks(op->value)) of_block_.insert(op->var.get());
    Default(op);
  }
  void Visit_(const WhileNode*) final { is_refused = true; }
  void Visit_(const IfThenElseNode* op) final { Within(op); }
  void Visit_(const ForNode* op) final {
    if (IsPipelined(op)) {
      is_refused |= depth_ > 0;
      has_products |= HasNode<EvaluateNode>(
          op->body, [](const EvaluateNode* e) { return IsGemm(GetRef<Stmt>(e)); });
    }
    is_refused |= !IsOfAllBlocks(op->min) || !IsOfAllBlocks(op->extent);
    Within(op);
  }
  void Visit_(const CallNode* op) final {
    const Expr call = GetRef<Expr>(op);
    for (const char* name : {kThreadReturn, kPdlSync, kPdlTrigger, kSyncGrid}) {
      is_refused |= IsCallTo(call, name);
    }
    // The user's text may ask for the number of the block.
    for (const char* name : {"tirx.call_extern", "tirx.call_pure_extern"}) {
      is_refused |= IsCallTo(call, name);
    }
    is_refused |= IsOfOtherBlocks(op);
    Default(op);
  }

 private:
  template <typename Node>
  void Within(const Node* op) {
    ++depth_;
    Default(op);
    --depth_;
  }

  /*! A number that is the same in all blocks, as far as its variables tell. */
  bool IsOfAllBlocks(const Expr& e) const {
    return IsArithmetic(e) &&
           !HasNode<VarNode>(e, [&](const VarNode* v) { return of_block_.count(v) != 0; });
  }

  /*! It tells other blocks, or learns from them, more than a sum or an extremum of what all do. */
  static bool IsOfOtherBlocks(const CallNode* call) {
    const IntrinsicEffects* effects = EffectsOf(call);
    if (!effects) return false;
    const bool is_update = *effects->update && effects->result == CallResult::kOfOperands;
    const std::vector<PointerAccess> accesses = PointerAccesses(call);
    const bool is_atomic = std::any_of(accesses.begin(), accesses.end(), [](const auto& access) {
      return access.access == Access::kAtomic;
    });
    return (is_atomic || effects->tells == ThreadScope::kGrid) && !is_update;
  }

  std::unordered_set<const Object*> of_block_;
  int depth_ = 0;
};

}  // namespace

Launch ReadLaunch(const Stmt& kernel) {
  LaunchReader reader;
  reader(kernel);
  return reader.launch;
}

bool MultiplyIndependently(const Grid& grid, const Stmt& kernel) {
  Independence reader(grid);
  reader(kernel);
  return reader.has_products && !reader.is_refused;
}

}  // namespace tl
