/*! Products of a constant and variables: what extents and strides of tensors are. */
#pragma once
#include <optional>
#include <vector>

#include "../tvm/build.h"

namespace tl {

struct SizeProduct {
  int64_t constant = 1;
  std::vector<Var> factors;  // each as often as it is one

  /*! The same variables, in any order. */
  bool SameFactors(const SizeProduct& other) const;
};

/*! `e` as a product, casts between integers left out; nullopt where it is none, or its constant is
 * not positive or is beyond every memory. */
std::optional<SizeProduct> SizeProductOf(const Expr& e);
std::optional<SizeProduct> SizeProductOf(const std::vector<Expr>& factors);

}  // namespace tl
