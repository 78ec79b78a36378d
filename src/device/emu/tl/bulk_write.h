/*! The second half of a copy from shared memory: what it has read waits to be written. */
#pragma once

#include <tl/issue.h>
#include <tl/reduce_ops.h>

namespace tl {
namespace emu {

/*! Combines `bytes` bytes of elements in global memory with others. */
using Combine = void (*)(void* to, const void* from, uint32_t bytes);

template <typename Op, typename T>
void combine(void* to, const void* from, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i += sizeof(T)) {
    T ours, theirs;
    __builtin_memcpy(&ours, static_cast<char*>(to) + i, sizeof(T));
    __builtin_memcpy(&theirs, static_cast<const char*>(from) + i, sizeof(T));
    ours = Op::run(ours, theirs);
    __builtin_memcpy(static_cast<char*>(to) + i, &ours, sizeof(T));
  }
}

/*! Has `write.perform(data)` called later, in the group of the operation that reads; returns where
 * the `bytes` bytes of data go. */
template <typename Write>
char* push_write(AsyncQueue& writes, const Write& write, uint32_t bytes,
                 const AsyncOperation& read) {
  const auto perform = [](AsyncOperation& operation) {
    auto* stored = static_cast<Write*>(operation.arguments());
    stored->perform(reinterpret_cast<const char*>(stored + 1));
  };
  AsyncOperation* pushed = writes.push(perform, sizeof(Write) + bytes, read.where, read.group);
  if (!pushed) fail_no_room(read.where);
  auto* stored = static_cast<Write*>(pushed->arguments());
  __builtin_memcpy(stored, &write, sizeof(Write));
  if (is_noted()) note_issue(writes, "TMA write", nullptr, bytes, read.where);
  return reinterpret_cast<char*>(stored + 1);
}

/*! Performs the writes of reads that were performed early, where the schedule says so. */
inline void perform_early(AsyncQueue& writes) {
  if (!writes.empty() && schedule().early()) writes.perform_all();
}

}  // namespace emu
}  // namespace tl
