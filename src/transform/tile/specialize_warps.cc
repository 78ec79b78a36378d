/*!
 * ProducerConsumerWarpSpecialized: gives each role of a kernel its own program.
 *
 * In:  a tile program under thread_extent attributes; function attribute `tl.warp_roles`, the plans
 *      of PlanWarpRoles. Pipelined loops are annotated as the user wrote them.
 * Out: for kernels with a plan a branch for each role, a thread range. The compiler's own roles are
 *      marked `tl.warp_role`: threads [0, P) fill the slots of the shared buffers. Threads
 *      [P, P + C) are the kernel that was; its reads wait for the fills and release the slots. The
 *      roles of T.annotate_ws_schedule are marked `tl.scheduled_role` with their registers, and the
 *      names of their statements are gone. The block has the threads of all roles, and
 *      `barrier_init` has the mbarriers. Loads by TMA are `tl.tileop.tma_copy` and
 *      `tl.tileop.tma_im2col`, waits and arrivals `tl.tileop.acquire` and `tl.tileop.release`.
 *      Views, and a first T.pdl_sync, stand in front of the branches; any other one is each role's.
 *      Function attribute `tl_tiled_ws_applied`. Other kernels are unchanged.
 * Establishes: all roles run the same control flow, so every fill is awaited and released once.
 *      Order and stage that the user gave hold for the consumer's loop.
 * Refuses: nothing, and decides nothing: what the plan says is what is emitted.
 */
#include <algorithm>
#include <map>

#include "../../analysis/kernel_facts.h"
#include "../../op/copy_instruction.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/tma_copy.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../rename.h"
#include "known_elements.h"
#include "pipeline.h"
#include "role_schedule.h"
#include "role_signals.h"
#include "versions.h"
#include "warp_roles.h"
#include "ws_schedule.h"

namespace tl {
namespace {

constexpr const char* kApplied = "tl_tiled_ws_applied";
constexpr DLDataType kUInt64{kDLUInt, 64, 1};

Expr WholeRegion(const Var& buffer, size_t indexed, const Expr& index) {
  TileRegion whole{buffer, {}};
  const Array<Expr>& shape = BufferOf(buffer)->shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    whole.ranges.push_back(d < indexed ? MakeRange(index, MakeInt(1))
                                       : MakeRange(MakeInt(0), shape[d]));
  }
  return whole.ToExpr();
}

/*! The two mbarriers of a channel, and the waits and arrivals at them. */
struct ChannelBarriers {
  const Channel* channel;
  Var full, empty;
  /*! Its buffers as the program now has them. */
  std::vector<Var> buffers;

  Expr Slot(const Expr& number) const { return SlotOf(number, channel->versions); }
  Expr Parity(const Expr& number) const {
    return BitAndOf(FloorDivOf(number, channel->versions), MakeInt(number->dtype(), 1));
  }
  Stmt Acquire(const Var& barrier, const Expr& number, const Expr& parity, const Span& span) const {
    return Call(kAcquire, barrier, number, {parity}, span);
  }
  Stmt Release(const Expr& number, const Span& span) const {
    return Call(kRelease, empty, number, {}, span, channel->blocks);
  }
  /*! Waits for the MMAs that read the slot, and does not arrive. */
  Stmt Withhold(const Expr& number, const Span& span) const {
    return Call(kRelease, empty, number, {MakeInt(kBool, 0)}, span, channel->blocks);
  }
  /*! Releases the slot where the condition holds. */
  Stmt ReleaseIf(const Expr& number, const Expr& condition, const Span& span) const {
    return Call(kRelease, empty, number, {condition}, span, channel->blocks);
  }
  /*! This warp's stores to the slot are done. Its other operations may still be in flight. */
  Stmt SignalFull(const Expr& number, const Span& span) const {
    return Call(kRelease, full, number, {}, span);
  }
  /*! Releases the slot of the fill before `next`, the number of a fill, if there is one. */
  Stmt ReleaseBefore(const Expr& next, const Expr& is_one, const Span& span) const {
    const Expr slot = next + MakeInt(next->dtype(), channel->versions - 1);
    return Call(kRelease, empty, slot, {is_one}, span, channel->blocks);
  }
  Expr Address(const Expr& number) const { return AddressOf(full, {Slot(number)}); }

