/*!
 * SelectInstructions: decides which instructions make each MMA, and may make each copy.
 *
 * In:  a tile program under thread_extent attributes, before warps have roles and loops are
 * pipelined.
 * Out: the same, with attributes on calls. A gemm has `instruction` (the rows that make it, in
 * order along K), `warps` (how warps share it), `interleaved` (interleaved_tiles.h), `rejected`
 * (why better rows do not make it) and `swizzle` (what wgmma gives its tiles): gemm_instruction.h.
 * A copy has `instruction` (what may make it, the best first) and `rejected`: copy_instruction.h.
 * Function attribute `tl.selected`. The operands, the layouts that users and gemms dictate (of
 * gemms that read one tile by wgmma, those for which it has no common layout take other
 * instructions), what else the kernel does with a tensor, and the threads that run the operator
 * decide: those of the block or of the range around, or of the role that T.annotate_ws_schedule
 * gives it. Establishes: what the program asks for (`prefer_instruction`) is read here alone; a
 * demand is the only candidate, marked `demanded`.
 * Passes behind this one choose no instruction of a gemm; of a copy they narrow the candidates.
 * Refuses (ValueError): operands of a gemm in memory that no instruction reads, types without
 * arithmetic, shapes of sparse, asynchronous or 4-bit MMAs that no row has; a demand for TMA
 * where the target, the memories, a keyword or another access of the tensor is against it.
 */

#include <algorithm>
#include <memory>

#include "../../analysis/effects.h"
#include "../../analysis/kernel_facts.h"
#include "../../analysis/uniform_names.h"
#include "../../layout/annotation.h"
#include "../../layout/swizzle.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm_instruction.h"
#include "../../op/lds_copy.h"
#include "../../op/matrix_copy.h"
#include "../../op/tma_copy.h"
#include "../../op/tma_select.h"
#include "../../op/views.h"
#include "../../target/memory_spaces.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "interleaved_tiles.h"
#include "kernel_scope.h"
#include "tensor_traffic.h"
#include "tile_loads.h"
#include "ws_schedule.h"

namespace tl {
namespace {

/*! Goes through the operators of a kernel with the threads that run them. */
class Selector : public StmtExprMutator {
 public:
  explicit Selector(const Target& target) : target_(target) {}

  /*! The layouts that users give to buffers of what it has gone through. */
  const Map<Var, Layout>& Annotated() const { return annotated_; }

 protected:
  /*! The call with its instructions; undefined for operators that have none. */
  virtual Call Selected(const CallNode* call, const Stmt& s) = 0;

  Stmt Mutate_(const AttrStmtNode* op) final {
    const bool names = op->attr_key == kWsOp;
    return Named(names ? std::string(op->node.cast<String>()) : "",
                 [&] { return scope_.Within(op, [&] { return Default<Stmt>(op); }); });
  }
  Stmt Mutate_(const SBlockNode* op) final {
    for (auto [buffer, layout] : GetLayoutMap(op->annotations)) annotated_.Set(buffer, layout);
    if (!schedule_) schedule_ = ScheduleOf(op, target_.warp_threads);
    return Default<Stmt>(op);
  }
  Stmt Mutate_(const ForNode* op) final {
    return Named(schedule_ ? NameOf(GetRef<Stmt>(op)) : "", [&] { return Default<Stmt>(op); });
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = AsTileOp(s);
    const Call selected = call ? Selected(call, s) : Call();
    return selected.defined() ? MakeEvaluate(selected, op->span) : s;
  }

  ThreadRange ThreadsOf(const Stmt& s) const {
    if (schedule_) {
      const std::string own = NameOf(s);
      const auto op = schedule_->FindOp(own.empty() ? name_ : own);
      if (op) return schedule_->roles[schedule_->ops[*op].role].range;
    }
    return scope_.Threads(s->span);
  }

  Layout AnnotatedOf(const Var& buffer) const {
    auto it = annotated_.find(buffer);
    return it == annotated_.end() ? Layout() : (*it).second;
  }

  const Target& target_;

 private:
  /*! Gives a name, if it is one, to the statements that `mutate` reaches and that have none. */
  template <typename F>
  Stmt Named(const std::string& name, F mutate) {
    if (name.empty()) return mutate();
    const std::string outside = std::exchange(name_, name);
    const Stmt out = mutate();
    name_ = outside;
    return out;
  }

