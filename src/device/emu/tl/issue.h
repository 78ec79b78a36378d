/*! Giving an operation to an engine. */
#pragma once

#include <tl/error.h>

namespace tl {
namespace emu {

[[noreturn]] TL_RUNTIME void fail_no_room(Location where) {
  fail(where, "no memory for another asynchronous operation. Wait for some of them");
}

/*! Has `operation.perform(AsyncOperation&)` called when the schedule says, behind the others of the
 * queue. `kName`, `place()` and `size()` say what it is: how many bytes it moves, to where. */
template <typename Operation>
void issue(AsyncQueue& queue, const Operation& operation, Location where) {
  const auto perform = [](AsyncOperation& issued) {
    static_cast<const Operation*>(issued.arguments())->perform(issued);
  };
  AsyncOperation* issued = queue.push(perform, sizeof(Operation), where, queue.open_group);
  if (!issued) fail_no_room(where);
  __builtin_memcpy(issued->arguments(), &operation, sizeof(Operation));
  if (__builtin_expect(!worker->issues_late, 0)) {
    if (is_noted()) {
      note_issue(queue, Operation::kName, operation.place(), operation.size(), where);
    }
    if (schedule().early()) queue.perform_all();
  }
}

}  // namespace emu
}  // namespace tl
