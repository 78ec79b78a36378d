/*!
 * WidenBlocks: blocks of products get twice as many threads.
 *
 * In:  a tile program under thread_extent attributes, compiled a second time because ptxas spilled
 *      or serialised what it had made of the first (tilelang/jit/second_choice.py); else nothing
 *      changes.
 * Out: the same, with twice the threads in kernels with products by wgmma that do not depend on
 *      their number.
 * Establishes: a thread has half of each fragment: accumulators of 128 x 128 and of 128 x 128 take
 *      256 registers of each of 128 threads, which are more than a thread has.
 * Left alone: kernels that name a thread, a range of threads or its registers, a barrier, a layout
 * of a fragment, or an operation that is not elementwise; clusters; blocks of 384 threads and more.
 * Refuses nothing.
 */
#include <unordered_set>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../layout/annotation.h"
#include "../../op/gemm.h"
#include "../../target/mma.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"

namespace tl {
namespace {

constexpr int64_t kMostThreads = 256;

bool IsThreadExtent(const AttrStmtNode* op) {
  return op->attr_key == kThreadExtent && IsThreadAxis(op->node.cast<IterVar>());
}

/*! What a kernel says of its threads. */
class ThreadReader : public StmtExprVisitor {
 public:
  int64_t threads = 1;
  bool has_product = false, depends = false;

 protected:
  void Visit_(const AttrStmtNode* op) final {
    const std::string& key = op->attr_key;
    if (IsThreadExtent(op)) {
      threads *= AsInt(op->value).value_or(0);
      names_.insert(op->node.cast<IterVar>()->var.get());
    }
    depends |= key == kThreadRange || key == kWsOp || key == kProducerRegisters ||
               key == kConsumerRegisters || key == kNoSetMaxNReg || key == kClusterDims;
    Visit(op->body);
  }
  void Visit_(const SBlockNode* op) final {
    depends |= op->annotations.count(kWsSchedule) != 0;
    for (const auto& [buffer, layout] : GetLayoutMap(op->annotations)) {
      depends |= layout.as<FragmentNode>() != nullptr;
    }
    for (const Var& buffer : op->alloc_buffers) depends |= IsBarrier(buffer);
    Default(op);
  }
  void Visit_(const VarNode* op) final { depends |= names_.count(op) != 0; }
  void Visit_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = AsTileOp(s);
    if (!call) {
      depends |= !AssumptionOf(s).defined();
      return Default(op);
    }
    has_product |= IsGemm(call);
    for (const Expr& arg : call->args) Visit(arg);
  }
  void Visit_(const CallNode* op) final {
    depends |= !IsElementwise(op) && !IsIfThenElse(op);
    Default(op);
  }

 private:
  std::unordered_set<const Object*> names_;
};

class Widener : public StmtExprMutator {
 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key != kThreadExtent) return GetRef<Stmt>(op);
    AttrStmt s = Default<Stmt>(op).as_or_throw<AttrStmt>();
    const IterVar axis = op->node.cast<IterVar>();
    if (std::string(axis->thread_tag) != "threadIdx.x") return s;
    const Expr threads = MakeInt(op->value->dtype(), 2 * ToInt(op->value));
    return WithAxis(s.get(), axis->var, threads);
  }
};

PrimFunc WidenBlocks(PrimFunc f) {
  if (!PassConfigFlag("tl.second_choice.more_threads", false)) return f;
  if (!TargetOf(f).Has(Feature::kWgmma)) return f;
  return ForEachKernel(f, [](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    ThreadReader reader;
    reader(kernel);
    const bool widens = reader.has_product && !reader.depends &&
                        reader.threads % kWarpGroupThreads == 0 && reader.threads <= kMostThreads;
    return widens ? Widener().Mutate(kernel) : kernel;
  });
}

TL_REGISTER_PASS(WidenBlocks);

}  // namespace
}  // namespace tl
