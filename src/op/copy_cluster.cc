/*!
 * tl.tileop.copy_cluster(src region, dst region, barrier region of one element, block):
 * T.copy_cluster to another block. One thread issues a copy of the bytes of `src` to the place that
 * `dst` has in the shared memory of the cluster's block of that rank; the mbarrier at the place of
 * `barrier` there counts them. Both regions have to lie in one piece (PTX ISA, cp.async.bulk).
 */
#include "../target/target.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "intrinsics.h"
#include "tma_copy.h"

namespace tl {
namespace {

class CopyClusterOperator : public TileOperator {
 public:
  CopyClusterOperator(const CallNode* call, const Span& s)
      : TileOperator(s),
        src_(TileRegion::From(call->args[0])),
        dst_(TileRegion::From(call->args[1])),
        barrier_(TileRegion::From(call->args[2])),
        block_(call->args[3]),
        by_one_thread_(TileOpIntAttr(call, kByOneThread, 0) != 0) {}

  BufferUse Use() const final { return {{src_.buffer}, {dst_.buffer}}; }
  bool Infer(LayoutScope* scope, InferLevel level) final {
    if (level != InferLevel::kCommon || !IsShared(src_.buffer) || !IsShared(dst_.buffer))
      return false;
    return Follow(src_.buffer, dst_.buffer, scope) || Follow(dst_.buffer, src_.buffer, scope);
  }

  Stmt Lower(LoweringScope* scope) const final {
    if (!scope->target->Has(Feature::kCluster)) {
      Refuse("a target without clusters (" + scope->target->arch + ")");
    }
    const std::string why =
        WhyNotBytes(src_, Placed(src_, scope), dst_, Placed(dst_, scope), scope->analyzer);
    if (!why.empty()) Refuse(why);
    const Array<Expr> args = {SharedAddress(dst_.buffer, dst_.Mins(), scope),
                              SharedAddress(src_.buffer, src_.Mins(), scope),
                              MakeInt(TmaBytes(dst_)),
                              SharedAddress(barrier_.buffer, barrier_.Mins(), scope), block_};
    const Stmt copy = MakeEvaluate(CallOp(kBulkCopyRemote, args), span);
    return by_one_thread_ ? copy : MakeIf(ElectThread(*scope, 0), copy, span);
  }

 private:
  /*! Tiles of one shape get one layout, so that their bytes have one order. */
  bool Follow(const Var& to, const Var& from, LayoutScope* scope) const {
    const Layout layout = scope->Find(from);
    if (!layout.defined() || scope->Find(to).defined()) return false;
    if (ConstShape(to) != ConstShape(from)) return false;
    scope->SetLayout(to, layout, span);
    return true;
  }

  static Layout Placed(const TileRegion& region, LoweringScope* scope) {
    const Layout layout = scope->LayoutOf(region.buffer);
    return layout.defined() ? layout : MakeLinearLayout(ConstShape(region.buffer));
  }
  [[noreturn]] void Refuse(const std::string& why) const {
    ThrowAt(
        span, "ValueError",
        "T.copy_cluster: found " + why +
            ", wanted two tiles of shared memory that lie in one piece each, in the same order, "
            "at multiples of 16 bytes; give both the same layout: T.annotate_layout");
  }

  TileRegion src_, dst_, barrier_;
  Expr block_;
  bool by_one_thread_;
};

OperatorRegistration copy_cluster_registration(kCopyCluster, "tl.copy_cluster",
                                               MakeOperator<CopyClusterOperator>);

}  // namespace
}  // namespace tl
