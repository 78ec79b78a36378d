#include "parallel_operator.h"

#include <algorithm>
#include <unordered_map>

#include "../layout/int_program.h"
#include "../layout/inverse.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"
#include "../tvm/pass_configs.h"
#include "intrinsics.h"
#include "launch_sized.h"
#include "loop_layout.h"
#include "memory_cost.h"
#include "whole_fragment.h"

namespace tl {
namespace {

/*! No shared buffer is stored to twice or read: whether a store has happened makes no difference
 * before the loop's end. */
bool OnlyFillsShared(const Stmt& body) {
  int stores = 0;
  ForEachIn<BufferStoreNode>(body,
                             [&](const BufferStoreNode* op) { stores += IsShared(op->buffer); });
  return stores == 1 && !HasNode<TensorLoadNode>(body, [](const TensorLoadNode* op) {
           return IsShared(op->source.as_or_throw<Var>());
         });
}

/*! Memory that several threads may write gets elements of which two share a byte. */
bool StoresSubByte(const Stmt& body) {
  return HasNode<BufferStoreNode>(body, [&](const BufferStoreNode* op) {
    const Var& v = op->buffer;
    return (IsGlobal(v) || IsShared(v)) && IsSubByte(DTypeOf(v));
  });
}

/*! A nest, and those of its loops that run in one thread if it may choose its layout. */
struct KnownNest {
  explicit KnownNest(const ParallelNest& statement)
      : nest(statement), accesses(FragmentAccesses(nest)), as_written(accesses) {}

  ParallelNest nest;
  /*! Accesses of fragments by the nest, and by the statement that the nest was. */
  std::vector<FragmentAccess> accesses, as_written;
  std::vector<bool> is_fixed = {};
  /*! The indices that these loops visit one element of, and of which fragment. */
  std::vector<Expr> fixed = {};
  Var fragment = Var();
};

/*! The accesses of a nest as the statement has them, where the nest has become another one: the
 * n-th of a fragment stays its n-th. */
std::vector<FragmentAccess> AsWritten(std::vector<FragmentAccess> accesses,
                                      const std::vector<FragmentAccess>& of_statement) {
  std::unordered_map<const Object*, std::vector<Array<Expr>>> written;
  for (const FragmentAccess& a : of_statement) written[a.buffer.get()].push_back(a.indices);
  std::unordered_map<const Object*, size_t> seen;
  for (FragmentAccess& a : accesses) {
    const size_t n = seen[a.buffer.get()]++;
    const std::vector<Array<Expr>>& of_fragment = written[a.buffer.get()];
    if (n < of_fragment.size()) a.indices = of_fragment[n];
  }
  return accesses;
}

/*! The nest with indices that are known in it: a fragment indexed by what its iterations do not
 * tell, a loop around it or a number of the run, is visited as a whole. */
KnownNest WithKnownIndices(const ParallelNest& statement) {
  KnownNest known(statement);
  const auto is_known = [](const KnownNest& n) {
    return AllOf(n.accesses, [&](const FragmentAccess& a) { return IsIndexedByNest(n.nest, a); });
  };
  if (is_known(known)) return known;
  for (const FragmentAccess& access : known.accesses) {
    if (IsIndexedByNest(statement, access)) continue;
    const auto over = OverWholeFragment(statement, access, false);
    if (!over) continue;
    KnownNest whole(over->nest);
    if (!is_known(whole)) continue;
    whole.as_written = AsWritten(whole.accesses, known.accesses);
    whole.is_fixed = over->is_fixed;
    whole.fixed = over->fixed;
    whole.fragment = access.buffer;
    return whole;
  }
  return known;
}

/*! A nest whose fixed loops are registers of a thread, so that who owns an element does not depend
 * on their indices. */
class Columns {
 public:
  explicit Columns(const KnownNest& known) : known_(known), dealt_(known.nest) {
    dealt_.vars = {};
    dealt_.extents = {};
    for (size_t d = 0; d < known.is_fixed.size(); ++d) {
      if (known.is_fixed[d]) {
        column_ = column_ * known.nest.extents[d] + known.nest.vars[d];
        columns_ *= ToInt(known.nest.extents[d]);
      } else {
        dealt_.vars.push_back(known.nest.vars[d]);
        dealt_.extents.push_back(known.nest.extents[d]);
      }
    }
  }

