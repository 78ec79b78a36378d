/*!
 * DoubleAccumulators: a product runs beside what is made of the one before it.
 *
 * In:  a tile program under thread_extent attributes whose gemms have their instructions.
 * Out: the same, where pipelined loops whose only product begins anew in each iteration, and whose
 *      accumulators the iteration then uses, have two iterations in one:
 *        for k < n: { load(A, B); gemm(A, B, P); use(P) }
 *        for k < n / 2: { load(A, B); load(C, D); gemm(A, B, P); gemm(C, D, Q); use(P); use(Q) }
 *      Q and the tiles of the second iteration are buffers of their own; the loop has half as many
 *      stages, so that tiles take as much shared memory as before. Numbers in global memory that
 *      uses read for all elements (a scale of a block) are read right behind the products: NVVM
 *      moves no read over the wait for these.
 * Establishes: nothing else; uses of accumulators stay in their order, so sums are the same bits.
 * 8-bit floats with scales of blocks, whose product is scaled and added up in each step, are such
 * loops. A warp group would wait for its product, add, and only then issue the next one; other
 * groups do all of this at the same time, since the same tiles let them begin: 164 us, with it 137
 * (4096^3 by tiles of 128^3, H200).
 * Left alone: loops of an odd number of iterations, or of one that is not known; those of fewer
 * than three stages, or of an odd number if shared memory has no room for one more; those with
 * other statements than loads, a product, and elementwise loops on fragments; accumulators for
 * which a thread has not the registers twice, or where two blocks have room on a multiprocessor,
 * whose products run beside each other; programs that give threads roles.
 * Refuses nothing.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>

#include "../../analysis/effects.h"
#include "../../layout/annotation.h"
#include "../../layout/index_box.h"
#include "../../op/gemm_instruction.h"
#include "../../op/views.h"
#include "../../target/mma.h"
#include "../../target/registers.h"
#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "pipeline_barriers.h"
#include "pipeline_reads.h"
#include "shared_estimate.h"
#include "tile_copies.h"
#include "warp_roles.h"
#include "ws_schedule.h"

namespace tl {
namespace {

/*! The statements of an iteration: those in front of its product, the product, those behind it. */
struct Iteration {
  std::vector<Stmt> body;
  size_t product = 0;
  Var accumulators;
  /*! What the second iteration has buffers of its own for. */
  std::vector<Var> own;
};

/*! Names the numbers in global memory that an elementwise loop reads for all of its elements. */
class ReadNamer : public StmtExprMutator {
 public:
  /*! Nothing that uses the program's own names is moved in front of them. */
  explicit ReadNamer(std::vector<Var> own) : own_(std::move(own)) {}
  /*! The names, and what they stand for. */
  std::vector<std::pair<Var, Expr>> names;

 protected:
  Stmt Mutate_(const ForNode* op) final {
    own_.push_back(op->loop_var);
    return Default<Stmt>(op);
  }
  /*! What is read under a condition may not exist without it. */
  Stmt Mutate_(const IfThenElseNode* op) final { return GetRef<Stmt>(op); }
  Expr Mutate_(const CallNode* op) final {
    return IsIfThenElse(op) ? GetRef<Expr>(op) : Default<Expr>(op);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    constexpr size_t kMostNames = 4;
    const Expr load = GetRef<Expr>(op);
    const Var buffer = op->source.as_or_throw<Var>();
    const auto is_own = [&](const Var& v) { return Uses(load, v); };
    if (!IsGlobal(buffer) || AnyOf(own_, is_own)) return load;
    for (const auto& [name, value] : names) {
      if (ffi::StructuralEqual()(value, load)) return name;
    }
    if (names.size() == kMostNames) return load;
    names.emplace_back(MakeVar(std::string(buffer->name) + "_number", load->dtype()), load);
    return names.back().first;
  }

 private:
  std::vector<Var> own_;
};

