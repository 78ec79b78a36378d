#include "pipeline_staging.h"

#include <algorithm>

#include "../../op/copy_instruction.h"
#include "../../op/region_nest.h"
#include "pipeline.h"

namespace tl {
namespace {

/*! What a statement of the new body is: one that stays, a copy that runs ahead as a whole, or the
 * load or the store of a copy that goes through registers. */
enum class Part : uint8_t { kStay, kAhead, kLoad, kStore };

const CallNode* CopyByRegisters(const Stmt& s) {
  const CallNode* call = AsTileOp(SplitGuard(s).body);
  if (!call || !IsCopy(call)) return nullptr;
  const CopyChoice choice = ChoiceOf(call);
  return choice.Has(kByRegisters) && !choice.AsyncByThreads() ? call : nullptr;
}

/*! A new fragment for a region of a tile. It has the region's dimensions that are longer than 1. */
TileRegion FragmentOf(const TileRegion& tile, const DLDataType& dtype) {
  Array<Expr> shape;
  for (size_t d : NonUnitDims(tile)) shape.push_back(tile.ranges[d]->extent);
  if (shape.empty()) shape.push_back(MakeInt(1));
  TileRegion whole;
  whole.buffer =
      MakeBuffer(std::string(tile.buffer->name) + "_ahead", dtype, shape, "local.fragment");
  for (const Expr& extent : shape) {
    whole.ranges.push_back(MakeRange(MakeInt(extent->dtype(), 0), extent));
  }
  return whole;
}

/*! One part of a copy, between two regions. It keeps the copy's attributes, such as the layout of
 * its threads, and its condition. */
Stmt PartOf(const CallNode* copy, const TileRegion& src, const TileRegion& dst,
            const Guarded& guarded) {
  auto n = make_object<CallNode>(*copy);
  n->args = {src.ToExpr(), dst.ToExpr()};
  const Call call(n);
  const Stmt s = MakeEvaluate(WithChoice(call.get(), ChoiceOfThreads(src.buffer, dst.buffer)),
                              guarded.body->span);
  return guarded.condition.defined() ? MakeIf(guarded.condition, s, guarded.body->span) : s;
}

/*! The order of the parts in a step. */
std::vector<Part> OrderOf(int64_t num_stages) {
  if (num_stages >= 3) return {Part::kStore, Part::kLoad, Part::kAhead, Part::kStay};
  if (num_stages == 2) return {Part::kLoad, Part::kAhead, Part::kStay, Part::kStore};
  return {Part::kLoad, Part::kStay, Part::kAhead, Part::kStore};
}

}  // namespace

PlannedBody StageInRegisters(const std::vector<Stmt>& body, const Array<String>& reasons,
                             int64_t num_stages) {
  PlannedBody out;
  std::vector<Part> parts;
  const auto add = [&](const Stmt& s, Part part, const String& reason) {
    out.body.push_back(s);
    out.reasons.push_back(reason);
    parts.push_back(part);
  };
  for (size_t i = 0; i < body.size(); ++i) {
    const CallNode* copy = reasons[i].empty() ? CopyByRegisters(body[i]) : nullptr;
    if (!copy) {
      add(body[i], reasons[i].empty() ? Part::kAhead : Part::kStay, reasons[i]);
      continue;
    }
    const Guarded guarded = SplitGuard(body[i]);
    const TileRegion src = TileRegion::From(copy->args[0]), dst = TileRegion::From(copy->args[1]);
    const TileRegion held = FragmentOf(dst, DTypeOf(src.buffer));
    out.fragments.push_back(held.buffer);
    add(PartOf(copy, src, held, guarded), Part::kLoad, "");
    add(PartOf(copy, held, dst, guarded), Part::kStore, "");
  }
  out.stage.resize(parts.size());
  out.order.resize(parts.size());
  int64_t place = 0;
  for (Part part : OrderOf(num_stages)) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] != part) continue;
      const bool late_store = part == Part::kStore && num_stages >= 3;
      out.stage[i] = part == Part::kStay ? std::max<int64_t>(num_stages - 1, 1) : late_store;
      out.order[i] = place++;
    }
  }
  if (num_stages == 2 && !out.fragments.empty()) out.versions = 2;
  return out;
}

}  // namespace tl
