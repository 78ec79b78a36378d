/*! Which gemms of the consumer will be products of warp groups, known before layouts are. */
#pragma once
#include "../../op/gemm.h"
#include "warp_roles.h"

namespace tl {

class WgmmaPlan {
 public:
  WgmmaPlan(const KernelInfo& kernel, const Views& views, const WarpRoles& roles);
  /*! The product that a node is; nullopt for any other, and where the program itself says when it
   * waits for products. */
  std::optional<GemmOp> At(const RoleNode& node) const;

 private:
  const KernelInfo& kernel_;
  const Views& views_;
  Map<Var, Layout> layouts_;
  bool by_hand_ = false;
};

}  // namespace tl