  KernelScope scope_;
  Map<Var, Layout> annotated_;
  std::optional<Schedule> schedule_;
  /*! The schedule's name for the statements here. */
  std::string name_;
};

/*! The gemms that are the only one of their innermost loop. */
class LoneGemms : public StmtExprVisitor {
 public:
  explicit LoneGemms(const Stmt& kernel) { Visit(kernel); }
  bool Has(const CallNode* gemm) const { return lone_.count(gemm) != 0; }

 protected:
  void Visit_(const ForNode* op) final {
    std::vector<const CallNode*> own;
    std::swap(own, of_loop_);
    Default(op);
    std::swap(own, of_loop_);
    if (own.size() == 1) lone_.insert(own[0]);
  }
  void Visit_(const EvaluateNode* op) final {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    if (call && IsGemm(call)) of_loop_.push_back(call);
  }

 private:
  std::vector<const CallNode*> of_loop_;
  std::unordered_set<const CallNode*> lone_;
};

/*! What a gemm's tiles in shared memory decide about wgmma: why it cannot be one although its own
 * operands are what descriptors reach, else the swizzles that it gives A and B (GemmPlan). */
struct WgmmaChoice {
  std::string why_not;
  int64_t swizzle_a = 0, swizzle_b = 0;
};
using WgmmaChoices = std::unordered_map<const CallNode*, WgmmaChoice>;

/*! A gemm by wgmma, and its operands in shared memory whose layout the user leaves open. */
struct WgmmaReader {
  const CallNode* call;
  bool asynchronous;
  Span span;
  std::optional<WgmmaOperand> a, b;
};

/*! All readers of a kernel. */
class WgmmaReaders {
 public:
  explicit WgmmaReaders(const Views& views) : views_(views) {}

  void Add(WgmmaReader reader) { all_.push_back(std::move(reader)); }

  /*! The choices in which each tile has a layout that all of its readers take. Readers that can be
   * nothing but wgmma go first, then the program's order decides. */
  WgmmaChoices Settle() {
    std::stable_sort(all_.begin(), all_.end(), [](const WgmmaReader& a, const WgmmaReader& b) {
      return a.asynchronous && !b.asynchronous;
    });
    WgmmaChoices out;
    Tiles tiles;
    for (const WgmmaReader& reader : all_) {
      auto tried = tiles;
      out[reader.call].why_not = WhyNot(reader, &tried);
      if (out[reader.call].why_not.empty()) tiles = std::move(tried);
    }
    for (const WgmmaReader& reader : all_) {
      WgmmaChoice& choice = out[reader.call];
      if (!choice.why_not.empty()) continue;
      choice.swizzle_a = SwizzleBytes(reader.a, tiles);
      choice.swizzle_b = SwizzleBytes(reader.b, tiles);
    }
    return out;
  }

 private:
  struct Tile {
    Layout layout;
    std::vector<WgmmaOperand> operands;
    Span first_reader;
  };
  /*! By buffers that are no views. */
  using Tiles = std::unordered_map<const Object*, Tile>;

  std::string WhyNot(const WgmmaReader& reader, Tiles* tiles) const {
    for (const auto* operand : {&reader.a, &reader.b}) {
      if (!*operand) continue;
      const Var& buffer = (*operand)->region.buffer;
      const Var root = views_.RootOf(buffer);
      Tile& tile = tiles->try_emplace(root.get(), Tile{Layout(), {}, reader.span}).first->second;
      tile.operands.push_back(**operand);
      if (tile.layout.defined()) {
        const auto own = CarryLayout(tile.layout, root, buffer);
        if (own && WhyNotWgmmaLayout(**operand, *own).empty()) continue;
      }
      tile.layout = CommonWgmmaLayout(root, tile.operands);
      if (tile.layout.defined()) continue;
      return "no swizzle of " + std::string(root->name) +
             " has both the matrix that this product reads and that of the product at " +
             Where(tile.first_reader);
    }
    return "";
  }

