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

/*! The tiles of a kernel, and the stages of the loops that write them. */
class TileReader : public StmtExprVisitor {
 public:
  explicit TileReader(const Stmt& kernel) : views_(kernel) { Visit(kernel); }
  std::vector<Var> tiles;
  std::unordered_map<const Object*, int64_t> stages;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const SBlockNode* op) final {
    for (const Var& buffer : op->alloc_buffers) {
      if (IsShared(buffer)) tiles.push_back(buffer);
    }
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    const int64_t outside = stages_;
    if (IsPipelined(op)) stages_ = std::max(outside, StagesOf(op));
    Default(op);
    stages_ = outside;
  }
  void Visit_(const EvaluateNode* op) final { Note(GetRef<Stmt>(op)); }
  void Visit_(const BufferStoreNode* op) final { Note(GetRef<Stmt>(op)); }

 private:
  void Note(const Stmt& s) {
    for (const Var& v : views_.UseOf(s).writes) {
      int64_t& most = stages[v.get()];
      most = std::max(most, stages_);
    }
  }

  const Views views_;
  int64_t stages_ = 1;
};

}  // namespace

SharedEstimate::SharedEstimate(const Stmt& kernel) {
  TileReader reader(kernel);
  versions_ = std::move(reader.stages);
  if (std::any_of(reader.tiles.begin(), reader.tiles.end(), IsSizedAtLaunch)) return;
  bytes = kOtherSharedBytes;
  for (const Var& tile : reader.tiles) *bytes += BytesOfBuffer(tile) * VersionsOf(tile);
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
