/*! The report of threads that all wait: which threads, at which line, for what. */
#pragma once

#include <string.h>
#include <tl/error.h>

namespace tl {
namespace emu {

/*! What a thread does, or what it waits for. */
struct State {
  char words[256];

  explicit State(const Fiber& fiber) {
    Text text{words, sizeof(words)};
    if (fiber.exited) {
      text.add("have exited");
    } else if (fiber.waits_at) {
      text.add("wait at %s:%d for ", fiber.where.file, fiber.where.line);
      fiber.waits_at->describe(*fiber.waits_at, text);
    } else {
      text.add("poll at %s:%d", fiber.where.file, fiber.where.line);
    }
  }
};

// Threads in one row of the report: at one wait point, or at several that stand alike.
inline bool stand_alike(const Fiber& a, const Fiber& b) {
  if (a.exited || b.exited) return a.exited && b.exited;
  if (a.block != b.block || a.where.line != b.where.line || !a.waits_at != !b.waits_at) {
    return false;
  }
  if (a.waits_at == b.waits_at && a.where.file == b.where.file) return true;
  return strcmp(State(a).words, State(b).words) == 0;
}

inline void add_ranges(Text& text, const Block& block, const Fiber& like) {
  const char* separator = "";
  for (unsigned i = 0; i < block.threads; ++i) {
    if (!stand_alike(block.fibers[i], like)) continue;
    const unsigned first = i;
    while (i + 1 < block.threads && stand_alike(block.fibers[i + 1], like)) ++i;
    text.add(first == i ? "%s%u" : "%s%u..%u", separator, first, i);
    separator = ", ";
  }
}

inline void add_block(Text& text, const Block& block) {
  for (unsigned i = 0; i < block.threads; ++i) {
    bool reported = false;
    for (unsigned j = 0; j < i && !reported; ++j) {
      reported = stand_alike(block.fibers[j], block.fibers[i]);
    }
    if (reported) continue;
    text.add("\n  threads ");
    add_ranges(text, block, block.fibers[i]);
    text.add(" %s", State(block.fibers[i]).words);
  }
}

inline void report_deadlock() {
  worker->failed = true;
  Text text{worker->error, worker->error_size};
  text.add("deadlock in ");
  unsigned live = 0;
  for (unsigned b = 0; b < worker->block_count; ++b) live += worker->blocks[b].live;
  const bool alone = worker->block_count == 1;
  if (alone) {
    text.add("block ");
    text.add(worker->blocks->index);
  } else if (worker->cooperative) {
    text.add("the grid");
  } else {
    text.add("cluster ");
    text.add(worker->clusters->index);
  }
  text.add(
      " of %s: %u of %u threads wait and none is left to release them. Let all of them reach the "
      "same barrier",
      worker->kernel, live, worker->threads());
  for (unsigned b = 0; b < worker->block_count; ++b) {
    const Block& block = worker->blocks[b];
    if (!alone && block.live > 0) {
      text.add("\n block ");
      text.add(block.index);
    }
    if (block.live > 0) add_block(text, block);
  }
}

}  // namespace emu
}  // namespace tl
