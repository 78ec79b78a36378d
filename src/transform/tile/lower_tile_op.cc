/*!
 * LowerTileOp: the one door from tile programs to thread programs.
 *
 * In:  a tile program with `layout_map` on its blocks and `parallel_loop_layout` on parallel loops
 * over fragments. Out: a thread program. Tile operators and parallel loops became loops of one
 * thread, fragments became `local` buffers of its registers, shared buffers have their physical
 * shape and every access its physical indices. Establishes: no tile operator, no fragment and no
 * layout is left; function attribute `tl.notes` has a line for each gemm. Refuses: a load or a
 * descriptor by hand that takes a tile for swizzled otherwise than it is, a buffer in memory
 * that the target lacks (ValueError); fragments without a layout (a bug: LayoutInference places
 * them all).
 */
#include <unordered_map>

#include "../../layout/annotation.h"
#include "../../op/gemm.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/tma_copy.h"
#include "../../op/views.h"
#include "../../target/memory_spaces.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../instances.h"
#include "../notes.h"
#include "explicit_tile.h"
#include "kernel_scope.h"
#include "pipeline_reads.h"
#include "tensor_traffic.h"

namespace tl {
namespace {

/*! Where a buffer is first named: buffers have no places of their own. */
Span FirstUse(const Var& buffer, const Stmt& body) {
  struct Finder : StmtExprVisitor {
    const Object* buffer;
    Span around, found;
    void Visit_(const EvaluateNode* op) final {
      around = op->span;
      Default(op);
    }
    void Visit_(const BufferStoreNode* op) final {
      around = op->span;
      if (op->buffer.get() == buffer && !found.defined()) found = around;
      Default(op);
    }
    void Visit_(const VarNode* op) final {
      if (op == buffer && !found.defined()) found = around;
    }
  } finder;
  finder.buffer = buffer.get();
  finder(body);
  return finder.found;
}

class TileOpLowerer : public StmtExprMutator, public LoweringScope {
 public:
  explicit TileOpLowerer(const Target& compiled_for) {
    target = &compiled_for;
    analyzer = &analyzer_;
  }

  Fragment FragmentOf(const Var& buffer) const final {
    auto it = layouts_.find(buffer.get());
    if (it == layouts_.end()) {
      ThrowBug(Span(), "LowerTileOp", "no layout for " + std::string(buffer->name));
    }
    return it->second.as_or_throw<Fragment>();
  }

  Layout LayoutOf(const Var& buffer) const final {
    auto it = layouts_.find(buffer.get());
    return it == layouts_.end() ? Layout() : it->second;
  }

  Var RegistersOf(const Var& buffer) final { return Physical(buffer, FragmentOf(buffer)); }

  std::pair<Var, Array<Expr>> ToPhysical(const Var& buffer, const Array<Expr>& indices) final {
    auto it = layouts_.find(buffer.get());
    if (it == layouts_.end() || IsFragment(buffer)) return {buffer, indices};
    Array<Expr> mapped =
        it->second->MapIndex(indices).Map([&](Expr e) { return analyzer_.Simplify(e); });
    return {Physical(buffer, it->second), mapped};
  }

  Var AllocShared(const std::string& name, DLDataType dtype, const Array<Expr>& shape,
                  const Layout& layout) final {
    RefuseInInstances("shared memory");
    const Var buffer = MakeBuffer(name, dtype, shape, "shared.dyn");
    if (layout.defined()) layouts_[buffer.get()] = layout;
    allocated_.push_back(layout.defined() ? Physical(buffer, layout) : buffer);
    made_.push_back(buffer);
    return buffer;
  }

  bool IsView(const Var& buffer) const final { return views_.IsView(buffer); }

  OwnBarrier AllocBarrier(const std::string& name) final {
    RefuseInInstances("an mbarrier");
    OwnBarrier own;
    own.barrier = MakeBuffer(name, DLDataType{kDLUInt, 64, 1}, {MakeInt(1)}, "shared.barrier");
    allocated_.push_back(own.barrier);
    barriers_.push_back(own.barrier);
    if (loops_ == 0) return own;
    own.parity =
        MakeBuffer(name + "_parity", DLDataType{kDLUInt, 32, 1}, {MakeInt(1)}, "local.var");
    allocated_.push_back(own.parity);
    parities_.push_back(own.parity);
    return own;
  }

  bool HasSafeValue(const Var& tensor) const final {
    return safe_values_.count(views_.RootOf(tensor)) != 0;
  }

