/*! Statements over registers of which each holds one element. */
#pragma once
#include "../tvm/build.h"

namespace tl {

/*!
 * The statement accesses nothing but fragments and memory of the thread, makes no values of less
 * than 32 bits, of which a register holds several, and has no branch, which is asked once for a
 * vector. Vectors bring nothing there: no instruction takes two registers, and NVVM makes scalars
 * of them, which in an attention is a twelfth of compilation.
 */
bool IsOfWholeRegisters(const Stmt& s);

/*!
 * Such a statement that computes with float32, and stores nothing else: on some targets an
 * instruction takes two of them (target/packed_float.h).
 */
bool ComputesFloat32(const Stmt& s);

}  // namespace tl
