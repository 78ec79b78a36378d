/*! The report of threads that all wait: which threads, at which line, for what, and which other
 * ones could still arrive there. */
#pragma once

#include <string.h>
#include <tl/error.h>
#include <tl/polling.h>

namespace tl {
namespace emu {

/*! What a thread does, or what it waits for. */
struct State {
  Text words = {};

  explicit State(const Fiber& fiber) {
    if (fiber.exited) {
      words.add("have exited");
    } else if (fiber.waits_at) {
      words.add("wait at %s:%d for ", fiber.where.file, fiber.where.line);
      fiber.waits_at->describe(*fiber.waits_at, words);
    } else if (fiber.signal) {
      words.add("wait at %s:%d for signal ", fiber.where.file, fiber.where.line);
      add_place(words, fiber.signal->at);
      words.add(" to be %s %lld; it is %lld", fiber.signal->comparison, fiber.signal->wanted,
                fiber.signal->found);
    } else {
      words.add("poll at %s:%d", fiber.where.file, fiber.where.line);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { free(words.characters); }

  const char* text() const { return words.characters ? words.characters : ""; }
};

// Threads in one row of the report: at one wait point, or at several that stand alike.
inline bool stand_alike(const Fiber& a, const Fiber& b) {
  if (a.exited || b.exited) return a.exited && b.exited;
  if (a.block != b.block || a.where.line != b.where.line || !a.waits_at != !b.waits_at) {
    return false;
  }
  if (a.waits_at == b.waits_at && a.where.file == b.where.file) return true;
  return strcmp(State(a).text(), State(b).text()) == 0;
}

/*! Adds the threads of a block that `is` names, as ranges; false where there are none. */
template <typename Is>
bool add_ranges(Text& text, const Block& block, const char* before, Is is) {
  const char* separator = before;
  for (unsigned i = 0; i < block.threads; ++i) {
    if (!is(block.fibers[i])) continue;
    const unsigned first = i;
    while (i + 1 < block.threads && is(block.fibers[i + 1])) ++i;
    text.add(first == i ? "%s%u" : "%s%u..%u", separator, first, i);
    separator = ", ";
  }
  return separator != before;
}

/*! Whether some thread of the block that stands like `like` waits where `other` may arrive. */
inline bool could_arrive(const Fiber& other, const Fiber& like) {
  if (other.exited || other.waits_at == like.waits_at || !other.block->cluster->running)
    return false;
  const Scope scope = like.waits_at->scope;
  if (scope == Scope::kGrid) return true;
  if (scope == Scope::kCluster) return other.block->cluster == like.block->cluster;
  if (other.block != like.block || stand_alike(other, like)) return false;
  if (scope == Scope::kBlock) return true;
  const unsigned warp = other.linear / kWarpSize * kWarpSize;
  for (unsigned i = warp; i < warp + kWarpSize && i < other.block->threads; ++i) {
    if (stand_alike(other.block->fibers[i], like)) return true;
  }
  return false;
}

template <typename Is>
bool has_any(const Block& block, Is is) {
  for (unsigned i = 0; i < block.threads; ++i) {
    if (is(block.fibers[i])) return true;
  }
  return false;
}

/*! Who could still arrive where `like` waits. */
inline void add_missing(Text& text, const Fiber& like) {
  bool any = false;
  for (unsigned b = 0; b < worker->block_count; ++b) {
    const Block& block = worker->blocks[b];
    const bool same = &block == like.block;
    const char* before = same ? any ? ", threads " : "; threads " : any ? ", " : "; ";
    const auto may = [&](const Fiber& fiber) { return could_arrive(fiber, like); };
    if (same) {
      any |= add_ranges(text, block, before, may);
    } else if (like.waits_at->scope >= Scope::kCluster && has_any(block, may)) {
      text.add("%sthreads of block ", before);
      text.add(block.index);
      any = true;
    }
  }
  text.add(any ? " could still arrive" : "; no thread is left that could arrive");
}

inline void add_block(Text& text, const Block& block) {
  for (unsigned i = 0; i < block.threads; ++i) {
    const Fiber& fiber = block.fibers[i];
    const auto alike = [&](const Fiber& other) { return stand_alike(other, fiber); };
    bool reported = false;
    for (unsigned j = 0; j < i && !reported; ++j) reported = alike(block.fibers[j]);
    if (reported) continue;
    add_ranges(text, block, "\n  threads ", alike);
    text.add(" %s", State(fiber).text());
    if (!fiber.exited && fiber.waits_at) add_missing(text, fiber);
  }
}

/*! The blocks of a deadlock: those at the same time whose threads have not all exited, or all of a
 * cooperative launch. */
struct Stuck {
  unsigned blocks = 0, threads = 0, live = 0, clusters = 0;
  const Block* block = nullptr;

  Stuck() {
    for (unsigned i = 0; i < worker->cluster_count(); ++i) {
      const Cluster& cluster = worker->clusters[i];
      if (!cluster.running || (cluster.barrier.live == 0 && !worker->cooperative)) continue;
      ++clusters;
      blocks += worker->cluster_blocks;
      live += cluster.barrier.live;
      if (!block) block = cluster.blocks;
    }
    threads = blocks * worker->block_threads;
  }
};

/*! The ranks that have threads which have not exited, or blocks that have not begun. */
struct LiveRanks {
  bool live[kMaxRanks] = {};

  LiveRanks() {
    for (unsigned b = 0; b < worker->block_count; ++b) {
      const Block& block = worker->blocks[b];
      if (block.live > 0) live[block.cluster->gpu] = true;
    }
    const Grid& grid = *worker->grid;
    for (unsigned long n = grid.next; n < grid.clusters; ++n)
      live[place_of(*worker, n).rank] = true;
  }
  /*! Whether a rank could still send what `waits` waits for. */
  bool may_send(unsigned rank, const Fiber& waits) const {
    return live[rank] && (waits.signal->from < 0 || unsigned(waits.signal->from) == rank);
  }
};

/*! Who could still send the signal that a thread waits for, and that nobody does. */
inline void add_senders(Text& text, const Fiber& waits) {
  const LiveRanks ranks;
  const int from = waits.signal->from;
  text.add(". Nobody sends the signal that rank %u waits for at %s:%d", waits.block->cluster->gpu,
           waits.where.file, waits.where.line);
  const char* separator = ": ";
  for (unsigned r = 0; r < worker->ranks; ++r) {
    if (!ranks.may_send(r, waits)) continue;
    text.add("%srank %u", separator, r);
    separator = ", ";
  }
  if (separator[0] == ',') {
    text.add(" could still, but have not");
    unsigned ended = 0;
    for (unsigned r = 0; r < worker->ranks; ++r) {
      if (!ranks.live[r]) text.add("%srank %u", ended++ ? ", " : "; ", r);
    }
    if (ended) text.add(ended > 1 ? " have ended" : " has ended");
    text.add(". Let one signal, before it waits itself");
  } else if (from >= 0) {
    text.add(": rank %d has ended. Let all ranks come to the same barriers, equally often", from);
  } else {
    text.add(
        ": all ranks that could have ended. Let one signal, at the element that is waited for");
  }
}

/*!
 * What to do, by what is waited for. Who waits for bytes, arrivals or a value is at the root;
 * others may wait for those threads only.
 */
inline void add_advice(Text& text) {
  const WaitPoint *lanes = nullptr, *named = nullptr;
  const Fiber* polls = nullptr;
  bool signals = false, all = false;
  for (unsigned b = 0; b < worker->block_count; ++b) {
    const Block& block = worker->blocks[b];
    for (unsigned i = 0; block.live > 0 && i < block.threads; ++i) {
      const Fiber& fiber = block.fibers[i];
      if (fiber.exited) continue;
      if (!fiber.waits_at) {
        if (!polls || fiber.attempt > polls->attempt) polls = &fiber;
      } else if (fiber.waits_at->advise) {
        if (!signals) fiber.waits_at->advise(*fiber.waits_at, text);
        signals = true;
      } else if (fiber.waits_at->scope == Scope::kWarp) {
        lanes = fiber.waits_at;
      } else if (fiber.waits_at->scope == Scope::kBlock && fiber.waits_at->expected) {
        named = fiber.waits_at;
      } else {
        all = true;
      }
    }
  }
  if (polls && polls->signal) {
    add_senders(text, *polls);
  } else if (polls) {
    text.add(
        ". What threads poll for at %s:%d is not written any more: let whoever writes it come to "
        "that without waiting for them",
        polls->where.file, polls->where.line);
  } else if (!signals && lanes) {
    text.add(
        ". All lanes that a collective of the warp waits for have to take the same way to it, "
        "before they wait for anything else");
  } else if (!signals && named && !all) {
    text.add(
        ". Let as many threads come to each named barrier as it counts, as often as others wait "
        "there");
  } else if (!signals) {
    text.add(". Let all of them reach the same barrier");
  }
}

inline void report_deadlock() {
  worker->failed = true;
  Text& text = worker->report;
  const Stuck stuck;
  text.add("deadlock in ");
  if (stuck.blocks == 1) {
    text.add("block ");
    text.add(stuck.block->index);
    add_rank(text, *stuck.block);
  } else if (worker->cooperative) {
    text.add("the grid");
  } else if (stuck.clusters == 1) {
    text.add("cluster ");
    text.add(stuck.block->cluster->index);
  } else {
    text.add("%u blocks", stuck.blocks);
  }
  text.add(" of %s: %u of %u threads wait and none is left to release them", worker->kernel,
           stuck.live, stuck.threads);
  add_advice(text);
  for (unsigned b = 0; b < worker->block_count; ++b) {
    const Block& block = worker->blocks[b];
    if (block.live == 0) continue;
    if (stuck.blocks > 1) {
      text.add("\n block ");
      text.add(block.index);
      add_rank(text, block);
    }
    add_block(text, block);
  }
  const Grid& grid = *worker->grid;
  if (grid.next < grid.clusters && stuck.clusters > 1) {
    text.add("\n%lu blocks have not started: there is room for %u at the same time",
             (grid.clusters - grid.next) * worker->cluster_blocks, stuck.blocks);
  }
}

}  // namespace emu
}  // namespace tl
