/*! The schedule that the user wrote: the keywords order, stage and group of T.Pipelined. */
#pragma once
#include <optional>
#include <vector>

#include "pipeline.h"

namespace tl {

/*! Where the user wants a statement. */
struct UserPlace {
  int64_t stage;
  int64_t order;
};

/*!
 * The place of each statement of a body, bindings included; nullopt for bindings and where the user
 * wrote -1. With `group` an entry is for all statements of a group, which keep their order.
 * nullopt for a loop without a schedule. Refuses lists that do not fit the body (ValueError).
 */
std::optional<std::vector<std::optional<UserPlace>>> ReadUserSchedule(
    const ForNode* loop, const std::vector<Stmt>& source);

}  // namespace tl
