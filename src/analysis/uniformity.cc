#include "uniformity.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "../op/intrinsics.h"
#include "../op/thread_range.h"
#include "../tvm/attrs.h"
#include "../tvm/name_counts.h"
#include "effects.h"

namespace tl {
namespace {

/*! In which ranges registers and variables are written, and in which they are read. */
class RangeUses : public StmtExprVisitor {
 public:
  explicit RangeUses(const Stmt& body) { Visit(body); }

  /*! A buffer that some range writes and threads read that have their old value. */
  std::vector<const Object*> WithValuesOfSome() const {
    std::vector<const Object*> out;
    for (const auto& [buffer, writers] : writes_) {
      auto readers = reads_.find(buffer);
      if (readers == reads_.end()) continue;
      for (WarpSet w : writers) {
        const bool mixed =
            AnyOf(readers->second, [w](WarpSet r) { return !w.Contains(r) && !w.IsDisjoint(r); });
        if (mixed) out.push_back(buffer);
      }
    }
    return out;
  }

 protected:
  void Visit_(const AttrStmtNode* op) override {
    const WarpSet outside = here_;
    here_ = WarpSet::Of(op).value_or(outside);
    Default(op);
    here_ = outside;
  }
  void Visit_(const BufferStoreNode* op) override {
    Add(&writes_, op->buffer.get());
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) override {
    Add(&reads_, op->source.get());
    Default(op);
  }

 private:
  using Uses = std::unordered_map<const Object*, std::vector<WarpSet>>;
  void Add(Uses* uses, const Object* buffer) {
    std::vector<WarpSet>& known = (*uses)[buffer];
    if (std::find(known.begin(), known.end(), here_) == known.end()) known.push_back(here_);
  }

  WarpSet here_ = WarpSet::All();
  Uses writes_, reads_;
};

bool IsRange(const Stmt& s) {
  const auto* attr = s.as<AttrStmtNode>();
  return attr && WarpSet::Of(attr);
}

/*! All threads of the block get one value, whatever they give. */
bool IsOfBlock(const CallNode* op) {
  const IntrinsicEffects* e = EffectsOf(op);
  return e && e->result == CallResult::kOfBlock;
}

/*! The same, or all lanes of the warp get one value. */
bool IsAgreed(const CallNode* op, bool in_warp, int64_t warp_threads) {
  if (IsOfBlock(op)) return true;
  const IntrinsicEffects* e = EffectsOf(op);
  if (!e || !in_warp) return false;
  if (IsCallTo(op, kAllReduce)) return IsConst(op->args[1], warp_threads);
  const bool from_one =
      IsCallTo(op, kShuffleSync) && AsInt(op->args[2]) && IsConst(op->args[3], warp_threads);
  return from_one || e->agrees_in_warp;
}

/*! All lanes that call it name the same ones, and so are those. */
bool HasConstantMask(const CallNode* op) {
  return IsCallTo(op, kAllReduce) || (!op->args.empty() && AsInt(op->args[0]));
}

/*! Each thread has a value of its own, or writes one to its registers, whatever it gives. */
bool IsOwnOfThread(const CallNode* op) {
  const IntrinsicEffects* e = EffectsOf(op);
  return e && e->result == CallResult::kOfThread;
}

bool IsScalarInteger(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  if (!type || type->dtype.lanes != 1) return false;
  const auto code = type->dtype.code;
  return code == kDLInt || code == kDLUInt || code == kDLBool;
}

}  // namespace

class Uniformity::Judge : public StmtExprVisitor {
 public:
  /*! Evaluating functions of the thread's number is what takes time. */
  Judge(const Uniformity* self, const ThreadSet* among, bool evaluates)
      : self_(self), among_(among ? *among : self->all_), evaluates_(evaluates) {}
  bool uniform = true;

