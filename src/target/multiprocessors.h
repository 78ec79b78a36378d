/*! Numbers of multiprocessors of chips. */
#pragma once
#include <cstdint>

#include "target.h"

namespace tl {

/*! Of the target's chip that has most; 0 for those on which blocks that take tile after tile were
 * not measured. The H100 and the H200 have 132 ("NVIDIA H100 Tensor Core GPU Architecture"). */
inline int64_t MostMultiprocessors(const Target& target) {
  return target.Has(Feature::kWgmma) ? 132 : 0;
}

}  // namespace tl
