#pragma once
#include "../tvm/find.h"

namespace tl {

/*! It has a minimum or a maximum in it. Whether TVM proves a comparison of these by symbolic bounds
 * depends on the addresses of its nodes: of a bound of a chunk scan's gradients, in half of the
 * lowerings. What is proved holds, but the text of a program must not vary. */
inline bool HasExtremum(const ObjectRef& e) {
  return HasNode<MinNode>(e, [](const MinNode*) { return true; }) ||
         HasNode<MaxNode>(e, [](const MaxNode*) { return true; });
}

}  // namespace tl
