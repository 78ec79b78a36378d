/*! The user's order and stages, carried over to the consumer's loop. */
#pragma once
#include <vector>

#include "pipeline_user_schedule.h"
#include "warp_roles.h"

namespace tl {

using RoleSchedule = std::vector<std::optional<UserPlace>>;

/*! Places of the statements of a loop's body by their index; empty if the user gave none. */
RoleSchedule ReadSchedule(const RoleNode& loop);

/*! A statement of the consumer's body: the one of index `serves`, or what waits or signals in front
 * of it (side -1) or behind it (side 1), for iterations of the statement of index `stage_of`. */
struct ServedStatement {
  size_t serves;
  int side;
  size_t stage_of;
};

/*! Annotates the consumer's loop: what serves a statement stands beside it. */
void WriteSchedule(const RoleSchedule& schedule, const std::vector<ServedStatement>& body,
                   Map<String, Any>* annotations);

}  // namespace tl
