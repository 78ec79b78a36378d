/*!
 * PlaceAsyncWaits: lets asynchronous operations run while the program goes on.
 *
 * In:  one of two forms. A tile program has expanded pipelines, and a T.gemm is complete when the
 * next statement begins. A thread program before VectorizeLoop has
 * `AttrStmt({tile, tensor, order}, "tl.store_wait", region)` around each TMA store that the
 * compiler has to wait for. The order is "none" if nothing depends on when global memory is
 * written, and "additions" if the kernel only adds to the tensor.
 * Out: the same form. A T.gemm whose instruction is a wgmma does not wait (`wg_wait` is -1).
 * `tl.tileop.wgmma_wait(n, C..)` stands where one has to be finished: at most n groups stay in
 * flight, and the accumulators C.. are complete. A T.wait_wgmma gets the accumulators that are
 * complete after it. A TMA store has lost its attribute, and `tl.tma_store_wait` stands likewise.
 * All threads run it; it returns at once in a thread that has issued nothing. Function attribute
 * `tl.async_waits` has a line for each wait, with its reason.
 * Establishes: each statement finds the memory that it found before. ThreadSync places the barrier
 * between a wait and the accesses of other threads.
 * Refuses: nothing. If a kernel has T.wgmma_gemm or T.wait_wgmma, the program counts groups itself,
 * and each T.gemm waits at once.
 *
 * async_waits.h has the dataflow, the target the queues. The pass runs once for each form:
 * layout inference needs to know which MMAs are asynchronous, and decides which stores use TMA.
 */
#include "../analysis/async_waits.h"
#include "../op/call_attrs.h"
#include "../op/gemm.h"
#include "../op/gemm_instruction.h"
#include "../op/wgmma_wait.h"
#include "../tvm/attrs.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"
#include "../tvm/registry.h"
#include "each_kernel.h"
#include "tile/kernel_scope.h"

namespace tl {
namespace {

constexpr const char* kAsyncWaits = "tl.async_waits";

/*! What decides how a kernel is read. */
struct Scan : StmtExprVisitor {
  /*! Something may be an operation to wait for. */
  bool may_issue = false;
  /*! The program waits for its MMAs itself. */
  bool counts_groups = false;
  explicit Scan(const Stmt& kernel) { Visit(kernel); }

 protected:
  void Visit_(const EvaluateNode* op) final {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    may_issue |= call && IsGemm(call);
    counts_groups |= IsCallTo(op->value, kWarpgroupCommit) || IsCallTo(op->value, kWgmmaWait) ||
                     (call && TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits);
  }
  void Visit_(const AttrStmtNode* op) final {
    may_issue |= op->attr_key == kStoreWait;
    Default(op);
  }
};

/*! Finds the MMAs and TMA stores that need no wait of their own. */
class Reader : public CfgReader {
 public:
  Reader(const Views& views, const Target& target, bool by_hand)
      : views_(views), target_(target), by_hand_(by_hand) {}

  std::unique_ptr<AsyncIssue> IssueOf(const Stmt& s, bool together) final {
    if (const auto* attr = s.as<AttrStmtNode>(); attr && attr->attr_key == kStoreWait) {
      return Store(attr);
    }
    const CallNode* call = AsTileOp(s);
    return call && IsGemm(call) && together ? Mma(s.as<EvaluateNode>(), call) : nullptr;
  }
  std::optional<AsyncWait> WaitOf(const Stmt& s) final {
    const CallNode* call = AsTileOp(s, kWgmmaWait);
    if (!call) return std::nullopt;
    return AsyncWait{
        target_.RowOf(AsyncQueue::kWgmma), ToInt(call->args[0]), Completion::kComplete, {}, ""};
  }

 private:
  MemoryAccess AccessOf(const TileRegion& r, bool writes) const {
    return {views_.RootOf(r.buffer), r, writes};
  }

