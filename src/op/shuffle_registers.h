/*! The shuffles of warp_shuffle.h as statements of a thread. */
#pragma once
#include "../layout/warp_shuffle.h"
#include "operator.h"

namespace tl {

/*! Fills the registers `to` of each thread from the registers `from` of the lanes of its warp; both
 * have one dimension. Where dtypes differ, the narrower one is shuffled. All threads of the
 * operator run it. */
Stmt ShuffleRegisters(const WarpShuffle& plan, const Var& from, const Var& to, LoweringScope* scope,
                      const Span& span);

/*! The dtype that is shuffled between registers of two dtypes. */
DLDataType ShuffledType(DLDataType from, DLDataType to);

}  // namespace tl
