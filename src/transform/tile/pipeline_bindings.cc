#include "pipeline_bindings.h"

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../tvm/name_counts.h"
#include "pipeline.h"

namespace tl {
namespace {

/*! Statement `at` binds `value` to a name. If each user of the name computed the value itself, a
 * write in between could change it. Gives a buffer that `value` reads and that is written before
 * such a user; undefined if there is none. */
Var ChangedBeforeUse(const std::vector<Stmt>& source, size_t at, const Var& name, const Expr& value,
                     const std::vector<BufferUse>& uses, const Views& views) {
  size_t last = at;
  for (size_t j = at + 1; j < source.size(); ++j) {
    if (Uses(source[j], name)) last = j;
  }
  for (const Var& read : views.UseOf(MakeEvaluate(value, Span())).reads) {
    for (size_t j = at + 1; j <= last; ++j) {
      // A store computes its value before it writes.
      const bool ends_with_write = j == last && source[j].as<BufferStoreNode>();
      if (!ends_with_write && Contains(uses[j].writes, read)) return read;
    }
  }
  return Var();
}

class TableGuard : public StmtExprMutator {
 public:
  explicit TableGuard(const Expr& predicate) : predicate_(predicate) {}

 protected:
  Stmt Mutate_(const BufferStoreNode* op) final {
    return MakeStore(op->buffer, Mutate(op->value), Indices(op->indices), op->span);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    const Var buffer = op->source.as_or_throw<Var>();
    const Expr load = LoadOf(buffer, Indices(op->indices));
    if (!in_index_ || !IsGlobal(buffer)) return load;
    return IfThenElseOf(predicate_, load, ZeroOf(load->dtype()));
  }
  Expr Mutate_(const TensorRegionNode* op) final {
    ++in_index_;
    const Expr region = Default<Expr>(op);
    --in_index_;
    return region;
  }

 private:
  Array<Expr> Indices(const Array<Expr>& indices) {
    ++in_index_;
    const Array<Expr> guarded = MutateArray(indices);
    --in_index_;
    return guarded;
  }
  const Expr predicate_;
  int in_index_ = 0;
};

}  // namespace

Stmt GuardTables(const Stmt& copy, const Expr& predicate) {
  return TableGuard(predicate).Mutate(copy);
}

InlinedBody InlineBindings(const std::vector<Stmt>& source, const Views& views) {
  std::vector<BufferUse> uses;
  for (const Stmt& s : source) uses.push_back(views.UseOf(s));
  Substituter inliner;
  NameCounts counts;
  InlinedBody out;
  for (size_t i = 0; i < source.size(); ++i) {
    const auto* bind = source[i].as<BindNode>();
    if (!bind) {
      out.body.push_back(inliner.map.empty() ? source[i] : inliner.Mutate(source[i]));
      continue;
    }
    const Expr value = inliner.Mutate(bind->value);
    const Var changed = ChangedBeforeUse(source, i, bind->var, value, uses, views);
    if (WritesMemory(value)) {
      out.reason = "the call that gives the value does something, and a pipeline would repeat it";
    } else if (changed.defined()) {
      out.reason = "it keeps what " + std::string(changed->name) +
                   " was, which is written before the value is used";
    } else if (!counts.Add(bind->var, bind->value)) {
      out.reason = "it reads more than " + std::to_string(kMostNames) +
                   " values once each name in it is its value, and each user would compute them";
    }
    if (!out.reason.empty()) {
      out.fixed = source[i];
      return out;
    }
    inliner.map[bind->var.get()] = value;
  }
  return out;
}

ParallelNest InlinedNestOfLoop(const ForNode* loop, const Views& views) {
  ParallelNest nest = NestOfLoop(loop);
  const InlinedBody inlined = InlineBindings(FlatSeq(nest.body), views);
  if (!inlined.fixed.defined()) nest.body = MakeSeq(inlined.body);
  return nest;
}

}  // namespace tl
