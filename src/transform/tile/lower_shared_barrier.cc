/*!
 * LowerSharedBarrier: mbarriers are initialised before anyone uses them, and tensor maps asked for.
 *
 * In:  a thread program in block form; blocks may have the annotation `barrier_init`, arrival
 *      counts of each mbarrier of a buffer.
 * Out: the same; such a block begins with the initialisations, by one thread, and a barrier of the
 *      block, in a cluster of the cluster. The annotation is gone. In a kernel with tensor maps
 *      that thread prefetches them first: `tl.prefetch_tma_descriptor()`, for all there are.
 * Establishes: each mbarrier is initialised once, and no block uses one before that. Where blocks
 *      arrive at mbarriers of other blocks, or copy to all of them, no block exits while others may
 *      still do; waits for arrivals that a program makes itself acquire for the cluster.
 * Refuses (ValueError): a mask of blocks that the cluster does not have; mbarriers and other
 *      intrinsics on chips that do not have them; T.thread_return where other blocks may still
 *      arrive at mbarriers. Left out, instead, are fences between proxies where there is one proxy,
 *      and T.pdl_sync and T.pdl_trigger where kernels of a stream do not overlap.
 */
#include <unordered_set>

#include "../../op/intrinsics.h"
#include "../../target/mma.h"
#include "../../target/target.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "kernel_scope.h"

namespace tl {
namespace {

/*! More mbarriers than this with equal counts are initialised in a loop. */
constexpr size_t kMaxUnrolled = 2;

using BarrierInit = Map<Var, Array<IntImm>>;

[[noreturn]] void RefuseTarget(const Span& span, const std::string& what, const Target& found,
                               Feature wanted) {
  ThrowAt(span, "ValueError",
          "found " + what + " for " + found.arch + ", wanted " + TargetsWith(wanted) +
              ". Leave it out, or compile for another target");
}

/*! Leaves out calls that order what the target orders anyway: a program's fences between proxies
 * where there is one proxy, and waits for the kernel before this one where none overlap. */
class OrderRemover : public StmtExprMutator {
 public:
  explicit OrderRemover(const Target& target) : target_(target) {}

 protected:
  Stmt Mutate_(const EvaluateNode* op) final {
    const auto* call = op->value.as<CallNode>();
    const Intrinsic* row = call ? FindIntrinsic(call) : nullptr;
    static const std::unordered_set<std::string> orders = {kFenceProxyAsync, kFenceProxyAsyncAll,
                                                           kPdlSync, kPdlTrigger};
    return row && orders.count(row->op) && !target_.Has(row->feature)
               ? MakeEvaluate(MakeInt(0), op->span)
               : Default<Stmt>(op);
  }

 private:
  const Target& target_;
};

/*! Refuses intrinsics that the target does not have. */
class TargetChecker : public StmtExprVisitor {
 public:
  explicit TargetChecker(const Target& target) : target_(target) {}

 protected:
#define TL_NOTE_SPAN_(Name)                 \
  void Visit_(const Name##Node* op) final { \
    span_ = op->span;                       \
    Default(op);                            \
  }
  TL_NOTE_SPAN_(Evaluate)
  TL_NOTE_SPAN_(Bind)
  TL_NOTE_SPAN_(BufferStore)
  TL_NOTE_SPAN_(IfThenElse)
#undef TL_NOTE_SPAN_

  void Visit_(const CallNode* op) final {
    const Intrinsic* row = FindIntrinsic(op);
    const Feature wanted = row ? FeatureOf(op, *row) : Feature::kNone;
    if (IsWgmma(op) && !target_.Has(wanted)) {
      ThrowAt(span_, "ValueError",
              "found " + row->function + " for " + target_.arch + ", wanted " +
                  TargetsWith(wanted) + "; use T.gemm, which takes the target's own instruction");
    }
    if (!target_.Has(wanted)) {
      const bool barrier = !row->access.empty() && row->access[0] == Access::kBarrier;
      RefuseTarget(span_, barrier ? "a barrier of T.alloc_barrier" : row->function, target_,
                   wanted);
    }
    Default(op);
  }

