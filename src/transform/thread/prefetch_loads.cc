/*!
 * PrefetchLoads: small loads from global memory that a step of a pipelined loop waits for are made
 * a step ahead, into registers.
 *
 * In:  a thread program with its barriers, before buffers are flat.
 * Out: the same. A serial loop that waits for tiles, at an mbarrier or for cp.async, may read a few
 *      elements of global memory in front of its first matrix instruction: the scales of a group of
 *      weights, `scales[row, k]`. Such loads have an array of registers. It is filled in front of
 *      the loop for the first iteration, and in each iteration, behind the last statement that
 *      reads it, for the next one, if there is one.
 * Establishes: a step that finds its tile does not wait for memory. Nothing else does this: NVVM
 *      moves no load over a wait, and none into another iteration.
 * Refuses nothing. Unchanged: loops over warp groups (`tl.instances`), of which each runs one
 *      iteration; loops of threads that have not come to T.pdl_sync, which a wait may stand for
 *      (launch_waits.h); what the kernel or another rank may write; loads whose indices are
 *      not known a step ahead, those from other memory among them; loads under conditions that are
 *      not moved whole, and in loops that may have no iteration; loops that may be left, whose next
 *      element may not exist; loops with loads by TMA, which run ahead anyway; loads behind the
 *      first matrix instruction, and those that nothing in front of it computes with, which run
 *      beside it; and loads beyond kMostBytes of a thread.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../analysis/kernel_facts.h"
#include "../../op/intrinsics.h"
#include "../../op/thread_range.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../name_expressions.h"
#include "launch_waits.h"

namespace tl {
namespace {

/*! Of the registers of a thread that multiplies, 16 are few. */
constexpr int64_t kMostBytes = 64;

using Objects = std::unordered_set<const Object*>;

bool IsWaitForTiles(const Stmt& s) {
  const auto* op = s.as<EvaluateNode>();
  const auto* call = op ? op->value.as<CallNode>() : nullptr;
  if (!call) return false;
  if (IsCallTo(op->value, kMbarrierWait) || IsCallTo(op->value, kMbarrierWaitCluster)) return true;
  const IntrinsicEffects* effects = EffectsOf(call);
  return effects && effects->queue == AsyncQueue::kCpAsync && effects->step == QueueStep::kWait;
}

bool HasProduct(const Stmt& s) {
  return HasCall(s, {kMmaSync, kMmaSpSync, kMfma, kMfmaMixed, kMfmaScale, kWmma}) ||
         HasIntrinsic(s, [](const IntrinsicEffects& e) {
           return e.queue == AsyncQueue::kWgmma && e.step == QueueStep::kIssue;
         });
}

bool LoadsByTma(const Stmt& s) {
  return HasIntrinsic(s, [](const IntrinsicEffects& e) {
    return e.queue == AsyncQueue::kTmaLoad && e.step == QueueStep::kIssue;
  });
}

/*! Variables that statements below define. */
Objects DefinedIn(const Stmt& s) {
  Objects defined;
  ForEachIn<ForNode>(s, [&](const ForNode* op) { defined.insert(op->loop_var.get()); });
  ForEachIn<BindNode>(s, [&](const BindNode* op) { defined.insert(op->var.get()); });
  return defined;
}

/*! A loop around a load, inside of the pipelined one. */
struct Around {
  Var variable;
  int64_t extent;
};

/*! What a load asks of the loops around it: the variable of one, or a quotient or remainder. */
struct Part {
  Expr value;
  int64_t extent;
};

/*! The quotients and remainders of a loop's variable in an expression, or the variable. */
class PartFinder : public StmtExprVisitor {
 public:
  explicit PartFinder(const Around& loop) : loop_(loop) {}

  std::vector<Part> Parts(const Expr& e) {
    Visit(e);
    return whole_ || !AreApart() ? std::vector<Part>{{loop_.variable, loop_.extent}} : parts_;
  }

