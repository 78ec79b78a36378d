/*! Which gemms of the consumer are MMAs of warp groups that the compiler waits for. */
#pragma once
#include "../../op/gemm.h"
#include "warp_roles.h"

namespace tl {

class WgmmaPlan {
 public:
  explicit WgmmaPlan(const WarpRoles& roles);
  /*! The MMA that a node is; nullopt for any other, and where the program itself says when it
   * waits for MMAs. */
  std::optional<GemmOp> At(const RoleNode& node) const;

 private:
  bool by_hand_ = false;
};

}  // namespace tl
