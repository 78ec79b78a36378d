#include "role_schedule.h"

#include <algorithm>
#include <tuple>

#include "../../tvm/attrs.h"

namespace tl {

RoleSchedule ReadSchedule(const RoleNode& loop) {
  std::vector<Stmt> source;
  for (const auto& node : loop.body.nodes) source.push_back(node->stmt);
  const auto places = ReadUserSchedule(loop.Loop(), source);
  return places ? *places : RoleSchedule();
}

void WriteSchedule(const RoleSchedule& schedule, const std::vector<ServedStatement>& body,
                   Map<String, Any>* annotations) {
  using Key = std::tuple<int64_t, size_t, int, size_t>;
  std::vector<Key> keys;
  int64_t first_stage = INT64_MAX;
  for (size_t i = 0; i < body.size(); ++i) {
    const auto& place = schedule[body[i].serves];
    if (!place) continue;
    keys.push_back({place->order, body[i].serves, body[i].side, i});
    first_stage = std::min(first_stage, schedule[body[i].stage_of]->stage);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int64_t> order(body.size(), -1), stage(body.size(), -1);
  bool is_plain = true;
  for (size_t k = 0; k < keys.size(); ++k) {
    const size_t i = std::get<3>(keys[k]);
    order[i] = int64_t(k);
    stage[i] = schedule[body[i].stage_of]->stage - first_stage;
    is_plain &= stage[i] == 0 && (k == 0 || std::get<3>(keys[k - 1]) < i);
  }
  if (is_plain) return;
  annotations->Set(kUserOrder, ToAnnotation(order));
  annotations->Set(kUserStage, ToAnnotation(stage));
}

}  // namespace tl
