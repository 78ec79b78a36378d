/*! How much memory a buffer takes. */
#pragma once
#include "../../tvm/functor.h"

namespace tl {

/*! What later passes may add to a block's shared memory: barriers, what reductions exchange. */
inline constexpr int64_t kOtherSharedBytes = 8192;

/*! Bytes of a buffer, rounded down; 0 where the launch decides an extent. */
inline int64_t BytesOfBuffer(const Var& buffer) {
  int64_t bits = BufferOf(buffer)->dtype->dtype.bits;
  for (const Expr& extent : BufferOf(buffer)->shape) bits *= AsInt(extent).value_or(0);
  return bits / 8;
}

}  // namespace tl
