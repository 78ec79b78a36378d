#include "pipeline_tma.h"

#include <algorithm>

#include "../../op/copy_instruction.h"
#include "../../op/intrinsics.h"
#include "../../op/tma_copy.h"
#include "../../tvm/registry.h"
#include "pipeline.h"
#include "pipeline_barriers.h"

namespace tl {
namespace {

bool WantsTma(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  if (!call || !IsTileLoad(s)) return false;
  return ChoiceOf(call).Is(kByTma);
}

Expr FirstElement(const Var& barrier) {
  auto one = make_object<RangeNode>();
  one->min = MakeInt(0);
  one->extent = MakeInt(1);
  auto n = make_object<TensorRegionNode>();
  n->source = barrier;
  n->ty = BufferOf(barrier)->dtype;
  n->region = {Range(one)};
  return TensorRegion(n);
}

}  // namespace

std::optional<TmaLoads> LoadByTma(const Stmt& function_body, const ForNode* loop,
                                  const std::vector<Stmt>& body, const KernelInfo& kernel,
                                  const KernelScope& scope, const Views& views) {
  std::vector<bool> loads;
  std::vector<Var> tiles;
  int64_t bytes = 0;
  if (std::none_of(body.begin(), body.end(), WantsTma)) return std::nullopt;
  KernelInfo here = kernel;
  here.threads = scope.Threads(loop->span).threads;
  for (const Stmt& s : body) {
    std::string why;
    loads.push_back(WantsTma(s));
    if (!loads.back()) continue;
    const TileRegion tile = TileRegion::From(AsTileOp(s)->args[1]);
    loads.back() = KindOfFill(s, here.threads, &why) == FillBy::kTma;
    if (!loads.back()) continue;
    tiles.push_back(tile.buffer);
    bytes += TmaBytes(tile);
  }
  const IterationCount count = CountIterations(function_body, loop);
  if (tiles.empty() || !count.unknown.empty()) return std::nullopt;

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
          MakeIf(ElectOne(*here.target, scope.ThreadIndex(), here.threads), MakeSeq(issue), span));
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
