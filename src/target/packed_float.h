/*! Arithmetic on two float32 of a thread at once. */
#pragma once
#include "target.h"

namespace tl {

/*! The target has instructions for it, for which loops over float32 are printed in pairs. */
bool HasPackedFloat32(const Target& target);

}  // namespace tl
