/*! Asynchronous copies by each thread, performed when the schedule says. */
#pragma once

#include <tl/issue.h>
#include <tl/platform.h>

namespace tl {
namespace emu {

struct Copy {
  static constexpr const char* kName = "cp.async";
  void* to;
  const void* from;
  uint32_t bytes;
  bool zeros;  // written instead of what `from` points to

  const void* place() const { return to; }
  unsigned long size() const { return bytes; }

  void perform(const AsyncOperation&) const {
    if (zeros) {
      __builtin_memset(to, 0, bytes);
    } else {
      __builtin_memcpy(to, from, bytes);
    }
  }
};

inline void issue_copy(void* shared, const void* global, int bytes, bool zeros, Location where) {
  check_alignment(shared, bytes, "shared address of a cp.async", where);
  if (!zeros) check_alignment(global, bytes, "global address of a cp.async", where);
  AsyncQueue& copies = worker->current->queues.copies;
  const Agent agent = check_issue(Engine::kCpAsync, copies.open_group);
  if (!zeros) check_read(agent, global, bytes, where);
  check_write(agent, shared, bytes, where);
  issue(copies, Copy{shared, global, uint32_t(bytes), zeros}, where);
}

}  // namespace emu

/*! Starts copying `bytes` bytes: 4, 8 or 16, both addresses being multiples of it. */
template <int bytes>
TL_DEVICE void cp_async_gs(void* shared, const void* global, emu::Location where = emu::here()) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  emu::issue_copy(shared, global, bytes, false, where);
}

/*! Starts copying `bytes` bytes, or writing zeros without reading `global` where the predicate is
 * false. */
template <int bytes>
TL_DEVICE void cp_async_gs_conditional(void* shared, const void* global, bool predicate,
                                       emu::Location where = emu::here()) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  emu::issue_copy(shared, global, bytes, !predicate, where);
}

/*! Makes this thread's copies since the last commit a group. */
TL_DEVICE void cp_async_commit() { emu::worker->current->queues.copies.commit(); }

/*! Waits until at most `groups` groups of this thread are in flight. */
template <int groups>
TL_DEVICE void cp_async_wait(emu::Location where = emu::here()) {
  emu::worker->current->where = where;
  emu::AsyncQueue& copies = emu::worker->current->queues.copies;
  copies.wait(groups);
  emu::check_groups_done(emu::Engine::kCpAsync, copies.done(groups));
}

}  // namespace tl
