/*!
 * CompactLoops: loops over the iterations in which something happens.
 *
 * In:  a tile program under thread_extent attributes, with instructions selected, before warps have
 *      roles.
 * Out: the same, where a pipelined loop whose body is an `if` of what memory says, such as
 *
 *        for b in Pipelined(n): if mask[b] != 0: body(b)
 *
 *      is one over the iterations in which the condition holds:
 *
 *        count = 0; for j in n: count += mask[j] != 0
 *        b = -1; for i in Pipelined(count): the next b with mask[b] != 0; body(b)
 *
 *      The condition reads global memory that the kernel does not write, or elements of tiles that
 *      are known from such memory (known_elements.h), which then takes their place in it. In front
 *      of the `if` may be names of values, which the condition uses. Loops are
 *      chosen whose products of two iterations can overlap (mma_overlap.cc): under a condition no
 *      product runs beside the next iteration. The condition is evaluated twice.
 * Establishes: nothing; other loops stay. Refuses nothing.
 */
#include <unordered_map>

#include "../../analysis/effects.h"
#include "../../target/target.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../notes.h"
#include "known_elements.h"
#include "pipeline.h"
#include "pipeline_bindings.h"
#include "wgmma_plan.h"
#include "ws_schedule.h"

namespace tl {
namespace {

/*! Annotation of a loop that was made here. */
constexpr const char* kCompact = "tl.compact";

/*! By their loops: conditions on global memory. */
using Conditions = std::unordered_map<const ForNode*, Expr>;

/*! Finds the loops of a kernel, with their conditions on global memory. */
class LoopFinder {
 public:
  LoopFinder(const KernelInfo& kernel, const WarpRoles& roles, const Views& views)
      : wgmma_(roles), known_(roles.body, views), written_(WrittenGlobals(kernel, roles.body)) {}

  Conditions Find(const RoleSequence& body) const {
    Conditions found;
    ForEachNode(body, [&](const RoleNode* node) {
      if (!IsCandidate(*node)) return;
      const Expr condition = OnGlobals(*node);
      if (condition.defined()) found[node->Loop()] = condition;
    });
    return found;
  }

 private:
  bool IsCandidate(const RoleNode& node) const {
    const ForNode* loop = node.Loop();
    if (!loop || loop->kind != ForKind::kSerial || !IsPipelined(loop) || StagesOf(loop) < 2) {
      return false;
    }
    if (loop->annotations.count(kUserOrder) || loop->loop_var->dtype().code != kDLInt) return false;
    if (HasLoad(loop->min) || HasLoad(loop->extent) || node.body.nodes.empty()) return false;
    const std::vector<Stmt> body = FlatSeq(loop->body);
    const bool names_first = std::all_of(body.begin(), body.end() - 1, IsName);
    const RoleNode& branch = *node.body.nodes.back();
    return names_first && body.back().same_as(branch.stmt) && branch.kind == RoleNode::Kind::kIf &&
           AllOf(branch.otherwise.nodes, [](const auto& n) { return IsNothing(n->stmt); }) &&
           Overlaps(branch.body);
  }

  /*! The name of a value, computed without an effect. */
  static bool IsName(const Stmt& s) {
    const auto* bind = s.as<BindNode>();
    return bind && !WritesMemory(bind->value);
  }

  /*! The last of several products takes its A from registers, and nothing leaves the loop. */
  bool Overlaps(const RoleSequence& body) const {
    size_t products = 0;
    bool last_is_in_registers = false, jumps = false;
    for (const auto& node : body.nodes) {
      const auto product = wgmma_.At(*node);
      products += product.has_value();
      if (product) last_is_in_registers = IsFragment(product->a.buffer);
    }
    ForEachNode(body, [&](const RoleNode* n) { jumps |= IsBreak(n->stmt) || IsContinue(n->stmt); });
    return products >= 2 && last_is_in_registers && !jumps;
  }

  /*! The loop's condition with values in the places of their names, and with what global memory
   * says in the place of elements of tiles; undefined where it reads other memory, or none. */
  Expr OnGlobals(const RoleNode& loop) const {
    const RoleNode& branch = *loop.body.nodes.back();
    Substituter names;
    for (const Stmt& s : FlatSeq(loop.Loop()->body)) {
      const auto* bind = s.as<BindNode>();
      if (bind) names.map[bind->var.get()] = names.Mutate(bind->value);
    }
    struct Replacer : StmtExprMutator {
      const LoopFinder& finder;
      const RoleNode& branch;
      bool fits = true;
      Replacer(const LoopFinder& f, const RoleNode& b) : finder(f), branch(b) {}
      Expr Mutate_(const TensorLoadNode* op) final {
        if (IsGlobal(op->source.as_or_throw<Var>())) return Default<Expr>(op);
        const auto element = finder.known_.Find(op, branch);
        fits &= element.has_value();
        return element ? element->value : GetRef<Expr>(op);
      }
    } replace(*this, branch);
    const Expr condition =
        replace.Mutate(names.Mutate(branch.stmt.as<IfThenElseNode>()->condition));
    size_t loads = 0;
    bool fixed = replace.fits && !WritesMemory(condition);
    ForEachIn<TensorLoadNode>(condition, [&](const TensorLoadNode* op) {
      ++loads;
      fixed &= !Contains(written_, op->source.as_or_throw<Var>());
    });
    return fixed && loads ? condition : Expr();
  }