 protected:
  void Visit_(const VarNode* op) override {
    if (IsKnown(op)) return;
    uniform &= !self_->varying_.count(op);
  }
  void Visit_(const TensorLoadNode* op) override {
    const Var buffer = op->source.as_or_throw<Var>();
    uniform &= !self_->varying_.count(buffer.get());
    if (self_->asked_ == Asked::kSurely) {
      uniform &= !IsGlobal(buffer) || !self_->written_.Has(buffer.get());
    }
    for (const Expr& i : op->indices) Visit(i);
  }
  void Visit_(const CallNode* op) override {
    if (IsOfBlock(op)) return;
    if (self_->asked_ == Asked::kSurely) {
      if (self_->one_warp_ && HasConstantMask(op) && IsAgreed(op, true, self_->warp_threads_)) {
        return;
      }
      uniform &= IsIfThenElse(op) || IsElementwise(op);
    } else {
      if (IsAgreed(op, self_->asked_ == Asked::kVisiblyInWarps || IsOneWarp(among_),
                   self_->warp_threads_)) {
        return;
      }
      uniform &= !IsOwnOfThread(op);
    }
    Default(op);
  }
#define TL_EVALUATE_(Node)               \
  void Visit_(const Node* op) override { \
    if (!IsKnown(op)) Default(op);       \
  }
  TL_EVALUATE_(AddNode)
  TL_EVALUATE_(SubNode)
  TL_EVALUATE_(MulNode)
  TL_EVALUATE_(FloorDivNode)
  TL_EVALUATE_(FloorModNode)
  TL_EVALUATE_(BitwiseAndNode)
  TL_EVALUATE_(RShiftNode)
  TL_EVALUATE_(LTNode)
  TL_EVALUATE_(LENode)
  TL_EVALUATE_(GTNode)
  TL_EVALUATE_(GENode)
  TL_EVALUATE_(EQNode)
  TL_EVALUATE_(NENode)
  TL_EVALUATE_(AndNode)
  TL_EVALUATE_(OrNode)
  TL_EVALUATE_(SelectNode)
  TL_EVALUATE_(MinNode)
  TL_EVALUATE_(MaxNode)
#undef TL_EVALUATE_

 private:
  /*! A function of the thread's number that is the same for those asked about. */
  bool IsKnown(const ExprNode* op) const {
    if (!evaluates_) return false;
    Substituter names;
    names.map = self_->names_;
    const int64_t unit = self_->asked_ == Asked::kVisiblyInWarps ? self_->warp_threads_ : 0;
    return among_.IsConstant(names.Mutate(GetRef<Expr>(op)), unit);
  }
  bool IsOneWarp(const ThreadSet& threads) const {
    const int64_t warp = self_->warp_threads_;
    if (!warp) return false;
    return __builtin_popcountll(threads.LanesOf(threads.First() / warp, warp)) == threads.Size();
  }

  const Uniformity* self_;
  const ThreadSet& among_;
  const bool evaluates_;
};

bool Uniformity::IsUniform(const Expr& e, const ThreadSet* among) const {
  for (const bool evaluates : {false, true}) {
    Judge judge(this, among, evaluates);
    judge(e);
    if (judge.uniform) return true;
    if (asked_ == Asked::kSurely) return false;
  }
  return false;
}

bool Uniformity::IsUniform(const ForNode* loop, const ThreadSet* among) const {
  return IsUniform(loop->min, among) && IsUniform(loop->extent, among) &&
         (!loop->step || IsUniform(*loop->step, among)) && !left_early_.count(loop);
}

bool Uniformity::IsUniform(const WhileNode* loop, const ThreadSet* among) const {
  return IsUniform(loop->condition, among) && !left_early_.count(loop);
}

bool Uniformity::IsFollowed(const Var& buffer) const {
  return asked_ == Asked::kSurely ? !IsShared(buffer) : IsLocal(buffer);
}

/*! One walk over the program that adds what varies because of what is known to vary. */
class Uniformity::Propagation : public StmtExprVisitor {
 public:
  explicit Propagation(Uniformity* self) : self_(self) {}
  bool changed = false;

 protected:
  void Visit_(const AttrStmtNode* op) override {
    if (op->attr_key == kThreadExtent && !IsConst(op->value, 1)) {
      const IterVar axis = op->node.cast<IterVar>();
      const bool block = IsBlockAxis(axis);
      if (!block) Add(&self_->varying_, axis->var.get());
    }
    if (!WarpSet::Of(op)) return Default(op);
    const Object* outside = std::exchange(loop_around_range_, loop_);
    const std::optional<ThreadSet> block =
        std::exchange(range_, ThreadSet::Of(self_->all_.axes(), ThreadRangesOf(op)));
    Default(op);
    range_ = block;
    loop_around_range_ = outside;
  }
  void Visit_(const SBlockNode* op) override { Visit(op->body); }

