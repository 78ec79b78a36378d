/*!
 * What happens in one block, in the order of the schedule, for who has asked
 * (tilelang.emulator.timeline). Nobody has, as a rule: then each place that notes something looks
 * at one pointer.
 */
#pragma once

#include <tl/location.h>

/*! Something that happened; `what` says at which wait point, or in which queue of operations. */
extern "C" struct tl_happening {
  unsigned kind;    // tl::emu::Happening
  unsigned thread;  // in its block; kNoThread: not of the block
  unsigned line;    // of file
  unsigned text;    // where in the texts its words begin; kNoText: there are none
  const char* file;
  unsigned long what;
};

/*! Of which block, room for what happens and for words (each ends with 0), and how much of both is
 * used. */
extern "C" struct tl_timeline {
  unsigned block[3], rank;
  unsigned long room, count, text_room, text_count;
  unsigned long left_out;  // for which there was no room
  tl_happening* happenings;
  char* texts;
};

namespace tl {
namespace emu {

struct AsyncQueue;
struct Mbarrier;
struct WaitPoint;

enum class Happening : unsigned {
  kBegin,  // the words are the kernel's name, the line the number of threads, `what` is code of it
  kWait,   // a thread stops at a wait point; the words say what it waits for
  kGoOn,   // it goes on
  kRelease,  // those at a wait point may go on, because of the thread
  kArrive,   // at an mbarrier, without waiting
  kIssue,    // the thread gives an operation to an engine; the words name it
  kDone,     // the first operation of a queue is performed; the thread has asked for it
  kExit,
};

constexpr unsigned kNoThread = ~0u, kNoText = ~0u;

void note_wait(const WaitPoint& point, Happening kind);
void note_release(const WaitPoint& point);
void note_arrival(const Mbarrier& barrier, Location where);
void note_issue(const AsyncQueue& queue, const char* name, const void* place, unsigned long bytes,
                Location where);
void note_done(const AsyncQueue& queue, Location where);
void note_exit();

/*! Whether anybody wants to know: the worker has a timeline. */
inline bool is_noted();

}  // namespace emu
}  // namespace tl
