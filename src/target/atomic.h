/*! Vector forms of atomic addition. */
#pragma once
#include "../tvm/build.h"
#include "target.h"

namespace tl {

/*!
 * How many adjacent elements one instruction adds to: two 16-bit floats (PTX ISA, red: .f16x2;
 * before sm_90 bf16x2 is one compare-and-swap of 32 bits), from sm_90 on four floats of global
 * memory (PTX ISA, red: .v4.f32). 1 for other types.
 */
inline int AtomicAddLanes(const Target& target, DLDataType t, bool global) {
  if (t.lanes != 1 || (t.code != kDLFloat && t.code != kDLBfloat)) return 1;
  if (t.bits == 16) return 2;
  return t.bits == 32 && global && target.Has(Feature::kVectorAtomics) ? 4 : 1;
}

}  // namespace tl
