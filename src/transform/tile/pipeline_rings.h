/*!
 * Rings: slots that the program numbers itself in a pipelined loop of roles, `full[k % 3]`,
 * `S[k % 3, :, :]`. The compiler would make the same of versions of one tile and one mbarrier. So
 * the ring is folded to one slot, and the proof of pipeline_handshakes.h is made on that program.
 * The program itself stays as it is.
 *
 * A role may release a slot one iteration late: `if k > 0: T.mbarrier_arrive(empty[(k - 1) % 3])`.
 * The folded program has this arrival at the end of the iteration that it is for. The arrival for
 * the last iteration may stand behind the loop: `T.mbarrier_arrive(empty[(n - 1) % 3])`. Then each
 * run of the loop makes all of its arrivals, and an outer loop may repeat it. A late release cannot
 * deadlock: with two slots or more, the fill that the role waits for needs another slot.
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

/*! nullopt if no mbarrier of the loop has an index that depends on the iteration. */
std::optional<Rings> FoldRings(const Stmt& function_body, const ForNode* loop, const Views& views,
                               const SBlockNode* block);

}  // namespace tl