  WgmmaPlan wgmma_;
  KnownElements known_;
  std::vector<Var> written_;
};

class Compactor : public StmtExprMutator {
 public:
  Compactor(const SBlockNode* block, Conditions conditions)
      : block_(block), conditions_(std::move(conditions)) {}

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    const SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    return op == block_ ? WithBuffers(block, own_) : block;
  }

  Stmt Mutate_(const ForNode* op) final {
    const auto it = conditions_.find(op);
    return it == conditions_.end() ? Default<Stmt>(op) : Compact(op, it->second);
  }

 private:
  Stmt Compact(const ForNode* loop, const Expr& condition) {
    const DLDataType t = loop->loop_var->dtype();
    const Span& span = loop->span;
    const std::string name = loop->loop_var->name;
    const Array<Expr> zero = {MakeInt(0)};
    const Var count = Own(name + "_count", t), at = Own(name + "_at", t);
    const auto holds = [&](const Expr& i) { return Substitute(condition, loop->loop_var, i); };
    const auto advance = [&] { return MakeStore(at, LoadOf(at, zero) + 1, zero, span); };
    // Bounds of a number that a thread counts are not known elsewhere.
    const Expr here = MinOf(MaxOf(LoadOf(at, zero), loop->min), loop->min + loop->extent + -1);

    const Var j = MakeVar(name + "_asked", t);
    const Expr one = CastTo(t, holds(loop->min + j));
    // Several loads are under way at a time.
    const Map<String, Any> unrolled = {{kUnrollFactor, int64_t(8)}};
    const Stmt counting =
        MakeFor(j, loop->extent, ForKind::kSerial,
                MakeStore(count, LoadOf(count, zero) + one, zero, span), span, unrolled);
    auto skip = make_object<WhileNode>();
    skip->condition = NotOf(holds(here));
    skip->body = advance();
    skip->span = span;

    const Var trips = MakeVar(name + "_trips", t), number = MakeVar(name + "_number", t);
    std::vector<Stmt> body = {advance(), While(skip), MakeBind(loop->loop_var, here, span)};
    for (const Stmt& s : FlatSeq(loop->body)) {
      const auto* branch = s.as<IfThenElseNode>();
      for (const Stmt& own : FlatSeq(branch ? branch->then_case : s)) body.push_back(own);
    }
    Map<String, Any> notes = loop->annotations;
    notes.Set(kCompact, MakeInt(1));
    return MakeSeq({MakeStore(count, ZeroOf(t), zero, span), counting,
                    MakeStore(at, loop->min + -1, zero, span),
                    MakeBind(trips, MinOf(LoadOf(count, zero), loop->extent), span),
                    MakeFor(number, trips, loop->kind, MakeSeq(body), span, notes)});
  }

  Var Own(const std::string& name, DLDataType t) {
    own_.push_back(MakeBuffer(name, t, {MakeInt(1)}, "local.var"));
    return own_.back();
  }

  const SBlockNode* block_;
  Conditions conditions_;
  std::vector<Var> own_;
};

/*! Products of the kernel's loops overlap, all of which have been made of conditions. */
bool Overlaps(const Stmt& kernel, const PrimFunc& f) {
  const WarpRoles roles = PlanProducerConsumer(ReadKernelInfo(kernel, f));
  bool any = false, all = roles.IsApplied();
  ForEachNode(roles.body, [&](const RoleNode* node) {
    const ForNode* loop = node->Loop();
    if (!loop || !loop->annotations.count(kCompact)) return;
    any = true;
    all &= loop->annotations.count(kChosen) > 0;
  });
  return any && all;
}

PrimFunc CompactLoops(PrimFunc f) {
  if (!TargetOf(f).Has(Feature::kTma)) return f;
  Array<String> notes;
  f = ForEachKernel(f, [&](const AttrStmtNode* op) -> Stmt {
    const Stmt same = GetRef<Stmt>(op);
    const KernelInfo kernel = ReadKernelInfo(same, f);
    if (!kernel.block || kernel.block->annotations.count(kWsSchedule)) return same;
    const Views views(kernel.block->body);
    WarpRoles roles;
    if (!BuildRoleTree(kernel, kernel.block->body, views, &roles)) return same;
    auto conditions = LoopFinder(kernel, roles, views).Find(roles.body);
    if (conditions.empty()) return same;
    const Stmt compact = Compactor(kernel.block, conditions).Mutate(same);
    if (!Overlaps(compact, f)) return same;
    ForEachNode(roles.body, [&](const RoleNode* node) {
      const ForNode* loop = node->Loop();
      if (!loop || !conditions.count(loop)) return;
      notes.push_back(Where(loop->span) +
                      ": the loop goes over the iterations in which its condition holds");
    });
    return compact;
  });
  return WithNotes(std::move(f), notes);
}

TL_REGISTER_PASS(CompactLoops);

}  // namespace
}  // namespace tl
