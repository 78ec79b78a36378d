#include "uniformity.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "../../op/intrinsics.h"
#include "../../op/thread_range.h"
#include "../../tvm/functor.h"
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
      for (WarpGroups w : writers) {
        const bool mixed =
            std::any_of(readers->second.begin(), readers->second.end(),
                        [w](WarpGroups r) { return !w.Contains(r) && !w.IsDisjoint(r); });
        if (mixed) out.push_back(buffer);
      }
    }
    return out;
  }

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const AttrStmtNode* op) override {
    const WarpGroups outside = here_;
    here_ = WarpGroups::Of(op).value_or(outside);
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
  using Uses = std::unordered_map<const Object*, std::vector<WarpGroups>>;
  void Add(Uses* uses, const Object* buffer) {
    std::vector<WarpGroups>& known = (*uses)[buffer];
    if (std::find(known.begin(), known.end(), here_) == known.end()) known.push_back(here_);
  }

  WarpGroups here_ = WarpGroups::All();
  Uses writes_, reads_;
};

bool IsRange(const Stmt& s) {
  const auto* attr = s.as<AttrStmtNode>();
  return attr && WarpGroups::Of(attr);
}

bool IsSameInBlock(const CallNode* op) {
  const Intrinsic* row = FindIntrinsic(op);
  return row && (row->op == kBlockRank || row->op == kClusterSize);
}

}  // namespace

bool Uniformity::IsUniform(const Expr& e) const {
  struct Judge : StmtExprVisitor {
    const Uniformity* self;
    bool uniform = true;
    using StmtExprVisitor::Visit_;
    void Visit_(const VarNode* op) override { uniform &= !self->varying_.count(op); }
    void Visit_(const TensorLoadNode* op) override {
      const Var buffer = op->source.as_or_throw<Var>();
      uniform &= !self->varying_.count(buffer.get());
      uniform &= !IsGlobal(buffer) || !self->written_.count(buffer.get());
      for (const Expr& i : op->indices) Visit(i);
    }
    void Visit_(const CallNode* op) override {
      uniform &= IsIfThenElse(op) || IsElementwise(op) || IsSameInBlock(op);
      Default(op);
    }
  } judge;
  judge.self = this;
  judge(e);
  return judge.uniform;
}

bool Uniformity::IsUniform(const ForNode* loop) const {
  return IsUniform(loop->min) && IsUniform(loop->extent) &&
         (!loop->step || IsUniform(*loop->step)) && !left_early_.count(loop);
}

bool Uniformity::IsUniform(const WhileNode* loop) const {
  return IsUniform(loop->condition) && !left_early_.count(loop);
}

/*! One walk over the program that adds what varies because of what is known to vary. */
class Uniformity::Propagation : public StmtExprVisitor {
 public:
  explicit Propagation(Uniformity* self) : self_(self) {}
  bool changed = false;

 protected:
  using StmtExprVisitor::Visit_;

  void Visit_(const AttrStmtNode* op) override {
    if (op->attr_key == "thread_extent" && !IsConst(op->value, 1)) {
      const IterVar axis = op->node.cast<IterVar>();
      const bool block = std::string(axis->thread_tag).rfind("blockIdx", 0) == 0;
      if (!block) Add(&self_->varying_, axis->var.get());
    }
    const Object* outside = loop_around_range_;
    if (WarpGroups::Of(op)) loop_around_range_ = loop_;
    Default(op);
    loop_around_range_ = outside;
  }
  void Visit_(const SBlockNode* op) override { Visit(op->body); }

  void Visit_(const ForNode* op) override {
    const bool uniform = self_->IsUniform(op);
    if (!uniform) Add(&self_->varying_, op->loop_var.get());
    VisitLoop(op, op->body, uniform);
  }
  void Visit_(const WhileNode* op) override {
    Visit(op->condition);
    VisitLoop(op, op->body, self_->IsUniform(op));
  }
  void Visit_(const BreakNode*) override { LeaveIteration(); }
  void Visit_(const ContinueNode*) override { LeaveIteration(); }
  void Visit_(const EvaluateNode* op) override {
    if (IsBreak(GetRef<Stmt>(op)) || IsContinue(GetRef<Stmt>(op))) return LeaveIteration();
    Default(op);
  }

  void Visit_(const IfThenElseNode* op) override {
    const bool divergent = !self_->IsUniform(op->condition);
    Visit(op->condition);
    VisitBranch(op->then_case, divergent);
    if (op->else_case) VisitBranch(*op->else_case, divergent);
  }
  void Visit_(const BindNode* op) override {
    Visit(op->value);
    if (!self_->IsUniform(op->value)) Add(&self_->varying_, op->var.get());
  }
  void Visit_(const LetNode* op) override {
    if (!self_->IsUniform(op->value)) Add(&self_->varying_, op->var.get());
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) override {
    bool uniform = divergence_ == 0 && self_->IsUniform(op->value);
    for (const Expr& i : op->indices) uniform &= self_->IsUniform(i);
    if (!uniform && !IsShared(op->buffer)) Add(&self_->varying_, op->buffer.get());
    Visit(op->value);
  }
  void Visit_(const CallNode* op) override {
    for (const Object* buffer : WrittenBuffers(MakeEvaluate(GetRef<Expr>(op), Span()))) {
      if (!IsShared(GetRef<Var>(static_cast<const VarNode*>(buffer)))) {
        Add(&self_->varying_, buffer);
      }
    }
    Default(op);
  }

 private:
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
};

Uniformity::Uniformity(const Stmt& body) : written_(WrittenBuffers(body)) {
  for (const Object* buffer : RangeUses(body).WithValuesOfSome()) {
    if (!IsShared(GetRef<Var>(static_cast<const VarNode*>(buffer)))) varying_.insert(buffer);
  }
  bool changed = true;
  while (changed) {
    Propagation walk(this);
    walk(body);
    changed = walk.changed;
  }
}

}  // namespace tl