 private:
  Stmt Call(const char* op, const Var& barrier, const Expr& number, const Array<Expr>& scalars,
            const Span& span, int64_t blocks = 1) const {
    Array<Expr> args = {WholeRegion(barrier, 1, Slot(number))};
    for (const Expr& e : scalars) args.push_back(e);
    for (const Var& v : buffers) {
      args.push_back(WholeRegion(v, channel->versions > 1 ? 1 : 0, Slot(number)));
    }
    if (blocks == 1) return MakeEvaluate(CallOp(op, args), span);
    const auto call = CallOp(op, args);
    return MakeEvaluate(WithTileOpAttr(call.get(), kClusterBlocks, blocks), span);
  }
};

/*! Gives a role its own variables: new names for what its statements declare, and memory of its own
 * for the thread's variables that they write. */
class Renamer : public BindingRenamer {
 public:
  /*! `taken`: the variables of other roles, to which those of this role are added. */
  Renamer(const Stmt& s, std::vector<Var>* taken) {
    for (const Var& v : CollectBufferUse(s).writes) {
      if (!IsLocal(v)) continue;
      if (!Contains(*taken, v)) {
        taken->push_back(v);
        continue;
      }
      const BufferTypeNode* type = BufferOf(v);
      own.push_back(MakeBuffer(v->name, type->dtype->dtype, type->shape, type->storage_scope));
      map[v.get()] = own.back();
    }
  }
  Array<Var> own;
};

/*! A statement of a role's program; consecutive elected ones share a branch. */
struct RoleStmt {
  Stmt stmt;
  bool elected = false;
  /*! Index of the statement that it is (side 0), or beside which it stands: in front of it (-1) or
   * behind it (1). */
  size_t serves = 0;
  int side = 0;
  /*! Index of the statement whose iterations it is for. */
  size_t stage_of = 0;
};

/*! Writes the programs of a plan. */
class RoleEmitter {
 public:
  RoleEmitter(const KernelInfo& kernel, const WarpRoles& roles, const Views& views,
              VersionMaker* versions)
      : target_(*kernel.target),
        roles_(roles),
        thread_(kernel.thread_vars[0]),
        views_(views),
        versions_(versions) {
    for (const Channel& c : roles.channels) {
      const std::string name = c.buffers[0]->name;
      const Array<Expr> shape = {MakeInt(c.versions)};
      ChannelBarriers b{
          &c, MakeBuffer(name + "_full", kUInt64, shape, "shared.barrier"), Var(), {}};
      if (c.empty_arrivals) b.empty = MakeBuffer(name + "_empty", kUInt64, shape, "shared.barrier");
      for (const Var& v : c.buffers) b.buffers.push_back(versions->Versioned(v));
      barriers_.push_back(b);
    }
  }

  /*! The program of a role. That of the last one is asked for first. */
  Stmt Program(size_t role) {
    role_ = role;
    Stmt body = WithCounts(StatementsOf(roles_.body));
    const bool is_producer = !roles_.is_scheduled && role == kProducer;
    if (is_producer) body = KnownElements(roles_.body, views_).Replace(body);
    Renamer rename(body, &taken_);
    if (role + 1 == roles_.roles.size()) return body;
    const Stmt renamed = rename.Mutate(body);
    for (const Var& v : rename.own) own_.push_back(v);
    return renamed;
  }

  void Allocate(SBlockNode* block) const {
    Map<Var, Array<Expr>> arrivals;
    const auto known = block->annotations.find(kBarrierInit);
    if (known != block->annotations.end()) arrivals = (*known).second.cast<Map<Var, Array<Expr>>>();
    const auto add = [&](const Var& barrier, int64_t count) {
      if (!barrier.defined()) return;
      block->alloc_buffers.push_back(barrier);
      Array<Expr> counts;
      for (int64_t i = 0; i < ToInt(BufferOf(barrier)->shape[0]); ++i) {
        counts.push_back(MakeInt(count));
      }
      arrivals.Set(barrier, counts);
    };
    for (const ChannelBarriers& b : barriers_) {
      add(b.full, b.channel->full_arrivals);
      add(b.empty, b.channel->empty_arrivals);
    }
    for (const FillCount& c : roles_.counts) {
      if (c.variable.defined()) block->alloc_buffers.push_back(c.variable);
    }
    for (const Var& v : own_) block->alloc_buffers.push_back(v);
    block->annotations.Set(kBarrierInit, arrivals);
  }