  /*! The other loops are dealt. nullopt where there are none of either, or too many registers. */
  std::optional<Fragment> Deal(int64_t num_threads, Analyzer* analyzer) const {
    if (dealt_.vars.empty() || columns_ == 1) return std::nullopt;
    const int64_t width = PlanVectorWidth(dealt_, num_threads, true, analyzer);
    return Of(PlanPartition(dealt_, width, num_threads), kMostRegisters);
  }

  /*! The other loops follow a fragment that is placed and has none of the fixed dimensions: `acc`
   * in `acc[i, d] += f[k, i, d]`. It takes as many registers as any layout, or few. */
  std::optional<Fragment> Follow(const std::vector<FragmentAccess>& accesses,
                                 const FragmentLookup& lookup, int64_t num_threads) const {
    if (dealt_.vars.empty() || columns_ == 1) return std::nullopt;
    std::vector<FragmentAccess> named;
    for (const FragmentAccess& access : accesses) {
      if (IsIndexedByNest(dealt_, access)) named.push_back(access);
    }
    const auto rows = ChooseLoopLayout(dealt_, named, lookup);
    const int64_t points = Product(StaticExtents(known_.nest));
    const int64_t most = std::max(kMostRegisters, (points + num_threads - 1) / num_threads);
    return rows ? Of(*rows, most) : std::nullopt;
  }

 private:
  static constexpr int64_t kMostRegisters = 64;  // a quarter of a thread's

  std::optional<Fragment> Of(const Fragment& rows, int64_t most_registers) const {
    const int64_t registers = rows->RegisterExtent();
    if (columns_ * registers > most_registers) return std::nullopt;
    const Array<Expr> iteration(dealt_.vars.begin(), dealt_.vars.end());
    const Expr index = known_.is_fixed.back() ? rows->MapIndex(iteration)[0] * columns_ + column_
                                              : column_ * registers + rows->MapIndex(iteration)[0];
    return MakeFragment(known_.nest.vars, StaticExtents(known_.nest), index,
                        rows->MapThread(iteration, rows->replica), rows->replica, rows->replicate);
  }

  const KnownNest& known_;
  ParallelNest dealt_;
  Expr column_ = MakeInt(0);
  int64_t columns_ = 1;
};

/*! The layout of a nest of one iteration, not that of the fragment that the nest has become. */
bool IsOneIteration(const Fragment& layout) {
  return layout.defined() && Product(layout->Shape()) == 1;
}

class ParallelOperator : public TileOperator {
 public:
  ParallelOperator(const ParallelNest& nest, Fragment layout)
      : TileOperator(nest.span),
        known_(IsOneIteration(layout) ? KnownNest(nest) : WithKnownIndices(nest)),
        nest_(known_.nest),
        written_(nest),
        accesses_(known_.accesses),
        layout_(layout.defined() ? std::move(layout) : nest_.loop_layout),
        is_dictated_(layout_.defined()) {}

  BufferUse Use() const final { return CollectBufferUse(nest_.body); }
  Fragment LoopLayout() const final { return layout_; }
  bool HasForms() const final { return !is_dictated_ && !known_.is_fixed.empty(); }
  void TakeForm(PartForm form) final {
    form_ = form;
    if (form != PartForm::kAsWritten) return;
    known_ = KnownNest(written_);
  }

  bool Infer(LayoutScope* scope, InferLevel level) final {
    const bool dictated = level == InferLevel::kStrict && is_dictated_;
    if (dictated) CheckLoopLayout(*scope);
    if (accesses_.empty() || (level == InferLevel::kStrict && !dictated)) return false;
    bool changed = false;
    if (!layout_.defined()) {
      if (level == InferLevel::kFree) {
        changed = !SeesParts(*scope) && Choose(scope);
      } else if (level == InferLevel::kParts) {
        changed = PlaceWhole(scope) ? Follow(*scope) : Choose(scope);
      } else {
        changed = Follow(*scope) || (IsPlaced(*scope) && Choose(scope));
        if (changed && form_ == PartForm::kOpen && HasForms() && !FindsAll(*scope)) {
          layout_ = Fragment();
          return false;
        }
      }
    }
    // Where one element is wanted in all threads is no reason to hold all elements there, if
    // others have one.
    const bool may_replicate = level == InferLevel::kFree || level == InferLevel::kParts;
    return (layout_.defined() && PlaceFragments(scope, may_replicate)) || changed;
  }

  std::vector<FragmentAccess> Unreached(const LayoutScope& scope) const final {
    std::vector<FragmentAccess> out;
    for (size_t k = 0; k < accesses_.size(); ++k) {
      if (Reaches(scope, accesses_[k])) continue;
      out.push_back(known_.as_written[k]);
      out.back().wanted = WantedLayout(accesses_[k], scope.num_threads);
    }
    return out;
  }

