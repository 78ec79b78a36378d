#include "warp_roles.h"

#include <algorithm>
#include <tuple>

#include "../../layout/annotation.h"
#include "../../op/operator.h"
#include "../../op/parallel.h"
#include "../../op/tma_copy.h"
#include "../../target/mma.h"
#include "../../target/registers.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "known_elements.h"
#include "pipeline.h"
#include "pipeline_reads.h"
#include "role_schedule.h"
#include "role_signals.h"
#include "wgmma_plan.h"
#include "ws_schedule.h"

namespace tl {
namespace {

/*! Where a statement of a body runs in a step: by the schedule that its loop has; without one, and
 * where the user leaves a statement in place, source order counts. */
class StepPlace {
 public:
  explicit StepPlace(const RoleSequence* sequence) {
    const RoleNode* owner = sequence->owner;
    if (owner && owner->Loop()) schedule_ = ReadSchedule(*owner);
  }
  std::tuple<int64_t, int64_t, size_t> operator()(size_t i) const {
    const bool given = i < schedule_.size() && schedule_[i];
    return {given ? schedule_[i]->stage : 0, given ? schedule_[i]->order : int64_t(0), i};
  }

 private:
  RoleSchedule schedule_;
};

class RolePlanner {
 public:
  RolePlanner(const KernelInfo& kernel, WarpRoles* roles)
      : kernel_(kernel), roles_(*roles), views_(kernel.block->body) {}

  void Run() {
    if (!CheckKernel() || !BuildRoleTree(kernel_, kernel_.block->body, views_, &roles_)) return;
    MarkTileFetches();
    if (!PlanLoops()) return;
    AddPrologueLoads();
    if (!MakeChannels(&roles_.channels)) return;
    // It moves statements, also over signals.
    const bool overlap = !HasRankOrder(roles_.body) && OverlapMmas(kernel_, views_, &roles_);
    // Slots are taken and released elsewhere then.
    if (overlap && !MakeChannels(&roles_.channels)) return;
    if (!CheckJumps()) return;
    CountFills(&roles_);
    MulticastCopies(kernel_, &roles_);
    CountThreads();
    PlaceReleases(views_, &roles_);
  }

 private:
  bool Refuse(const std::string& why, const Span& where) {
    roles_.why = why;
    roles_.where = where;
    return false;
  }

  bool CheckKernel() {
    const Span& span = kernel_.block->span;
    for (const char* key : {kDisableWarpSpecialized, kDisableTma}) {
      if (PassConfigFlag(key, false)) return Refuse(key, span);
    }
    // Set by tilelang/jit/second_choice.py.
    if (PassConfigFlag("tl.second_choice.without_roles", false) && !kernel_.gives_registers) {
      return Refuse("ptxas serialises or spills the kernel with them", span);
    }
    if (!kernel_.is_flat) return Refuse("its threads have two dimensions", span);
    if (kernel_.threads % kWarpGroupThreads) {
      return Refuse("its " + std::to_string(kernel_.threads) + " threads are not whole warp groups",
                    span);
    }
    return true;
  }

  /*! Which tile comes next is fetched by who loads it. */
  void MarkTileFetches() {
    ForEachNode(roles_.body, [&](RoleNode* node) {
      if (!node->IsLeaf() || !IsFetchTile(node->stmt)) return;
      node->fill = CopyKind::kFetchTile;
      fetch_ = node;
    });
  }