  Stmt PlaceAccesses(const Stmt& s) final { return Mutate(s); }

  StoreTraffic StoresTo(const Var& tensor) const final { return traffic_.StoresTo(tensor); }

  void Note(const Span& span, const std::string& text) final {
    notes.push_back(span.defined() ? Where(span) + ": " + text : text);
  }

  /*! What operators say about how they were lowered, in program order. */
  Array<String> notes;

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    const bool outermost = !in_kernel_ && op->attr_key == kThreadExtent;
    if (outermost) traffic_ = TensorTraffic(GetRef<Stmt>(op));
    in_kernel_ |= outermost;
    const bool outside = has_async_owner;
    has_async_owner |= op->attr_key == kAsyncCopy;
    Stmt result;
    const std::vector<Expr> facts = outermost ? FactsWithin(GetRef<Stmt>(op)) : std::vector<Expr>();
    WithFacts(&analyzer_, facts, [&] {
      result = scope_.Within(
          op, [&] { return op->attr_key == kThreadRange ? InRange(op) : Attribute(op); });
    });
    has_async_owner = outside;
    if (outermost) in_kernel_ = false;
    return result;
  }

  Stmt Mutate_(const SBlockNode* op) final {
    for (const Var& buffer : op->alloc_buffers) {
      if (HasMemorySpace(buffer, *target)) continue;
      RefuseMemorySpace(buffer, *target, FirstUse(buffer, op->body));
    }
    const Map<Var, Layout> layout_map = GetLayoutMap(op->annotations);
    if (layout_map.empty()) return WithoutFragments(op);
    Array<Var> allocs;
    for (auto [buffer, layout] : layout_map) layouts_[buffer.get()] = layout;
    views_ = Views(op->body);
    by_elements_ = NamedByElements(op->body, views_);
    if (const auto it = op->annotations.find(kSafeValues); it != op->annotations.end()) {
      safe_values_ = (*it).second.cast<Map<Var, Expr>>();
    }
    for (const Var& buffer : op->alloc_buffers) {
      auto placed = layouts_.find(buffer.get());
      // A fragment that nothing uses has no layout and needs no registers.
      if (placed == layouts_.end() && IsFragment(buffer)) continue;
      allocs.push_back(placed == layouts_.end() ? buffer : Physical(buffer, placed->second));
    }
    auto n = make_object<SBlockNode>(*op);
    EraseLayoutMap(&n->annotations);
    n->body = Mutate(op->body);
    for (const Var& buffer : allocated_) allocs.push_back(buffer);
    allocated_.clear();
    n->alloc_buffers = allocs;
    AddBarriers(n.get());
    return SBlock(n);
  }

  Stmt Mutate_(const DeclBufferNode* op) final {
    const Var root = views_.RootOf(op->buffer);
    auto placed = layouts_.find(op->buffer.get());
    // Views of other memory stay; a fragment that nothing uses has no place to view.
    if (placed == layouts_.end()) return IsFragment(root) ? MakeSeq({}) : GetRef<Stmt>(op);
    const Var view = Physical(op->buffer, placed->second);
    const Var buffer = Physical(root, layouts_.at(root.get()));
    return view.same_as(buffer) ? MakeSeq({}) : Stmt(DeclareView(view, buffer, op->span));
  }

  Stmt Mutate_(const ForNode* op) final {
    if (auto nest = OperatorOf(GetRef<Stmt>(op))) return Rewriting(GetRef<Stmt>(op), *nest);
    analyzer_.Bind(op->loop_var, op->min, op->extent);
    if (IsInstances(op)) return Instances(op);
    const auto rewritten = op->annotations.find(kRewrites);
    if (rewritten == op->annotations.end()) return Repeated(op);
    const auto buffers = (*rewritten).second.cast<Array<Var>>();
    For loop = Repeated(op).as_or_throw<For>();
    loop.CopyOnWrite()->annotations.erase(kRewrites);
    return MakeAttr(PhysicalOf(buffers), kRewrites, MakeInt(1), loop);
  }

  Stmt Mutate_(const WhileNode* op) final { return Repeated(op); }

  Stmt Mutate_(const EvaluateNode* op) final {
    if (auto tile_op = OperatorOf(GetRef<Stmt>(op))) return Rewriting(GetRef<Stmt>(op), *tile_op);
    span_ = op->span;
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const BufferStoreNode* op) final {
    BufferStore store = Default<Stmt>(op).as_or_throw<BufferStore>();
    auto [buffer, indices] = ToPhysical(op->buffer, store->indices);
    if (buffer.same_as(op->buffer)) return store;
    return MakeStore(buffer, store->value, indices, op->span);
  }

