#include "pipeline_tma.h"

#include "../../op/copy_instruction.h"
#include "../../op/intrinsics.h"
#include "../../op/tma_copy.h"
#include "../../tvm/attrs.h"
#include "pipeline.h"
#include "pipeline_barriers.h"

namespace tl {
namespace {

/*! Whether the program demands TMA for a load of a tile, and TMA can make it. */
bool LoadsByTma(const Stmt& s) {
  if (!IsTileLoad(s)) return false;
  const CopyChoice choice = ChoiceOf(AsTileOp(s));
  return choice.Is(kByTma) && choice.WhyNot(kByTma).empty();
}

Expr FirstElement(const Var& barrier) {
  return TileRegion{barrier, {MakeRange(MakeInt(0), MakeInt(1))}}.ToExpr();
}

}  // namespace

std::optional<TmaLoads> LoadByTma(const Stmt& function_body, const ForNode* loop,
                                  const std::vector<Stmt>& body, const Target& target,
                                  const KernelScope& scope, const Views& views) {
  std::vector<bool> loads;
  std::vector<Var> tiles;
  int64_t bytes = 0;
  for (const Stmt& s : body) {
    loads.push_back(LoadsByTma(s));
    if (!loads.back()) continue;
    const TileRegion tile = TileRegion::From(AsTileOp(s)->args[1]);
    tiles.push_back(tile.buffer);
    bytes += TmaBytes(tile);
  }
  if (tiles.empty()) return std::nullopt;
  const IterationCount count = CountIterations(function_body, loop);
  if (!count.unknown.empty()) return std::nullopt;
  const int64_t threads = scope.Threads(loop->span).threads;

  TmaLoads out;
  out.barrier = MakeBuffer(std::string(tiles[0]->name) + "_full", DLDataType{kDLUInt, 64, 1},
                           {MakeInt(1)}, "shared.barrier");
  const Expr element = AddressOf(out.barrier, {MakeInt(0)});
  bool arrived = false, waited = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const Span& span = body[i]->span;
    if (loads[i]) {
      const Call load = ElectedTmaLoad(AsTileOp(body[i]), FirstElement(out.barrier), 0);
      std::vector<Stmt> issue = {MakeEvaluate(load, span)};
      if (!arrived) {
        const Expr arrive = CallOp(kMbarrierArriveExpectTx, {element, MakeInt(bytes)});
        issue.insert(issue.begin(), MakeEvaluate(arrive, span));
      }
      arrived = true;
      out.body.push_back(
          MakeIf(ElectOne(target, scope.ThreadIndex(), threads), MakeSeq(issue), span));
      continue;
    }
    const std::vector<Var> reads = views.UseOf(body[i]).reads;
    for (const Var& tile : tiles) {
      if (waited || !Contains(reads, tile)) continue;
      const Expr parity = CastTo(kInt32, FloorModOf(count.Of(loop), 2));
      out.body.push_back(MakeEvaluate(CallOp(kMbarrierWait, {element, parity}), span));
      waited = true;
    }
    out.body.push_back(body[i]);
  }
  return out;
}

void AllocateBarrier(const Var& barrier, SBlockNode* block) {
  Map<Var, Array<IntImm>> arrivals;
  const auto known = block->annotations.find(kBarrierInit);
  if (known != block->annotations.end()) arrivals = (*known).second.cast<Map<Var, Array<IntImm>>>();
  arrivals.Set(barrier, {MakeInt(1)});
  block->alloc_buffers.push_back(barrier);
  block->annotations.Set(kBarrierInit, arrivals);
}

}  // namespace tl