  /*! Every copy from global to shared memory of a pipelined loop becomes a fill. */
  bool PlanLoops() {
    bool any_loop = false, any_tma = false;
    RoleNode* stuck = nullptr;
    ForEachNode(roles_.body, [&](RoleNode* node) {
      if (!node->IsLeaf() || !PipelineOf(*node->parent)) return;
      any_loop = true;
      const bool fills = FillsSharedFromGlobal(*node);
      if (!fills && IsTileLoad(node->stmt)) {
        node->why = "what it loads depends on memory that the consumer writes";
        if (!stuck) stuck = node;
      }
      if (!fills) return;
      Classify(node);
      any_tma |= node->fill == CopyKind::kTma;
      if (node->fill == CopyKind::kNothing && !stuck) stuck = node;
    });
    if (!any_loop) return Refuse("no loop is pipelined", kernel_.block->span);
    if (stuck) return Refuse(stuck->why, stuck->stmt->span);
    if (!GatherOperands() && !any_tma) return RefuseWithoutTma();
    std::string why = SliceProducer(kernel_, views_, &roles_.body, &roles_.where);
    if (!why.empty()) return Refuse(why, roles_.where);
    std::vector<Channel> channels;
    return MakeChannels(&channels);
  }

  /*! Loops that gather rows for MMAs become cp.async of a producer, if they are all that fills
   * tiles beside TMA: it makes addresses and waits for tables of rows beside the MMAs. Measured for
   * sparse latent attention, 6298 to 5391 us. CheckKernel has refused blocks that are no whole warp
   * groups, such as those of 64 threads. */
  bool GatherOperands() {
    if (!MovesRegisters(1, kernel_.threads / kWarpGroupThreads, false)) return false;
    std::vector<RoleNode*> fills;
    std::vector<Var> operands;
    bool all = true;
    ForEachNode(roles_.body, [&](RoleNode* node) {
      const std::vector<Var>& reads = node->use.reads;
      if (IsGemm(node->stmt)) AppendRange(&operands, reads);
      if (node->fill != CopyKind::kNothing && node->fill != CopyKind::kTma) fills.push_back(node);
    });
    for (const RoleNode* fill : fills) {
      all &= IsElementCopy(fill->stmt) && Contains(operands, fill->use.writes[0]);
    }
    if (!all || fills.empty()) return false;
    for (RoleNode* fill : fills) fill->fill = CopyKind::kElements;
    return true;
  }

  bool RefuseWithoutTma() {
    const RoleNode* first = nullptr;
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (!first && PipelineOf(*node->parent) && node->fill != CopyKind::kNothing) first = node;
    });
    if (!first) return Refuse("no pipelined loop copies tiles to shared memory", Span());
    return Refuse("TMA makes no copy of a pipelined loop: " + first->why, first->stmt->span);
  }

  /*! Loads by TMA in front of a pipelined loop: of a tile that the whole loop reads. */
  void AddPrologueLoads() {
    ForEachNode(roles_.body, [&](RoleNode* node) {
      if (!node->IsLeaf() || PipelineOf(*node->parent) || !FillsSharedFromGlobal(*node)) return;
      if (!IsFollowedByFills(*node)) return;
      Classify(node);
      if (node->fill != CopyKind::kTma) {
        node->fill = CopyKind::kNothing;
        return;
      }
      Span where;
      std::vector<Channel> channels;
      node->why = SliceProducer(kernel_, views_, &roles_.body, &where);
      if (node->why.empty() && !MakeChannels(&channels)) node->why = roles_.why;
      if (node->why.empty()) return;
      node->fill = CopyKind::kNothing;
      roles_.why.clear();
      SliceProducer(kernel_, views_, &roles_.body, &where);
    });
  }

  static bool IsFollowedByFills(const RoleNode& node) {
    bool found = false;
    for (size_t i = IndexOf(node) + 1; i < node.parent->nodes.size(); ++i) {
      ForEachNode(node.parent->nodes[i]->body, [&](const RoleNode* n) {
        found |= n->fill != CopyKind::kNothing && PipelineOf(*n->parent);
      });
    }
    return found;
  }

  bool FillsSharedFromGlobal(const RoleNode& node) const {
    const BufferUse& use = node.use;
    if (!node.opaque.empty() || use.writes.empty()) return false;
    if (!AllOf(use.writes, IsShared)) return false;
    const KnownElements known(roles_.body, views_);
    if (ComputesWithTile(node, known)) return false;
    return AnyOf(use.reads, IsGlobal) && AllOf(use.reads, [&](const Var& v) {
             return IsGlobal(v) || IsLocal(v) || known.Has(v, node);
           });
  }

