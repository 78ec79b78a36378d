/*! How many blocks of a kernel a multiprocessor has registers for, for passes that choose before
 * AnnotateWarpGroupRegAlloc deals registers out. */
#pragma once
#include "../../target/mma.h"
#include "warp_roles.h"

namespace tl {

/*! Registers of a thread for the accumulators of one wgmma. */
inline int64_t AccumulatorRegisters(const GroupChoice& wgmma) {
  constexpr int64_t kRegisterBits = 32;
  const MatrixInstruction& i = *wgmma.instruction;
  return i.m * wgmma.n * i.accumulator.bits / kRegisterBits / i.group_threads;
}
/*! The same of the widest of the kernel; 0 without. */
int64_t WidestAccumulators(const KernelInfo& kernel);

/*! Blocks that a multiprocessor has registers for beside a producer's, supposing that a thread's
 * are those of its fragments and kFewOtherRegisters, or kManyOtherRegisters without products, and
 * that a wgmma has `accumulators` (0: as many as a thread has). */
int64_t BlocksByRegisters(const KernelInfo& kernel, int64_t accumulators);

/*! A thread has registers for its part of all fragments of a kernel that was given larger ones, of
 * which `most_accumulators` are the accumulators of products. */
bool HasRegistersOfFragments(const KernelInfo& kernel, int64_t most_accumulators);

/*! Blocks of the grid for each multiprocessor, rounded up; many where the launch decides. */
int64_t BlocksOfGrid(const Stmt& kernel, const Target& target);

/*! The compiler may give the kernel a producer: warp groups without roles of the program's. */
bool MayHaveProducer(const KernelInfo& kernel);

}  // namespace tl