  std::unique_ptr<AsyncIssue> Mma(const EvaluateNode* statement, const CallNode* call) const {
    const Span& span = statement->span;
    GemmOp op = ParseGemm(call, span);
    if (by_hand_ && !op.asynchronous) return nullptr;
    const GemmPlan plan = PlanOf(call, span);
    if (!plan.UsesWgmma()) return nullptr;
    auto issue = std::make_unique<AsyncIssue>();
    issue->queue = target_.RowOf(AsyncQueue::kWgmma);
    issue->name = "gemm";
    issue->sources = {AccessOf(op.a, false), AccessOf(op.b, false)};
    issue->destinations = {AccessOf(op.c, true)};
    // PTX ISA, wgmma.fence: MMAs of one shape on the same accumulators keep their order.
    issue->chain = ShapeOf(plan.wgmma);
    issue->result = AccumulatorOf(call);
    issue->by_hand = op.asynchronous;
    issue->issue = WithoutWait(statement);
    return issue;
  }

  static std::string ShapeOf(const GroupChoice& choice) {
    const MatrixInstruction& i = *choice.instruction;
    return std::string(i.accumulator_name) + " " + i.operand_name + " " + i.NameB() + " n" +
           std::to_string(choice.n) + " k" + std::to_string(i.k) + (i.sparse ? " sparse" : "");
  }

  static Stmt WithoutWait(const EvaluateNode* gemm) {
    const auto* call = gemm->value.as<CallNode>();
    return MakeEvaluate(WithTileOpAttr(call, kWgWait, kNobodyWaits), gemm->span);
  }

  std::unique_ptr<AsyncIssue> Store(const AttrStmtNode* op) const {
    const auto about = op->node.cast<Array<Any>>();
    const Var tile = views_.RootOf(about[0].cast<Var>());
    const String order = about[2].cast<String>();
    const MemoryAccess tensor = AccessOf(TileRegion::From(op->value), true);
    auto issue = std::make_unique<AsyncIssue>();
    issue->queue = target_.RowOf(AsyncQueue::kTmaStore);
    issue->name = "store";
    issue->sources = {{tile, std::nullopt, false}};
    if (order != kOrderNone) {
      issue->destinations = {tensor};
      for (const Var& other : views_.OthersOf(tensor.memory)) {
        issue->destinations.push_back({other, std::nullopt, true});
      }
    }
    if (order == kOrderAdditions) issue->chain = kOrderAdditions;
    issue->issue = op->body;
    return issue;
  }

  const Views& views_;
  const Target& target_;
  const bool by_hand_;
};

Stmt WaitStatement(const AsyncWait& wait, const Span& span) {
  if (wait.queue->queue == AsyncQueue::kWgmma) {
    Array<Expr> args = {MakeInt(wait.pending)};
    for (const AsyncIssue* issue : wait.complete) args.push_back(issue->result);
    return MakeEvaluate(CallOp(kWgmmaWait, args), span);
  }
  Array<Expr> args = {MakeInt(wait.pending)};
  if (wait.queue->waits_for_reads) {
    args.push_back(StringOf(wait.until == Completion::kHasRead ? "true" : "false"));
  }
  return MakeEvaluate(CallOp(wait.queue->wait, args), span);
}

PrimFunc PlaceAsyncWaits(PrimFunc f) {
  Array<String> texts;
  if (const Any known = GetAttr(f, kAsyncWaits); known != nullptr) {
    texts = known.cast<Array<String>>();
  }
  const size_t known = texts.size();
  f = ForEachKernel(f, [&, &target = TargetOf(f)](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    const Scan scan(kernel);
    if (!scan.may_issue) return kernel;
    const Views views(kernel);
    Analyzer analyzer;
    Reader reader(views, target, scan.counts_groups);
    const std::unique_ptr<CfgNode> tree = BuildCfg(kernel, views, &analyzer, &reader);
    if (!HasIssue(*tree)) return kernel;
    WithFacts(&analyzer, FactsWithin(kernel), [&] { PlanAsyncWaits(tree.get(), &analyzer); });
    for (const String& text : WaitTexts(*tree)) texts.push_back(text);
    return WithWaits(*tree, WaitStatement);
  });
  if (texts.size() == known) return f;
  return WithAttr(std::move(f), kAsyncWaits, texts);
}

TL_REGISTER_PASS(PlaceAsyncWaits);

}  // namespace
}  // namespace tl