 private:
  /*! A window of a sequence with its channel. */
  struct Use {
    const Window* window;
    const ChannelBarriers* barriers;
    Expr number;
  };

  std::vector<Use> UsesIn(const RoleSequence& sequence) const {
    std::vector<Use> out;
    for (const ChannelBarriers& b : barriers_) {
      for (const Window& w : b.channel->windows) {
        if (w.sequence != &sequence) continue;
        out.push_back({&w, &b, roles_.counts[b.channel->count].Number(&sequence)});
      }
    }
    return out;
  }

  Stmt Select(Stmt s, size_t index, const std::vector<Use>& uses) const {
    for (const Use& u : uses) {
      if (index < u.window->first_fill || index > u.window->last_use) continue;
      VersionSelector select;
      select.iteration = u.number;
      for (const auto& [buffer, versioned] : versions_->made) {
        const Var root = views_.RootOf(GetRef<Var>(static_cast<const VarNode*>(buffer)));
        if (Contains(u.barriers->channel->buffers, root)) select.versioned[buffer] = versioned;
      }
      if (!select.versioned.empty()) s = select.Mutate(s);
    }
    return s;
  }

  const Role& Now() const { return roles_.roles[role_]; }

  std::vector<RoleStmt> StatementsOf(const RoleSequence& sequence) const {
    std::vector<RoleStmt> out;
    const std::vector<Use> uses = UsesIn(sequence);
    for (size_t i = 0; i < sequence.nodes.size(); ++i) {
      const RoleNode& node = *sequence.nodes[i];
      if (node.IsRunBy(role_)) {
        CloseUses(sequence, uses, i, -1, &out);
        CloseInLoop(sequence, i, -1, &out);
        OpenWindows(uses, i, node.stmt->span, &out);
        const Stmt s = node.fill == CopyKind::kNothing ? WithBodies(node) : Fill(node, uses);
        out.push_back({Select(s, i, uses), node.fill == CopyKind::kTma, i, 0, i});
        for (const Use& u : uses) {
          const bool filled = u.barriers->channel->source == role_ && u.window->last_fill == i;
          if (filled) CloseFill(u, node.stmt->span, &out);
        }
        CloseUses(sequence, uses, i, 1, &out);
        CloseInLoop(sequence, i, 1, &out);
        CloseLoop(node, i, &out);
        CloseUnused(node, uses, i, &out);
      }
      CountLoop(node, &out);
    }
    CountBody(sequence, &out);
    return out;
  }

  /*! The waits in front of statement i. */
  void OpenWindows(const std::vector<Use>& uses, size_t i, const Span& span,
                   std::vector<RoleStmt>* out) const {
    for (const Use& u : uses) {
      const SlotUse* use = u.window->UseBy(role_);
      if (use && use->acquire == i) OpenUse(u, i, span, out);
      const bool fills = u.barriers->channel->source == role_;
      if (fills && u.window->first_fill == i) OpenFill(u, span, out);
    }
  }

  // --- fills
  void OpenFill(const Use& u, const Span& span, std::vector<RoleStmt>* out) const {
    const Channel& c = *u.barriers->channel;
    const bool alone = c.IsByOne();
    if (u.barriers->empty.defined()) {
      // Before the first phase has ended the parity of the one before it has: the slots are empty.
      const Expr parity = XorOf(u.barriers->Parity(u.number), MakeInt(u.number->dtype(), 1));
      out->push_back({u.barriers->Acquire(u.barriers->empty, u.number, parity, span), alone});
    }
    if (!u.window->tma_bytes) return;
    const char* op = alone ? kMbarrierArriveExpectTx : kMbarrierExpectTx;
    const Expr bytes = MakeInt(u.window->tma_bytes);
    out->push_back({MakeEvaluate(CallOp(op, {u.barriers->Address(u.number), bytes}), span), true});
  }

