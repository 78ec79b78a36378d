/*!
 * LayoutInference: decides where every element of a tile lives.
 *
 * In:  a tile program under thread_extent attributes, pipelines already expanded.
 * Out: the same program; block annotation `layout_map` (buffer -> Layout or Fragment) has every
 * shared buffer and every fragment that is used, and each outermost parallel loop that touches
 * fragments has `parallel_loop_layout`. Establishes: every access of a fragment is to a register of
 * the thread that makes it. Refuses: fragments whose users want different places, or that are used
 * outside tile operators and parallel loops (ValueError with both statements).
 *
 * Levels, each run to the end before the next: strict (operators that dictate: gemm), common (loops
 * follow fragments that are placed, fragments follow loops), free (a loop over fragments of which
 * none is placed gets the partition with the widest vectors). Operators are taken in program order,
 * so the result depends on nothing but the program.
 */
#include <unordered_map>

#include "../../op/gemm.h"
#include "../../op/loop_layout.h"
#include "../../tvm/error.h"
#include "../../tvm/registry.h"
#include "kernel_scope.h"

namespace tl {
namespace {

/*! A placed buffer and the statement that asked for the place. */
struct Placed {
  Layout layout;
  Span asked_by;
};

struct NestUse {
  ParallelNest nest;
  std::vector<FragmentAccess> accesses;
  const ForNode* loop;  // nullptr for copies and fills
  Fragment layout;
};

/*! Collects operators and the buffers of one kernel, in program order. */
class OpCollector : public StmtExprVisitor {
 public:
  std::vector<NestUse> nests;
  std::vector<GemmOp> gemms;
  std::vector<Var> buffers;
  KernelScope scope;
  Map<Var, Layout> annotated;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const AttrStmtNode* op) final {
    scope.Enter(op);
    Default(op);
  }
  void Visit_(const SBlockNode* op) final {
    for (const Var& v : op->alloc_buffers) buffers.push_back(v);
    if (auto it = op->annotations.find("layout_map"); it != op->annotations.end()) {
      annotated = (*it).second.cast<Map<Var, Layout>>();
    }
    Visit(op->body);
  }
  void Visit_(const EvaluateNode* op) final {
    Stmt s = GetRef<Stmt>(op);
    if (IsTileOp(s, kGemm)) {
      gemms.push_back(GemmOp::From(AsTileOp(s), op->span));
    } else if (AsTileOp(s)) {
      AddNest(*NestOf(s), nullptr);
    } else {
      Default(op);
    }
  }
  void Visit_(const ForNode* op) final {
    if (op->kind == ForKind::kParallel) {
      AddNest(NestOfLoop(op), op);
    } else {
      Default(op);
    }
  }
  void Visit_(const BufferStoreNode* op) final {
    RefuseOutside(op->buffer, op->span);
    span_ = op->span;
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    RefuseOutside(op->source.as_or_throw<Var>(), op->span.defined() ? op->span : span_);
    Default(op);
  }

 private:
  void AddNest(ParallelNest nest, const ForNode* loop) {
    std::vector<FragmentAccess> accesses = FragmentAccesses(nest);
    nests.push_back({std::move(nest), std::move(accesses), loop, Fragment()});
  }
  void RefuseOutside(const Var& buffer, const Span& span) {
    if (!IsFragment(buffer)) return;
    ThrowAt(span, "ValueError",
            "found fragment " + std::string(buffer->name) +
                " used outside tile operators and T.Parallel, where no thread owns an element; "
                "wrap the "
                "statement in T.Parallel, or use T.alloc_local for memory of one thread");
  }
  Span span_;
};

class Inference {
 public:
  Inference(OpCollector* ops, int arch)
      : ops_(ops), arch_(arch), threads_(ops->scope.NumThreads()) {}

  Map<Var, Layout> Run() {
    for (auto [buffer, layout] : ops_->annotated) {
      placed_[buffer.get()] = {layout, Span()};
    }
    for (const GemmOp& op : ops_->gemms) Strict(op);
    Common();
    for (NestUse& use : ops_->nests) {
      if (use.layout.defined() || use.accesses.empty()) continue;
      Free(&use);
      Common();
    }
    for (const NestUse& use : ops_->nests) Verify(use);
    return Finish();
  }

 private:
  Fragment FragmentOf(const Var& buffer) const {
    auto it = placed_.find(buffer.get());
    if (it == placed_.end()) return Fragment();
    return it->second.layout.as_or_throw<Fragment>();
  }

  void Place(const Var& buffer, const Layout& layout, const Span& span) {
    auto [it, is_new] = placed_.try_emplace(buffer.get(), Placed{layout, span});
    if (is_new || IsSameLayout(it->second.layout, layout)) return;
    // A user's layout of a shared buffer is one that gemm can read: any injective map will do.
    if (!IsFragment(buffer)) return;
    Conflict(buffer, it->second, layout, span);
  }

  [[noreturn]] static void Conflict(const Var& buffer, const Placed& first, const Layout& second,
                                    const Span& span) {
    ThrowAt(
        span, "ValueError",
        "found two layouts for " + std::string(buffer->name) + ":\n  " + LayoutText(first.layout) +
            (first.asked_by.defined() ? ", asked for at " + Where(first.asked_by) : "") + "\n  " +
            LayoutText(second) + ", asked for here\nwanted one; copy to a second fragment");
  }