 protected:
  void Visit_(const FloorDivNode* op) final { Add(op); }
  void Visit_(const FloorModNode* op) final { Add(op); }
  void Visit_(const VarNode* op) final { whole_ |= op == loop_.variable.get(); }

 private:
  template <typename Node>
  void Add(const Node* op) {
    const Expr e = GetRef<Expr>(op);
    const std::vector<Var> vars = VarsOf(e);
    const auto is = [&](const Var& v) { return v.same_as(loop_.variable); };
    if (vars.empty() || !IsArithmetic(e) || !AllOf(vars, is)) {
      return Default(op);
    }
    const auto same = [&](const Part& p) { return tvm::ffi::StructuralEqual()(p.value, e); };
    if (NoneOf(parts_, same)) parts_.push_back({e, 0});
  }

  /*! Whether there are fewer combinations of the parts than iterations, and each occurs. */
  bool AreApart() {
    Analyzer analyzer;
    std::set<std::vector<int64_t>> found;
    for (int64_t i = 0; i < loop_.extent; ++i) {
      Substituter at;
      at.map[loop_.variable.get()] = MakeInt(loop_.variable->dtype(), i);
      std::vector<int64_t> values;
      for (Part& part : parts_) {
        values.push_back(AsInt(analyzer.Simplify(at.Mutate(part.value))).value_or(-1));
        if (values.back() < 0) return false;
        part.extent = std::max(part.extent, values.back() + 1);
      }
      found.insert(values);
    }
    int64_t combinations = 1;
    for (const Part& part : parts_) combinations *= part.extent;
    return static_cast<int64_t>(found.size()) == combinations && combinations < loop_.extent;
  }

  const Around& loop_;
  std::vector<Part> parts_;
  bool whole_ = false;
};

/*! A load that is made a step ahead, and on what of the loops around it depends which it is. */
struct Load {
  Expr value;
  std::vector<Part> parts;
  Var registers;

  int64_t Lanes() const { return value->dtype().lanes; }
  int64_t Count() const {
    int64_t n = 1;
    for (const Part& part : parts) n *= part.extent;
    return n;
  }
  int64_t Bytes() const { return Count() * Lanes() * value->dtype().bits / 8; }

  /*! Where its value is among the registers. */
  Expr Index() const {
    Expr i = MakeInt(0);
    for (const Part& part : parts) i = i * part.extent + part.value;
    return Lanes() == 1 ? i : RampOf(i * Lanes(), 1, static_cast<int>(Lanes()));
  }
  /*! Loads what iteration `next` of the pipelined loop uses. */
  Stmt For(const Var& step, const Expr& next, const Span& span) const {
    Substituter ahead;
    ahead.map[step.get()] = next;
    ExpressionNamer namer;
    Load other = *this;
    for (Part& part : other.parts) {
      const Var v = MakeVar("p", part.value->dtype());
      namer.names.emplace_back(part.value, v);
      part.value = v;
    }
    const Expr loaded = ahead.Mutate(namer.Mutate(value));
    Stmt s = MakeStore(registers, loaded, {other.Index()}, span);
    for (size_t i = parts.size(); i-- > 0;) {
      const Var v = namer.names[i].second;
      s = MakeFor(v, MakeInt(v->dtype(), parts[i].extent), ForKind::kUnrolled, s, span);
    }
    return s;
  }
};

/*! Whether a statement computes with what a register has got: copies to other registers wait for
 * nothing. */
class UseFinder : public StmtExprVisitor {
 public:
  explicit UseFinder(const Var& registers) : same_{registers.get()} {}
  bool found = false;

 protected:
  void Visit_(const BufferStoreNode* op) final {
    if (IsLocal(op->buffer) && IsSame(op->value)) {
      same_.insert(op->buffer.get());
    } else {
      Default(op);
    }
  }
  void Visit_(const BindNode* op) final {
    if (IsSame(op->value)) {
      same_.insert(op->var.get());
    } else {
      Default(op);
    }
  }
  void Visit_(const VarNode* op) final { found |= same_.count(op) != 0; }