  /*! Arrivals of the copies that are not TMA's, whose own is in its signal. */
  void CloseFill(const Use& u, const Span& span, std::vector<RoleStmt>* out) const {
    const Channel& c = *u.barriers->channel;
    const Expr address = u.barriers->Address(u.number);
    if (c.by_cp_async) {
      out->push_back({MakeEvaluate(CallOp(kCpAsyncMbarrierArriveNoinc, {address}), span)});
    }
    if (c.by_fetch) out->push_back({MakeEvaluate(CallOp(kMbarrierArrive, {address}), span), true});
    if (c.by_threads) {
      // Where there are copies by cp.async, the readers have the fence.
      if (c.read_by_async_proxy && !c.by_cp_async) {
        out->push_back({MakeEvaluate(CallOp(kFenceProxyAsync, {}), span)});
      }
      out->push_back({u.barriers->SignalFull(u.number, span)});
    }
  }

  Stmt Fill(const RoleNode& node, const std::vector<Use>& uses) const {
    if (node.fill == CopyKind::kThreads) return ByThreads(node.stmt);
    if (node.fill == CopyKind::kElements) {
      return MakeAttr(String(""), kAsyncCopy, MakeInt(kBool, 1), node.stmt);
    }
    if (node.fill == CopyKind::kCpAsync) {
      const Call copy = Narrowed(AsTileOp(node.stmt), kByCpAsync);
      return MakeAttr(String(""), kAsyncCopy, MakeInt(kBool, 1),
                      MakeEvaluate(copy, node.stmt->span));
    }
    const CallNode* copy = AsTileOp(node.stmt);
    if (node.fill == CopyKind::kFetchTile) return MakeEvaluate(ElectedFetch(copy), node.stmt->span);
    const ChannelBarriers& b = barriers_[node.channel];
    const Use& use = *FindIf(uses, [&](const Use& u) { return u.barriers == &b; });
    const Expr full = WholeRegion(b.full, 1, b.Slot(use.number));
    if (!node.split) return MakeEvaluate(ElectedTmaLoad(copy, full, 0), node.stmt->span);
    const int64_t blocks = b.channel->blocks;
    const Call part = PartOfLoad(copy, *node.split, blocks, block_rank);
    const int64_t all = (int64_t(1) << blocks) - 1;
    return MakeEvaluate(ElectedTmaLoad(part.get(), full, all), node.stmt->span);
  }

  /*! A load that threads make; other statements, and what the program demands, stay. */
  static Stmt ByThreads(const Stmt& s) {
    if (!IsTileLoad(s) || !ChoiceOf(AsTileOp(s)).Has(kByThreads)) return s;
    return MakeEvaluate(Narrowed(AsTileOp(s), kByThreads), s->span);
  }

  static Call ElectedFetch(const CallNode* fetch) {
    return WithTileOpAttrs(fetch, {{kElected, int64_t(1)}});
  }

  // --- uses
  static void OpenUse(const Use& u, size_t i, const Span& span, std::vector<RoleStmt>* out) {
    const ChannelBarriers& b = *u.barriers;
    out->push_back({b.Acquire(b.full, u.number, b.Parity(u.number), span), false, i, -1, i});
    // cp.async has no place for a fence after it has written; the reader's serves as well. Of
    // stores without one ThreadSync knows.
    if (b.channel->by_cp_async && !b.channel->by_threads && b.channel->read_by_async_proxy) {
      out->push_back({MakeEvaluate(CallOp(kFenceProxyAsync, {}), span), false, i, -1, i});
    }
  }

  /*! The slots that are released on one side of statement i. */
  void CloseUses(const RoleSequence& sequence, const std::vector<Use>& uses, size_t i, int side,
                 std::vector<RoleStmt>* out) const {
    std::vector<RoleStmt> withheld;
    for (const Use& u : uses) {
      const SlotUse* use = u.window->UseBy(role_);
      if (!use || use->release_at != i || use->release_side != side || use->in_loop) continue;
      if (!u.barriers->empty.defined()) continue;
      const Span& span = sequence.nodes[use->release]->stmt->span;
      const auto add = [&](const Stmt& s) { out->push_back({s, false, i, side, use->release}); };
      // TMA overwrites what the consumer has written.
      if (u.barriers->channel->consumer_writes) {
        add(MakeEvaluate(CallOp(kFenceProxyAsync, {}), span));
      }
      if (use->is_implied) {
        withheld.push_back({u.barriers->Withhold(u.number, span), false, i, side, use->release});
      } else if (use->is_deferred) {
        const ForNode* loop = FillCount::CountingLoop(&sequence);
        add(u.barriers->ReleaseBefore(u.number, loop->min < loop->loop_var, span));
      } else {
        add(u.barriers->Release(u.number, span));
      }
    }
    // Behind the arrivals: their waits would delay these.
    AppendRange(out, withheld);
  }

