/*! How the roles of a schedule fill the buffers of their pipelines. */

#include "../../op/copy_instruction.h"
#include "../../op/intrinsics.h"
#include "../../op/tile_op.h"
#include "../../tvm/disjoint.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "pipeline.h"
#include "scheduled_program.h"

namespace tl {
namespace {

/*! The statement starts copies to shared memory that it does not wait for. */
bool StartsCopies(const Stmt& s) {
  return HasNode<CallNode>(s, [](const CallNode* op) {
    const std::vector<PointerAccess> accesses = PointerAccesses(op);
    return TileOpIntAttr(op, "is_async_copy", 0) != 0 ||
           AnyOf(accesses, [](const PointerAccess& p) { return p.access == Access::kAsyncWrite; });
  });
}

class FillChooser : ScheduledProgram {
 public:
  explicit FillChooser(const ScheduledProgram& program) : ScheduledProgram(program) {}

  void Run() {
    ChooseFills();
    for (size_t r = 0; r < roles_.roles.size(); ++r) roles_.roles[r].one_thread = OnlyIssues(r);
  }

 private:
  void ChooseFills() {
    const std::vector<Var> written = WrittenGlobals(kernel_, roles_.body);
    ForEachNode(roles_.body, [&](RoleNode* node) {
      if (!node->IsLeaf() || !node->role) return;
      for (size_t c = 0; c < roles_.channels.size(); ++c) {
        Channel& channel = roles_.channels[c];
        const bool fills =
            channel.source == *node->role && AnyOf(channel.buffers, [&](const Var& v) {
              return Contains(node->use.writes, v) || Contains(node->opaque, v);
            });
        if (!fills) continue;
        node->channel = c;
        node->fill = KindOf(node, channel, written);
        channel.AddKind(node->fill);
      }
    });
    MulticastCopies(kernel_, &roles_);
  }

  CopyKind KindOf(RoleNode* node, const Channel& channel, const std::vector<Var>& written) const {
    const BufferUse& use = node->use;
    if (StartsCopies(node->stmt)) {
      Refuse(node->stmt->span, "found copies in operation " + Quoted(node->id) +
                                   " that the program waits for itself, where pipeline " +
                                   Quoted(channel.name) +
                                   " is to signal them, wanted T.copy; it waits where it has to");
    }
    const bool direct =
        AnyOf(channel.windows, [&](const Window& w) { return w.sequence == node->parent; });
    const bool stays = NoneOf(use.reads, [&](const Var& v) { return Contains(written, v); });
    if (!IsTileLoad(node->stmt)) {
      node->why.clear();
      if (direct && stays && IsElementCopy(node->stmt) && IsOnlyFilled(*node, use.writes)) {
        return CopyKind::kElements;
      }
    } else if (!direct) {
      node->why = "it stands in a loop or a branch of its own";
    } else if (!IsOnlyFilled(*node, use.writes)) {
      node->why = "its role uses the tile itself, or writes some of it twice";
    } else if (DisablesTma()) {
      node->why = kDisableTma;
    } else if (!stays ||
               AnyOf(use.reads, [](const Var& v) { return !IsGlobal(v) && !IsLocal(v); })) {
      node->why = "what it loads depends on memory that the kernel writes";
    } else {
      const int64_t threads = roles_.roles[*node->role].range.threads;
      const CopyKind kind = CopyKindOf(node->stmt, threads, &node->why);
      if (kind != CopyKind::kNothing) return kind;
      Refuse(node->stmt->span, "found a copy for pipeline " + Quoted(channel.name) + " that " +
                                   Quoted(node->id) + " cannot make: " + node->why +
                                   "; use T.copy without prefer_instruction");
    }
    const CallNode* op = AsTileOp(node->stmt);
    if (op && IsCopy(op) && ChoiceOf(op).Is(kByTma)) {
      Refuse(node->stmt->span,
             "found prefer_instruction=\"tma\" in operation " + Quoted(node->id) +
                 ", where TMA makes no copy: " +
                 (node->why.empty() ? "it loads no tile of a tensor" : node->why) +
                 "; leave it out");
    }
    return CopyKind::kThreads;
  }

  /*! The role only loads disjoint parts of the buffers, or if it stores their elements, does that
   * alone. It must not use them, since it does not wait for its own loads, which may end in any
   * order. */
  bool IsOnlyFilled(const RoleNode& node, const std::vector<Var>& buffers) const {
    bool only = true;
    ForEachNode(roles_.body, [&](const RoleNode* other) {
      if (other == &node || !other->IsLeaf() || other->role != node.role) return;
      if (!AncestorIn(node.parent, other)) return;
      for (const Var& v : buffers) {
        if (!IsUsed(*other, v)) continue;
        only &= IsTileLoad(node.stmt) && IsTileLoad(other->stmt) &&
                !Contains(other->use.reads, v) && AreApart(TileOf(node), TileOf(*other));
      }
    });
    return only;
  }

  static TileRegion TileOf(const RoleNode& load) {
    return TileRegion::From(AsTileOp(load.stmt)->args[1]);
  }

  static bool AreApart(const TileRegion& a, const TileRegion& b) {
    if (!a.buffer.same_as(b.buffer)) return false;
    Analyzer analyzer;
    for (size_t d = 0; d < a.ranges.size(); ++d) {
      const auto na = AsInt(a.ranges[d]->extent), nb = AsInt(b.ranges[d]->extent);
      if (HasLoad(a.ranges[d]->min) || HasLoad(b.ranges[d]->min)) continue;
      if (na && nb && AreDisjoint(a.ranges[d]->min, *na, b.ranges[d]->min, *nb, &analyzer)) {
        return true;
      }
    }
    return false;
  }

  /*! All that the role does is issue copies by TMA. */
  bool OnlyIssues(size_t role) const {
    bool only = true;
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (node->role == role) only &= node->fill == CopyKind::kTma;
    });
    return only;
  }
};

}  // namespace

void ChooseScheduledFills(const ScheduledProgram& program) { FillChooser(program).Run(); }

}  // namespace tl