  /*! Bytes of the swizzle of the operand's buffer, where that is the tile's layout; else 0, and the
   * tile's layout is that of another operand. */
  int64_t SwizzleBytes(const std::optional<WgmmaOperand>& operand, const Tiles& tiles) const {
    if (!operand) return 0;
    const Var& buffer = operand->region.buffer;
    const Var root = views_.RootOf(buffer);
    const Layout& layout = tiles.at(root.get()).layout;
    const int bits = DTypeOf(buffer).bits;
    // The operand's readers have settled on a swizzle.
    const int64_t bytes = CarryLayout(layout, root, buffer).value()->SwizzleBytes(bits).value();
    const Layout own = MakeBankSwizzle(ConstShape(buffer), bits, bytes / 16);
    const auto carried = CarryLayout(own, buffer, root);
    return carried && IsSameLayout(*carried, layout) ? bytes : 0;
  }

  const Views& views_;
  std::vector<WgmmaReader> all_;
};

constexpr int64_t kRegisterBits = 32;

class GemmSelector : public Selector {
 public:
  GemmSelector(const Views& views, const Target& target, const Stmt& kernel,
               WgmmaChoices choices = {})
      : Selector(target),
        views_(views),
        lone_(kernel),
        choices_(std::move(choices)),
        readers_(views) {
    ForEachIn<SBlockNode>(kernel, [&](const SBlockNode* block) {
      for (const Var& v : block->alloc_buffers) {
        if (IsFragment(v)) fragment_bits_ += Product(ConstShape(v)) * DTypeOf(v).bits;
      }
    });
  }

  /*! The choices for all gemms that it has gone through, for another selector. */
  WgmmaChoices Choices() { return readers_.Settle(); }

 protected:
  Call Selected(const CallNode* call, const Stmt& s) final {
    if (!IsGemm(call)) return Call();
    const GemmOp gemm = ParseGemm(call, s->span);
    const ThreadRange threads = ThreadsOf(s);
    const auto it = choices_.find(call);
    const WgmmaChoice choice = it == choices_.end() ? WgmmaChoice() : it->second;
    const GemmContext context{threads.threads,
                              &target_,
                              AnnotatedFor(gemm.a.buffer),
                              AnnotatedFor(gemm.b.buffer),
                              OfAnotherWidth(gemm.a.buffer) || OfAnotherWidth(gemm.b.buffer),
                              threads.first,
                              choice.why_not,
                              fragment_bits_ / kRegisterBits / threads.threads};
    GemmPlan plan = PlanGemm(gemm, context);
    if (plan.UsesWgmma()) AddReader(call, gemm, plan);
    plan.swizzle_a = choice.swizzle_a;
    plan.swizzle_b = choice.swizzle_b;
    plan.interleaves_reads = InterleavesReads(gemm, plan) && lone_.Has(call);
    return WithInstruction(call, gemm, plan);
  }

 private:
  /*! What the user gives the buffer's memory, under whichever name. */
  Layout AnnotatedFor(const Var& buffer) const {
    for (const auto& [name, layout] : Annotated()) {
      if (!views_.IsSameMemory(name, buffer)) continue;
      return name.same_as(buffer) ? layout : CarryLayout(layout, name, buffer).value_or(Layout());
    }
    return Layout();
  }

  void AddReader(const CallNode* call, const GemmOp& gemm, const GemmPlan& plan) {
    const auto open = [&](const WgmmaOperand& operand) {
      const Var& buffer = operand.region.buffer;
      const bool is_open = IsShared(buffer) && !AnnotatedFor(buffer).defined();
      return is_open ? std::optional<WgmmaOperand>(operand) : std::nullopt;
    };
    readers_.Add(
        {call, gemm.asynchronous, gemm.span, open(plan.SharedA(gemm)), open(plan.SharedB(gemm))});
  }

  /*! Whether it is a view whose elements are wider or narrower than its buffer's. */
  bool OfAnotherWidth(const Var& buffer) const {
    return BitsOf(buffer) != BitsOf(views_.RootOf(buffer));
  }

  static int BitsOf(const Var& buffer) { return DTypeOf(buffer).bits; }

