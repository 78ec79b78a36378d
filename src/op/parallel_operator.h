/*! Parallel loops, and the operators that are one: copies, fills. */
#pragma once
#include <memory>

#include "operator.h"
#include "parallel.h"

namespace tl {

/*! The operator that runs a nest; `layout` is its mapping if something has decided it already. */
std::unique_ptr<TileOperator> MakeParallelOperator(const ParallelNest& nest, Fragment layout);

}  // namespace tl