 private:
  bool IsSame(const Expr& e) const {
    if (const auto* load = e.as<TensorLoadNode>()) return same_.count(load->source.get()) != 0;
    return same_.count(e.get()) != 0;
  }
  Objects same_;
};

/*! Puts registers into the places of loads, statement by statement. */
class LoadReplacer : public StmtExprMutator {
 public:
  LoadReplacer(const Objects& unstable, const ForNode* loop)
      : unstable_(unstable), step_(loop->loop_var), defined_(DefinedIn(loop->body)) {}
  std::vector<Load> loads;
  /*! Values that stay where they are. */
  std::vector<Expr> kept;

  std::vector<Stmt> Replaced(const std::vector<Stmt>& stmts) {
    loads.clear();
    bytes_ = 0;
    std::vector<Stmt> out;
    for (const Stmt& s : stmts) out.push_back(Mutate(s));
    return out;
  }

 protected:
  Stmt Mutate_(const ForNode* op) final {
    const int64_t extent = AsInt(op->extent).value_or(0);
    if (extent <= 0 || !IsConst(op->min, 0) || op->step) return GetRef<Stmt>(op);
    around_.push_back({op->loop_var, extent});
    const Stmt loop = Default<Stmt>(op);
    around_.pop_back();
    return loop;
  }
  Stmt Mutate_(const IfThenElseNode* op) final { return GetRef<Stmt>(op); }
  Stmt Mutate_(const WhileNode* op) final { return GetRef<Stmt>(op); }

  Expr Mutate_(const CallNode* op) final {
    const Expr e = GetRef<Expr>(op);
    if (AsAddressOf(e)) return e;
    if (!IsIfThenElse(op)) return Default<Expr>(op);
    const Expr moved = RegistersOf(e);
    return moved.defined() ? moved : e;
  }
  Expr Mutate_(const AndNode* op) final { return GetRef<Expr>(op); }
  Expr Mutate_(const OrNode* op) final { return GetRef<Expr>(op); }
  Expr Mutate_(const TensorLoadNode* op) final {
    const Expr moved = RegistersOf(GetRef<Expr>(op));
    return moved.defined() ? moved : Default<Expr>(op);
  }

 private:
  /*! The registers that have the value in their iteration; undefined if it is not moved. */
  Expr RegistersOf(const Expr& e) {
    const auto is = [&](const Expr& other) { return tvm::ffi::StructuralEqual()(other, e); };
    if (!IsKnownAhead(e) || AnyOf(kept, is)) return Expr();
    for (const Load& load : loads) {
      if (is(load.value)) return LoadOf(load.registers, {load.Index()});
    }
    Load load{e, {}, Var()};
    for (const Around& loop : around_) {
      if (!Uses(e, loop.variable)) continue;
      for (const Part& part : PartFinder(loop).Parts(e)) load.parts.push_back(part);
    }
    if (bytes_ + load.Bytes() > kMostBytes) return Expr();
    bytes_ += load.Bytes();
    DLDataType element = e->dtype();
    element.lanes = 1;
    load.registers =
        MakeBuffer("prefetched", element, {MakeInt(load.Count() * load.Lanes())}, "local");
    loads.push_back(load);
    return LoadOf(load.registers, {load.Index()});
  }

  /*! Reads global memory, other elements in each step, and nothing that is not known before. */
  bool IsKnownAhead(const Expr& e) const {
    if (e->dtype().bits < 8 || e->dtype().code == kDLBool || !Uses(e, step_)) return false;
    int reads = 0;
    bool known = true;
    ForEachIn<TensorLoadNode>(e, [&](const TensorLoadNode* op) {
      const Var from = op->source.as_or_throw<Var>();
      ++reads;
      known &= IsGlobal(from) && !unstable_.count(from.get());
    });
    ForEachIn<CallNode>(e, [&](const CallNode* op) { known &= IsIfThenElse(op); });
    ForEachIn<VarNode>(e, [&](const VarNode* op) {
      const auto is = [&](const Around& loop) { return loop.variable.get() == op; };
      known &= !defined_.count(op) || AnyOf(around_, is);
    });
    // What another load chooses would be waited for where it is made.
    return reads == 1 && known;
  }