  /*! LLVM's order has each step's reads behind the MFMA of the step before: one waits for the
   * other. Two products of a loop have other work between them, which a pattern would not know. */
  bool InterleavesReads(const GemmOp& gemm, const GemmPlan& plan) const {
    return target_.Has(Feature::kMfma) && plan.mma.size() == 1 && plan.why_fma.empty() &&
           IsShared(gemm.a.buffer) && IsShared(gemm.b.buffer);
  }

  int64_t fragment_bits_ = 0;
  const Views& views_;
  const LoneGemms lone_;
  const WgmmaChoices choices_;
  WgmmaReaders readers_;
};

/*! Whether the program asks for an instruction of a copy. */
bool IsPreferred(const CallNode* copy, const char* instruction) {
  const Any prefer = TileOpAttr(copy, "prefer_instruction");
  return prefer != nullptr && prefer.cast<String>() == instruction;
}

/*! What is asked about a function's tensors. */
struct FunctionFacts {
  FunctionFacts() = default;
  explicit FunctionFacts(const PrimFunc& f)
      : params(f->params.begin(), f->params.end()),
        aliased(KernelFacts(f).aliased),
        uniform(std::make_shared<UniformNames>(f)) {
    const Views views(f->body);
    for (const Var& v : views.UseOf(f->body).writes) written.insert(views.RootOf(v).get());
  }
  std::vector<Var> params;
  std::unordered_set<std::string> aliased;
  std::unordered_set<const Object*> written;
  std::shared_ptr<const UniformNames> uniform;
};

/*! Gemms of the kernel have their instructions, which decide about the layouts of tiles. */
class CopySelector : public Selector {
 public:
  CopySelector(const FunctionFacts& f, const KernelInfo& kernel, const Stmt& stmt,
               const Views& views)
      : Selector(*kernel.target),
        function_(f),
        views_(views),
        loads_(kernel, views),
        traffic_(stmt),
        cluster_blocks_(kernel.cluster_blocks) {}

 protected:
  Call Selected(const CallNode* call, const Stmt& s) final {
    if (!IsCopy(call)) return Call();
    const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
    CopyChoice choice;
    for (const CopyInstruction& row : target_.copies) {
      if (SpaceOf(src.buffer) != row.from || SpaceOf(dst.buffer) != row.to) continue;
      // LowerBufferLoads knows the vectors.
      if (row.name == kByBufferLoads) continue;
      if (!target_.Has(row.feature)) {
        choice.Try(row.name.c_str(), "a target before " + FirstTargetWith(row.feature));
        continue;
      }
      choice.Try(row.name.c_str(), WhyNot(row, call, src, dst, s));
      choice.touched_elsewhere |=
          row.queue == AsyncQueue::kTmaStore && IsTouchedElsewhere(call, dst.buffer);
    }
    if (IsGlobal(src.buffer)) AddFacts(call, &choice);
    choice.Try(kByThreads, "");
    if (IsFragment(src.buffer) && IsFragment(dst.buffer)) {
      choice.Try(kByShuffles, "");
      choice.Try(kByExchange, "");
    }
    return WithChoice(call, Demanded(call, choice, src, dst, s->span));
  }

 private:
  static bool IsIm2col(const CallNode* call) { return !IsCallTo(call, kCopy); }

  static std::optional<MemorySpace> SpaceOf(const Var& buffer) {
    const MemorySpaceRow* row = FindMemorySpace(ScopeOf(buffer));
    return row ? row->tiles : std::nullopt;
  }

  /*! The tile may get several versions. */
  bool MayHaveSlots(const CallNode* call) const {
    return loads_.HasSlots() || (loads_.HasPipelines() && IsPreferred(call, "tma"));
  }

  /*! What else is against an instruction between these spaces. */
  std::string WhyNot(const CopyInstruction& row, const CallNode* call, const TileRegion& src,
                     const TileRegion& dst, const Stmt& s) const {
    if (row.queue == AsyncQueue::kTmaLoad) return loads_.WhyNotTma(call, MayHaveSlots(call));
    if (row.in_lane_order) return WhyNotLdsLoads(row, call, src, dst, ThreadsOf(s).threads);
    if (row.queue == AsyncQueue::kCpAsync) {
      const std::string why = WhyNotCpAsync(call, src, dst);
      return why.empty() ? WhyTooNarrow(dst) : why;
    }
    if (row.queue == AsyncQueue::kTmaStore) return WhyNotStore(call, dst.buffer);
    if (row.name == kByRegisters) return WhyNotRegisters(call, src, dst);
    return WhyNotMatrices(row.name, src, dst, target_, ThreadsOf(s).threads);
  }

