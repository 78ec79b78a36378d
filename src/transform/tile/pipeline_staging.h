/*!
 * Copies of a pipeline through registers, for targets without asynchronous copies of threads: the
 * loads of a tile run ahead into a fragment, and the fragment is stored to shared memory behind the
 * arithmetic. The memory's latency then passes beside the MMAs.
 */
#pragma once
#include <vector>

#include "../../op/views.h"

namespace tl {

/*! A body and its plan, statement by statement. */
struct PlannedBody {
  std::vector<Stmt> body;
  std::vector<int64_t> stage, order;
  Array<String> reasons;
  /*! What holds tiles between their loads and their stores. */
  std::vector<Var> fragments;
  /*! The fewest versions of what stores fill. */
  int64_t versions = 1;
};

/*!
 * Splits each copy that runs ahead (its reason is empty) and has the candidate kByRegisters into a
 * load and a store. The loads open a step.
 *
 * With one or two stages the stores of an iteration end the step of its loads, and the step behind
 * uses them: with one stage in the tile's one version, whose users are done; with two stages in the
 * other version, so that one barrier orders both. From three stages on the stores open the step
 * behind that of the loads, which then have had all of a step: the fragment is a stage, and shared
 * memory has one version less. Statements that stay, and copies that are not split, have the places
 * that they have without registers.
 */
PlannedBody StageInRegisters(const std::vector<Stmt>& body, const Array<String>& reasons,
                             int64_t num_stages);

}  // namespace tl
