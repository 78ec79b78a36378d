/*!
 * Slots that a program has by hand in a pipelined loop of roles: `full[k % 3]`, `S[k % 3, :, :]`.
 * Such a ring is what versions of one tile and one mbarrier would become, so the program on one
 * slot of each is what is to be proved (pipeline_handshakes.h); it needs no versions.
 *
 * A role may release a slot one iteration later, `if k > 0: T.mbarrier_arrive(empty[(k - 1) % 3])`,
 * where its next MMA is on its way: here that stands at the end of its own iteration. The last
 * iteration's may stand behind the loop, `T.mbarrier_arrive(empty[(n - 1) % 3])`: then each run of
 * a loop that another one repeats makes all of its own. What the role waits for meanwhile depends
 * on slots that were released before, since there are two at least.
 */
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../../op/views.h"
#include "pipeline_barriers.h"

namespace tl {

struct Rings {
  int64_t slots = 1;
  /*! A role releases a slot one iteration later. */
  bool late = false;
  /*! The program's buffers of as many slots, and their names here. */
  std::vector<Var> buffers, folded;
  /*! The program with one slot of each. */
  Stmt function_body;
  For loop;
  SBlock block;
  /*! Why its slots are not those of one ring; "" where they are. */
  std::string why;
};

/*! nullopt where no mbarrier of the loop has an index that changes from one iteration to the next.
 */
std::optional<Rings> FoldRings(const Stmt& function_body, const ForNode* loop, const Views& views,
                               const SBlockNode* block);

}  // namespace tl