  /*! What passes ask that narrow the candidates of a load. */
  void AddFacts(const CallNode* call, CopyChoice* choice) const {
    if (IsIm2col(call)) return;
    if (choice->Has(kByTma) && cluster_blocks_ > 1) {
      choice->block_dim = loads_.BlockDim(call, MayHaveSlots(call));
    }
    if (choice->Has(kByCpAsync)) {
      choice->aligned = loads_.AlignedBytes(call, target_.ThreadCopy()->bytes);
    }
    if (choice->Has(kByLdsLoads)) choice->aligned = LdsBytes(call, *target_.ThreadCopy());
  }

  std::string WhyNotCpAsync(const CallNode* call, const TileRegion& src,
                            const TileRegion& dst) const {
    for (const char* other : {"sync", "tma"}) {
      if (IsPreferred(call, other)) return "prefer_instruction=\"" + std::string(other) + "\"";
    }
    if (!EnablesAsyncCopy()) return "tl.enable_async_copy is False";
    const DLDataType t = DTypeOf(src.buffer), u = DTypeOf(dst.buffer);
    return t == u ? "" : "a conversion from " + DTypeName(t) + " to " + DTypeName(u);
  }

  /*! VectorizeLoop, which gives cp.async its bytes, may be off. */
  static std::string WhyTooNarrow(const TileRegion& dst) {
    const int bits = DTypeOf(dst.buffer).bits;
    if (bits >= kCpAsyncBytes * 8 || !DisablesVectorize()) return "";
    return "tirx.disable_vectorize is True, which leaves " + std::to_string(bits) +
           " bits at a time";
  }

  int64_t LdsBytes(const CallNode* call, const CopyInstruction& row) const {
    return loads_.AlignedBytes(call, row.bytes, 4);
  }

  /*! What is against loads to LDS, in the layout that the user gives the tile or in any: lanes have
   * as many loads, and those that are out of range read zeros by the check of a buffer resource. */
  std::string WhyNotLdsLoads(const CopyInstruction& row, const CallNode* call,
                             const TileRegion& src, const TileRegion& dst, int64_t threads) const {
    if (IsIm2col(call)) return "a gather of T.im2col";
    std::string why = WhyNotCpAsync(call, src, dst);
    if (!why.empty()) return why;
    for (const Expr& extent : dst.Extents()) {
      if (!AsInt(extent)) return "a size that the call decides";
    }
    why = WhyNotRange(src);
    if (!why.empty()) return why;
    if (views_.IsView(dst.buffer)) return std::string(dst.buffer->name) + " is a view";
    LdsPlan plan;
    return PlanLdsCopy(dst, AnnotatedOf(dst.buffer), row.bytes, LdsBytes(call, row), threads,
                       &plan);
  }

  /*! Why LowerBufferLoads has no resource for the tensor. */
  std::string WhyNotRange(const TileRegion& src) const {
    const std::string name(src.buffer->name);
    const Var tensor = views_.RootOf(src.buffer);
    if (!Contains(function_.params, tensor)) return name + " is no parameter";
    if (!ResourceBytes(src.buffer)) {
      const std::string why = WhyNotAtTile(src);
      if (!why.empty()) return why;
    }
    if (function_.written.count(tensor.get())) return "the program writes " + name;
    if (function_.aliased.count(tensor->name)) return name + " has other names";
    for (const Range& range : src.ranges) {
      if (!IsPureInteger(range->min)) return "an index that is read from memory";
    }
    return "";
  }

  /*! Why no resource can begin at the tile, in a tensor that is too large for one or of a size that
   * the call decides. */
  std::string WhyNotAtTile(const TileRegion& src) const {
    const auto reach = ReachOf(src);
    if (!reach || *reach >= kMostResourceBytes) {
      return std::string(src.buffer->name) + " has rows of a size of the call's, or of 2 GiB";
    }
    for (const Range& range : src.ranges) {
      if (!function_.uniform->Has(range->min)) return "an index that is read from memory";
    }
    return "";
  }