  /*! Whether it stores what it makes of a tile that the step loads, as loops that unpack weights
   * do: the producer would load that tile by its threads. Where a tile has rows of a gather it is
   * small, and the producer is to know them. */
  static bool ComputesWithTile(const RoleNode& node, const KnownElements& known) {
    struct Finder : StmtExprVisitor {
      const RoleNode* node;
      const KnownElements* known;
      bool found = false;
      void Visit_(const BufferStoreNode* op) final { Visit(op->value); }
      /*! Not the indices. */
      void Visit_(const TensorLoadNode* op) final {
        const auto element = known->Find(op, *node);
        found |= element && PipelineOf(*element->writer->parent);
      }
    } finder;
    finder.node = &node;
    finder.known = &known;
    if (!AsTileOp(node.stmt)) finder(node.stmt);
    return finder.found;
  }

  void Classify(RoleNode* node) {
    node->fill = CopyKindOf(node->stmt, kernel_.threads, &node->why);
  }

  /*! The buffers of the fills, joined to channels where they are used over the same statements. */
  bool MakeChannels(std::vector<Channel>* channels) {
    channels->clear();
    std::vector<Var> buffers;
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (node->fill == CopyKind::kNothing) return;
      for (const Var& v : node->use.writes) {
        if (!Contains(buffers, v)) buffers.push_back(v);
      }
    });
    for (const Var& buffer : buffers) {
      Channel channel;
      channel.buffers = {buffer};
      if (!FindWindows(buffer, &channel)) return false;
      Join(std::move(channel), channels);
    }
    JoinEarlier(channels);
    JoinSmall(channels);
    return AssignFills(channels);
  }

  bool AssignFills(std::vector<Channel>* channels) {
    RoleNode* torn = nullptr;
    ForEachNode(roles_.body, [&](RoleNode* node) {
      if (node->fill == CopyKind::kNothing) return;
      for (const Var& v : node->use.writes) {
        const size_t c = ChannelOf(v, *channels);
        if (!node->use.writes[0].same_as(v) && node->channel != c) torn = node;
        node->channel = c;
      }
      Channel& channel = (*channels)[node->channel];
      channel.AddKind(node->fill);
    });
    if (!torn) return true;
    return Refuse("it fills two buffers that are not used over the same statements",
                  torn->stmt->span);
  }

  static size_t ChannelOf(const Var& buffer, const std::vector<Channel>& channels) {
    return FindIf(channels, [&](const Channel& c) { return Contains(c.buffers, buffer); }) -
           channels.begin();
  }

  static void Join(Channel channel, std::vector<Channel>* channels) {
    for (Channel& c : *channels) {
      if (c.versions != channel.versions || c.windows.size() != channel.windows.size()) continue;
      const bool same = std::equal(c.windows.begin(), c.windows.end(), channel.windows.begin(),
                                   [](const Window& a, const Window& b) {
                                     return a.sequence == b.sequence &&
                                            a.uses[0].acquire == b.uses[0].acquire &&
                                            a.uses[0].release == b.uses[0].release;
                                   });
      if (!same) continue;
      Merge(channel, &c);
      return;
    }
    channels->push_back(std::move(channel));
  }

  static void Merge(const Channel& from, Channel* c) {
    c->buffers.insert(c->buffers.end(), from.buffers.begin(), from.buffers.end());
    c->consumer_writes |= from.consumer_writes;
    c->read_by_async_proxy |= from.read_by_async_proxy;
    for (size_t w = 0; w < c->windows.size(); ++w) {
      c->windows[w].first_fill = std::min(c->windows[w].first_fill, from.windows[w].first_fill);
      c->windows[w].last_fill = std::max(c->windows[w].last_fill, from.windows[w].last_fill);
      c->windows[w].last_use = std::max(c->windows[w].last_use, from.windows[w].last_use);
      const StepPlace place(c->windows[w].sequence);
      SlotUse* const use = &c->windows[w].uses[0];
      const SlotUse& other = from.windows[w].uses[0];
      if (place(other.acquire) < place(use->acquire)) use->acquire = other.acquire;
      if (place(use->release) < place(other.release)) use->release = other.release;
    }
  }

  /*! A tile that is loaded right behind another one, and used earlier, comes with it: the other
   * one was asked for first, so it is there at about the same time, and a slot that is given up
   * earlier waits in vain, since the producer first waits for the other one's. */
  static void JoinEarlier(std::vector<Channel>* channels) {
    JoinWhere(channels, [](const Window& early, const Window& late) {
      const StepPlace place(early.sequence);
      const SlotUse &first = early.uses[0], &last = late.uses[0];
      return BytesBehind(early, late) && place(first.acquire) < place(last.acquire) &&
             place(first.release) < place(last.release);
    });
  }

  /*! A few bytes that are loaded right behind a tile and used within its use (a number for each
   * row) come with it: a slot more is cheaper than two barriers. An asynchronous product uses its
   * operands until something uses the product. */
  void JoinSmall(std::vector<Channel>* channels) const {
    constexpr int64_t kFewBytes = 1024;
    const WgmmaPlan plan(roles_);
    JoinWhere(channels, [&](const Window& small, const Window& tile) {
      const auto bytes = BytesBehind(small, tile);
      const StepPlace place(small.sequence);
      const SlotUse &inner = small.uses[0], &outer = tile.uses[0];
      return bytes && *bytes <= kFewBytes && !(place(inner.acquire) < place(outer.acquire)) &&
             !(place(LastBeside(*tile.sequence, outer.release, plan)) < place(inner.release));
    });
  }

  /*! The last statement that runs beside a product of wgmma, in front of the first one that touches
   * what the product writes. For a statement that is no such product, and for a product that the
   * rest of the body does not touch, that statement. */
  static size_t LastBeside(const RoleSequence& sequence, size_t i, const WgmmaPlan& plan) {
    const RoleNode& product = *sequence.nodes[i];
    if (!plan.At(product)) return i;
    for (size_t last = i; last + 1 < sequence.nodes.size(); ++last) {
      const RoleNode& next = *sequence.nodes[last + 1];
      for (const Var& v : product.use.writes) {
        if (Contains(next.use.reads, v) || Contains(next.use.writes, v)) return last;
      }
    }
    return i;
  }

  /*! Joins each channel to the first one with which all of its windows may come. */
  template <typename MayCome>
  static void JoinWhere(std::vector<Channel>* channels, MayCome may_come) {
    for (size_t i = 0; i < channels->size(); ++i) {
      const Channel& one = (*channels)[i];
      const auto other = FindIf(*channels, [&](const Channel& c) {
        return &c != &one && one.versions > 1 && c.versions == one.versions &&
               std::equal(one.windows.begin(), one.windows.end(), c.windows.begin(),
                          c.windows.end(), [&](const Window& a, const Window& b) {
                            return a.sequence == b.sequence && may_come(a, b);
                          });
      });
      if (other == channels->end() || one.consumer_writes || other->consumer_writes) continue;
      Merge(one, &*other);
      channels->erase(channels->begin() + i--);
    }
  }

  /*! The bytes of the fills of a window that stand behind those of another one, with nothing but
   * bindings of numbers between them; nullopt where they do not, or where not all of both are by
   * TMA. */
  static std::optional<int64_t> BytesBehind(const Window& window, const Window& other) {
    if (window.first_fill <= other.last_fill) return std::nullopt;
    int64_t bytes = 0;
    for (size_t i = other.first_fill; i <= window.last_fill; ++i) {
      const RoleNode& node = *window.sequence->nodes[i];
      if (node.fill != CopyKind::kTma) {
        // Numbers that the program binds in front of a copy keep it apart from none.
        if (node.stmt.as<BindNode>() && node.use.reads.empty()) continue;
        return std::nullopt;
      }
      if (i < window.first_fill) continue;
      bytes += TmaBytes(TileRegion::From(AsTileOp(node.stmt)->args[1]));
    }
    return bytes;
  }

  /*! All that touches the buffer lies in windows: after the fills of the same body. */
  bool FindWindows(const Var& buffer, Channel* channel) {
    const std::string name = buffer->name;
    std::vector<RoleNode*> fills;
    ForEachNode(roles_.body, [&](RoleNode* node) {
      if (node->fill != CopyKind::kNothing && Contains(node->use.writes, buffer)) {
        fills.push_back(node);
      }
    });
    for (RoleNode* fill : fills) {
      const size_t index = IndexOf(*fill);
      auto known =
          FindIf(channel->windows, [&](const Window& w) { return w.sequence == fill->parent; });
      if (known == channel->windows.end()) {
        channel->windows.push_back({fill->parent, index, index, 0, {SlotUse()}});
      } else {
        known->last_fill = index;
      }
    }
    for (Window& w : channel->windows) {
      if (!FindUses(buffer, &w)) return false;
    }
    return FillApart(buffer, fills, *channel) && CheckUsers(buffer, channel) &&
           ChooseVersions(buffer, fills, channel);
  }

  /*! Nothing orders the copies that fill one slot: they have no element in common. */
  bool FillApart(const Var& buffer, const std::vector<RoleNode*>& fills, const Channel& channel) {
    for (const Window& w : channel.windows) {
      std::vector<Stmt> pieces;
      for (const RoleNode* fill : fills) {
        if (fill->parent == w.sequence) pieces.push_back(fill->stmt);
      }
      if (pieces.size() < 2 || WriteApart(pieces, buffer, views_)) continue;
      return Refuse("it may load elements of " + std::string(buffer->name) +
                        " that another statement loads too",
                    pieces.back()->span);
    }
    return true;
  }

  bool FindUses(const Var& buffer, Window* w) {
    const std::string name = buffer->name;
    const StepPlace place(w->sequence);
    SlotUse* const use = &w->uses[0];
    bool used = false;
    for (size_t i = 0; i < w->sequence->nodes.size(); ++i) {
      const RoleNode& node = *w->sequence->nodes[i];
      if (node.fill != CopyKind::kNothing || !IsUsed(node, buffer)) continue;
      if (i < w->last_fill) {
        return Refuse("it uses " + name + ", which a later statement loads", node.stmt->span);
      }
      if (!used || place(i) < place(use->acquire)) use->acquire = i;
      if (!used || place(use->release) < place(i)) use->release = i;
      w->last_use = i;
      used = true;
    }
    if (used) return true;
    return Refuse("nothing after it in the same body uses " + name,
                  w->sequence->nodes[w->first_fill]->stmt->span);
  }

  bool CheckUsers(const Var& buffer, Channel* channel) {
    const std::string name = buffer->name;
    const RoleNode *outside = nullptr, *opaque = nullptr, *nested = nullptr;
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      if (!node->IsLeaf() || !IsUsed(*node, buffer)) return;
      const Window* inside = nullptr;
      for (const Window& w : channel->windows) {
        const RoleNode* n = node;
        while (n && n->parent != w.sequence) n = n->parent->owner;
        if (n) inside = &w;
      }
      if (Contains(node->opaque, buffer)) opaque = node;
      if (!inside) outside = node;
      if (node->fill != CopyKind::kNothing) {
        for (const Window& w : channel->windows) {
          if (w.sequence == node->parent) continue;
          for (const RoleNode* n = node->parent->owner; n; n = n->parent->owner) {
            if (n->parent == w.sequence) nested = node;
          }
        }
        return;
      }
      channel->consumer_writes |= Contains(node->use.writes, buffer);
      channel->read_by_async_proxy |= IsGemm(node->stmt);
    });
    if (opaque) return Refuse("what it does with " + name + " is not known", opaque->stmt->span);
    if (outside) {
      return Refuse("it uses " + name + ", which another body loads", outside->stmt->span);
    }
    if (nested) {
      return Refuse("it loads " + name + ", which a body around it loads too", nested->stmt->span);
    }
    return true;
  }

  /*! As many slots as the loop has stages, if an iteration reads what it has loaded itself. */
  bool ChooseVersions(const Var& buffer, const std::vector<RoleNode*>& fills, Channel* channel) {
    for (const Window& w : channel->windows) {
      const ForNode* loop = PipelineOf(*w.sequence);
      if (loop) channel->versions = std::max(channel->versions, StagesOf(loop));
    }
    const auto depth = DepthOf(kernel_.block, buffer);
    if (depth) channel->versions = *depth;
    for (const RoleNode* fill : fills) {
      std::vector<Stmt> body;
      for (const auto& node : fill->parent->nodes) body.push_back(node->stmt);
      for (size_t i = 0; i < body.size(); ++i) {
        const RoleNode& reader = *fill->parent->nodes[i];
        if (reader.fill != CopyKind::kNothing || !Contains(reader.use.reads, buffer)) continue;
        if (!IsSupplied(body, i, buffer, views_)) channel->versions = 1;
      }
    }
    for (const Window& w : channel->windows) {
      const ForNode* loop = PipelineOf(*w.sequence);
      const bool staged = loop && loop->annotations.count(kUserStage);
      if (depth && staged && *depth < StepsOf(loop)) RefuseDepth(buffer, *depth, loop);
      if (channel->versions > 1 || !staged || StagesOf(loop) == 1) continue;
      return Refuse("more of " + std::string(buffer->name) + " is read than it writes",
                    fills[0]->stmt->span);
    }
    return true;
  }

  /*! Steps in which an iteration of a loop with stages has statements. */
  static int64_t StepsOf(const ForNode* loop) {
    const auto stage = ListAnnotation(loop->annotations, kUserStage);
    return stage->empty() ? 1 : *std::max_element(stage->begin(), stage->end()) + 1;
  }

  [[noreturn]] static void RefuseDepth(const Var& buffer, int64_t depth, const ForNode* loop) {
    ThrowAt(loop->span, "ValueError",
            "found depth " + std::to_string(depth) + " of " + std::string(buffer->name) +
                " in T.annotate_ws_pipeline_depth, wanted at least " +
                std::to_string(StepsOf(loop)) + " for the stages of the loop; give it more");
  }

  bool CheckJumps() {
    const RoleNode* jump = JumpOutOfWindow(roles_);
    if (!jump) return true;
    return Refuse("it leaves a body that loads tiles", jump->stmt->span);
  }

  void CountThreads() {
    const bool one_thread = AllOf(roles_.channels, [](const Channel& c) { return c.IsByOne(); });
    if (fetch_ && !one_thread) {
      Refuse("one thread fetches tiles, and several load them", fetch_->stmt->span);
      return;
    }
    bool gathers = false;
    ForEachNode(roles_.body,
                [&](const RoleNode* node) { gathers |= node->fill == CopyKind::kElements; });
    const bool is_one_group = one_thread || gathers || CopiesFewBytes();
    const int64_t producers = is_one_group ? kWarpGroupThreads : kernel_.threads;
    roles_.roles = {
        {"producer", {0, producers}, 0, one_thread, false, std::nullopt},
        {"consumer", {producers, kernel_.threads}, producers, false, true, std::nullopt}};
    roles_.threads = producers + kernel_.threads;
    CountArrivals(&roles_, kernel_.target->warp_threads);
    if (roles_.threads > kernel_.target->limits.threads_per_block) {
      Refuse("with its producer it would have " + std::to_string(roles_.threads) + " threads",
             kernel_.block->span);
      return;
    }
    const int64_t registers = LargestFragment();
    const bool moves =
        MovesRegisters(producers / kWarpGroupThreads, kernel_.threads / kWarpGroupThreads, true);
    const int64_t each = moves
                             ? MostRegistersBeside(producers * kRegistersOfCopies, kernel_.threads,
                                                   RegistersAtStart(roles_.threads, 1))
                             : kRegistersOfSm / roles_.threads;
    if (!one_thread && registers + kOtherRegisters > each) {
      Refuse("with a producer of " + std::to_string(producers) + " threads a thread would have " +
                 std::to_string(each) + " registers, and a fragment takes " +
                 std::to_string(registers),
             kernel_.block->span);
    }
  }

  /*! Beside TMA, threads of one warp group have few bytes to copy in an iteration: numbers for rows
   * or columns of a tile. More threads would take registers of those that compute. */
  bool CopiesFewBytes() const {
    // Two copies of a thread.
    constexpr int64_t kFewCopies = 2;
    const CopyInstruction* row = kernel_.target->ThreadCopy();
    if (!row) return false;
    bool any_tma = false;
    std::optional<int64_t> bits = 0;
    ForEachNode(roles_.body, [&](const RoleNode* node) {
      any_tma |= node->fill == CopyKind::kTma;
      if (node->fill == CopyKind::kNothing || node->fill == CopyKind::kTma || !bits) return;
      const std::optional<int64_t> own = BitsOfCopy(node->stmt);
      bits = own ? std::optional(*bits + *own) : std::nullopt;
    });
    return any_tma && bits && *bits <= 8 * kFewCopies * row->bytes.back() * kWarpGroupThreads;
  }

  /*! nullopt for what is no copy of a tile or loop over elements, and for extents of the call. */
  static std::optional<int64_t> BitsOfCopy(const Stmt& s) {
    if (const auto* loop = s.as<ForNode>(); loop && loop->kind == ForKind::kParallel) {
      return BitsOfLoop(loop);
    }
    if (!IsTileLoad(s)) return std::nullopt;
    const TileRegion dst = TileRegion::From(AsTileOp(s)->args[1]);
    int64_t bits = DTypeOf(dst.buffer).bits;
    for (const Range& r : dst.ranges) {
      const auto extent = AsInt(r->extent);
      if (!extent) return std::nullopt;
      bits *= *extent;
    }
    return bits;
  }

  static std::optional<int64_t> BitsOfLoop(const ForNode* loop) {
    const ParallelNest nest = NestOfLoop(loop);
    int64_t iterations = 1, bits = 0;
    for (const Expr& extent : nest.extents) iterations *= AsInt(extent).value_or(0);
    ForEachIn<BufferStoreNode>(
        nest.body, [&](const BufferStoreNode* store) { bits += DTypeOf(store->buffer).bits; });
    const bool repeats = HasNode<ForNode>(nest.body);
    if (!iterations || repeats) return std::nullopt;
    return iterations * bits;
  }

  /*! Registers of a consumer's thread. */
  int64_t LargestFragment() const {
    int64_t most = 0;
    for (const Var& v : kernel_.block->alloc_buffers) {
      if (!IsFragment(v)) continue;
      int64_t bits = DTypeOf(v).bits;
      for (const int64_t extent : ConstShape(v)) bits *= extent;
      most = std::max(most, bits / 32 / kernel_.threads);
    }
    return most;
  }

  const KernelInfo& kernel_;
  WarpRoles& roles_;
  Views views_;
  /*! A statement that fetches the number of a tile, nullptr if there is none. */
  const RoleNode* fetch_ = nullptr;
};

}  // namespace

WarpRoles PlanProducerConsumer(const KernelInfo& kernel) {
  WarpRoles roles;
  RolePlanner(kernel, &roles).Run();
  return roles;
}

}  // namespace tl