class Doubler : public StmtExprMutator {
 public:
  explicit Doubler(const KernelInfo& kernel)
      : kernel_(kernel), views_(kernel.block->body), shared_(GetRef<Stmt>(kernel.block)) {
    const auto names_roles = [](const AttrStmtNode* op) {
      return op->attr_key == kThreadRange || op->attr_key == kWsOp;
    };
    has_roles_ = HasNode<AttrStmtNode>(kernel.block->body, names_roles) ||
                 kernel.block->annotations.count(kWsSchedule) != 0;
  }

  /*! A loop has more tiles than the program asks for. */
  bool takes_shared = false;

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    if (op != kernel_.block || has_roles_) return GetRef<Stmt>(op);
    const Stmt body = Mutate(op->body);
    if (made_.empty()) return GetRef<Stmt>(op);
    return WithBuffers(With(op, &SBlockNode::body, body), made_);
  }
  Stmt Mutate_(const ForNode* op) final {
    if (!IsPipelined(op)) return Default<Stmt>(op);
    const std::optional<Axis> axis = AxisOf(op);
    const bool scheduled = op->annotations.count(kUserOrder) || op->annotations.count(kUserStage);
    if (!axis || axis->extent % 2 || axis->extent < 4 || scheduled) return GetRef<Stmt>(op);
    const std::optional<Iteration> iteration = ReadIteration(op);
    if (!iteration) return GetRef<Stmt>(op);
    const std::optional<int64_t> stages = StagesOfPairs(op, *iteration);
    if (!stages || !HasRegisters(*iteration)) return GetRef<Stmt>(op);
    takes_shared |= 2 * *stages > StagesOf(op);
    return Pairs(op, *axis, *iteration, *stages);
  }

 private:
  std::optional<Iteration> ReadIteration(const ForNode* loop) const {
    Iteration found;
    found.body = FlatSeq(loop->body);
    const auto product = FindIf(found.body, [](const Stmt& s) { return IsGemm(s); });
    if (product == found.body.end()) return std::nullopt;
    found.product = product - found.body.begin();
    const GemmOp op = ParseGemm(AsTileOp(*product), (*product)->span);
    found.accumulators = op.c.buffer;
    if (op.asynchronous || !IsConst(op.clear_accum, 1) || !IsShared(op.a.buffer) ||
        !PlanOf(AsTileOp(*product), (*product)->span).UsesWgmma()) {
      return std::nullopt;
    }
    MoveNames(&found);
    found.own = {found.accumulators};
    for (size_t i = 0; i < found.body.size(); ++i) {
      const bool fits = i < found.product    ? Loads(found.body[i], &found.own)
                        : i == found.product ? true
                                             : UsesFragments(found.body[i], found.accumulators);
      if (!fits) return std::nullopt;
    }
    const auto is_own = [&](const Var& v) { return IsOfIteration(v, found.body, loop); };
    return AllOf(found.own, is_own) ? std::optional(found) : std::nullopt;
  }

  /*! Puts names for numbers in global memory right behind the product, or in front of all else if
   * loads use one. */
  void MoveNames(Iteration* iteration) const {
    std::vector<Stmt>& body = iteration->body;
    const auto is_name = [](const Stmt& s) { return s.as<BindNode>() != nullptr; };
    const auto is_number = [&](const Stmt& s) {
      const std::vector<Var> reads = views_.UseOf(s).reads;
      return !is_name(s) || AllOf(reads, IsGlobal);
    };
    if (!AllOf(body, is_number)) return;
    const auto product = body.begin() + iteration->product;
    const bool for_loads = std::any_of(body.begin(), product, [&](const Stmt& load) {
      return !is_name(load) && AnyOf(body, [&](const Stmt& s) {
        return is_name(s) && Uses(load, s.as<BindNode>()->var);
      });
    });
    if (for_loads) {
      iteration->product += std::count_if(product, body.end(), is_name);
      std::stable_partition(body.begin(), body.end(), is_name);
      return;
    }
    iteration->product -= std::count_if(body.begin(), product, is_name);
    const auto is_first = [&](const Stmt& s) { return !is_name(s); };
    const auto behind = std::stable_partition(body.begin(), product + 1, is_first);
    std::stable_partition(behind, body.end(), is_name);
  }

  /*! Fills tiles from global memory, or names a number that is there. */
  bool Loads(const Stmt& s, std::vector<Var>* tiles) const {
    const BufferUse use = views_.UseOf(s);
    const auto* loop = s.as<ForNode>();
    const bool is_load = s.as<BindNode>() || IsTileLoad(s) || (loop && IsElementwiseLoop(loop));
    if (!is_load || !AllOf(use.reads, IsGlobal)) return false;
    for (const Var& v : use.writes) {
      if (!IsShared(v) || IsBarrier(v)) return false;
      if (!Contains(*tiles, v)) tiles->push_back(v);
    }
    return true;
  }

  /*! Writes nothing but fragments, and not the accumulators. */
  bool UsesFragments(const Stmt& s, const Var& accumulators) const {
    const auto* loop = s.as<ForNode>();
    if (!s.as<BindNode>() && !(loop && IsElementwiseLoop(loop))) return false;
    const std::vector<Var> writes = views_.UseOf(s).writes;
    return AllOf(writes, [&](const Var& v) { return IsFragment(v) && !v.same_as(accumulators); });
  }

  static bool IsElementwiseLoop(const ForNode* loop) {
    return loop->kind == ForKind::kParallel && !HasNode<EvaluateNode>(loop->body);
  }

  /*! Nothing but the loop names the buffer, and an iteration reads what it has written itself. */
  bool IsOfIteration(const Var& buffer, const std::vector<Stmt>& body, const ForNode* loop) const {
    if (views_.IsView(buffer) || DepthOf(kernel_.block, buffer) ||
        GetLayoutMap(kernel_.block->annotations).count(buffer)) {
      return false;
    }
    for (const Var& view : views_.all) {
      if (views_.IsSameMemory(view, buffer)) return false;
    }
    if (CountMentions(kernel_.block->body, buffer) != CountMentions(loop->body, buffer)) {
      return false;
    }
    for (size_t i = 0; i < body.size(); ++i) {
      // The product begins anew in its accumulators.
      const bool begins = IsGemm(body[i]) && IsFragment(buffer);
      const std::vector<Var> reads = views_.UseOf(body[i]).reads;
      if (Contains(reads, buffer) && !begins && !IsSupplied(body, i, buffer, views_)) return false;
    }
    return true;
  }

  std::optional<int64_t> StagesOfPairs(const ForNode* loop, const Iteration& iteration) const {
    const int64_t stages = StagesOf(loop);
    if (stages < 3) return std::nullopt;
    if (stages % 2 == 0) return stages / 2;
    if (!shared_.bytes || PassConfigFlag(kSpareShared, false)) return std::nullopt;
    int64_t bytes = *shared_.bytes;
    for (const Var& v : iteration.own) {
      if (IsShared(v)) bytes += BytesOfBuffer(v) * (stages + 1 - shared_.VersionsOf(v));
    }
    const bool has_room = kernel_.target->BlocksThatFit(kernel_.threads + kWarpGroupThreads, bytes);
    return has_room ? std::optional((stages + 1) / 2) : std::nullopt;
  }

  bool HasRegisters(const Iteration& iteration) const {
    constexpr int64_t kRegisterBytes = 4;
    const int64_t threads = kernel_.threads;
    if (threads % kWarpGroupThreads || !kernel_.is_flat) return false;
    int64_t bytes = 0;
    for (const Var& v : kernel_.block->alloc_buffers) {
      if (IsFragment(v)) bytes += BytesOfBuffer(v);
    }
    const int64_t registers = bytes / kRegisterBytes / threads;
    const int64_t more = BytesOfBuffer(iteration.accumulators) / kRegisterBytes / threads;
    const auto most = [&](int64_t blocks) {
      return MostRegistersBeside(kWarpGroupThreads * kLeastRegisters, threads,
                                 RegistersAtStart(threads + kWarpGroupThreads, blocks));
    };
    return registers + more + kOtherRegisters <= most(1) &&
           registers + kFewOtherRegisters > most(2);
  }

  Stmt Pairs(const ForNode* op, const Axis& axis, const Iteration& iteration, int64_t stages) {
    const Var& k = op->loop_var;
    const DLDataType t = k->dtype();
    const Expr first = MakeInt(t, axis.min) + k * MakeInt(t, 2);
    std::vector<Stmt> one = WithNames(iteration.body, k, first);
    std::vector<Stmt> other = WithNames(iteration.body, k, first + MakeInt(t, 1));
    TileCopier copier(iteration.own);
    other = FlatSeq(copier.Copy(MakeSeq(other)));
    for (const auto& [buffer, copy] : copier.made) made_.push_back(copy);
    std::vector<Stmt> body;
    const size_t n = iteration.product;
    const auto append = [&](const std::vector<Stmt>& from, size_t begin, size_t end) {
      body.insert(body.end(), from.begin() + begin, from.begin() + end);
    };
    append(one, 0, n);
    append(other, 0, n);
    append(one, n, n + 1);
    append(other, n, n + 1);
    for (std::vector<Stmt>* statements : {&one, &other}) NameReads(n, statements, &body);
    size_t uses = n + 1;
    while (uses < one.size() && one[uses].as<BindNode>()) ++uses;
    append(one, n + 1, uses);
    append(other, n + 1, uses);
    append(one, uses, one.size());
    append(other, uses, other.size());
    auto loop = make_object<ForNode>(*op);
    loop->min = MakeInt(t, 0);
    loop->extent = MakeInt(t, axis.extent / 2);
    loop->body = MakeSeq(body);
    loop->annotations.Set(kNumStages, MakeInt(stages));
    return For(loop);
  }

  /*! Reads behind both products, which are issued then, what is the same for all elements behind
   * one. */
  static void NameReads(size_t product, std::vector<Stmt>* statements, std::vector<Stmt>* out) {
    std::vector<Var> own;
    for (const Stmt& s : *statements) {
      if (const auto* bind = s.as<BindNode>()) own.push_back(bind->var);
    }
    ReadNamer reads(own);
    for (size_t i = product + 1; i < statements->size(); ++i) {
      if ((*statements)[i].as<ForNode>()) (*statements)[i] = reads.Mutate((*statements)[i]);
    }
    for (const auto& [name, value] : reads.names) {
      out->push_back(MakeBind(name, value, (*statements)[product]->span));
    }
  }

  /*! The statements of iteration `at`, whose names for numbers are new ones. */
  static std::vector<Stmt> WithNames(const std::vector<Stmt>& body, const Var& k, const Expr& at) {
    std::vector<Stmt> out;
    Substituter substitute;
    substitute.map[k.get()] = at;
    for (const Stmt& s : body) {
      const auto* bind = s.as<BindNode>();
      if (!bind) {
        out.push_back(substitute.Mutate(s));
        continue;
      }
      const Var name = MakeVar(bind->var->name, bind->var->dtype());
      out.push_back(MakeBind(name, substitute.Mutate(bind->value), s->span));
      substitute.map[bind->var.get()] = name;
    }
    return out;
  }

  const KernelInfo& kernel_;
  const Views views_;
  const SharedEstimate shared_;
  bool has_roles_ = false;
  std::vector<Var> made_;
};

PrimFunc DoubleAccumulators(PrimFunc f) {
  if (!TargetOf(f).Has(Feature::kWgmma) || !TargetOf(f).Has(Feature::kTma)) return f;
  if (DisablesWarpSpecialized()) return f;
  bool takes_shared = false;
  const PrimFunc doubled = ForEachKernel(f, [&](const AttrStmtNode* op) -> Stmt {
    const Stmt kernel = GetRef<Stmt>(op);
    const KernelInfo info = ReadKernelInfo(kernel, f);
    if (!info.block) return kernel;
    Doubler doubler(info);
    const Stmt out = doubler.Mutate(kernel);
    takes_shared |= doubler.takes_shared;
    return out;
  });
  return takes_shared ? WithAttr(doubled, kTakesShared, MakeInt(1)) : doubled;
}

TL_REGISTER_PASS(DoubleAccumulators);

}  // namespace
}  // namespace tl
