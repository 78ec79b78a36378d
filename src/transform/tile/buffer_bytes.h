/*! What memory a buffer takes, and how much. */
#pragma once
#include "../../tvm/build.h"
#include "../../tvm/functor.h"

namespace tl {

/*! Shared memory, or registers of all threads together. */
inline bool IsTile(const Var& buffer) { return IsShared(buffer) || IsFragment(buffer); }

/*! Bytes that a program asks for; 0 where the launch decides an extent. They may be more than 64
 * bits count. */
inline double BytesAskedFor(const Var& buffer) {
  const DLDataType t = DTypeOf(buffer);
  double bytes = double(t.bits) * t.lanes / 8;
  for (const Expr& extent : BufferOf(buffer)->shape) bytes *= double(AsInt(extent).value_or(0));
  return bytes;
}

/*! The same, rounded down, behind CheckSemantics, which refuses what no device has. */
inline int64_t BytesOfBuffer(const Var& buffer) {
  return static_cast<int64_t>(BytesAskedFor(buffer));
}

}  // namespace tl