  /*! The slots of the body around a loop that its last iteration releases on one side of statement
   * i of its body. */
  void CloseInLoop(const RoleSequence& body, size_t i, int side, std::vector<RoleStmt>* out) const {
    const ForNode* loop = body.owner ? body.owner->Loop() : nullptr;
    if (!loop) return;
    for (const Use& u : UsesIn(*body.owner->parent)) {
      const SlotUse* use = ReleasedIn(*body.owner, u);
      if (!use || use->in_loop->at != i || use->release_side != side) continue;
      const Expr is_last =
          EqualOf(loop->loop_var + MakeInt(loop->loop_var->dtype(), 1), loop->min + loop->extent);
      const Stmt release = u.barriers->ReleaseIf(u.number, is_last, body.nodes[i]->stmt->span);
      out->push_back({release, false, i, side, use->in_loop->last_use});
    }
  }

  /*! Behind a loop whose last iteration releases slots: where it has no iteration. */
  void CloseUnused(const RoleNode& node, const std::vector<Use>& uses, size_t i,
                   std::vector<RoleStmt>* out) const {
    for (const Use& u : uses) {
      if (!node.Loop() || !ReleasedIn(node, u)) continue;
      const Expr extent = node.Loop()->extent;
      const Expr none = extent < MakeInt(extent->dtype(), 1);
      out->push_back({u.barriers->ReleaseIf(u.number, none, node.stmt->span), false, i, 1, i});
    }
  }

  /*! The role's use of a slot that the last iteration of the loop `node` releases, else nullptr. */
  const SlotUse* ReleasedIn(const RoleNode& node, const Use& u) const {
    const SlotUse* use = u.window->UseBy(role_);
    const bool here = use && use->in_loop && u.window->sequence == node.parent &&
                      u.barriers->empty.defined() && use->release_at == IndexOf(node);
    return here ? use : nullptr;
  }

  /*! Behind loops that release slots one fill late: the last ones. */
  void CloseLoop(const RoleNode& node, size_t i, std::vector<RoleStmt>* out) const {
    const ForNode* loop = node.Loop();
    if (!loop) return;
    for (const Use& u : UsesIn(node.body)) {
      const SlotUse* use = u.window->UseBy(role_);
      if (!use || !use->is_deferred) continue;
      const Expr next = Substitute(u.number, loop->loop_var, loop->min + loop->extent);
      const Expr any = ZeroOf(loop->extent->dtype()) < loop->extent;
      out->push_back({u.barriers->ReleaseBefore(next, any, loop->span), false, i, 1, i});
    }
  }

  // --- control
  Stmt WithBodies(const RoleNode& node) const {
    if (node.IsLeaf()) return Now().one_thread ? ByOneThread(node.stmt) : node.stmt;
    const std::vector<RoleStmt> body = StatementsOf(node.body);
    if (node.kind == RoleNode::Kind::kFor) return Loop(node, body);
    if (node.kind == RoleNode::Kind::kWhile) {
      return With(node.stmt.as<WhileNode>(), &WhileNode::body, Join(body));
    }
    auto branch = make_object<IfThenElseNode>(*node.stmt.as<IfThenElseNode>());
    branch->then_case = Join(body);
    if (branch->else_case) branch->else_case = Join(StatementsOf(node.otherwise));
    return IfThenElse(branch);
  }

