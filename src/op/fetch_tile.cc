/*!
 * fetch_tile(counter element, slot element, last): one thread reads a counter in global memory,
 * stores the value in shared memory, and increments the counter; `last` is followed by 0. All
 * blocks get different numbers, in no particular order, until the counter is 0 again. With the
 * attribute `elected`, the thread that reaches the operator does it.
 */
#include "../tvm/attrs.h"
#include "../tvm/build.h"
#include "intrinsics.h"
#include "operator.h"
#include "tma_copy.h"

namespace tl {
namespace {

class FetchTileOperator : public TileOperator {
 public:
  FetchTileOperator(const CallNode* call, const Span& s)
      : TileOperator(s),
        counter_(TileRegion::From(call->args[0])),
        slot_(TileRegion::From(call->args[1])),
        last_(call->args[2]),
        elected_(TileOpIntAttr(call, kElected, 0) != 0) {}

  // What else changes the counter meanwhile changes it by atomic operations, too.
  BufferUse Use() const final { return {{counter_.buffer}, {slot_.buffer}}; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }

  Stmt Lower(LoweringScope* scope) const final {
    const Expr place = AddressOf(counter_.buffer, counter_.Mins());
    const Expr number =
        CallOp(kFetchInc, {StringOf("tl::relaxed"), place, last_}, PrimTy(last_->dtype()));
    const Stmt fetch = scope->PlaceAccesses(MakeStore(slot_.buffer, number, slot_.Mins(), span));
    if (elected_) return fetch;
    const bool elects = scope->target->Has(Feature::kElectSync);
    const Expr first = EqualOf(scope->thread, MakeInt(scope->thread->dtype(), 0));
    return MakeIf(elects ? ElectThread(*scope, 0) : first, fetch, span);
  }

 private:
  TileRegion counter_, slot_;
  Expr last_;
  bool elected_;
};

OperatorRegistration fetch_tile_registration(kFetchTile, "tl.fetch_tile",
                                             MakeOperator<FetchTileOperator>);

}  // namespace
}  // namespace tl
