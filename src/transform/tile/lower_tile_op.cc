/*!
 * LowerTileOp: the one door from tile programs to thread programs.
 *
 * In:  a tile program with `layout_map` on its blocks and `parallel_loop_layout` on parallel loops
 * over fragments. Out: a thread program. Tile operators and parallel loops became loops of one
 * thread, fragments became `local` buffers of its registers, shared buffers have their physical
 * shape and every access its physical indices. Establishes: no tile operator, no fragment and no
 * layout is left. Refuses: fragments without a layout (a bug: LayoutInference places them all).
 */
#include <unordered_map>

#include "../../op/gemm.h"
#include "../../op/loop_layout.h"
#include "../../tvm/error.h"
#include "../../tvm/registry.h"
#include "kernel_scope.h"

namespace tl {
namespace {

class Lowerer : public StmtExprMutator {
 public:
  explicit Lowerer(int arch) : arch_(arch) {}

 protected:
  using StmtExprMutator::Mutate_;

  Stmt Mutate_(const AttrStmtNode* op) final {
    if (scope_.Enter(op)) scope_.BindTo(&analyzer_);
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const SBlockNode* op) final {
    auto it = op->annotations.find("layout_map");
    if (it == op->annotations.end()) return Default<Stmt>(op);
    Array<Var> allocs;
    for (auto [buffer, layout] : (*it).second.cast<Map<Var, Layout>>())
      layouts_[buffer.get()] = layout;
    for (const Var& buffer : op->alloc_buffers) {
      auto placed = layouts_.find(buffer.get());
      // A fragment that nothing uses has no layout and needs no registers.
      if (placed == layouts_.end() && IsFragment(buffer)) continue;
      allocs.push_back(placed == layouts_.end() ? buffer : Physical(buffer, placed->second));
    }
    auto n = make_object<SBlockNode>(*op);
    n->annotations.erase("layout_map");
    n->alloc_buffers = allocs;
    n->body = Mutate(op->body);
    return SBlock(n);
  }

  Stmt Mutate_(const ForNode* op) final {
    if (op->kind != ForKind::kParallel) {
      analyzer_.Bind(op->loop_var, op->min, op->extent);
      return Default<Stmt>(op);
    }
    Fragment layout;
    if (auto it = op->annotations.find("parallel_loop_layout"); it != op->annotations.end()) {
      layout = (*it).second.cast<Fragment>();
    }
    return FinishNest(NestOfLoop(op), layout);
  }

  Stmt Mutate_(const EvaluateNode* op) final {
    Stmt s = GetRef<Stmt>(op);
    if (IsTileOp(s, kGemm)) return Gemm(GemmOp::From(AsTileOp(s), op->span));
    if (!AsTileOp(s)) return Default<Stmt>(op);
    ParallelNest nest = *NestOf(s);
    auto lookup = [this](const Var& b) { return FragmentOf(b); };
    auto layout = ChooseLoopLayout(nest, FragmentAccesses(nest), lookup);
    return FinishNest(nest, layout ? *layout : Fragment());
  }

  Stmt Mutate_(const BufferStoreNode* op) final {
    BufferStore store = Default<Stmt>(op).as_or_throw<BufferStore>();
    auto [buffer, indices] = Place(op->buffer, store->indices);
    if (buffer.same_as(op->buffer)) return store;
    return MakeStore(buffer, store->value, indices, op->span);
  }

  Expr Mutate_(const TensorLoadNode* op) final {
    Array<Expr> logical = MutateArray(op->indices);
    Var source = op->source.as_or_throw<Var>();
    auto [buffer, indices] = Place(source, logical);
    if (buffer.same_as(source)) return Default<Expr>(op);
    return LoadOf(buffer, indices);
  }

 private:
  Var Physical(const Var& buffer, const Layout& layout) {
    auto [it, is_new] = physical_.try_emplace(buffer.get(), Var());
    if (!is_new) return it->second;
    Array<Expr> shape;
    for (int64_t e : layout->OutputShape()) shape.push_back(MakeInt(e));
    const std::string scope = IsFragment(buffer) ? "local" : ScopeOf(buffer);
    it->second = MakeBuffer(buffer->name, BufferOf(buffer)->dtype->dtype, shape, scope);
    return it->second;
  }

  Fragment FragmentOf(const Var& buffer) const {
    auto it = layouts_.find(buffer.get());
    if (it == layouts_.end())
      ThrowBug(Span(), "LowerTileOp", "no layout for " + std::string(buffer->name));
    return it->second.as_or_throw<Fragment>();
  }

  /*! Physical buffer and indices of an access of a shared buffer; other buffers stay as they are.
   */
  std::pair<Var, Array<Expr>> Place(const Var& buffer, const Array<Expr>& indices) {
    auto it = layouts_.find(buffer.get());
    if (it == layouts_.end() || IsFragment(buffer)) return {buffer, indices};
    Array<Expr> mapped =
        it->second->MapIndex(indices).Map([&](Expr e) { return analyzer_.Simplify(e); });
    return {Physical(buffer, it->second), mapped};
  }

  Stmt FinishNest(const ParallelNest& nest, const Fragment& layout) {
    NestLowering ctx{scope_.ThreadIndex(), scope_.NumThreads(), &analyzer_,
                     [this](const Var& b) { return FragmentOf(b); },
                     [this](const Var& b) { return Physical(b, FragmentOf(b)); }};
    // Shared accesses still have logical indices.
    return Mutate(LowerNest(nest, layout, ctx));
  }

  Stmt Gemm(const GemmOp& op) {
    const GemmPlan plan = PlanGemm(op, scope_.NumThreads(), arch_);
    GemmLowering ctx{Physical(op.c.buffer, FragmentOf(op.c.buffer)), scope_.ThreadIndex(),
                     [this](const TileRegion& region, const Array<Expr>& matrix) {
                       Array<Expr> indices = region.Mins();
                       const size_t lead = indices.size() - 2;
                       for (size_t d = 0; d < 2; ++d) {
                         indices.Set(lead + d, indices[lead + d] + matrix[d]);
                       }
                       return Place(region.buffer, indices);
                     }};
    return LowerGemm(op, plan, ctx);
  }

  int arch_;
  KernelScope scope_;
  Analyzer analyzer_;
  std::unordered_map<const Object*, Layout> layouts_;
  std::unordered_map<const Object*, Var> physical_;
};

PrimFunc LowerTileOp(PrimFunc f) {
  Stmt body = Lowerer(TargetArch(f)).Mutate(f->body);
  return WithBody(std::move(f), body);
}

Registration registration([] { RegisterPass("LowerTileOp", LowerTileOp); });

}  // namespace
}  // namespace tl