  Expr Mutate_(const CallNode* op) final {
    const std::optional<int> tile = ExplicitTile(op);
    Expr call = Default<Expr>(op);
    if (!tile) return call;
    const TensorLoadNode* first = AsAddressOf(op->args[*tile]);
    const auto buffer = first->source.as_or_throw<Var>();
    CheckSwizzle(op, LayoutOf(buffer), by_elements_.count(views_.RootOf(buffer).get()), span_);
    Array<Expr> args = call.as_or_throw<Call>()->args;
    args.Set(*tile, SharedAddress(buffer, MutateArray(first->indices), this));
    return With(op, &CallNode::args, args);
  }

  Expr Mutate_(const TensorLoadNode* op) final {
    Array<Expr> logical = MutateArray(op->indices);
    Var source = op->source.as_or_throw<Var>();
    auto [buffer, indices] = ToPhysical(source, logical);
    if (buffer.same_as(source)) return Default<Expr>(op);
    return LoadOf(buffer, indices);
  }

 private:
  template <typename Loop>
  Stmt Repeated(const Loop* op) {
    ++loops_;
    const Stmt loop = Default<Stmt>(op);
    --loops_;
    return loop;
  }

  /*! Nothing in the block has a layout, so nothing uses its fragments. */
  Stmt WithoutFragments(const SBlockNode* op) {
    SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    EraseLayoutMap(&block.CopyOnWrite()->annotations);
    if (NoneOf(op->alloc_buffers, IsFragment)) return block;
    Array<Var> kept;
    for (const Var& buffer : op->alloc_buffers) {
      if (!IsFragment(buffer)) kept.push_back(buffer);
    }
    block.CopyOnWrite()->alloc_buffers = kept;
    return block;
  }

  /*! The operators' own mbarriers, and the parities that they count from 0. */
  void AddBarriers(SBlockNode* block) {
    if (barriers_.empty()) return;
    Map<Var, Array<IntImm>> counts;
    const auto known = block->annotations.find(kBarrierInit);
    if (known != block->annotations.end()) {
      counts = (*known).second.cast<Map<Var, Array<IntImm>>>();
    }
    for (const Var& barrier : barriers_) counts.Set(barrier, {MakeInt(1)});
    block->annotations.Set(kBarrierInit, counts);
    std::vector<Stmt> body;
    for (const Var& parity : parities_) {
      const Expr zero = MakeInt(DTypeOf(parity), 0);
      body.push_back(MakeStore(parity, zero, {MakeInt(0)}, block->span));
    }
    body.push_back(block->body);
    block->body = MakeSeq(body);
    barriers_.clear();
    parities_.clear();
  }

  Stmt Attribute(const AttrStmtNode* op) {
    if (op->attr_key == kThreadExtent) {
      scope_.BindTo(&analyzer_);
      thread = scope_.ThreadIndex();
    }
    if (op->attr_key != kRewrites) return Default<Stmt>(op);
    return MakeAttr(PhysicalOf(op->node.cast<Array<Var>>()), kRewrites, op->value,
                    Mutate(op->body));
  }

  Array<Var> PhysicalOf(const Array<Var>& buffers) {
    return buffers.Map([&](const Var& buffer) {
      const auto it = layouts_.find(buffer.get());
      return it == layouts_.end() ? buffer : Physical(buffer, it->second);
    });
  }

  /*! Threads of a range count from its first one; the analyzer knows how many they are. */
  Stmt InRange(const AttrStmtNode* op) {
    const std::vector<ThreadRange> ranges = ThreadRangesOf(op);
    if (ranges.size() != 1) return Default<Stmt>(op);
    const bool was_in_range = std::exchange(in_range, true);
    const Stmt result = InOneRange(op, ranges[0]);
    in_range = was_in_range;
    return result;
  }

  Stmt InOneRange(const AttrStmtNode* op, ThreadRange range) {
    const auto [first, threads] = range;
    const Expr around = std::exchange(thread, scope_.ThreadIndex());
    Stmt result;
    if (first == 0) {
      const Expr inside = thread < MakeInt(thread->dtype(), threads);
      analyzer_.WithConstraint(inside, [&] { result = Default<Stmt>(op); });
      thread = around;
      return result;
    }
    const Expr in_block = thread;
    const Var number = MakeVar("thread", in_block->dtype());
    analyzer_.BindConst(number, threads);
    thread = number;
    result = Default<Stmt>(op);
    thread = around;
    return Substitute(result, number, in_block - MakeInt(in_block->dtype(), first));
  }

