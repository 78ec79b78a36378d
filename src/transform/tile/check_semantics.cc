/*!
 * CheckSemantics: what a tile program may not do, told before anything is lowered.
 *
 * In:  a tile program as traced.   Out: the same program.
 * Establishes: parallel loops are perfectly nested, hold no tile operator and no pipelined loop; a
 * parallel loop that indexes a fragment has a static range; no parallel variable indexes memory of
 * one thread; every buffer is in a memory that targets have, and by itself fits there, since passes
 * go over its elements; nothing loads or stores an mbarrier; tiles whose extents the launch decides
 * are operands of what threads do element by element; T.ws(.., each=True) stands in no branch on
 * the thread's number. Refuses: anything else (ValueError, "[Tilelang Semantic Check]").
 */
#include <cstdio>

#include "../../op/copy_instruction.h"
#include "../../op/launch_sized.h"
#include "../../op/operator.h"
#include "../../op/tma_copy.h"
#include "../../op/tma_reduce.h"
#include "../../target/memory_spaces.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../instances.h"
#include "buffer_bytes.h"

namespace tl {
namespace {

[[noreturn]] void Refuse(const Span& span, const std::string& message) {
  ThrowAt(span, "ValueError", "[Tilelang Semantic Check] " + message);
}

/*! Bytes of local memory of a thread (CUDA C++ Programming Guide, "Compute Capabilities"). */
constexpr int64_t kMostBytesOfThread = 512 << 10;

/*! PlanSharedMemory says more of shared memory that is short by less: which buffers share bytes. */
constexpr int kManyBlocks = 16;

class SemanticsChecker : public StmtExprVisitor {
 public:
  explicit SemanticsChecker(const Target& target) : target_(target) {}

 protected:
  void Visit_(const ForNode* op) final {
    if (!parallel_.empty() && IntAnnotation(op->annotations, kNumStages)) {
      Refuse(op->span,
             "found T.Pipelined inside T.Parallel; wanted it outside: swap the two loops");
    }
    if (op->kind == ForKind::kThreadBinding) CountThreads(op);
    if (op->kind != ForKind::kParallel) return Default(op);
    if (!parallel_.empty() && !perfectly_nested_) {
      Refuse(op->span,
             "found T.Parallel inside the body of another T.Parallel, beside other statements; "
             "wanted one "
             "perfect nest: use T.Parallel(m, n), or T.serial for the inner loop");
    }
    parallel_.push_back(op);
    const auto* inner = op->body.as<ForNode>();
    perfectly_nested_ = inner && inner->kind == ForKind::kParallel;
    Default(op);
    perfectly_nested_ = false;
    parallel_.pop_back();
  }

  void Visit_(const EvaluateNode* op) final {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    if (call && !parallel_.empty()) {
      Refuse(op->span,
             "found a tile operator (" + std::string(OpOf(call)->name) +
                 ") inside T.Parallel, whose body one thread runs; move it out of the loop");
    }
    span_ = op->span;
    if (call) CheckExtents(call);
    takes_barrier_ = call && (IsCallTo(op->value, kTmaCopy) || IsCallTo(op->value, kCopyCluster));
    Default(op);
  }

  void Visit_(const TensorRegionNode* op) final {
    const auto buffer = op->source.as_or_throw<Var>();
    if (IsBarrier(buffer) && !takes_barrier_) RefuseValue(buffer);
    Default(op);
  }

  void Visit_(const SBlockNode* op) final {
    for (const Var& buffer : op->alloc_buffers) {
      if (const MemorySpaceRow* row = FindMemorySpace(ScopeOf(buffer))) {
        CheckSize(buffer, row->owner);
        continue;
      }
      Refuse(op->span, "found " + std::string(buffer->name) + " in memory '" + ScopeOf(buffer) +
                           "', which no target has; allocate it by T.alloc_shared, "
                           "T.alloc_fragment or T.alloc_local");
    }
    Default(op);
  }

  void Visit_(const BufferStoreNode* op) final {
    span_ = op->span;
    CheckAccess(op->buffer, op->indices);
    Default(op);
  }

  // A pointer to an element is no access of it.
  void Visit_(const CallNode* op) final {
    for (const Expr& arg : op->args) {
      const TensorLoadNode* pointee = AsAddressOf(arg);
      if (!pointee || !IsBarrier(pointee->source.as_or_throw<Var>())) {
        Visit(arg);
        continue;
      }
      for (const Expr& index : pointee->indices) Visit(index);
    }
  }

  void Visit_(const BindNode* op) final {
    if (IsOfThread(op->value)) of_thread_.push_back(op->var);
    Default(op);
  }

  void Visit_(const IfThenElseNode* op) final {
    if (!IsOfThread(op->condition)) return Default(op);
    if (InstancesOf(op) && thread_branches_ > 0) {
      Refuse(op->span,
             "found T.ws(.., each=True) inside of a branch on the thread's number, which its warp "
             "groups may not all take; wanted it outside: put the branch into its body");
    }
    ++thread_branches_;
    Default(op);
    --thread_branches_;
  }