  /*! Whether a fragment can hold what a load moves. */
  static std::string WhyNotRegisters(const CallNode* call, const TileRegion& src,
                                     const TileRegion& dst) {
    if (IsIm2col(call)) return "a gather of T.im2col";
    if (IsPreferred(call, "sync")) return "prefer_instruction=\"sync\"";
    for (const Expr& extent : dst.Extents()) {
      if (!AsInt(extent)) return "a size that the call decides";
    }
    const DLDataType t = DTypeOf(src.buffer);
    return t.bits * t.lanes % 8 ? "elements of " + std::to_string(t.bits) + " bits" : "";
  }

  std::string WhyNotStore(const CallNode* call, const Var& tensor) const {
    const std::string why = WhyNotTmaAsked(call);
    if (!why.empty() || traffic_.StoresTo(tensor).by_copies_only) return why;
    return std::string(tensor->name) + ", which the kernel also touches in another way";
  }
  /*! Whether that is all that is against it. */
  bool IsTouchedElsewhere(const CallNode* call, const Var& tensor) const {
    return WhyNotTmaAsked(call).empty() && !traffic_.StoresTo(tensor).by_copies_only;
  }

  /*! The choice that the program makes, if it makes one. */
  CopyChoice Demanded(const CallNode* call, CopyChoice choice, const TileRegion& src,
                      const TileRegion& dst, const Span& span) const {
    const char* only = nullptr;
    if (TileOpIntAttr(call, "is_async_copy", 0) || IsPreferred(call, "cp_async")) {
      only = target_.ThreadCopy() ? target_.ThreadCopy()->name.c_str() : kByCpAsync;
      if (const std::string why = choice.WhyNot(kByLdsLoads); !why.empty()) {
        RefuseLdsLoads(why, span);
      }
    } else if (IsPreferred(call, "tma")) {
      if (!IsIm2col(call)) RefuseDemand(call, src, dst, span);
      only = kByTma;
    }
    if (!only) return choice;
    choice.candidates = {only};
    choice.demanded = true;
    return choice;
  }

  /*! Layouts may be against it, too: they are known later. */
  void RefuseDemand(const CallNode* call, const TileRegion& src, const TileRegion& dst,
                    const Span& span) const {
    const bool loads = IsGlobal(src.buffer) && IsShared(dst.buffer);
    const bool stores = IsShared(src.buffer) && IsGlobal(dst.buffer);
    std::string why;
    if (!loads && !stores) {
      why = "a copy that is not between shared and global memory";
    } else {
      why = WhyNotTmaAsked(call);
      if (why.empty()) why = WhyNotTmaTarget(target_);
      if (why.empty() && stores) why = WhyNotStore(call, dst.buffer);
    }
    if (!why.empty()) RefuseTma("T.copy", why, span);
  }

  const FunctionFacts& function_;
  const Views& views_;
  TileLoads loads_;
  TensorTraffic traffic_;
  int64_t cluster_blocks_;
};

PrimFunc SelectInstructions(PrimFunc f) {
  const CopyInstruction* threads = TargetOf(f).ThreadCopy();
  const FunctionFacts facts =
      threads && threads->in_lane_order ? FunctionFacts(f) : FunctionFacts();
  const auto select = [&, &target = TargetOf(f)](const AttrStmtNode* op) {
    const Views views(GetRef<Stmt>(op));
    GemmSelector gemms(views, target, GetRef<Stmt>(op));
    Stmt selected = gemms.Mutate(GetRef<Stmt>(op));
    if (WgmmaChoices choices = gemms.Choices(); !choices.empty()) {
      GemmSelector with_choices(views, target, GetRef<Stmt>(op), std::move(choices));
      selected = with_choices.Mutate(GetRef<Stmt>(op));
    }
    const Stmt kernel = InterleaveTiles(selected, views, gemms.Annotated(), target);
    const KernelInfo info = ReadKernelInfo(kernel, f);
    return info.block ? CopySelector(facts, info, kernel, views).Mutate(kernel) : kernel;
  };
  return WithAttr(ForEachKernel(f, select), kSelected, int64_t(1));
}

TL_REGISTER_PASS(SelectInstructions);

}  // namespace
}  // namespace tl
