/*! SelectInstructions as a function, for passes in front of it that try a program. */
#pragma once
#include "../../tvm/build.h"

namespace tl {

PrimFunc SelectInstructions(PrimFunc f);

}  // namespace tl