  Stmt Loop(const RoleNode& node, const std::vector<RoleStmt>& body) const {
    For loop = GetRef<For>(node.Loop());
    loop.CopyOnWrite()->body = Join(body);
    NoteReuse(node, &loop.CopyOnWrite()->annotations);
    // A role of a schedule has pipelines of its own in loops that pass nothing on.
    if (roles_.is_scheduled && !HasWindow(node)) return loop;
    Annotations* notes = &loop.CopyOnWrite()->annotations;
    const RoleSchedule schedule = Now().keeps_schedule ? ReadSchedule(node) : RoleSchedule();
    for (const char* key : {kNumStages, kUserOrder, kUserStage, kUserGroup}) notes->erase(key);
    if (!Now().keeps_schedule) notes->erase(kChosen);
    // The registers that setmaxnreg leaves to it do not hold several iterations' addresses.
    if (Now().one_thread && loop->kind == ForKind::kSerial && !notes->count(kUnrollFactor)) {
      notes->Set(kUnrollFactor, int64_t(1));
    }
    if (schedule.empty()) return loop;
    std::vector<ServedStatement> served;
    for (const RoleStmt& s : body) served.push_back({s.serves, s.side, s.stage_of});
    WriteSchedule(schedule, served, notes);
    return loop;
  }

  /*! Tells PlanSharedMemory two things about a loop: which loops of other roles are the same loop
   * of the program (`tl.role_loop`), and which tiles with several versions are overwritten whole in
   * it before they are read (`tl.rewrites`). A tile with one version says so where a role waits
   * for it. */
  void NoteReuse(const RoleNode& node, Annotations* notes) const {
    Array<Var> rewritten;
    for (const ChannelBarriers& b : barriers_) {
      if (b.channel->versions == 1) continue;
      for (const Window& w : b.channel->windows) {
        const RoleNode* owner = w.sequence->owner;
        while (owner && owner->kind == RoleNode::Kind::kIf) owner = owner->parent->owner;
        if (owner != &node || !w.UseBy(role_)) continue;
        for (const Var& v : b.buffers) {
          if (!Contains(rewritten, v)) rewritten.push_back(v);
        }
      }
    }
    // Within one loop there is nothing to say.
    if (!rewritten.empty() && IsRepeated(*node.parent)) notes->Set(kRewrites, rewritten);
    if (EnclosesLoop(node) && HasWindow(node)) notes->Set(kRoleLoop, NumberOf(node));
  }

  static bool EnclosesLoop(const RoleNode& node) {
    bool found = false;
    ForEachNode(node.body, [&](const RoleNode* n) { found |= n->Loop() != nullptr; });
    return found;
  }

  int64_t NumberOf(const RoleNode& node) const {
    int64_t number = 0;
    bool found = false;
    ForEachNode(roles_.body, [&](const RoleNode* n) {
      found |= n == &node;
      number += !found;
    });
    return number;
  }

  /*! A channel has a window in the loop. */
  bool HasWindow(const RoleNode& loop) const {
    const auto is_inside = [&](const Window& w) {
      const RoleSequence* s = w.sequence;
      while (s && s != &loop.body) s = s->owner ? s->owner->parent : nullptr;
      return s != nullptr;
    };
    return AnyOf(roles_.channels, [&](const Channel& c) { return AnyOf(c.windows, is_inside); });
  }

  /*! The role fills or uses a channel that has this running count. */
  bool Counts(const FillCount& count) const {
    if (!count.variable.defined()) return false;
    return AnyOf(roles_.channels, [&](const Channel& c) {
      return &roles_.counts[c.count] == &count && (c.source == role_ || c.IsUsedBy(role_));
    });
  }

  /*! Behind a loop whose variable counts fills: they have happened. */
  void CountLoop(const RoleNode& node, std::vector<RoleStmt>* out) const {
    for (const FillCount& c : roles_.counts) {
      const bool counted = std::count(c.sequences.begin(), c.sequences.end(), &node.body) > 0;
      if (!Counts(c) || !counted || !FillCount::CountingLoop(&node.body)) continue;
      const Expr extent = node.Loop()->extent;
      const Expr times = AsInt(extent) ? extent : MaxOf(extent, ZeroOf(extent->dtype()));
      Advance(c, times, node.stmt->span, out);
    }
  }

  void CountBody(const RoleSequence& sequence, std::vector<RoleStmt>* out) const {
    for (const FillCount& c : roles_.counts) {
      const bool counted = std::count(c.sequences.begin(), c.sequences.end(), &sequence) > 0;
      if (!Counts(c) || !counted || FillCount::CountingLoop(&sequence)) continue;
      Advance(c, MakeInt(1), sequence.nodes.back()->stmt->span, out);
    }
  }

