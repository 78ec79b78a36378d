#include "predicated_load.h"

#include <cmath>

#include "../op/views.h"
#include "../tvm/functor.h"
#include "effects.h"

namespace tl {
namespace {

/*! A program without declarations of views. */
struct ViewRemover : StmtExprMutator {
  Stmt Mutate_(const DeclBufferNode*) final { return MakeSeq({}); }
};

}  // namespace

bool IsZeros(const Expr& e) {
  if (const auto* broadcast = e.as<BroadcastNode>()) return IsZeros(broadcast->value);
  if (const auto* f = e.as<FloatImmNode>()) return f->value == 0.0 && !std::signbit(f->value);
  return IsConst(e, 0);
}

std::optional<PredicatedLoad> AsPredicatedLoad(Expr value) {
  Expr condition;
  const CallNode* call;
  while ((call = value.as<CallNode>()) && IsIfThenElse(call)) {
    if (call->args[0]->dtype().lanes != 1 || !IsZeros(call->args[2])) return std::nullopt;
    condition = condition.defined() ? condition && call->args[0] : call->args[0];
    value = call->args[1];
  }
  const auto* load = value.as<TensorLoadNode>();
  if (!load || !IsGlobal(load->source.as_or_throw<Var>())) return std::nullopt;
  return PredicatedLoad{load, condition};
}

std::unordered_set<const Object*> WrittenTensors(const Stmt& kernel) {
  // The accesses through a view count, not its declaration.
  std::unordered_set<const Object*> written = WrittenBuffers(ViewRemover().Mutate(kernel));
  const Views views(kernel);
  for (const Var& view : views.all) {
    if (written.count(view.get())) written.insert(views.RootOf(view).get());
  }
  return written;
}

}  // namespace tl
