#include "interleaved_tiles.h"

#include <map>

#include "../../op/gemm_instruction.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"

namespace tl {
namespace {

/*! FragmentDimensions of fragments, and the loop variables that they go by, in classes of what goes
 * together. */
class FragmentDimensions {
 public:
  using Key = std::pair<const Object*, size_t>;
  static Key Of(const Var& fragment, size_t dim) { return {fragment.get(), dim}; }
  static Key Of(const Object* loop_var) { return {loop_var, 0}; }

  void Join(const Key& a, const Key& b) {
    const size_t x = Find(a), y = Find(b);
    if (x == y) return;
    parent_[y] = x;
    if (!count_[x]) count_[x] = count_[y];
    if (count_[y] && *count_[x] != *count_[y]) count_[x] = 1;
  }
  /*! A gemm wants `count` MMAs along the dimension to be interleaved. */
  void Want(const Key& key, int64_t count) {
    std::optional<int64_t>& known = count_[Find(key)];
    known = known && *known != count ? 1 : count;
  }
  int64_t CountOf(const Key& key) { return count_[Find(key)].value_or(1); }

 private:
  size_t Find(const Key& key) {
    const auto [it, added] = number_.try_emplace(key, parent_.size());
    if (added) {
      parent_.push_back(it->second);
      count_.emplace_back();
    }
    size_t at = it->second;
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }

  std::map<Key, size_t> number_;
  std::vector<size_t> parent_;
  std::vector<std::optional<int64_t>> count_;
};

size_t RankOf(const Var& buffer) { return BufferOf(buffer)->shape.size(); }

/*! Reads what a kernel does with fragments. */
class FragmentUses : public StmtExprVisitor {
 public:
  FragmentUses(FragmentDimensions* dims, const Target& target) : dims_(dims), target_(target) {}

  void Forbid(const Var& fragment) {
    for (size_t d = 0; d < RankOf(fragment); ++d)
      dims_->Want(FragmentDimensions::Of(fragment, d), 1);
  }

 protected:
  void Visit_(const EvaluateNode* op) override {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    if (!call) return Default(op);
    if (IsGemm(call)) return Gemm(call, op->span);
    Operator(call);
  }
  void Visit_(const TensorLoadNode* op) override {
    Access(op->source.as_or_throw<Var>(), op->indices);
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) override {
    Access(op->buffer, op->indices);
    Default(op);
  }

 private:
  void Gemm(const CallNode* call, const Span& span) {
    const GemmOp gemm = ParseGemm(call, span);
    const Interleaving wanted = InterleavingOf(gemm, PlanOf(call, span), target_);
    const size_t rank = RankOf(gemm.c.buffer);
    dims_->Want(FragmentDimensions::Of(gemm.c.buffer, rank - 2), wanted.m);
    dims_->Want(FragmentDimensions::Of(gemm.c.buffer, rank - 1), wanted.n);
    for (const TileRegion* r : {&gemm.a, &gemm.b}) {
      if (IsFragment(r->buffer)) Forbid(r->buffer);
    }
  }

  /*! FragmentDimensions go by the variables of their indices. */
  void Access(const Var& buffer, const Array<Expr>& indices) {
    if (!IsFragment(buffer)) return;
    for (size_t d = 0; d < indices.size(); ++d) {
      HasNode<VarNode>(indices[d], [&](const VarNode* var) {
        dims_->Join(FragmentDimensions::Of(buffer, d), FragmentDimensions::Of(var));
        return false;
      });
    }
  }

  /*! The same dimensions of two fragments of one rank go together; of others, all of them. */
  void Operator(const CallNode* call) {
    std::vector<Var> fragments;
    for (const Expr& arg : call->args) {
      const auto* region = arg.as<TensorRegionNode>();
      const Var buffer = region ? TileRegion::From(arg).buffer : Var();
      if (buffer.defined() && IsFragment(buffer)) fragments.push_back(buffer);
    }
    for (size_t k = 1; k < fragments.size(); ++k) {
      const Var &a = fragments[0], &b = fragments[k];
      for (size_t d = 0; d < RankOf(a); ++d) {
        for (size_t e = 0; e < RankOf(b); ++e) {
          if (RankOf(a) == RankOf(b) && d != e) continue;
          dims_->Join(FragmentDimensions::Of(a, d), FragmentDimensions::Of(b, e));
        }
      }
    }
  }

  FragmentDimensions* dims_;
  const Target& target_;
};

class Interleaver : public StmtExprMutator {
 public:
  explicit Interleaver(FragmentDimensions* dims) : dims_(dims) {}

 protected:
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = AsTileOp(s);
    if (!call || !IsGemm(call)) return s;
    const GemmOp gemm = ParseGemm(call, op->span);
    GemmPlan plan = PlanOf(call, op->span);
    const size_t rank = RankOf(gemm.c.buffer);
    plan.interleaving = {dims_->CountOf(FragmentDimensions::Of(gemm.c.buffer, rank - 2)),
                         dims_->CountOf(FragmentDimensions::Of(gemm.c.buffer, rank - 1))};
    if (plan.interleaving == Interleaving()) return s;
    return MakeEvaluate(WithInstruction(call, gemm, plan), op->span);
  }

 private:
  FragmentDimensions* dims_;
};

}  // namespace

Stmt InterleaveTiles(const Stmt& kernel, const Views& views, const Map<Var, Layout>& annotated,
                     const Target& target) {
  FragmentDimensions dims;
  FragmentUses uses(&dims, target);
  uses(kernel);
  for (const auto& [buffer, layout] : annotated) {
    if (IsFragment(buffer)) uses.Forbid(buffer);
  }
  for (const Var& view : views.all) {
    for (const Var& name : {view, views.RootOf(view)}) {
      if (IsFragment(name)) uses.Forbid(name);
    }
  }
  return Interleaver(&dims).Mutate(kernel);
}

}  // namespace tl