  /*! Accesses of global memory take their time. Registers have no addresses: arrays of which a
   * thread wants the element of its own number are in local memory, where each access costs as much
   * as a copy through shared memory. Half a byte cannot be stored. */
  int64_t LayoutCost(const LayoutScope& scope) const final {
    constexpr int64_t kMuch = int64_t(1) << 32, kNever = kMuch << 16;
    int64_t bits = GlobalMemoryBits(nest_, layout_, scope.target->warp_threads);
    if (StoresSubByte(nest_.body) && layout_->ContiguousRegisters() % 2) bits += kNever;
    for (const FragmentAccess& access : accesses_) {
      const Fragment fragment = scope.FindFragment(access.buffer);
      if (fragment->RegisterExtent() == 1 || !Reaches(scope, access)) continue;
      if (!DependsOnThread(access, fragment)) continue;
      bits += kMuch + fragment->RegisterExtent() * DTypeOf(access.buffer).bits;
    }
    return bits;
  }

  /*! Tiles that nothing else places, such as one that is read by columns, get the layout in which
   * this nest has fewest bank conflicts. */
  void InferSwizzle(LayoutScope* scope) const final {
    const auto is_known = [](const Expr& extent) { return AsInt(extent).value_or(0) > 0; };
    if (scope->target->banks != kBanks || !AllOf(nest_.extents, is_known)) {
      return;
    }
    const BufferUse use = Use();
    for (const auto* list : {&use.reads, &use.writes}) {
      for (const Var& tile : *list) {
        if (!IsShared(tile) || IsSizedAtLaunch(tile) || scope->Find(tile).defined()) continue;
        if (scope->IsPointedTo(tile) || scope->IsView(tile)) continue;
        const int64_t lanes = scope->target->warp_threads;
        const Layout layout = FewestConflicts(nest_, ThreadsOfNest(*scope), tile, lanes);
        if (layout.defined()) scope->SetLayout(tile, layout, span);
      }
    }
  }

  /*! Refuses what cannot be converted, because the user wants both layouts. */
  void Verify(const LayoutScope& scope) const final {
    if (!is_dictated_) return;
    for (const FragmentAccess& access : accesses_) {
      if (Reaches(scope, access)) continue;
      if (!scope.FindAnnotated(access.buffer).defined()) continue;
      const std::string name = access.buffer->name;
      const Span& at = access.span.defined() ? access.span : span;
      const Fragment fragment = scope.FindFragment(access.buffer);
      const Span first = scope.PlacedBy(access.buffer);
      FragmentAccess as_read = access;
      as_read.is_write = false;
      const bool is_held = IsCompatible(nest_, as_read, fragment, layout_);
      const std::string defect =
          is_held ? "found a write of " + name +
                        " that runs in some of the threads that hold the element, wanted one in "
                        "all of them; make " +
                        name + " shared memory, or write it in a loop over its own elements"
                  : "found an access of " + name +
                        " from a thread that does not hold the element, wanted one that does; "
                        "copy " +
                        name + " through shared memory to change its layout";
      ThrowAt(at, "ValueError",
              defect + "\n  held as " + LayoutLine(fragment) +
                  (first.defined() ? ", asked for at " + Where(first) : "") +
                  "\n  this loop runs as " + LayoutLine(layout_));
    }
  }

  Stmt Lower(LoweringScope* scope) const final {
    NestLowering ctx{scope->thread,
                     scope->num_threads,
                     scope->analyzer,
                     [scope](const Var& b) { return scope->FragmentOf(b); },
                     [scope](const Var& b) { return scope->RegistersOf(b); },
                     scope->in_range};
    Fragment layout = layout_;
    if (!layout.defined() && !accesses_.empty()) {
      layout = *ChooseLoopLayout(nest_, accesses_, ctx.fragment);
    }
    WarnOfSelections(scope);
    const Stmt nest = scope->PlaceAccesses(LowerNest(nest_, layout, ctx));
    if (!nest_.prefer_async || scope->has_async_owner || !OnlyFillsShared(nest_.body) ||
        !EnablesAsyncCopy()) {
      return nest;
    }
    return MakeSeq({MakeAttr(String(""), kAsyncCopy, MakeInt(kBool, 1), nest),
                    MakeEvaluate(CallOp(kCpAsyncCommit, {}), span),
                    MakeEvaluate(CallOp(kCpAsyncWait, {MakeInt(0)}), span)});
  }