  void Visit_(const ForNode* op) override {
    const bool dealt = op->kind == ForKind::kParallel && self_->asked_ != Asked::kSurely;
    const bool uniform = IsUniform(op) && !dealt;
    if (!uniform) Add(&self_->varying_, op->loop_var.get());
    VisitLoop(op, op->body, uniform);
  }
  void Visit_(const WhileNode* op) override {
    Visit(op->condition);
    VisitLoop(op, op->body, IsUniform(op));
  }
  void Visit_(const BreakNode*) override { LeaveIteration(); }
  void Visit_(const ContinueNode*) override { LeaveIteration(); }
  void Visit_(const EvaluateNode* op) override {
    if (IsBreak(GetRef<Stmt>(op)) || IsContinue(GetRef<Stmt>(op))) return LeaveIteration();
    Default(op);
  }

  void Visit_(const IfThenElseNode* op) override {
    const bool divergent = !IsUniform(op->condition);
    Visit(op->condition);
    VisitBranch(op->then_case, divergent);
    if (op->else_case) VisitBranch(*op->else_case, divergent);
  }
  void Visit_(const BindNode* op) override {
    Visit(op->value);
    if (!IsUniform(op->value)) Add(&self_->varying_, op->var.get());
    if (self_->asked_ == Asked::kSurely || !IsArithmetic(op->value) ||
        !IsScalarInteger(op->value) || !counts_.Add(op->var, op->value)) {
      return;
    }
    Substituter names;
    names.map = self_->names_;
    self_->names_[op->var.get()] = names.Mutate(op->value);
  }
  void Visit_(const LetNode* op) override {
    if (!IsUniform(op->value)) Add(&self_->varying_, op->var.get());
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) override {
    bool uniform = divergence_ == 0 && IsUniform(op->value);
    for (const Expr& i : op->indices) uniform &= IsUniform(i);
    if (!uniform && self_->IsFollowed(op->buffer)) Add(&self_->varying_, op->buffer.get());
    Visit(op->value);
  }
  void Visit_(const CallNode* op) override {
    if (self_->asked_ == Asked::kSurely || divergence_ > 0 || WritesOwn(op)) {
      for (const Object* buffer : WrittenBuffers(MakeEvaluate(GetRef<Expr>(op), Span()))) {
        if (self_->IsFollowed(GetRef<Var>(static_cast<const VarNode*>(buffer)))) {
          Add(&self_->varying_, buffer);
        }
      }
    }
    Default(op);
  }

 private:
  template <typename T>
  bool IsUniform(const T& e) const {
    return self_->IsUniform(e, range_ ? &*range_ : nullptr);
  }
  /*! What a call writes to registers differs by thread. */
  bool WritesOwn(const CallNode* op) const {
    return IsOwnOfThread(op) || AnyOf(op->args, [&](const Expr& e) { return !IsUniform(e); });
  }
  /*! The condition of a range's branch divides the block, not the range. */
  void VisitBranch(const Stmt& s, bool divergent) {
    const bool inside = divergent && !IsRange(s);
    divergence_ += inside;
    Visit(s);
    divergence_ -= inside;
  }
  void VisitLoop(const Object* loop, const Stmt& body, bool uniform) {
    const int outside = divergence_;
    const Object* outer = loop_;
    loop_ = loop;
    divergence_ += !uniform;
    Visit(body);
    divergence_ = outside;
    loop_ = outer;
  }
  void LeaveIteration() {
    if (divergence_ > 0 || loop_ == loop_around_range_) Add(&self_->left_early_, loop_);
  }
  void Add(std::unordered_set<const Object*>* set, const Object* item) {
    changed |= set->insert(item).second;
  }

  Uniformity* self_;
  int divergence_ = 0;
  const Object* loop_ = nullptr;
  /*! What the range around leaves for its own threads only. */
  const Object* loop_around_range_ = nullptr;
  std::optional<ThreadSet> range_;
  NameCounts counts_;
};

Uniformity::Uniformity(const Stmt& body, Asked asked, int64_t warp_threads)
    : asked_(asked), warp_threads_(warp_threads), written_(body) {
  const std::vector<Axis> threads = ThreadAxesOf(body);
  int64_t count = 1;
  for (const Axis& axis : threads) count *= axis.extent;
  one_warp_ = count <= warp_threads;
  if (asked != Asked::kSurely) all_ = ThreadSet(threads);
  for (const Object* buffer : RangeUses(body).WithValuesOfSome()) {
    if (IsFollowed(GetRef<Var>(static_cast<const VarNode*>(buffer)))) varying_.insert(buffer);
  }
  bool changed = true;
  while (changed) {
    Propagation walk(this);
    walk(body);
    changed = walk.changed;
  }
}

}  // namespace tl
