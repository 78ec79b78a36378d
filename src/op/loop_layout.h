/*! From layouts to code: the loop layout that follows placed fragments, and the thread program of a
 * parallel nest. */
#pragma once
#include <functional>

#include "parallel.h"

namespace tl {

/*! Annotation of a loop over a thread's iterations of a nest, which are independent: no thread
 * waits in it for an iteration of another one. */
inline constexpr const char* kIndependentIterations = "tl.independent_iterations";

/*! Attribute around what a thread does of independent iterations, each of which is one thread's: no
 * thread waits in it for another one. Its value is kProvedNest where the compiler has made them so,
 * 1 where the program says so (T.Parallel). */
inline constexpr const char* kIndependentNest = "tl.independent_nest";
inline constexpr int64_t kProvedNest = 2;

/*! Layout of a placed fragment; undefined where it is not placed yet. */
using FragmentLookup = std::function<Fragment(const Var&)>;

/*!
 * The loop layout of a nest that touches placed fragments: it follows the first fragment written,
 * else the first read that is not replicated, else the first read, such that every other placed
 * fragment agrees. nullopt if no fragment is placed; the candidate of the first fragment if none
 * agrees with all (the caller reports the disagreement).
 */
std::optional<Fragment> ChooseLoopLayout(const ParallelNest& nest,
                                         const std::vector<FragmentAccess>& accesses,
                                         const FragmentLookup& lookup);

/*! What lowering a nest needs to know of the kernel. */
struct NestLowering {
  Expr thread;
  int64_t num_threads;
  Analyzer* analyzer;
  FragmentLookup fragment;
  /*! Per-thread registers that a fragment became. */
  std::function<Var(const Var&)> registers;
  /*! See LoweringScope. */
  bool in_range = false;
};

/*!
 * The iterations of one thread: an unrolled loop around a vectorised one. Fragment accesses become
 * accesses of registers; accesses of shared and global memory keep their logical indices. `layout`
 * is the loop layout, undefined for a nest that touches no fragments: it is then dealt to threads
 * in vectors, with a predicated tail.
 */
Stmt LowerNest(const ParallelNest& nest, const Fragment& layout, const NestLowering& ctx);

/*! Whether a thread can be told its iterations in this layout, which follows fragments of `lookup`;
 * LowerNest refuses others. */
bool CanTellIterations(const ParallelNest& nest, const Fragment& layout,
                       const FragmentLookup& lookup, int64_t num_threads);

}  // namespace tl
