#include "convert_accumulators.h"

#include <map>
#include <unordered_map>

#include "../../op/copy_instruction.h"
#include "../../op/operator.h"
#include "../../op/tile_op.h"
#include "../../op/wgmma_wait.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"

namespace tl {
namespace {

class AccumulatorConverter : public StmtExprMutator {
 public:
  AccumulatorConverter(const Stmt& kernel, const std::vector<Dictation>& dictations, int keeper)
      : fragment_(dictations[0].fragment), keeper_(keeper), views_(kernel) {
    for (const Dictation& d : dictations) layout_of_[d.statement.get()] = d.layout;
    has_unawaited_ = HasNode<EvaluateNode>(kernel, [](const EvaluateNode* op) {
      const CallNode* call = AsTileOp(GetRef<Stmt>(op));
      return call && TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
    });
  }

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    if (op->alloc_buffers.empty()) return Default<Stmt>(op);
    SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    for (const auto& [layout, v] : own_) block.CopyOnWrite()->alloc_buffers.push_back(v);
    own_.clear();
    return block;
  }
  Stmt Mutate_(const ForNode* op) final {
    const std::optional<int> layout = OnlyLayoutIn(op->body);
    if (op->kind == ForKind::kParallel || !layout || *layout == keeper_ || HasViews(op->body)) {
      return Default<Stmt>(op);
    }
    return Around(GetRef<Stmt>(op), *layout, op->span);
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    const auto it = layout_of_.find(op);
    if (it == layout_of_.end() || it->second == keeper_) return GetRef<Stmt>(op);
    return Around(GetRef<Stmt>(op), it->second, op->span);
  }

 private:
  /*! The layout that all statements dictate which dictate any. */
  std::optional<int> OnlyLayoutIn(const Stmt& body) const {
    std::optional<int> found;
    const bool several = HasNode<EvaluateNode>(body, [&](const EvaluateNode* op) {
      const auto it = layout_of_.find(op);
      if (it == layout_of_.end()) return false;
      const int before = found.value_or(it->second);
      found = it->second;
      return before != it->second;
    });
    return several ? std::nullopt : found;
  }

  /*! The fragment has other names in a statement. */
  bool HasViews(const Stmt& s) const {
    const BufferUse use = CollectBufferUse(s);
    const auto is_view = [this](const Var& v) {
      return !v.same_as(fragment_) && views_.IsSameMemory(v, fragment_);
    };
    return AnyOf(use.reads, is_view) || AnyOf(use.writes, is_view);
  }

  /*! A statement on a fragment of its own. A loop may run no iteration, or read before it writes.
   */
  Stmt Around(const Stmt& s, int layout, const Span& span) {
    const bool only_writes = AsTileOp(s) && !Contains(CollectBufferUse(s).reads, fragment_);
    Var& own = own_[layout];
    if (!own.defined()) {
      const BufferTypeNode* type = BufferOf(fragment_);
      own = MakeBuffer(std::string(fragment_->name) + "_" + std::to_string(layout + 1),
                       type->dtype->dtype, type->shape, type->storage_scope);
    }
    std::vector<Stmt> out;
    if (!only_writes) Copy(fragment_, own, span, &out);
    out.push_back(Substitute(s, fragment_, own));
    Copy(own, fragment_, span, &out);
    return MakeSeq(out);
  }

  void Copy(const Var& from, const Var& to, const Span& span, std::vector<Stmt>* out) const {
    if (has_unawaited_) {
      out->push_back(
          MakeEvaluate(CallOp(kWgmmaWait, {MakeInt(0), TileRegion::Whole(from).ToExpr()}), span));
    }
    const Call copy =
        CallOp(kCopy, {TileRegion::Whole(from).ToExpr(), TileRegion::Whole(to).ToExpr()});
    out->push_back(MakeEvaluate(WithChoice(copy.get(), ChoiceOfThreads(from, to)), span));
  }

  const Var fragment_;
  int keeper_;
  const Views views_;
  std::unordered_map<const Object*, int> layout_of_;
  bool has_unawaited_ = false;
  std::map<int, Var> own_;
};

}  // namespace

Stmt ConvertAccumulators(const Stmt& kernel, const std::vector<Dictation>& dictations, int keeper) {
  return AccumulatorConverter(kernel, dictations, keeper).Mutate(kernel);
}

}  // namespace tl
