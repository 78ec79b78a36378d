#include "pipeline_user_schedule.h"

#include <algorithm>

#include "../../tvm/attrs.h"
#include "../../tvm/error.h"

namespace tl {
namespace {

using Entries = std::vector<int64_t>;

[[noreturn]] void Refuse(const ForNode* loop, const std::string& text) {
  ThrowAt(loop->span, "ValueError", "T.Pipelined: " + text);
}

/*! For each statement the number of its entry in order and stage: that of its group, or its own
 * number without groups. A statement in no group has -1. */
Entries EntryOfStatements(const ForNode* loop, const std::vector<Stmt>& source, size_t entries) {
  auto given = loop->annotations.find(kUserGroup);
  Entries entry(source.size(), -1);
  if (given == loop->annotations.end()) {
    if (entries != source.size()) {
      Refuse(loop, "found " + std::to_string(entries) +
                       " entries in order and stage, wanted one "
                       "for each of the " +
                       std::to_string(source.size()) + " statements of the body");
    }
    for (size_t i = 0; i < source.size(); ++i) entry[i] = int64_t(i);
    return entry;
  }
  const auto groups = (*given).second.cast<Array<Any>>();
  if (groups.size() != entries) {
    Refuse(loop, "found " + std::to_string(entries) + " entries in order and stage and " +
                     std::to_string(groups.size()) + " groups, wanted an entry for each group");
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const Any& member : groups[g].cast<Array<Any>>()) {
      const auto constant = member.as<int64_t>();
      const int64_t i = constant ? *constant : ToInt(member.cast<Expr>());
      if (i < 0 || i >= int64_t(source.size()) || entry[i] >= 0) {
        Refuse(loop, "found statement " + std::to_string(i) + " in group, wanted each of the " +
                         std::to_string(source.size()) + " statements of the body in one group");
      }
      entry[i] = int64_t(g);
    }
  }
  return entry;
}

void CheckEntries(const ForNode* loop, const Entries& order, const Entries& stage) {
  Entries sorted;
  for (size_t e = 0; e < order.size(); ++e) {
    const bool in_place = order[e] == -1 && stage[e] == -1;
    if (!in_place && (order[e] < 0 || stage[e] < 0)) {
      Refuse(loop, "found order " + std::to_string(order[e]) + " with stage " +
                       std::to_string(stage[e]) +
                       ", wanted both to be 0 or more, or both -1 for what the compiler places");
    }
    if (!in_place) sorted.push_back(order[e]);
  }
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    Refuse(loop, "found order " + std::to_string(*twice) +
                     " twice, wanted order to be a "
                     "permutation");
  }
}

}  // namespace

std::optional<std::vector<std::optional<UserPlace>>> ReadUserSchedule(
    const ForNode* loop, const std::vector<Stmt>& source) {
  const auto order = ListAnnotation(loop->annotations, kUserOrder);
  const auto stage = ListAnnotation(loop->annotations, kUserStage);
  if (!order && !stage) return std::nullopt;
  if (!order || !stage || order->size() != stage->size()) {
    Refuse(loop, "found one of order and stage, or lists of two lengths, wanted both or neither");
  }
  CheckEntries(loop, *order, *stage);
  const Entries entry = EntryOfStatements(loop, source, order->size());
  std::vector<std::optional<UserPlace>> places(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i].as<BindNode>()) continue;
    if (entry[i] < 0) {
      ThrowAt(source[i]->span, "ValueError",
              "T.Pipelined: found a statement, number " + std::to_string(i) +
                  ", that is in no group, wanted each of the " + std::to_string(source.size()) +
                  " statements of the body in one group");
    }
    if ((*order)[entry[i]] >= 0) places[i] = UserPlace{(*stage)[entry[i]], (*order)[entry[i]]};
  }
  return places;
}

}  // namespace tl
