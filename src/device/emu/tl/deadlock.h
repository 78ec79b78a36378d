/*! The report of a block whose threads all wait: which threads, at which line, for what. */
#pragma once

#include <string.h>
#include <tl/error.h>

namespace tl {
namespace emu {

// Threads in one row of the report: the same wait point, or collectives of several warps that stand
// alike.
inline bool stand_alike(const Fiber& a, const Fiber& b) {
  if (a.exited || b.exited) return a.exited && b.exited;
  const bool same_point =
      a.waits_at == b.waits_at || (a.waits_at->collective && b.waits_at->collective &&
                                   strcmp(a.waits_at->name, b.waits_at->name) == 0 &&
                                   a.waits_at->arrived == b.waits_at->arrived);
  return same_point && a.where.line == b.where.line && strcmp(a.where.file, b.where.file) == 0;
}

inline void add_ranges(Text& text, const Fiber& like) {
  const char* separator = "";
  for (unsigned i = 0; i < worker->threads; ++i) {
    if (!stand_alike(worker->fibers[i], like)) continue;
    const unsigned first = i;
    while (i + 1 < worker->threads && stand_alike(worker->fibers[i + 1], like)) ++i;
    text.add(first == i ? "%s%u" : "%s%u..%u", separator, first, i);
    separator = ", ";
  }
}

inline void add_group(Text& text, const Fiber& fiber) {
  text.add("\n  threads ");
  add_ranges(text, fiber);
  if (fiber.exited) {
    text.add(" have exited");
    return;
  }
  const WaitPoint& point = *fiber.waits_at;
  text.add(" wait at %s:%d for ", fiber.where.file, fiber.where.line);
  if (point.collective) {
    text.add("%s: %u of %u lanes of the warp have arrived", point.name, point.arrived,
             point.expected);
  } else {
    const unsigned expected = point.expected ? point.expected : worker->live;
    text.add("barrier %d: %u of %u threads have arrived", int(&point - worker->barriers),
             point.arrived, expected);
  }
}

inline void report_deadlock() {
  worker->failed = true;
  Text text{worker->error, worker->error_size};
  text.add("deadlock in block ");
  text.add(block_index());
  text.add(
      " of %s: %u of %u threads wait and none is left to release them. Let all of them reach the "
      "same barrier",
      worker->kernel, worker->live, worker->threads);
  for (unsigned i = 0; i < worker->threads; ++i) {
    bool reported = false;
    for (unsigned j = 0; j < i && !reported; ++j) {
      reported = stand_alike(worker->fibers[j], worker->fibers[i]);
    }
    if (!reported) add_group(text, worker->fibers[i]);
  }
}

}  // namespace emu
}  // namespace tl
