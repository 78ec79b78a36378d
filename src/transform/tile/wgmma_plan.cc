#include "wgmma_plan.h"

#include "../../layout/annotation.h"
#include "../../op/wgmma_wait.h"

namespace tl {

WgmmaPlan::WgmmaPlan(const KernelInfo& kernel, const Views& views, const WarpRoles& roles)
    : kernel_(kernel), views_(views), layouts_(GetLayoutMap(kernel.block->annotations)) {
  ForEachNode(roles.body, [&](const RoleNode* node) {
    const CallNode* call = AsTileOp(node->stmt);
    if (!node->IsLeaf() || !call) return;
    by_hand_ |=
        IsCallTo(GetRef<Expr>(call), kWgmmaWait) || TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
  });
}

std::optional<GemmOp> WgmmaPlan::At(const RoleNode& node) const {
  const CallNode* call = node.IsLeaf() ? AsTileOp(node.stmt) : nullptr;
  if (by_hand_ || !call || !IsCallTo(GetRef<Expr>(call), kGemm)) return std::nullopt;
  GemmOp op = ParseGemm(call, node.stmt->span);
  const auto layout_of = [&](const Var& buffer) {
    auto it = layouts_.find(buffer);
    return it == layouts_.end() ? Layout() : (*it).second;
  };
  const GemmContext context{kernel_.threads, kernel_.target, layout_of(op.a.buffer),
                            layout_of(op.b.buffer),
                            views_.IsView(op.a.buffer) || views_.IsView(op.b.buffer)};
  if (!PlanGemm(op, context).UsesWgmma()) return std::nullopt;
  return op;
}

}  // namespace tl
