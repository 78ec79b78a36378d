/*! Tiles in shared memory whose extents the launch decides: sizes and scalars of the call. */
#pragma once

#include "../tvm/build.h"

namespace tl {

/*! No table describes such a tile: it is row-major, threads move it, and it has one version. */
inline bool IsSizedAtLaunch(const Var& buffer) {
  if (!IsShared(buffer)) return false;
  const Array<Expr>& shape = BufferOf(buffer)->shape;
  return AnyOf(shape, [](const Expr& e) { return !AsInt(e); });
}

}  // namespace tl