 private:
  /*! A loop of constant extent may be unrolled, and its variable's registers are known then. */
  void WarnOfSelections(LoweringScope* scope) const {
    for (const Expr& index : known_.fixed) {
      const Analyzer::Bound bound = scope->analyzer->ConstBound(index);
      const std::vector<int64_t> shape = ConstShape(known_.fragment);
      if (bound.min >= 0 && bound.max < *std::max_element(shape.begin(), shape.end())) continue;
      LogAt(LogLevel::kWarning, span,
            "found " + std::string(known_.fragment->name) +
                " with an index that is known at run time only, wanted one of a loop of constant "
                "extent: each thread goes through all of its registers of this dimension");
    }
  }

  /*! The layout of a fragment in which the nest would find what it reads. */
  Fragment WantedLayout(const FragmentAccess& access, int64_t num_threads) const {
    if (access.is_write || !known_.is_fixed.empty() || !layout_.defined()) return Fragment();
    const auto layout = FragmentFromLayout(nest_, access, layout_, num_threads);
    const bool is_found =
        layout && PlacementDefect(*layout).empty() && IsCompatible(nest_, access, *layout, layout_);
    return is_found ? *layout : Fragment();
  }

  /*! Who runs which iteration: of a nest without fragments, as it will be dealt (LowerNest). */
  Fragment ThreadsOfNest(const LayoutScope& scope) const {
    if (layout_.defined()) return layout_;
    const int64_t width = PlanVectorWidth(nest_, scope.num_threads, false, scope.analyzer);
    return PlanPartition(nest_, width, scope.num_threads);
  }

  bool Reaches(const LayoutScope& scope, const FragmentAccess& access) const {
    return IsCompatible(nest_, access, scope.FindFragment(access.buffer), layout_);
  }

  /*! All accesses are of elements in the loop's threads, or will be when it has placed them. */
  bool FindsAll(const LayoutScope& scope) const {
    return AllOf(accesses_, [&](const FragmentAccess& access) {
      std::optional<Fragment> fragment = scope.FindFragment(access.buffer);
      if (!fragment->defined()) {
        fragment = FragmentFromLayout(nest_, access, layout_, scope.num_threads);
      }
      return fragment && IsCompatible(nest_, access, *fragment, layout_);
    });
  }

  /*! Threads want different registers in the same step. */
  bool DependsOnThread(const FragmentAccess& access, const Fragment& fragment) const {
    if (!access.inner_vars.empty() || !ReadsOnly(access.indices, nest_.vars)) return false;
    if (fragment.same_as(layout_) && AreIteration(access.indices, nest_)) return false;
    const SharedTable indices = EvaluateOverBox(access.indices, nest_.vars, StaticExtents(nest_));
    const std::vector<int64_t>& at = *indices;
    const std::vector<int64_t> shape = fragment->Shape();
    std::unordered_map<int64_t, int64_t> of_step;
    for (size_t point = 0; point < layout_->Table().size(); ++point) {
      int64_t element = 0;
      bool inside = true;
      for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t x = at[point * shape.size() + d];
        inside = inside && x >= 0 && x < shape[d];
        element = element * shape[d] + x;
      }
      if (!inside) continue;
      const int64_t found = fragment->Table()[element];
      if (of_step.try_emplace(layout_->Table()[point], found).first->second != found) return true;
    }
    return false;
  }

  /*! Refuses a layout of the user's that does not run every iteration once. */
  void CheckLoopLayout(const LayoutScope& scope) const {
    std::string found = PlacementDefect(layout_);
    if (layout_->Shape() != StaticExtents(nest_)) found = "another shape than the loop's extents";
    if (found.empty() && layout_->ThreadExtent() > scope.num_threads) {
      found = std::to_string(layout_->ThreadExtent()) + " threads where the block has " +
              std::to_string(scope.num_threads);
    }
    if (found.empty()) return;
    ThrowAt(span, "ValueError",
            "loop_layout: found " + found +
                ", wanted a thread of the block and a register of its own for each iteration; "
                "leave loop_layout out to let the compiler choose\n  " +
                LayoutText(layout_));
  }

  /*! Nothing more will come that the loop could follow. */
  bool IsPlaced(const LayoutScope& scope) const {
    return AllOf(accesses_,
                 [&](const FragmentAccess& access) { return scope.Find(access.buffer).defined(); });
  }

