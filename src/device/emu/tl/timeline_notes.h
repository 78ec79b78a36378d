/*! What a timeline notes (timeline.h). */
#pragma once

#include <string.h>
#include <tl/mbarrier_state.h>
#include <tl/timeline.h>

namespace tl {
namespace emu {

inline bool is_watched(const Block& block) {
  return block.index.x == worker->timeline->block[0] &&
         block.index.y == worker->timeline->block[1] &&
         block.index.z == worker->timeline->block[2] &&
         block.cluster->gpu == worker->timeline->rank;
}

/*! The words' place in the texts; they are freed. */
inline unsigned keep_text(Text& words) {
  if (!words.characters) return kNoText;
  const unsigned long bytes = words.length + 1;
  unsigned at = kNoText;
  if (worker->timeline->text_room - worker->timeline->text_count >= bytes) {
    at = unsigned(worker->timeline->text_count);
    memcpy(worker->timeline->texts + at, words.characters, bytes);
    worker->timeline->text_count += bytes;
  }
  free(words.characters);
  return at;
}

inline void note(Happening kind, const void* what, Location where, Text words = {}) {
  const Fiber* who = worker->current;
  const bool mine = who && is_watched(*who->block);
  const unsigned text = keep_text(words);
  if (worker->timeline->count == worker->timeline->room) {
    ++worker->timeline->left_out;
    return;
  }
  worker->timeline->happenings[worker->timeline->count++] = {
      unsigned(kind), mine ? who->linear : kNoThread,       unsigned(where.line), text,
      where.file,     reinterpret_cast<unsigned long>(what)};
}

inline bool is_mine() { return worker->current && is_watched(*worker->current->block); }

TL_RUNTIME void note_wait(const WaitPoint& point, Happening kind) {
  if (!is_mine()) return;
  Text words = {};
  if (kind == Happening::kWait) point.describe(point, words);
  note(kind, &point, worker->current->where, words);
}

TL_RUNTIME void note_release(const WaitPoint& point) {
  note(Happening::kRelease, &point, worker->current ? worker->current->where : Location{});
}

TL_RUNTIME void note_arrival(const Mbarrier& barrier, Location where) {
  Text words = {};
  add_mbarrier(words, barrier);
  const WaitPoint& point = barrier;
  note(Happening::kArrive, &point, where, words);
}

TL_RUNTIME void note_issue(const AsyncQueue& queue, const char* name, const void* place,
                           unsigned long bytes, Location where) {
  Text words = {};
  words.add("%s", name);
  if (bytes > 0) words.add(" of %lu bytes", bytes);
  if (place) {
    words.add(" to ");
    add_place(words, place);
  }
  note(Happening::kIssue, &queue, where, words);
}

TL_RUNTIME void note_done(const AsyncQueue& queue, Location where) {
  note(Happening::kDone, &queue, worker->current ? worker->current->where : where);
}

TL_RUNTIME void note_exit() {
  if (is_mine()) note(Happening::kExit, nullptr, worker->current->where);
}

/*! A cluster begins: notes what happens if the block that is asked for is one of it. */
inline void begin_notes(const Cluster& cluster) {
  if (!worker->asked) return;
  tl_timeline* const before = worker->timeline;
  set_timeline(worker->asked);
  for (unsigned rank = 0; rank < worker->cluster_blocks; ++rank) {
    if (!is_watched(cluster.blocks[rank])) continue;
    Text words = {};
    words.add("%s", worker->kernel);
    note(Happening::kBegin, reinterpret_cast<const void*>(worker->invoke),
         {nullptr, int(worker->block_threads)}, words);
    return;
  }
  set_timeline(before);
}

/*! A cluster has ended. */
inline void end_notes(const Cluster& cluster) {
  if (!worker->timeline) return;
  for (unsigned rank = 0; rank < worker->cluster_blocks; ++rank) {
    if (is_watched(cluster.blocks[rank])) {
      set_timeline(nullptr);
      return;
    }
  }
}

}  // namespace emu
}  // namespace tl