 private:
  static Feature FeatureOf(const CallNode* op, const Intrinsic& row) {
    if (row.op != kMmaSync && row.op != kMmaSpSync) return row.feature;
    std::vector<std::string> template_args;
    for (int i = 0; i < row.template_args; ++i) {
      const auto size = AsInt(op->args[i]);
      template_args.push_back(size ? std::to_string(*size) : ToString(op->args[i]));
    }
    const MatrixInstruction* mma = FindMatrixInstruction(row.op, template_args);
    return mma ? mma->feature : row.feature;
  }

  const Target& target_;
  Span span_;
};

struct RemoteBarriers {
  /*! Buffers with mbarriers at which other blocks arrive, or which count copies to the cluster. */
  std::unordered_set<const Object*> buffers;
  /*! Those whose waits acquire for the cluster, because an arrival publishes writes of another
   * block. The bytes of a copy are visible without; an arrival that frees a slot publishes none. */
  std::unordered_set<const Object*> acquired;
};

/*! Adds those that a statement uses. */
class RemoteBarrierFinder : public StmtExprVisitor {
 public:
  explicit RemoteBarrierFinder(RemoteBarriers* found) : found_(found) {}

 protected:
  void Visit_(const CallNode* op) final {
    Default(op);
    const bool arrives = IsCallTo(op, kMbarrierArriveRemote);
    const bool makes_room =
        IsCallTo(op, kMbarrierArriveRemoteCta) || IsCallTo(op, kMbarrierArriveWarpCluster);
    if (!FillsOtherBlocks(op) && !arrives && !makes_room) return;
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (p.access != Access::kBarrier) continue;
      found_->buffers.insert(p.buffer.get());
      if (arrives) found_->acquired.insert(p.buffer.get());
    }
  }

 private:
  RemoteBarriers* found_;
};

class BarrierLowerer : public StmtExprMutator {
 public:
  explicit BarrierLowerer(const Target& target) : target_(target) {}

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    const int64_t outside = cluster_blocks_;
    if (op->attr_key == kClusterDims) {
      for (const Expr& dim : op->node.cast<Array<Expr>>()) cluster_blocks_ *= ToInt(dim);
    }
    const Stmt result = scope_.Within(op, [&] { return Default<Stmt>(op); });
    cluster_blocks_ = outside;
    return result;
  }

  Stmt Mutate_(const SBlockNode* op) final {
    // The first copy of a block then does not wait for its tensor map.
    std::vector<Stmt> first;
    if (HasCall(op->body, {kCreateTmaDescriptor})) {
      first.push_back(MakeEvaluate(CallOp(kPrefetchTmaDescriptor, {}), Span()));
    }
    auto n = make_object<SBlockNode>(*op);
    const RemoteBarriers outside = remote_;
    NoteRemoteBarriers(op);
    if (op->annotations.count(kBarrierInit)) {
      n->body = WithBarriers(op, std::move(first));
      n->annotations.erase(kBarrierInit);
    } else {
      n->body = Mutate(op->body);
      if (!first.empty()) n->body = MakeSeq({ByOneThread(first), n->body});
    }
    if (outside.buffers.empty() && !remote_.buffers.empty()) {
      RefuseReturns(op->body);
      n->body = MakeSeq({n->body, Sync(true)});
    }
    remote_ = outside;
    return SBlock(n);
  }

  Expr Mutate_(const CallNode* op) final {
    Expr call = Default<Expr>(op);
    if (FillsOtherBlocks(op)) CheckBlocks(op);
    if (!IsCallTo(call, kMbarrierWait)) return call;
    const bool acquires = remote_.acquired.count(AsAddressOf(op->args[0])->source.get());
    return acquires ? CallOp(kMbarrierWaitCluster, call.as<CallNode>()->args) : call;
  }

  Stmt Mutate_(const EvaluateNode* op) final {
    span_ = op->span;
    return Default<Stmt>(op);
  }

