#include "sync_instances.h"

#include "../../op/intrinsics.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../instances.h"
#include "../rename.h"
#include "thread_names.h"

namespace tl {
namespace {

/*! The attribute that names the group of a branch that WithAllInstances has made. */
const AttrStmtNode* InstanceOf(const Stmt& s) {
  const auto* branch = s.as<IfThenElseNode>();
  const auto* range = branch ? branch->then_case.as<AttrStmtNode>() : nullptr;
  const auto* instance = range ? range->body.as<AttrStmtNode>() : nullptr;
  return instance && instance->attr_key == kInstances ? instance : nullptr;
}

/*! The body of a group behind the first one: its threads' numbers, its number, its barriers. */
class InstanceMaker : public BindingRenamer {
 public:
  explicit InstanceMaker(int64_t instance) : instance_(instance) {}

 protected:
  Expr Mutate_(const CallNode* op) final {
    const Expr call = Default<Expr>(op);
    if (!IsCallTo(call, kSyncPartial)) return call;
    auto own = make_object<CallNode>(*call.as<CallNode>());
    own->args.Set(0, MakeInt(ToInt(own->args[0]) + instance_));
    return Call(own);
  }

 private:
  const int64_t instance_;
};

class BarrierSpreader : public StmtExprMutator {
 public:
  explicit BarrierSpreader(bool has_named_barriers) : has_named_barriers_(has_named_barriers) {}

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const IterVar axis = op->node.cast<IterVar>();
      if (std::string(axis->thread_tag) == "threadIdx.x") thread_ = axis->var;
    }
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const BindNode* op) final {
    named_.Note(op->var, named_.InNumbers(op->value), thread_);
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const ForNode* op) final {
    if (IsInstances(op) && !IsConst(op->extent, 1)) {
      ThrowBug(op->span, "ThreadSync", "a loop over warp groups that is not alone in their range");
    }
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const IfThenElseNode* op) final {
    const ForNode* loop = InstancesOf(op);
    if (!loop) return Default<Stmt>(op);
    if (!has_named_barriers_) {
      ThrowAt(loop->span, "ValueError",
              "found T.ws(.., each=True), wanted a target with named barriers, at which warp "
              "groups wait each by itself; give each group a T.ws of its own");
    }
    std::vector<Stmt> branches;
    for (int64_t i = 0; i < ToInt(loop->extent); ++i) branches.push_back(Instance(op, loop, i));
    return MakeSeq(branches);
  }

 private:
  Stmt Instance(const IfThenElseNode* op, const ForNode* loop, int64_t i) const {
    const auto* range = op->then_case.as<AttrStmtNode>();
    const Expr number = MakeInt(loop->loop_var->dtype(), i);
    Stmt body = loop->body;
    Expr condition = op->condition;
    if (i == 0) {
      body = MakeSeq({MakeBind(loop->loop_var, number, loop->span), body});
    } else {
      InstanceMaker maker(i);
      const Expr begin = MakeInt(thread_->dtype(), i * kWarpGroupThreads);
      const Expr of_first = thread_ - begin;
      for (const auto& [name, value] : named_) {
        maker.map[name.get()] = Substitute(value, thread_, of_first);
      }
      maker.map[thread_.get()] = of_first;
      // The same statements as the first one has.
      const Var instance = MakeVar(loop->loop_var->name, loop->loop_var->dtype());
      maker.map[loop->loop_var.get()] = instance;
      body = MakeSeq({MakeBind(instance, number, loop->span), maker.Mutate(body)});
      // The first group's condition may say less: all numbers are 0 or more.
      condition = thread_ >= begin && maker.Mutate(condition);
    }
    const Any which = i == 0 ? Any(GetRef<For>(loop)) : Any(number);
    const ThreadRange first = ThreadRangesOf(range)[0];
    const Array<Any> threads = {first.first + i * kWarpGroupThreads, first.threads};
    const Stmt own = MakeAttr(threads, kThreadRange, range->value,
                              MakeAttr(which, kInstances, loop->extent, body));
    return MakeIf(condition, own, op->span);
  }

  const bool has_named_barriers_;
  Var thread_{nullptr};
  ThreadNames named_;
};

class Collapser : public StmtExprMutator {
 protected:
  Stmt Mutate_(const SeqStmtNode* op) final {
    std::vector<Stmt> stmts;
    for (const Stmt& s : op->seq) {
      const AttrStmtNode* instance = InstanceIn(s);
      if (!instance || instance->node.as<For>()) stmts.push_back(Mutate(s));
    }
    return MakeSeq(stmts);
  }

  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key != kInstances) return Default<Stmt>(op);
    auto loop = make_object<ForNode>(*op->node.cast<For>().get());
    std::vector<Stmt> stmts = FlatSeq(op->body);
    const auto binds = [&](const Stmt& s) {
      const auto* bind = s.as<BindNode>();
      return bind && bind->var.same_as(loop->loop_var);
    };
    stmts.erase(FindIf(stmts, binds));
    loop->body = MakeSeq(stmts);
    return For(loop);
  }

 private:
  /*! Also where a barrier stands in front of the body. */
  static const AttrStmtNode* InstanceIn(const Stmt& s) {
    const auto* branch = s.as<IfThenElseNode>();
    const auto* range = branch ? branch->then_case.as<AttrStmtNode>() : nullptr;
    if (!range || range->attr_key != kThreadRange) return nullptr;
    for (const Stmt& inside : FlatSeq(range->body)) {
      const auto* instance = inside.as<AttrStmtNode>();
      if (instance && instance->attr_key == kInstances) return instance;
    }
    return nullptr;
  }
};

void SharePlans(const SyncNode& first, SyncNode* copy) {
  copy->plan = first.plan;
  for (auto nodes : {&SyncNode::body, &SyncNode::otherwise}) {
    const auto &of_first = first.*nodes, &of_copy = copy->*nodes;
    if (of_first.size() != of_copy.size()) {
      ThrowBug(copy->stmt->span, "ThreadSync",
               "other statements of a warp group than of the first");
    }
    for (size_t i = 0; i < of_first.size(); ++i) SharePlans(*of_first[i], of_copy[i].get());
  }
}

}  // namespace

Stmt WithAllInstances(const Stmt& kernel, const Target& target) {
  return BarrierSpreader(target.Has(Feature::kNamedBarriers)).Mutate(kernel);
}

void ShareInstancePlans(SyncNode* root) {
  for (auto* nodes : {&root->body, &root->otherwise}) {
    SyncNode* first = nullptr;
    for (const auto& n : *nodes) {
      ShareInstancePlans(n.get());
      const AttrStmtNode* instance = InstanceOf(n->stmt);
      if (instance && instance->node.as<For>()) {
        first = n.get();
      } else if (instance) {
        // What stands in front of the branches of all stands in front of the first one.
        n->first_instance = first;
        SharePlans(*first->body[0], n->body[0].get());
      }
    }
  }
}

Stmt WithOneInstance(const Stmt& kernel) { return Collapser().Mutate(kernel); }

}  // namespace tl
