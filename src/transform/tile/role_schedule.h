/*! The user's order and stages, carried over to the consumer's loop. */
#pragma once
#include <vector>

#include "pipeline_user_schedule.h"
#include "warp_roles.h"

namespace tl {

using RoleSchedule = std::vector<std::optional<UserPlace>>;

/*! Places of the statements of a loop's body by their index; empty if the user gave none. */
RoleSchedule ReadSchedule(const RoleNode& loop);

/*! A statement of the consumer's body: the one of index `serves`, or what waits in front of it
 * (side -1) or signals behind it (side 1). */
struct ServedStatement {
  size_t serves;
  int side;
};

/*! Annotates the consumer's loop: what serves a statement has its stage, and stands beside it. */
void WriteSchedule(const RoleSchedule& schedule, const std::vector<ServedStatement>& body,
                   Map<String, Any>* annotations);

}  // namespace tl
