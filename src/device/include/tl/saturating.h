/*! Arithmetic of indices in int64 that stays at its limits, where no memory is: an index that is
 * out of bounds does not come back into them. */
#pragma once

#include <tl/traits.h>

namespace tl {

TL_DEVICE int64_t most_or_least(bool least) {
  return least ? -0x7fffffffffffffffll - 1 : 0x7fffffffffffffffll;
}

TL_DEVICE int64_t add_saturating(int64_t x, int64_t y) {
  const int64_t sum = int64_t(uint64_t(x) + uint64_t(y));
  return ((x ^ sum) & (y ^ sum)) < 0 ? most_or_least(x < 0) : sum;
}

TL_DEVICE int64_t sub_saturating(int64_t x, int64_t y) {
  const int64_t difference = int64_t(uint64_t(x) - uint64_t(y));
  return ((x ^ y) & (x ^ difference)) < 0 ? most_or_least(x < 0) : difference;
}

TL_DEVICE int64_t mul_saturating(int64_t x, int64_t y) {
  const uint64_t high_zeros = 33;  // two factors of 31 bits and a sign
  const int64_t product = int64_t(uint64_t(x) * uint64_t(y));
  if (int64_t(int32_t(x)) == x && int64_t(int32_t(y)) == y) return product;
  const bool wraps = x != 0 && ((x == -1 && y < -0x7fffffffffffffffll) || product / x != y);
  return wraps ? most_or_least((x < 0) != (y < 0)) : product;
}

/*! A coordinate of a tensor map; what int32 does not have is in front of the tensor. */
TL_DEVICE int32_t tma_coordinate(int64_t x) {
  return int64_t(int32_t(x)) == x ? int32_t(x) : -0x7fffffff - 1;
}

}  // namespace tl
