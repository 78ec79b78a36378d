/*!
 * signal(element, value, "set" or "add") writes or adds to an element, perhaps in the memory of
 * another rank, behind everything that the threads of the operator did before.
 * signal_wait_until(element, value, comparison, rank) lets none of these threads go on before
 * `element comparison value`; what they do then comes behind what the sender of the signal did.
 * sync_ranks(row, tensor, addresses, rank, ranks) waits for the same operator of all ranks.
 *
 * With attribute `elected` (tma_copy.h) one thread has come to a wait, and goes on alone.
 *
 * One thread signals for all, behind a barrier of the threads: its release at the scope of the
 * system covers what it has learned of the others there (PTX ISA, Memory Consistency Model,
 * Causality order). What the async proxy did is awaited, by the effects of the intrinsics, and
 * fenced.
 */
#include <string>

#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "operator.h"
#include "rank_intrinsics.h"
#include "tma_copy.h"

namespace tl {
namespace {

/*! The threads of the operator meet, and order what they did. */
Stmt Meet(const LoweringScope& scope, const Span& span) {
  Array<Expr> args = {StringOf("shared")};
  if (scope.in_range) args.push_back(StringOf(kOfRange));
  return MakeEvaluate(CallOp(kSync, args), span);
}

Stmt FirstThread(const LoweringScope& scope, const Stmt& body, const Span& span) {
  return MakeIf(EqualOf(scope.thread, MakeInt(scope.thread->dtype(), 0)), body, span);
}

class SignalOperator : public TileOperator {
 public:
  SignalOperator(const CallNode* call, const Span& s)
      : TileOperator(s), signal_(TileRegion::From(call->args[0])), value_(call->args[1]) {
    adds_ = ToString(call->args[2]) == "add";
  }

  BufferUse Use() const final { return {{}, {signal_.buffer}}; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }

  Stmt Lower(LoweringScope* scope) const final {
    const Expr place = AddressOf(signal_.buffer, signal_.Mins());
    const Stmt send = MakeEvaluate(CallOp(adds_ ? kSignalAdd : kSignalSet, {place, value_}), span);
    return MakeSeq({MakeEvaluate(CallOp(kBeforeSignal, {}), span), Meet(*scope, span),
                    FirstThread(*scope, send, span)});
  }

 private:
  TileRegion signal_;
  Expr value_;
  bool adds_;
};

class SignalWaitOperator : public TileOperator {
 public:
  SignalWaitOperator(const CallNode* call, const Span& s)
      : TileOperator(s),
        signal_(TileRegion::From(call->args[0])),
        value_(call->args[1]),
        rank_(call->args[3]),
        by_one_thread_(TileOpIntAttr(call, kElected, 0) != 0) {
    comparison_ = ToString(call->args[2]);
  }

  BufferUse Use() const final { return {{signal_.buffer}, {}}; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }

  Stmt Lower(LoweringScope* scope) const final {
    const Expr place = AddressOf(signal_.buffer, signal_.Mins());
    const std::string where = Where(span);
    const Expr name =
        StringOf(std::string(signal_.buffer->name) + (where.empty() ? "" : " at " + where));
    const Expr comparison = StringOf("tl::Compare::" + comparison_);
    const Stmt wait =
        MakeEvaluate(CallOp(kSignalWait, {comparison, place, value_, rank_, name}), span);
    const Stmt behind = MakeEvaluate(CallOp(kBehindWait, {}), span);
    if (by_one_thread_) return MakeSeq({wait, behind});
    return MakeSeq({FirstThread(*scope, wait, span), Meet(*scope, span), behind});
  }

 private:
  TileRegion signal_;
  Expr value_, rank_;
  bool by_one_thread_;
  std::string comparison_;
};

class SyncRanksOperator : public TileOperator {
 public:
  SyncRanksOperator(const CallNode* call, const Span& s)
      : TileOperator(s),
        row_(TileRegion::From(call->args[0])),
        tensor_(TileRegion::From(call->args[1])),
        addresses_(TileRegion::From(call->args[2])),
        rank_(call->args[3]),
        ranks_(call->args[4]),
        by_one_thread_(TileOpIntAttr(call, kElected, 0) != 0) {}

  BufferUse Use() const final { return {{row_.buffer, addresses_.buffer}, {row_.buffer}}; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }

  Stmt Lower(LoweringScope* scope) const final {
    const Expr row = AddressOf(row_.buffer, row_.Mins());
    const Expr first = AddressOf(tensor_.buffer, tensor_.Mins());
    const Expr addresses = AddressOf(addresses_.buffer, addresses_.Mins());
    const Expr threads = MakeInt(by_one_thread_ ? 1 : scope->num_threads);
    const Expr thread = by_one_thread_ ? Expr(MakeInt(0)) : scope->thread;
    const Expr arrive =
        CallOp(kSyncRanksArrive, {row, first, rank_, ranks_, thread, threads, addresses});
    const Expr wait = CallOp(kSyncRanksWait, {row, rank_, ranks_, thread, threads});
    const auto call = [&](const Expr& e) { return MakeEvaluate(e, span); };
    if (by_one_thread_) {
      return MakeSeq({call(CallOp(kBeforeSignal, {})), call(arrive), call(wait),
                      call(CallOp(kBehindWait, {}))});
    }
    // The wait reads how often this rank has arrived, which one of its threads has counted.
    return MakeSeq({call(CallOp(kBeforeSignal, {})), Meet(*scope, span), call(arrive),
                    Meet(*scope, span), call(wait), Meet(*scope, span),
                    call(CallOp(kBehindWait, {}))});
  }

 private:
  TileRegion row_, tensor_, addresses_;
  Expr rank_, ranks_;
  bool by_one_thread_;
};

OperatorRegistration signal(kSignalOp, "tl.signal", MakeOperator<SignalOperator>);
OperatorRegistration signal_wait_registration(kSignalWaitOp, "tl.signal_wait_until",
                                              MakeOperator<SignalWaitOperator>);
OperatorRegistration sync(kSyncRanksOp, "tl.sync_ranks", MakeOperator<SyncRanksOperator>);

}  // namespace
}  // namespace tl
