/*! Loads by TMA that the user demands in a pipelined loop without warp specialisation. */
#pragma once
#include "kernel_scope.h"
#include "warp_roles.h"

namespace tl {

/*! A loop's body with loads by TMA, as a program would write it by hand. */
struct TmaLoads {
  std::vector<Stmt> body;
  /*! One mbarrier, which an iteration's first load arrives at. */
  Var barrier;
};

/*!
 * Makes `T.copy(.., prefer_instruction="tma")` of a loop's body, where TMA can, loads that one
 * thread issues, with a wait in front of the first reader of what they fill. nullopt if there is
 * none, or the number of the iteration, which gives the phase, is not known.
 *
 * Nothing keeps a load from overwriting what threads still read: that is right only for loads that
 * run ahead, behind the pipeline's barrier.
 */
std::optional<TmaLoads> LoadByTma(const Stmt& function_body, const ForNode* loop,
                                  const std::vector<Stmt>& body, const Target& target,
                                  const KernelScope& scope, const Views& views);

/*! Allocates an mbarrier whose phase takes one arrival. */
void AllocateBarrier(const Var& barrier, SBlockNode* block);

}  // namespace tl
