/*!
 * The ranks of a launch: GPUs that run the same kernel at the same time, each on its own arguments.
 *
 * Clusters and blocks are numbered over all ranks. In the usual schedule the ranks take turns: the
 * n-th cluster of each runs beside the n-th of the others. Other schedules draw by their seed
 * whether they do, or whether the grid of one rank begins before that of the next, and in which
 * order the ranks are.
 */
#pragma once

#include <tl/worker.h>

namespace tl {
namespace emu {

/*! A signal that a thread waits for; `from` is the rank that sends it, or -1. */
struct SignalWait {
  const void* at;
  const char* comparison;
  long long wanted;
  int from;
  long long found;
};

inline Schedule draw_of(const tl_machine& machine) {
  Schedule draw = {};
  draw.state = machine.seed ^ 0x72616e6b73;
  return draw;
}

/*! Whether the clusters of all ranks begin in turns. */
inline bool take_turns(const tl_machine& machine, unsigned ranks) {
  if (ranks == 1 || Order(machine.order) == Order::kRoundRobin) return true;
  return draw_of(machine).random() >> 63;
}

/*! Draws in which order the clusters of the ranks begin. */
inline void order_ranks(Worker& of, const tl_machine& machine) {
  for (unsigned r = 0; r < of.ranks; ++r) of.rank_order[r] = r;
  of.ranks_take_turns = take_turns(machine, of.ranks);
  if (Order(machine.order) == Order::kRoundRobin) return;
  Schedule draw = draw_of(machine);
  draw.random();
  for (unsigned r = of.ranks; r > 1; --r) {
    const unsigned other = unsigned(draw.random() % r), last = of.rank_order[r - 1];
    of.rank_order[r - 1] = of.rank_order[other];
    of.rank_order[other] = last;
  }
}

/*! The rank of the cluster `number` of `clusters` of all ranks, and its number there. */
struct ClusterPlace {
  unsigned rank;
  unsigned long number;
};
inline ClusterPlace place_of(const Worker& of, unsigned long number) {
  const dim3 grid = gridDim, cluster = of.cluster;
  const unsigned long each =
      static_cast<unsigned long>(grid.x / cluster.x) * (grid.y / cluster.y) * (grid.z / cluster.z);
  if (of.ranks_take_turns) return {of.rank_order[number % of.ranks], number / of.ranks};
  return {of.rank_order[number / each], number % each};
}

/*! " of rank 2" where there are several. */
inline void add_rank(Text& text, const Block& block) {
  if (worker->ranks > 1) text.add(" of rank %u", block.cluster->gpu);
}

}  // namespace emu
}  // namespace tl