 private:
  /*! The body of a block with mbarriers. One thread does what is in `first`, and initialises them.
   */
  Stmt WithBarriers(const SBlockNode* op, std::vector<Stmt> first) {
    const auto counts = op->annotations.at(kBarrierInit).cast<BarrierInit>();
    std::vector<Var> barriers;
    for (const Var& buffer : op->alloc_buffers) {
      if (counts.count(buffer)) barriers.push_back(buffer);
    }
    if (barriers.size() != counts.size()) {
      ThrowBug(op->span, "LowerSharedBarrier", "arrival counts of a buffer that is not allocated");
    }
    if (!target_.Has(Feature::kMbarrier)) {
      RefuseTarget(op->span, "a barrier of T.alloc_barrier", target_, Feature::kMbarrier);
    }
    for (const Var& buffer : barriers) InitialiseBuffer(buffer, counts[buffer], &first);
    first.push_back(MakeEvaluate(CallOp(kFenceBarrierInit, {}), Span()));
    std::vector<Stmt> body = {ByOneThread(first), Sync(cluster_blocks_ > 1), Mutate(op->body)};
    return MakeSeq(body);
  }

  void NoteRemoteBarriers(const SBlockNode* op) {
    RemoteBarrierFinder{&remote_}(op->body);
    for (const Var& buffer : op->alloc_buffers) {
      if (ScopeOf(buffer) != "shared.cluster_barrier") continue;
      remote_.buffers.insert(buffer.get());
      remote_.acquired.insert(buffer.get());
    }
  }

  /*! Refuses a mask with blocks that the cluster does not have; ranks may be known at run time
   * only. */
  void CheckBlocks(const CallNode* op) const {
    const bool tensor = IsCallTo(op, kTmaLoadMulticast);
    if (!tensor && !IsCallTo(op, kBulkLoadMulticast)) return;
    const int64_t mask = ToInt(op->args[tensor ? 4 : 5]);
    if (mask >> cluster_blocks_ == 0) return;
    ThrowAt(span_, "ValueError",
            "cluster_mask: found " + std::to_string(mask) + " in a cluster of " +
                std::to_string(cluster_blocks_) +
                " blocks, wanted a bit for each block that there is; T.Kernel(.., cluster_dims=)");
  }

  /*! A block that is left does not come to the barrier at the kernel's end. */
  static void RefuseReturns(const Stmt& body) {
    ForEachIn<EvaluateNode>(body, [](const EvaluateNode* op) {
      if (!IsCallTo(op->value, kThreadReturn)) return;
      ThrowAt(op->span, "ValueError",
              "found T.thread_return in a kernel whose blocks arrive at mbarriers of other blocks, "
              "wanted all threads to reach its end, where they wait for that; put what follows "
              "into an `if`");
    });
  }

  static Stmt Sync(bool cluster) {
    const Expr sync = cluster ? CallOp(kClusterSync, {}) : CallOp(kSync, {StringOf("shared")});
    return MakeEvaluate(sync, Span());
  }

  Stmt ByOneThread(const std::vector<Stmt>& stmts) const {
    return MakeIf(EqualOf(scope_.ThreadIndex(), MakeInt(0)), MakeSeq(stmts), Span());
  }

  static void InitialiseBuffer(const Var& buffer, const Array<IntImm>& counts,
                               std::vector<Stmt>* body) {
    auto init = [&](const Expr& i, const Expr& arrivals) {
      // The counts stand where the program allocates the barriers.
      return MakeEvaluate(CallOp(kMbarrierInit, {AddressOf(buffer, {i}), arrivals}),
                          arrivals->span);
    };
    const int64_t first = ToInt(counts[0]);
    const bool equal = AllOf(counts, [&](const IntImm& c) { return IsConst(c, first); });
    if (equal && counts.size() > kMaxUnrolled) {
      const Var i = MakeVar("i");
      const int64_t extent = static_cast<int64_t>(counts.size());
      body->push_back(
          MakeFor(i, MakeInt(extent), ForKind::kUnrolled, init(i, counts[0]), counts[0]->span));
      return;
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      body->push_back(init(MakeInt(static_cast<int64_t>(i)), counts[i]));
    }
  }

  const Target& target_;
  KernelScope scope_;
  RemoteBarriers remote_;
  int64_t cluster_blocks_ = 1;
  Span span_;
};

PrimFunc LowerSharedBarrier(PrimFunc f) {
  const Target& target = TargetOf(f);
  const Stmt body = OrderRemover(target).Mutate(f->body);
  TargetChecker{target}(body);
  return WithBody(f, BarrierLowerer(target).Mutate(body));
}

TL_REGISTER_PASS(LowerSharedBarrier);

}  // namespace
}  // namespace tl
