#include "thread_range.h"

#include "../target/warp.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "intrinsics.h"

namespace tl {
namespace {

/*! Ranges are of whole warps. Those of every target are made of whole units. */
constexpr int64_t kUnit = kLeastWarpThreads, kMostUnits = 32;

}  // namespace

std::vector<ThreadRange> ThreadRangesOf(const AttrStmtNode* op) {
  std::vector<ThreadRange> ranges;
  if (op->attr_key != kThreadRange) return ranges;
  std::vector<int64_t> numbers;
  for (const Any& n : op->node.cast<Array<Any>>()) {
    const std::optional<int64_t> i = n.as<int64_t>();
    numbers.push_back(i ? *i : ToInt(n.cast<Expr>()));
  }
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
    ranges.push_back({numbers[i], numbers[i + 1]});
  }
  for (const ThreadRange& r : ranges) {
    const int64_t end = r.first + r.threads;
    if (r.first % kUnit == 0 && r.threads > 0 && r.threads % kUnit == 0 &&
        end <= kMostUnits * kUnit) {
      continue;
    }
    ThrowBug(op->span, "ThreadRangesOf",
             "a range of " + std::to_string(r.threads) + " threads from " +
                 std::to_string(r.first) + " on, which are no warps");
  }
  return ranges;
}

bool IsApart(const AttrStmtNode* op) {
  return op->attr_key == kThreadRange && !IsConst(op->value, kOfBranch);
}

std::optional<WarpSet> WarpSet::Of(const AttrStmtNode* op) {
  if (op->attr_key != kThreadRange) return std::nullopt;
  WarpSet all(0);
  for (const ThreadRange& r : ThreadRangesOf(op)) {
    for (int64_t t = r.first; t < r.first + r.threads; t += kUnit) {
      all.bits_ |= uint32_t(1) << (t / kUnit);
    }
  }
  return all;
}

}  // namespace tl