  /*! The body of several warp groups, which share what an operator in it would allocate. */
  Stmt Instances(const ForNode* op) {
    in_instances_ = !IsConst(op->extent, 1);
    const Stmt loop = Default<Stmt>(op);
    in_instances_ = false;
    return loop;
  }

  void RefuseInInstances(const std::string& what) const {
    if (!in_instances_) return;
    ThrowAt(span_, "ValueError",
            "found an operator that takes " + what +
                " of its own in T.ws(.., each=True), wanted one that takes none, since warp groups "
                "would share it; give each group a T.ws of its own, or copy by T.async_copy, or by "
                "T.tma_copy with an mbarrier");
  }

  /*! An operator, and the shared memory that holds nothing of worth when it begins: what it
   * overwrites, or has made for itself. */
  Stmt Rewriting(const Stmt& s, const TileOperator& op) {
    const size_t made = allocated_.size();
    const Stmt lowered = Lowered(op);
    Array<Var> rewritten;
    for (size_t i = made; i < allocated_.size(); ++i) {
      if (ScopeOf(allocated_[i]) == "shared.dyn") rewritten.push_back(allocated_[i]);
    }
    if (const CallNode* call = AsTileOp(s, kAcquire)) {
      // Who waits for a fill of all that there is wants nothing of the one before.
      for (const Expr& arg : call->args) {
        const bool is_region = arg.as<TensorRegionNode>() != nullptr;
        const TileRegion region = is_region ? TileRegion::From(arg) : TileRegion();
        if (!is_region || ScopeOf(region.buffer) != "shared.dyn" || !region.IsWhole()) continue;
        rewritten.push_back(views_.RootOf(region.buffer));
      }
    }
    if (!has_async_owner) {
      for (const Var& v : views_.UseOf(s).writes) {
        if (ScopeOf(v) == "shared.dyn" && Overwrites(s, v, views_)) rewritten.push_back(v);
      }
    }
    if (rewritten.empty()) return lowered;
    return MakeAttr(PhysicalOf(rewritten), kRewrites, MakeInt(1), lowered);
  }

  Stmt Lowered(const TileOperator& op) {
    const ThreadRange threads = scope_.Threads(op.span);
    num_threads = threads.threads;
    first_thread = threads.first;
    return op.Lower(this);
  }

  Var Physical(const Var& buffer, const Layout& layout) {
    const Var root = views_.RootOf(buffer);
    // A view of the same dtype has the coordinates of its buffer.
    if (!root.same_as(buffer) && DTypeOf(root) == DTypeOf(buffer)) {
      return Physical(root, layouts_.at(root.get()));
    }
    auto [it, is_new] = physical_.try_emplace(buffer.get(), Var());
    if (!is_new) return it->second;
    Array<Expr> shape;
    for (int64_t e : layout->OutputShape()) shape.push_back(MakeInt(e));
    const bool in_registers = IsFragment(buffer) || IsReducer(buffer);
    const std::string scope = in_registers ? "local" : ScopeOf(buffer);
    it->second = MakeBuffer(buffer->name, DTypeOf(buffer), shape, scope);
    return it->second;
  }

  KernelScope scope_;
  Analyzer analyzer_;
  std::unordered_map<const Object*, Layout> layouts_;
  std::unordered_map<const Object*, Var> physical_;
  std::vector<Var> allocated_;
  std::vector<Var> barriers_, parities_;
  Map<Var, Expr> safe_values_;
  int loops_ = 0;
  std::vector<Var> made_;  // keeps alive what the tables know by address
  Views views_;
  TensorTraffic traffic_;
  bool in_kernel_ = false;
  bool in_instances_ = false;
  std::unordered_set<const Object*> by_elements_;
  Span span_;
};

PrimFunc LowerTileOp(PrimFunc f) {
  TileOpLowerer lowerer(TargetOf(f));
  Stmt body = lowerer.Mutate(f->body);
  f = WithBody(std::move(f), body);
  return WithNotes(std::move(f), lowerer.notes);
}

TL_REGISTER_PASS(LowerTileOp);

}  // namespace
}  // namespace tl
