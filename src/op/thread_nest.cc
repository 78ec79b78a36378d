#include "thread_nest.h"

#include "../tvm/error.h"
#include "parallel_operator.h"

namespace tl {
namespace {

class ThreadNest : public TileOperator {
 public:
  explicit ThreadNest(ParallelNest nest) : TileOperator(nest.span), nest_(std::move(nest)) {}

  BufferUse Use() const final { return CollectBufferUse(nest_.body); }
  bool IsOfThread() const final { return true; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }

  Stmt Lower(LoweringScope* scope) const final {
    Stmt body = nest_.body;
    for (size_t i = nest_.vars.size(); i-- > 0;) {
      const bool innermost = i + 1 == nest_.vars.size();
      const bool vector = innermost && nest_.max_width != 1;
      ForKind kind = vector ? ForKind::kVectorized : ForKind::kUnrolled;
      if (!AsInt(nest_.extents[i])) kind = ForKind::kSerial;
      scope->analyzer->Bind(nest_.vars[i], MakeInt(0), nest_.extents[i]);
      body = MakeFor(nest_.vars[i], nest_.extents[i], kind, body, span);
    }
    return scope->PlaceAccesses(body);
  }

 private:
  ParallelNest nest_;
};

}  // namespace

std::unique_ptr<TileOperator> MakeNestOperator(ParallelNest nest,
                                               const std::vector<Var>& operands) {
  const auto is_local = [](const Var& v) { return ScopeOf(v) == "local"; };
  if (NoneOf(operands, is_local)) {
    return MakeParallelOperator(std::move(nest), Fragment());
  }
  const auto fragment = FindIf(operands, IsFragment);
  if (fragment != operands.end()) {
    ThrowAt(nest.span, "ValueError",
            "found " + std::string((*fragment)->name) +
                ", which is spread over the threads, beside memory of one thread, wanted a tile in "
                "shared or global memory; copy the fragment to shared memory first");
  }
  return std::make_unique<ThreadNest>(std::move(nest));
}

}  // namespace tl
