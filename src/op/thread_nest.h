/*! Copies, fills and atomic operations with memory of one thread: every thread has its own, and
 * runs all of the nest. */
#pragma once
#include <memory>

#include "operator.h"
#include "parallel.h"

namespace tl {

/*! The operator of a nest over `operands`: where one is `local` memory, it is run as a whole by
 * each thread, else it is dealt to the threads. Refuses (ValueError) a fragment beside local
 * memory: a thread has a part of it only. */
std::unique_ptr<TileOperator> MakeNestOperator(ParallelNest nest, const std::vector<Var>& operands);

}  // namespace tl