  static void Advance(const FillCount& c, const Expr& by, const Span& span,
                      std::vector<RoleStmt>* out) {
    const Array<Expr> zero = {MakeInt(0)};
    const Expr count = LoadOf(c.variable, zero);
    out->push_back({MakeStore(c.variable, count + CastTo(count->dtype(), by), zero, span)});
  }

  /*! A role's program, which begins with its counts. */
  Stmt WithCounts(const std::vector<RoleStmt>& stmts) const {
    std::vector<Stmt> body;
    for (const FillCount& c : roles_.counts) {
      if (!Counts(c)) continue;
      const Expr none = ZeroOf(DTypeOf(c.variable));
      body.push_back(MakeStore(c.variable, none, {MakeInt(0)}, Span()));
    }
    body.push_back(Join(stmts));
    return MakeSeq(body);
  }

  Stmt Join(const std::vector<RoleStmt>& stmts) const {
    std::vector<Stmt> out, elected;
    const auto flush = [&] {
      if (!elected.empty()) out.push_back(Elected(MakeSeq(elected)));
      elected.clear();
    };
    for (const RoleStmt& s : stmts) {
      if (s.elected && !Now().one_thread) {
        elected.push_back(s.stmt);
      } else {
        flush();
        out.push_back(s.stmt);
      }
    }
    flush();
    return MakeSeq(out);
  }

 public:
  Stmt Elected(const Stmt& body) const {
    const auto [first, threads] = Now().range;
    const Expr number = first ? thread_ - MakeInt(thread_->dtype(), first) : Expr(thread_);
    return MakeIf(ElectOne(target_, number, threads), body, Span());
  }
  /*! Number of the block in its cluster. */
  Expr block_rank;

