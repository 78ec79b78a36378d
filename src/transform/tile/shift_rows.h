/*! The pass ShiftRows, for passes that ask what a program with stages would be. */
#pragma once
#include "../../tvm/stmt.h"

namespace tl {

PrimFunc ShiftRows(PrimFunc f);

}  // namespace tl
