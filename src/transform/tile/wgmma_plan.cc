#include "wgmma_plan.h"

#include "../../op/gemm_instruction.h"
#include "../../op/wgmma_wait.h"
#include "../../tvm/attrs.h"

namespace tl {

WgmmaPlan::WgmmaPlan(const WarpRoles& roles) {
  ForEachNode(roles.body, [&](const RoleNode* node) {
    const CallNode* call = AsTileOp(node->stmt);
    if (!node->IsLeaf() || !call) return;
    by_hand_ |= IsCallTo(call, kWgmmaWait) || TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
  });
}

std::optional<GemmOp> WgmmaPlan::At(const RoleNode& node) const {
  const CallNode* call = node.IsLeaf() ? AsTileOp(node.stmt, kGemm) : nullptr;
  if (by_hand_ || !call) return std::nullopt;
  if (!PlanOf(call, node.stmt->span).UsesWgmma()) return std::nullopt;
  return ParseGemm(call, node.stmt->span);
}

}  // namespace tl