  void Visit_(const TensorLoadNode* op) final {
    CheckAccess(op->source.as_or_throw<Var>(), op->indices);
    Default(op);
  }

 private:
  void CountThreads(const ForNode* op) {
    const std::string tag = op->thread_binding.value()->thread_tag;
    if (tag == "threadIdx.x") threads_ = 1;
    kernel_ = op->span;
    if (tag.rfind("threadIdx", 0) != 0) return;
    threads_ *= ToInt(op->extent);
    of_thread_.push_back(op->loop_var);
  }

  bool IsOfThread(const Expr& e) const {
    const std::vector<Var> vars = VarsOf(e);
    return AnyOf(vars, [&](const Var& v) { return Contains(of_thread_, v); });
  }

  void CheckSize(const Var& buffer, MemoryOwner owner) const {
    if (owner == MemoryOwner::kLaunch) return;
    const bool is_shared = owner == MemoryOwner::kBlock || owner == MemoryOwner::kBarriers;
    const int64_t most = is_shared                       ? target_.limits.shared_bytes_per_block
                         : owner == MemoryOwner::kThread ? kMostBytesOfThread
                                                         : kMostBytesOfThread * threads_;
    const double found = BytesAskedFor(buffer);
    if (found <= double(most) * (is_shared ? kManyBlocks : 1)) return;
    char text[32];
    snprintf(text, sizeof(text), "%.0f", found);
    Refuse(kernel_, "found " + std::string(text) + " bytes of " + std::string(buffer->name) +
                        " in " + (is_shared ? "shared memory" : "registers and local memory") +
                        ", wanted at most " + std::to_string(most) + " (" + target_.arch +
                        "); make the tile smaller");
  }
  [[noreturn]] void RefuseValue(const Var& barrier) const {
    Refuse(span_, "found " + std::string(barrier->name) +
                      ", an mbarrier, as a value; wanted an operand of T.mbarrier_arrive, "
                      "T.mbarrier_wait_parity and the like, which alone know its bits");
  }

  /*! What the launch decides, no table of a layout and no box of a copy by TMA has. */
  void CheckExtents(const CallNode* call) const {
    const bool by_elements = IsCallTo(call, kCopy) || IsCallTo(call, kFill) ||
                             IsCallTo(call, kTranspose) || IsCallTo(call, kAtomic);
    const Any prefer = TileOpAttr(call, "prefer_instruction");
    const bool by_tma = TileOpIntAttr(call, "use_tma", 0) != 0 ||
                        (prefer != nullptr && prefer.cast<String>() == "tma");
    for (const Expr& arg : call->args) {
      const auto* region = arg.as<TensorRegionNode>();
      if (!region || !IsSizedAtLaunch(region->source.as_or_throw<Var>())) continue;
      if (by_elements && !by_tma) continue;
      Refuse(span_, "found " + std::string(region->source.as_or_throw<Var>()->name) +
                        ", whose extents the launch decides, as an operand of T." +
                        TileOpName(call) + (by_tma ? " by TMA" : "") +
                        "; wanted a tile of constant extents: allocate one, and T.copy to it");
    }
  }

  static bool Mentions(const Array<Expr>& indices, const Var& var) {
    return AnyOf(indices, [&](const Expr& e) { return Uses(e, var); });
  }

  void CheckAccess(const Var& buffer, const Array<Expr>& indices) {
    if (IsBarrier(buffer)) RefuseValue(buffer);
    if (!IsFragment(buffer) && ScopeOf(buffer) != "local") return;
    for (const ForNode* loop : parallel_) {
      if (!Mentions(indices, loop->loop_var)) continue;
      if (!IsFragment(buffer)) {
        Refuse(span_, "found T.Parallel variable " + std::string(loop->loop_var->name) +
                          " indexing " + std::string(buffer->name) +
                          ", memory of one thread; wanted a fragment: use T.alloc_fragment");
      }
      if (!AsInt(loop->extent)) {
        Refuse(span_, "found T.Parallel with a dynamic range indexing fragment " +
                          std::string(buffer->name) + "; wanted a static range");
      }
    }
  }

  std::vector<const ForNode*> parallel_;
  bool perfectly_nested_ = false;
  bool takes_barrier_ = false;  // the tile operator around
  Span span_;
  const Target& target_;
  int64_t threads_ = 1;
  std::vector<Var> of_thread_;  // the threads' numbers, and names of what is made of them
  int thread_branches_ = 0;     // around the present statement
  Span kernel_;                 // of T.Kernel
};

PrimFunc CheckSemantics(PrimFunc f) {
  SemanticsChecker(TargetOf(f))(f->body);
  return f;
}

TL_REGISTER_PASS(CheckSemantics);

}  // namespace
}  // namespace tl
