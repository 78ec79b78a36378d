/*! The MMAs of warp groups that kernels have, in the form that tl/wgmma_registers.h wants. */
#pragma once
#include <set>
#include <string>

#include "../tvm/build.h"

namespace tl {

class WgmmaProducts {
 public:
  /*! Adds what a call of an MMA needs (IsWgmma). */
  void Add(const CallNode* product);
  void Add(const WgmmaProducts& others) {
    found_.insert(others.found_.begin(), others.found_.end());
  }
  /*! The definition of TL_WGMMA_PRODUCTS, a line; empty without MMAs. */
  std::string Definition() const;

 private:
  std::set<std::string> found_;
};

}  // namespace tl
