#include "shared_estimate.h"

#include <algorithm>
#include <unordered_set>

#include "../../op/launch_sized.h"
#include "../../tvm/find.h"
#include "warp_roles.h"

namespace tl {
namespace {

/*! What later passes may add: barriers, gaps between tiles, what reductions exchange. */
constexpr int64_t kOtherSharedBytes = 8192;

/*! The tiles of a kernel, the stages of the loops that write them, and which of them loops use. */
class TileReader : public StmtExprVisitor {
 public:
  explicit TileReader(const Stmt& kernel) : views_(kernel) { Visit(kernel); }
  std::vector<Var> tiles;
  std::unordered_map<const Object*, int64_t> stages;
  std::unordered_set<const Object*> in_loops;

 protected:
  void Visit_(const SBlockNode* op) final {
    for (const Var& buffer : op->alloc_buffers) {
      if (IsShared(buffer)) tiles.push_back(buffer);
    }
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    const int64_t outside = stages_;
    const bool was_in_loop = in_loop_;
    if (IsPipelined(op)) stages_ = std::max(outside, StagesOf(op));
    in_loop_ |= op->kind != ForKind::kParallel;
    Default(op);
    stages_ = outside;
    in_loop_ = was_in_loop;
  }
  void Visit_(const WhileNode* op) final {
    const bool was_in_loop = in_loop_;
    in_loop_ = true;
    Default(op);
    in_loop_ = was_in_loop;
  }
  void Visit_(const EvaluateNode* op) final { Note(GetRef<Stmt>(op)); }
  void Visit_(const BufferStoreNode* op) final { Note(GetRef<Stmt>(op)); }

 private:
  void Note(const Stmt& s) {
    const BufferUse use = views_.UseOf(s);
    for (const Var& v : use.writes) {
      int64_t& most = stages[v.get()];
      most = std::max(most, stages_);
    }
    if (!in_loop_) return;
    for (const auto* list : {&use.reads, &use.writes}) {
      for (const Var& v : *list) in_loops.insert(views_.RootOf(v).get());
    }
  }

  const Views views_;
  int64_t stages_ = 1;
  bool in_loop_ = false;
};

}  // namespace

SharedEstimate::SharedEstimate(const Stmt& kernel) {
  TileReader reader(kernel);
  versions_ = std::move(reader.stages);
  if (AnyOf(reader.tiles, IsSizedAtLaunch)) return;
  bytes = kOtherSharedBytes;
  int64_t of_loops = 0, others = 0;
  for (const Var& tile : reader.tiles) {
    (reader.in_loops.count(tile.get()) ? of_loops : others) +=
        BytesOfBuffer(tile) * VersionsOf(tile);
  }
  *bytes += of_loops + others;
  least_bytes_ = kOtherSharedBytes + std::max(of_loops, others);
}

int64_t SharedEstimate::BlocksThatFit(const Target& target, int64_t threads) const {
  if (!bytes) return 0;
  const int64_t apart = target.BlocksThatFit(threads, *bytes);
  return apart == 1 ? std::min<int64_t>(2, target.BlocksThatFit(threads, least_bytes_)) : apart;
}

int64_t SharedEstimate::VersionsOf(const Var& tile) const {
  const auto it = versions_.find(tile.get());
  return it == versions_.end() ? 1 : it->second;
}

int64_t SharedEstimate::LoadedBytes(const Stmt& s) const {
  std::unordered_set<const Object*> seen;
  int64_t loaded = 0;
  ForEachIn<ForNode>(s, [&](const ForNode* loop) {
    if (!IsPipelined(loop)) return;
    ForEachIn<EvaluateNode>(loop->body, [&](const EvaluateNode* op) {
      const Stmt load = GetRef<Stmt>(op);
      if (!IsTileLoad(load)) return;
      const Var tile = TileRegion::From(AsTileOp(load)->args[1]).buffer;
      if (seen.insert(tile.get()).second) loaded += BytesOfBuffer(tile) * VersionsOf(tile);
    });
  });
  return loaded;
}

}  // namespace tl
