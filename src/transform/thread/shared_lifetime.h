/*! When a shared buffer of a kernel holds something that is still wanted. */
#pragma once
#include <unordered_map>

#include "../../tvm/stmt.h"

namespace tl {

/*! Numbers of the first and the last statement that need the buffer, in program order. */
struct Lifetime {
  int64_t first;
  int64_t last;
  bool Overlaps(const Lifetime& o) const { return first <= o.last && o.first <= last; }
};

/*!
 * Lives of the dynamic shared buffers that a kernel touches. What threads may run at different
 * times, a loop or a branch that only some of them take, is one statement: buffers in it overlap.
 * So are ranges of threads, with what is between them, up to a barrier of all threads. The target
 * of an asynchronous copy lives until all copies are waited for, the source of a bulk copy until
 * the thread's groups are, an operand of wgmma until all MMAs are; what the async proxy is the last
 * to write lives on.
 */
std::unordered_map<const Object*, Lifetime> SharedLifetimes(const Stmt& kernel);

}  // namespace tl
