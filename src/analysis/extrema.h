#pragma once
#include "../tvm/find.h"

namespace tl {

/*! It has a minimum or a maximum in it. TVM proves a comparison of these by symbolic bounds in some
 * lowerings of a program and not in others, supposedly by the addresses of its nodes: one in the
 * gradients of a chunk scan in 6 of 12. What is proved holds, but a program must have one text. */
inline bool HasExtremum(const ObjectRef& e) { return HasNode<MinNode>(e) || HasNode<MaxNode>(e); }

}  // namespace tl