 private:
  const Target& target_;
  const WarpRoles& roles_;
  /*! The role whose program is written. */
  size_t role_ = 0;
  Var thread_;
  const Views& views_;
  VersionMaker* versions_;
  std::vector<ChannelBarriers> barriers_;
  /*! Variables of threads under the program's names, and those that replace them in other roles.
   */
  std::vector<Var> taken_;
  Array<Var> own_;
};

/*! Rewrites the kernels that have a plan. */
class Specializer : public StmtExprMutator {
 public:
  Specializer(PrimFunc f, const Array<Map<String, Any>>& plans) : function_(std::move(f)) {
    for (const Map<String, Any>& plan : plans) {
      plans_[plan.at("kernel").cast<int64_t>()] = plan;
    }
  }
  bool applied = false;

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key != kThreadExtent) return Default<Stmt>(op);
    if (!kernel_) return Kernel(op);
    AttrStmt attr = Default<Stmt>(op).as_or_throw<AttrStmt>();
    const IterVar axis = op->node.cast<IterVar>();
    if (axis->thread_tag != "threadIdx.x") return attr;
    return WithThreads(attr, roles_->threads);
  }

  Stmt Mutate_(const SBlockNode* op) final {
    if (!kernel_ || op != kernel_->block) return Default<Stmt>(op);
    const Views views(op->body);
    std::unordered_map<const Object*, int64_t> counts;
    for (const Channel& c : roles_->channels) {
      if (c.versions == 1) continue;
      for (const Var& v : c.buffers) counts[v.get()] = c.versions;
    }
    for (const Var& view : views.all) {
      auto it = counts.find(views.RootOf(view).get());
      if (it != counts.end()) counts[view.get()] = it->second;
    }
    VersionMaker versions(counts);
    auto block = make_object<SBlockNode>(*op);
    block->alloc_buffers = versions.Versioned(op->alloc_buffers);
    std::vector<Stmt> body;
    bool is_first = true;
    InFront(op->body, views, &versions, &is_first, &body);
    RoleEmitter emit(*kernel_, *roles_, views, &versions);
    emit.block_rank = BlockRank(*kernel_);
    // The last role keeps the names of the program.
    std::vector<Stmt> branches(roles_->roles.size());
    for (size_t r = branches.size(); r-- > 0;) branches[r] = RoleOf(r, &emit);
    AppendRange(&body, branches);
    block->body = Around(op->body, UnderPeerNames(op->body, MakeSeq(body)));
    versions.ExpandLayouts(&block->annotations);
    block->annotations.erase(kWsSchedule);
    block->annotations.erase(kWsDepths);
    emit.Allocate(block.get());
    return SBlock(block);
  }

 private:
  Stmt Kernel(const AttrStmtNode* op) {
    const auto plan = plans_.find(kernels_++);
    if (plan == plans_.end() || !plan->second.at("reason").cast<String>().empty()) {
      return GetRef<Stmt>(op);
    }
    const KernelInfo info = ReadKernelInfo(GetRef<Stmt>(op), function_);
    const WarpRoles roles = ReadRoles(info, Views(info.block->body), plan->second);
    applied = true;
    kernel_ = &info;
    roles_ = &roles;
    const Stmt kernel = Mutate(GetRef<Stmt>(op));
    kernel_ = nullptr;
    return kernel;
  }

  static Stmt WithThreads(AttrStmt attr, int64_t threads) {
    const Var v = attr->node.cast<IterVar>()->var;
    return WithAxis(attr.get(), v, MakeInt(v->dtype(), threads));
  }

  /*! What stands in front of both roles: views, and waits for the kernel before this one where
   * nothing else comes first, which the roles' plan leaves there (BuildRoleTree). */
  static void InFront(const Stmt& body, const Views& views, VersionMaker* versions, bool* is_first,
                      std::vector<Stmt>* out) {
    for (const Stmt& s : FlatSeq(body)) {
      const auto* view = s.as<DeclBufferNode>();
      const auto* attr = s.as<AttrStmtNode>();
      if (view && ViewedBy(view).defined()) {
        out->push_back(versions->Declare(view, views));
      } else if (attr && attr->attr_key != kWsOp) {
        InFront(attr->body, views, versions, is_first, out);
      } else if (*is_first && IsWaitForKernel(s)) {
        out->push_back(s);
      } else {
        *is_first = false;
      }
    }
  }

  /*! The attributes that the kernel's statements put around their rest, around `roles`. */
  static Stmt Around(const Stmt& body, const Stmt& roles) {
    const std::vector<Stmt> stmts = FlatSeq(body);
    const auto* attr = stmts.back().as<AttrStmtNode>();
    if (!attr || attr->attr_key == kWsOp) return roles;
    return With(attr, &AttrStmtNode::body, Around(attr->body, roles));
  }

  Stmt RoleOf(size_t r, RoleEmitter* emit) const {
    const Role& role = roles_->roles[r];
    const Var thread = kernel_->thread_vars[0];
    Stmt body = emit->Program(r);
    if (role.one_thread) body = emit->Elected(body);
    if (role.first_number) {
      body = Substitute(body, thread, thread - MakeInt(thread->dtype(), role.first_number));
    }
    return Branch(thread, role, Marked(role, body));
  }

  Stmt Marked(const Role& role, const Stmt& body) const {
    if (!roles_->is_scheduled) return MakeAttr(String(role.name), kWarpRole, MakeInt(1), body);
    const Expr registers = MakeInt(role.registers.value_or(0));
    return MakeAttr(String(role.name), kScheduledRole, registers, body);
  }

  static Stmt Branch(const Var& thread, const Role& role, const Stmt& body) {
    const auto [first, threads] = role.range;
    const Array<IntImm> range = {MakeInt(first), MakeInt(threads)};
    const DLDataType t = thread->dtype();
    return MakeIf(thread >= MakeInt(t, first) && thread < MakeInt(t, first + threads),
                  MakeAttr(range, kThreadRange, MakeInt(1), body), Span());
  }

  PrimFunc function_;
  std::map<int64_t, Map<String, Any>> plans_;  // by the kernel's number
  int64_t kernels_ = 0;                        // that were met, in launch order
  const KernelInfo* kernel_ = nullptr;
  const WarpRoles* roles_ = nullptr;
};

PrimFunc ProducerConsumerWarpSpecialized(PrimFunc f) {
  const Any plans = GetAttr(f, kWarpRoles);
  if (plans == nullptr) return f;
  Specializer specialize(f, plans.cast<Array<Map<String, Any>>>());
  f = WithBody(f, specialize.Mutate(f->body));
  return specialize.applied ? WithAttr(std::move(f), kApplied, int64_t(1)) : f;
}

TL_REGISTER_PASS(ProducerConsumerWarpSpecialized);

}  // namespace
}  // namespace tl