  const Objects& unstable_;
  Var step_;
  Objects defined_;
  std::vector<Around> around_;
  int64_t bytes_ = 0;
};

class Prefetcher : public StmtExprMutator {
 public:
  explicit Prefetcher(const PrimFunc& kernel)
      : unstable_(BuffersThatMayChange(kernel)), launch_waits_(kernel->body) {}

 protected:
  Stmt Mutate_(const SeqStmtNode* op) final {
    return launch_waits_.InOrder(op, [&](const Stmt& s) { return Mutate(s); });
  }
  Stmt Mutate_(const AttrStmtNode* op) final {
    // The note of a loop's unrolling stays at the loop.
    const auto* loop = op->attr_key == kUnrollFactor ? op->body.as<ForNode>() : nullptr;
    if (!loop) return Default<Stmt>(op);
    std::vector<Stmt> stmts = Ahead(loop);
    if (stmts.empty()) return Default<Stmt>(op);
    stmts.back() = MakeAttr(op->node, kUnrollFactor, op->value, stmts.back());
    return MakeSeq(stmts);
  }
  Stmt Mutate_(const ForNode* op) final {
    const std::vector<Stmt> stmts = Ahead(op);
    return stmts.empty() ? Default<Stmt>(op) : MakeSeq(stmts);
  }

 private:
  /*! The first loads and the loop; empty if nothing is loaded ahead. */
  std::vector<Stmt> Ahead(const ForNode* op) const {
    const std::vector<Stmt> body = FlatSeq(op->body);
    if (op->kind != ForKind::kSerial || op->step || AsInt(op->extent).value_or(2) < 2 ||
        IsInstances(op) || !AnyOf(body, IsWaitForTiles) || LeavesEarly(op->body) ||
        LoadsByTma(op->body) || !launch_waits_.MayMoveReads()) {
      return {};
    }
    LoadReplacer replacer(unstable_, op);
    const Expr next = op->loop_var + 1, end = op->min + op->extent;
    const Expr runs = MakeInt(op->extent->dtype(), 0) < op->extent;
    std::vector<Stmt> out;
    const auto first = FindIf(body, HasProduct);
    const std::vector<Stmt> front(body.begin(), first);
    const Stmt all = MakeSeq(replacer.Replaced(front));
    for (const Load& load : replacer.loads) {
      UseFinder use(load.registers);
      use(all);
      if (!use.found) replacer.kept.push_back(load.value);
    }
    std::vector<Stmt> steps = replacer.Replaced(front);
    if (replacer.loads.empty()) return {};
    std::vector<Stmt> first_loads, next_loads;
    for (const Load& load : replacer.loads) {
      out.push_back(MakeAlloc(load.registers));
      first_loads.push_back(load.For(op->loop_var, op->min, op->span));
      next_loads.push_back(load.For(op->loop_var, next, op->span));
    }
    const bool surely = AsInt(op->extent).has_value();
    const Stmt begin = MakeSeq(first_loads);
    out.push_back(surely ? begin : MakeIf(runs, begin, op->span));
    const auto reads = [&](const Stmt& s) {
      return AnyOf(replacer.loads, [&](const Load& load) { return Uses(s, load.registers); });
    };
    const auto last = std::find_if(steps.rbegin(), steps.rend(), reads).base();
    steps.insert(last, MakeIf(next < end, MakeSeq(next_loads), op->span));
    steps.insert(steps.end(), first, body.end());
    auto loop = make_object<ForNode>(*op);
    loop->body = MakeSeq(steps);
    out.push_back(tl::For(loop));
    return out;
  }

  /*! Buffers whose elements may change while the kernel runs. */
  Objects unstable_;
  LaunchWaits launch_waits_;
};

PrimFunc PrefetchLoads(PrimFunc f) { return WithBody(f, Prefetcher(f).Mutate(f->body)); }

TL_REGISTER_PASS(PrefetchLoads);

}  // namespace
}  // namespace tl