  void Strict(const GemmOp& op) {
    const GemmPlan plan = PlanGemm(op, threads_, arch_);
    Place(op.c.buffer, GemmLayoutC(op, plan), op.span);
    Place(op.a.buffer, GemmLayoutShared(op.a), op.span);
    Place(op.b.buffer, GemmLayoutShared(op.b), op.span);
  }

  /*! Loops follow placed fragments, fragments follow loops, until nothing changes. */
  void Common() {
    for (bool changed = true; changed;) {
      changed = false;
      for (NestUse& use : ops_->nests) {
        if (!use.layout.defined()) {
          auto layout = ChooseLoopLayout(use.nest, use.accesses,
                                         [this](const Var& b) { return FragmentOf(b); });
          if (!layout) continue;
          use.layout = *layout;
          changed = true;
        }
        for (const FragmentAccess& access : use.accesses) {
          if (FragmentOf(access.buffer).defined()) continue;
          auto fragment = FragmentFromLayout(use.nest, access, use.layout);
          if (!fragment) continue;
          Place(access.buffer, *fragment, use.nest.span);
          changed = true;
        }
      }
    }
  }

  void Free(NestUse* use) {
    Analyzer analyzer;
    ops_->scope.BindTo(&analyzer);
    StaticExtents(use->nest);
    const int64_t width = PlanVectorWidth(use->nest, threads_, true, &analyzer);
    use->layout = PlanPartition(use->nest, width, threads_);
  }

  void Verify(const NestUse& use) {
    for (const FragmentAccess& access : use.accesses) {
      Fragment fragment = FragmentOf(access.buffer);
      if (!fragment.defined()) {
        ThrowAt(
            use.nest.span, "ValueError",
            "found " + std::string(access.buffer->name) +
                " indexed by something else than all loop variables, each once; no layout can be "
                "derived: index it by the loop variables, or give it a layout elsewhere first");
      }
      if (IsCompatible(use.nest, access, fragment, use.layout)) continue;
      const Placed& first = placed_.at(access.buffer.get());
      ThrowAt(use.nest.span, "ValueError",
              "found an access of " + std::string(access.buffer->name) +
                  " from a thread that does not hold the element.\n  held as " +
                  LayoutText(fragment) +
                  (first.asked_by.defined() ? ", asked for at " + Where(first.asked_by) : "") +
                  "\n  this loop runs as " + LayoutText(use.layout) +
                  "\ncopy through shared memory to change the layout");
    }
  }

  Map<Var, Layout> Finish() {
    Map<Var, Layout> out;
    for (const Var& buffer : ops_->buffers) {
      auto it = placed_.find(buffer.get());
      if (it != placed_.end()) {
        if (!IsFragment(buffer) && !IsInjective(it->second.layout)) {
          ThrowAt(it->second.asked_by, "ValueError",
                  "found a layout of " + std::string(buffer->name) +
                      " that puts two elements in one place, wanted an injective one:\n  " +
                      LayoutText(it->second.layout));
        }
        out.Set(buffer, it->second.layout);
      } else if (IsShared(buffer)) {
        out.Set(buffer, MakeLinearLayout(ConstShape(buffer)));
      }
    }
    return out;
  }

  OpCollector* ops_;
  int arch_;
  int64_t threads_;
  std::unordered_map<const Object*, Placed> placed_;
};

/*! Writes the result down: on the block and on the loops. */
class Annotator : public StmtExprMutator {
 public:
  Map<Var, Layout> layout_map;
  std::unordered_map<const Object*, Fragment> loops;

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const SBlockNode* op) final {
    SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    if (op->alloc_buffers.empty()) return block;
    block.CopyOnWrite()->annotations.Set("layout_map", layout_map);
    return block;
  }
  Stmt Mutate_(const ForNode* op) final {
    auto it = loops.find(op);
    if (it == loops.end()) return Default<Stmt>(op);
    For loop = GetRef<For>(op);
    loop.CopyOnWrite()->annotations.Set("parallel_loop_layout", it->second);
    return loop;
  }
};

/*! Kernels of a function are independent: each is the body of its outermost thread_extent
 * attribute. */
class PerKernel : public StmtExprMutator {
 public:
  explicit PerKernel(int arch) : arch_(arch) {}

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key != "thread_extent") return Default<Stmt>(op);
    OpCollector ops;
    ops(GetRef<Stmt>(op));
    Annotator annotate;
    annotate.layout_map = Inference(&ops, arch_).Run();
    for (const NestUse& use : ops.nests) {
      if (use.loop && use.layout.defined()) annotate.loops[use.loop] = use.layout;
    }
    return annotate.Mutate(GetRef<Stmt>(op));
  }

 private:
  int arch_;
};

PrimFunc LayoutInference(PrimFunc f) {
  Stmt body = PerKernel(TargetArch(f)).Mutate(f->body);
  return WithBody(std::move(f), body);
}

Registration registration([] { RegisterPass("LayoutInference", LayoutInference); });

}  // namespace
}  // namespace tl
