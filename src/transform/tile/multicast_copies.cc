/*! Tiles that all blocks of a cluster load: each block loads a part of the tile for all of them. */
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/copy_instruction.h"
#include "../../op/im2col.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/region_nest.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "warp_roles.h"

namespace tl {
namespace {

/*! Which values that decide about fills are the same in all blocks of a cluster. */
class ClusterUniformity {
 public:
  /*! `roles` of a schedule may all fill slots; in the compiler's own plan the producer does. */
  ClusterUniformity(const KernelInfo& kernel, const WarpRoles& roles)
      : of_all_(roles.is_scheduled) {
    for (const auto& [block, extent] : kernel.cluster) {
      const Var cluster = MakeVar("cluster", block->dtype());
      const Var rank = MakeVar("rank", block->dtype());
      analyzer_.BindConst(rank, extent);
      ranks_.insert(rank.get());
      in_cluster_.map[block.get()] = cluster * MakeInt(block->dtype(), extent) + rank;
    }
    FindDiffering(roles.body);
  }

  /*! The same fills happen in all blocks, as far as the control around the body says. */
  bool OfControl(const RoleSequence& sequence) {
    for (const RoleNode* n = sequence.owner; n; n = n->parent->owner) {
      if (!OfOwn(*n)) return false;
    }
    return !has_own_jumps_;
  }

  bool Of(const Expr& e) {
    const Expr value = analyzer_.Simplify(in_cluster_.Mutate(e));
    return !HasCall(value, {kBlockRank}) && !HasNode<VarNode>(value, [&](const VarNode* op) {
      return differing_.count(op) || ranks_.count(op);
    });
  }

 private:
  /*! What a loop or branch evaluates itself. */
  bool OfOwn(const RoleNode& node) {
    if (const ForNode* loop = node.Loop()) {
      return Of(loop->min) && Of(loop->extent) && (!loop->step || Of(*loop->step));
    }
    if (node.kind == RoleNode::Kind::kWhile) return Of(node.stmt.as<WhileNode>()->condition);
    return node.kind != RoleNode::Kind::kIf || Of(node.stmt.as<IfThenElseNode>()->condition);
  }

  /*! Names and variables that have another value in some block, until no more are found. */
  void FindDiffering(const RoleSequence& body) {
    size_t known;
    do {
      known = differing_.size();
      ForEachNode(body, [&](const RoleNode* node) {
        if (!of_all_ && !node->IsRunBy(kProducer)) return;
        const bool own_way = !OfControl(*node->parent);
        if (const auto* bind = node->stmt.as<BindNode>()) {
          if (!Of(bind->value)) differing_.insert(bind->var.get());
        } else if (const auto* store = node->stmt.as<BufferStoreNode>()) {
          const bool same =
              Of(store->value) && AllOf(store->indices, [&](const Expr& i) { return Of(i); });
          if (own_way || !same) differing_.insert(store->buffer.get());
        } else if (own_way && (IsBreak(node->stmt) || IsContinue(node->stmt))) {
          has_own_jumps_ = true;
        }
      });
    } while (differing_.size() != known);
  }

  bool of_all_;
  Analyzer analyzer_;
  Substituter in_cluster_;
  std::unordered_set<const Object*> ranks_, differing_;
  bool has_own_jumps_ = false;
};

bool Agrees(const TileRegion& region, ClusterUniformity* agreement) {
  return AllOf(region.ranges,
               [&](const Range& r) { return agreement->Of(r->min) && agreement->Of(r->extent); });
}

/*! The windows of a channel are in loops and branches that the blocks go through alike. */
bool Agrees(const Channel& channel, ClusterUniformity* agreement) {
  return AllOf(channel.windows, [&](const Window& w) { return agreement->OfControl(*w.sequence); });
}

}  // namespace

Expr BlockRank(const KernelInfo& kernel) {
  Expr rank = MakeInt(0);
  int64_t scale = 1;
  for (const auto& [block, extent] : kernel.cluster) {
    rank = rank + CastTo(kInt32, FloorModOf(block, extent)) * MakeInt(scale);
    scale *= extent;
  }
  return rank;
}

Call PartOfLoad(const CallNode* copy, size_t split, int64_t parts, const Expr& rank) {
  auto part = make_object<CallNode>(*copy);
  part->args = copy->args.Map([&](const Expr& operand) {
    TileRegion region = TileRegion::From(operand);
    const size_t dim = NonUnitDims(region)[split];
    const Range whole = region.ranges[dim];
    const DLDataType t = whole->min->dtype();
    const int64_t extent = ToInt(whole->extent) / parts;
    const Expr min = whole->min + CastTo(t, rank) * MakeInt(t, extent);
    region.ranges.Set(dim, MakeRange(min, MakeInt(whole->extent->dtype(), extent)));
    return region.ToExpr();
  });
  return Call(part);
}

void MulticastCopies(const KernelInfo& kernel, WarpRoles* roles) {
  if (kernel.cluster_blocks == 1) return;
  ClusterUniformity agreement(kernel, *roles);
  ForEachNode(roles->body, [&](RoleNode* node) {
    if (node->fill == CopyKind::kNothing) return;
    // What roles of a schedule pass on is mostly their own work.
    if (roles->is_scheduled && node->fill != CopyKind::kTma) return;
    Channel& channel = roles->channels[node->channel];
    const CallNode* copy = AsTileOp(node->stmt);
    if (node->fill != CopyKind::kTma || IsCallTo(copy, kIm2col)) {
      node->why_own = "it is no copy of boxes by TMA";
    } else if (!Agrees(channel, &agreement)) {
      node->why_own = "loops or branches around it depend on the block";
    } else if (kernel.is_swizzled) {
      node->why_own = "T.use_swizzle deals blocks of a cluster places apart";
    } else if (!Agrees(TileRegion::From(copy->args[0]), &agreement) ||
               !Agrees(TileRegion::From(copy->args[1]), &agreement)) {
      node->why_own = "its place depends on the block";
    } else if (!(node->split = ChoiceOf(copy).block_dim)) {
      node->why_own = "TMA does not load a part of it for each block";
    } else {
      channel.blocks = kernel.cluster_blocks;
    }
  });
}

}  // namespace tl
