/*!
 * Combining one value of each thread over groups of a block's threads: by shuffles where a group
 * lies in a warp, through shared memory where it does not.
 */
#pragma once
#include "operator.h"
#include "reduction.h"

namespace tl {

/*! The groups: shuffles first, then the leaders of what they made exchange in shared memory. */
struct ThreadGroups {
  struct Butterfly {
    int64_t threads, scale;  // over `threads` lanes, `scale` apart
    bool whole = true;       // whether the block has all lanes of each of its lanes' groups
  };
  std::vector<Butterfly> butterflies;
  /*! The thread's group, its number among the group's leaders, and whether it is one. */
  Expr group, part, leads;
  /*! Whether the block has all threads of the thread's group that lie in other warps. The last
   *  group may lack some threads. It then has no result. */
  Expr complete;
  int64_t num_groups = 1, num_parts = 1;

  /*! Threads whose numbers differ in `bits` alone. */
  static ThreadGroups DifferingIn(int64_t bits, const Expr& thread, int64_t num_threads,
                                  int64_t warp_threads);
  /*! One group of all threads, however many they are. */
  static ThreadGroups WholeBlock(const Expr& thread, int64_t num_threads, int64_t warp_threads);
};

/*! Each element of `results` = the combination of that of `values` over the thread's group; both
 * are memory of a thread, and may be the same. All threads of the block run it. `name` is that of
 * shared memory, if any is needed. Of results apart from the values, which differ by thread, it is
 * known where they are the same in all threads (uniformity.h). */
Stmt CombineOverGroups(const ThreadGroups& groups, const Reduction& reduction, const Var& values,
                       const Var& results, const std::string& name, LoweringScope* scope,
                       const Span& span);

/*! The indices of the element of a buffer with the row-major number `flat`. */
Array<Expr> CoordinatesOf(const Var& buffer, const Expr& flat);

/*! for v in unroll(extent): body; the body alone where extent is 1. */
Stmt UnrolledFor(const Var& v, int64_t extent, const Stmt& body, const Span& span);

}  // namespace tl
