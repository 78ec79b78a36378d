/*! What is said of statements that some threads reach and others do not. */
#pragma once
#include "reaching_threads.h"

namespace tl {

/*! A shuffle, a vote or a match: its first argument is a mask of lanes. */
bool IsOfLanes(const CallNode* call);

// All raise ValueError at the statement.
[[noreturn]] void RefuseControl(const Stmt& s, const ReachingThreads& reach, int64_t warp_threads);
[[noreturn]] void RefuseOperand(const Stmt& s, const Expr& operand);
[[noreturn]] void RefuseExtents(const Span& span);
[[noreturn]] void RefuseRace(const BufferStoreNode* store);
[[noreturn]] void RefuseLanes(const CallNode* reduction, const ReachingThreads& reach,
                              const Span& span);
[[noreturn]] void RefuseMask(const CallNode* call, const ThreadSet& here, int64_t warp,
                             int64_t warp_threads, const Span& span);

}  // namespace tl
