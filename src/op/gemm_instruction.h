/*!
 * The instructions of a gemm as attributes of its call, which SelectInstructions writes and all
 * passes behind it read. They print:
 *
 *   "instruction": [["wgmma.m64n128k16 (float16 x float16 -> float32)", 0, 64]]: the rows, each
 *     with the part of K that it multiplies, in order; "multiply-add" is ordinary arithmetic;
 *   "warps": [8, 1]: the warps along M and N, absent where all of it is multiply-add;
 *   "interleaved": [1, 4]: of how many of a warp's MMAs along M and N the rows and columns take
 *     turns (Interleaving), absent where they do not;
 *   "rejected": {"wgmma": "M must be a multiple of 64, found 32"}: the families of better rows,
 *     "wgmma" and "mma", and why none of theirs makes the MMA, or all of it;
 *   "swizzle": [128, 64]: bytes of the swizzle that a wgmma gives A and B in shared memory, absent
 *     where it gives neither;
 *   "interleave_reads": 1: reads of A and B stand between the instructions.
 */
#pragma once
#include "gemm.h"

namespace tl {

/*! The call with the instructions of a plan. */
Call WithInstruction(const CallNode* gemm, const GemmOp& op, const GemmPlan& plan);
/*! The plan that a call has. A bug of the compiler where it has none. */
GemmPlan PlanOf(const CallNode* gemm, const Span& span);

}  // namespace tl