  /*! The nest names only parts of the fragments that have no place: it could place none. */
  bool SeesParts(const LayoutScope& scope) const {
    bool any = false;
    for (const FragmentAccess& access : accesses_) {
      if (scope.Find(access.buffer).defined()) continue;
      any = true;
      if (NamesWhole(nest_, access)) return false;
    }
    return any;
  }

  /*! Places a fragment of which the nest names a part by a nest over all of it. */
  bool PlaceWhole(LayoutScope* scope) const {
    for (const FragmentAccess& access : accesses_) {
      if (scope->Find(access.buffer).defined()) continue;
      const auto whole = OverWholeFragment(nest_, access, true);
      if (!whole) continue;
      const int64_t width = PlanVectorWidth(whole->nest, scope->num_threads, true, scope->analyzer);
      const Fragment all = PlanPartition(whole->nest, width, scope->num_threads);
      const auto fragment = FragmentFromLayout(whole->nest, whole->access, all, scope->num_threads);
      if (!fragment) continue;
      scope->SetLayout(access.buffer, *fragment, span);
      return true;
    }
    return false;
  }

  bool Follow(const LayoutScope& scope) {
    const auto lookup = [&](const Var& b) { return scope.FindFragment(b); };
    auto layout = ChooseLoopLayout(nest_, accesses_, lookup);
    if (!layout) layout = Columns(known_).Follow(accesses_, lookup, scope.num_threads);
    if (!layout) return false;
    const bool is_own = AnyOf(accesses_, [&](const FragmentAccess& access) {
      return lookup(access.buffer).same_as(*layout);
    });
    if (!is_own && !CanTellIterations(nest_, *layout, lookup, scope.num_threads)) return false;
    layout_ = *layout;
    return true;
  }

  bool Choose(LayoutScope* scope) {
    StaticExtents(nest_);
    if (auto columns = Columns(known_).Deal(scope->num_threads, scope->analyzer)) {
      layout_ = *columns;
      return true;
    }
    const int64_t width = PlanVectorWidth(nest_, scope->num_threads, true, scope->analyzer);
    layout_ = PlanPartition(nest_, width, scope->num_threads);
    return true;
  }

  bool PlaceFragments(LayoutScope* scope, bool may_replicate) const {
    bool placed = false;
    for (const FragmentAccess& access : accesses_) {
      if (scope->Find(access.buffer).defined()) continue;
      auto fragment = FragmentFromLayout(nest_, access, layout_, scope->num_threads);
      // An element of its own choice, in a loop of one iteration that all threads run.
      if (!fragment && may_replicate && IsNumbered(access) &&
          RunsOnceInAllThreads(scope->num_threads)) {
        fragment = MakeReplicatedFragment(ConstShape(access.buffer), scope->num_threads);
      }
      if (!fragment || !(is_dictated_ || HasInverse(*fragment, scope->num_threads))) continue;
      // A loop that follows one element of each row has gaps, which a reduction would not take.
      scope->SetLayout(access.buffer, CondenseRegisters(*fragment), span);
      placed = true;
    }
    return placed;
  }

  /*! Loops over all of the fragment can be told their iterations. A part of another fragment may
   * lie in threads in no such order: what is like that part is better off without it. */
  static bool HasInverse(const Fragment& f, int64_t num_threads) {
    return InvertFragment(f, MakeVar("thread"), MakeVar("register"), num_threads).has_value();
  }

  /*! The access is of one register, whoever has it: registers have no addresses. */
  static bool IsNumbered(const FragmentAccess& access) {
    const std::vector<int64_t> shape = ConstShape(access.buffer);
    return Product(shape) <= kMostReplicas &&
           AllOf(access.indices, [](const Expr& e) { return AsInt(e).has_value(); });
  }
  static constexpr int64_t kMostReplicas = 64;  // a quarter of a thread's registers

  bool RunsOnceInAllThreads(int64_t num_threads) const {
    return layout_->replicate == num_threads && IsOneIteration(layout_);
  }

  KnownNest known_;
  const ParallelNest& nest_;
  ParallelNest written_;
  const std::vector<FragmentAccess>& accesses_;
  PartForm form_ = PartForm::kOpen;
  Fragment layout_;
  /*! The layout was there before inference. */
  bool is_dictated_;
};

}  // namespace

std::unique_ptr<TileOperator> MakeParallelOperator(const ParallelNest& nest, Fragment layout) {
  return std::make_unique<ParallelOperator>(nest, std::move(layout));
}

}  // namespace tl
