/*!
 * LayoutInference: decides where every element of a tile lives, and with that which instruction
 * makes each copy.
 *
 * In:  a tile program under thread_extent attributes, pipelines already expanded.
 * Out: the same program; block annotation `layout_map` (buffer -> Layout or Fragment) has every
 * shared buffer and every fragment that is used, and each outermost parallel loop that touches
 * fragments has `parallel_loop_layout`; either is there before where the user says so, and kept.
 * The call of a copy has one `instruction`, what that is to do, and why others do not make the copy
 * (copy_instruction.h).
 * Establishes: every access of a fragment is to a register of the thread that makes it; where a
 * statement wants elements of other threads, the program reads and writes them in shared memory, or
 * reads them in a fragment of another layout that is filled by shuffles in a warp
 * (convert_layouts.h), or has a fragment of its own (convert_accumulators.h). Refuses: fragments
 * whose layout and the layout of whose users the user has given, that ranges of different numbers
 * of threads or overlapping ones use (ValueError with both statements); tile operators in a range
 * of threads that do not follow each other. A fragment that is used in a range is laid out over the
 * range's threads, counted from its first one.
 *
 * First come the buffers that wgmma reads, each with the widest swizzle that all its readers take.
 * Levels, each run to the end before the next: strict (operators that dictate: gemm), common
 * (operators follow fragments that are placed, fragments follow operators), prefer (a gemm places
 * the fragments that it reads and nobody dictates), free, parts. At the free level the operators
 * that are left fall into components joined by fragments without a place; in each, every operator
 * is tried as the one that chooses first, and the way that takes the fewest registers, and moves
 * least through shared memory, is kept. An operator whose choice another one's has already led to
 * is not tried. Operators are taken in program order, so the result depends on nothing but the
 * program.
 *
 * An operator speaks again where a buffer that it uses got a place, so the work grows with the uses
 * of buffers, times the choices that differ.
 */
#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <unordered_map>

#include "../../layout/annotation.h"
#include "../../op/copy_instruction.h"
#include "../../op/fragment_copy.h"
#include "../../op/launch_sized.h"
#include "../../op/operator.h"
#include "../../op/parallel.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../notes.h"
#include "convert_accumulators.h"
#include "convert_layouts.h"
#include "kernel_scope.h"
#include "placements.h"
#include "thread_accesses.h"

namespace tl {
namespace {

/*! What is around a statement: the loops, outermost first, from number `apart` on those that the
 * same threads run as often as it; whether it is in one range of threads, and whether someone
 * commits and waits for its asynchronous copies. */
struct Surroundings {
  std::vector<const ForNode*> loops;
  int apart = 0;
  bool in_range = false, has_async_owner = false;

  int Count() const { return int(loops.size()); }
  std::vector<const ForNode*> Together() const { return {loops.begin() + apart, loops.end()}; }
};

struct OperatorUse {
  std::unique_ptr<TileOperator> op;
  Stmt source;
  /*! The threads that it works with. */
  ThreadRange threads;
  /*! Fragments that it touches. */
  std::vector<Var> fragments;
  Surroundings around;

  void InferMmaOperandLayout(LayoutScope* scope) const {
    Tell(scope);
    op->InferMmaOperandLayout(scope);
  }
  bool Infer(LayoutScope* scope, InferLevel level) const {
    Tell(scope);
    return op->Infer(scope, level);
  }
  void InferSwizzle(LayoutScope* scope) const {
    Tell(scope);
    op->InferSwizzle(scope);
  }
  void Verify(LayoutScope* scope) const {
    Tell(scope);
    op->Verify(*scope);
  }
  void Tell(LayoutScope* scope) const {
    scope->num_threads = threads.threads;
    scope->first_thread = threads.first;
  }
  /*! The call of a copy with its instruction, undefined for other statements. */
  Call SelectInstruction(LayoutScope* scope) const {
    Tell(scope);
    scope->in_range = around.in_range;
    scope->has_async_owner = around.has_async_owner;
    for (const ForNode* loop : around.loops) scope->analyzer->BindLoop(loop);
    const Call selected = op->SelectInstruction(*scope);
    const CallNode* call = AsTileOp(source);
    if (selected.defined() || !call || !IsCopy(call)) return selected;
    return WithChoice(call, FirstOf(ChoiceOf(call), around.has_async_owner,
                                    [](const auto& by) { return by == kByTma ? kUnwaited : ""; }));
  }
  /*! The same, undecided. */
  OperatorUse Again() const { return {OperatorOf(source), source, threads, fragments, around}; }
};

OperatorUse MakeUse(std::unique_ptr<TileOperator> op, const Stmt& source, ThreadRange threads,
                    const Surroundings& around) {
  OperatorUse use{std::move(op), source, threads, {}, around};
  const BufferUse touched = use.op->Use();
  for (const auto* list : {&touched.reads, &touched.writes}) {
    for (const Var& v : *list) {
      if (IsFragment(v)) use.fragments.push_back(v);
    }
  }
  return use;
}

/*! Collects operators and the buffers of one kernel, in program order. */
class OpCollector : public StmtExprVisitor {
 public:
  std::vector<OperatorUse> operators;
  std::vector<Var> buffers;
  ThreadAccesses of_threads;
  KernelScope scope;
  Map<Var, Layout> annotated;

 protected:
  void Visit_(const AttrStmtNode* op) final {
    const auto [in_range, has_async_owner] = std::pair(around_.in_range, around_.has_async_owner);
    around_.in_range |= op->attr_key == kThreadRange && ThreadRangesOf(op).size() == 1;
    around_.has_async_owner |= op->attr_key == kAsyncCopy;
    scope.Within(op, [&] { Apart([&] { Default(op); }); });
    around_.in_range = in_range;
    around_.has_async_owner = has_async_owner;
  }
  void Visit_(const SBlockNode* op) final {
    for (const Var& v : op->alloc_buffers) buffers.push_back(v);
    for (auto [buffer, layout] : GetLayoutMap(op->annotations)) annotated.Set(buffer, layout);
    Visit(op->body);
  }
  void Visit_(const EvaluateNode* op) final {
    if (auto tile_op = OperatorOf(GetRef<Stmt>(op))) {
      Add(std::move(tile_op), op);
    } else {
      At(op);
    }
  }
  void Visit_(const ForNode* op) final {
    if (auto nest = OperatorOf(GetRef<Stmt>(op))) return Add(std::move(nest), op);
    around_.loops.push_back(op);
    At(op);
    around_.loops.pop_back();
  }
  void Visit_(const BindNode* op) final {
    of_threads.Note(op);
    At(op);
  }
  void Visit_(const IfThenElseNode* op) final {
    Apart([&] { At(op); });
  }
  void Visit_(const WhileNode* op) final {
    Apart([&] { At(op); });
  }
  void Visit_(const BufferStoreNode* op) final {
    RefuseOutside(op->buffer, op->span);
    of_threads.Note(op);
    At(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    RefuseOutside(op->source.as_or_throw<Var>(), op->span.defined() ? op->span : span_);
    Default(op);
  }

 private:
  /*! Visits what a statement reads; most loads have no place of their own. */
  template <typename StatementNode>
  void At(const StatementNode* op) {
    span_ = op->span;
    Default(op);
  }
  void Add(std::unique_ptr<TileOperator> op, const StmtNode* source) {
    operators.push_back(
        MakeUse(std::move(op), GetRef<Stmt>(source), scope.Threads(source->span), around_));
  }
  void RefuseOutside(const Var& buffer, const Span& span) {
    if (!IsFragment(buffer)) return;
    ThrowAt(span, "ValueError",
            "found fragment " + std::string(buffer->name) +
                " used outside tile operators and T.Parallel, where no thread owns an element; "
                "wrap the statement in T.Parallel, or use T.alloc_local for memory of one thread");
  }
  template <typename Inside>
  void Apart(Inside inside) {
    const int outside = std::exchange(around_.apart, around_.Count());
    inside();
    around_.apart = outside;
  }
  Span span_;
  Surroundings around_;
};

using Operators = std::vector<OperatorUse>;

std::string RangeText(ThreadRange r) {
  return "threads " + std::to_string(r.first) + " to " + std::to_string(r.first + r.threads - 1);
}

/*! Common-level inference: operators in program order, again and again, as long as one of them uses
 * a buffer that was placed since it spoke. */
class Propagation {
 public:
  Propagation(const Operators& operators, const Views& views)
      : operators_(operators), views_(views) {
    for (size_t k = 0; k < operators.size(); ++k) {
      const BufferUse use = operators[k].op->Use();
      for (const auto* list : {&use.reads, &use.writes}) {
        for (const Var& v : *list) users_[views_.RootOf(v).get()].push_back(k);
      }
      waiting_.insert(k);
    }
  }

  /*! What was decided of an operator at another level may let it say more. */
  void Wake(size_t k) { waiting_.insert(k); }

  void Run(Placements* placed) {
    WakeUsers(placed);
    for (size_t next = 0; !waiting_.empty();) {
      auto it = waiting_.lower_bound(next);
      if (it == waiting_.end()) it = waiting_.begin();
      const size_t k = *it;
      waiting_.erase(it);
      next = k + 1;
      if (operators_[k].Infer(placed, InferLevel::kCommon)) waiting_.insert(k);
      WakeUsers(placed);
    }
  }

 private:
  void WakeUsers(Placements* placed) {
    for (const Var& v : placed->TakeNews()) {
      const auto it = users_.find(v.get());
      if (it != users_.end()) waiting_.insert(it->second.begin(), it->second.end());
    }
  }

  const Operators& operators_;
  const Views& views_;
  std::unordered_map<const Object*, std::vector<size_t>> users_;
  std::set<size_t> waiting_;
};

bool IsSettled(const OperatorUse& use, const LayoutScope& scope) {
  if (use.op->HasForms() && !use.op->LoopLayout().defined()) return false;
  return AllOf(use.fragments, [&](const Var& v) { return scope.Find(v).defined(); });
}

/*! Operators joined by fragments that have no place yet, each group in program order. */
std::vector<std::vector<size_t>> FreeComponents(const Operators& operators,
                                                const Placements& scope) {
  std::vector<size_t> parent(operators.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto first_of = [&](size_t k) {
    while (parent[k] != k) k = parent[k] = parent[parent[k]];
    return k;
  };
  std::unordered_map<const Object*, size_t> user;
  std::vector<size_t> open;
  for (size_t k = 0; k < operators.size(); ++k) {
    if (IsSettled(operators[k], scope)) continue;
    open.push_back(k);
    for (const Var& v : operators[k].fragments) {
      if (scope.Find(v).defined()) continue;
      const size_t other = user.try_emplace(scope.views->RootOf(v).get(), k).first->second;
      const auto [first, second] = std::minmax({first_of(k), first_of(other)});
      parent[second] = first;
    }
  }
  std::map<size_t, std::vector<size_t>> groups;
  for (size_t k : open) groups[first_of(k)].push_back(k);
  std::vector<std::vector<size_t>> out;
  for (auto& [first, members] : groups) out.push_back(std::move(members));
  return out;
}

/*! One way to settle a component: its operators, decided, and where they placed fragments. */
struct Candidate {
  Operators operators;
  Placements placed;
  int64_t cost = 0;  // in bits of a thread
};

/*! Places what no operator could: the threads take the elements of a fragment in turn. */
void PlaceAnywhere(const OperatorUse& use, Propagation* others, Placements* placed) {
  for (const Var& v : use.fragments) {
    if (placed->Find(v).defined()) continue;
    ParallelNest nest;
    for (int64_t extent : ConstShape(v)) {
      nest.vars.push_back(MakeVar("i"));
      nest.extents.push_back(MakeInt(extent));
    }
    placed->SetLayout(v, PlanPartition(nest, 1, use.threads.threads), use.source->span);
    others->Run(placed);
  }
}

/*! The layout in which a fragment is copied for an access of other lanes' elements; undefined where
 * it is copied to shared memory. */
Fragment ShuffledLayout(const OperatorUse& use, const FragmentAccess& access,
                        const LayoutScope& placed) {
  constexpr int64_t kMostBits = 64 * 32;  // a quarter of a thread's registers
  if (!access.wanted.defined() || Contains(use.op->Use().writes, access.buffer)) return Fragment();
  const int bits = DTypeOf(access.buffer).bits;
  if (access.wanted->RegisterExtent() * bits > kMostBits) return Fragment();
  const auto plan = PlanCheapShuffle(placed.FindFragment(access.buffer), access.wanted, bits,
                                     use.threads.threads, *placed.target);
  return plan ? access.wanted : Fragment();
}

/*! How many loops are around the copies that an access of another thread's elements makes: what is
 * written has a barrier where it is written, a copy to be read stands in front of the loops that it
 * may leave. */
int LoopsAroundCopy(const OperatorUse& use, const Var& fragment, const Views& views) {
  const std::vector<const ForNode*> loops = use.around.Together();
  const bool is_written = Contains(use.op->Use().writes, fragment);
  return use.around.apart + int(is_written ? loops.size() : CopyDepth(loops, fragment, views));
}

/*! What the conversions of an operator's fragments move to other threads: always more than
 * registers cost, and more in a loop. */
int64_t ConvertedBits(const OperatorUse& use, const Placements& placed) {
  int64_t bits = 0;
  for (const FragmentAccess& access : use.op->Unreached(placed)) {
    const int64_t elements = Product(ConstShape(access.buffer));
    const bool is_shuffled = ShuffledLayout(use, access, placed).defined();
    const int64_t moved =
        (is_shuffled ? kShuffledBits : kThroughSharedBits) + elements * DTypeOf(access.buffer).bits;
    bits += moved << std::min(2 * LoopsAroundCopy(use, access.buffer, *placed.views), 8);
  }
  return bits;
}

/*! What followed from the choice of an operator, before another one chose. */
struct Consequence {
  std::vector<Fragment> loop_layouts;
  std::unordered_map<const Object*, Layout> placed;
};

/*! A component, and what has been tried to settle it. */
class Component {
 public:
  Component(const Operators& operators, const std::vector<size_t>& members,
            const Placements& placed)
      : operators_(operators), members_(members), placed_(placed) {
    for (size_t k : members) {
      const TileOperator& op = *operators[k].op;
      const bool is_open = op.HasForms() && !op.LoopLayout().defined();
      forms_.push_back(is_open ? PartForm::kWhole : PartForm::kOpen);
    }
  }

  /*! The cheapest way; on a tie the one whose root comes first. Where it has conversions, operators
   * that have another form try that, one after the other. */
  Candidate Settle() {
    TryRoots();
    for (PartForm& form : forms_) {
      if (form == PartForm::kOpen || (best_ && best_->cost < kShuffledBits)) continue;
      form = PartForm::kAsWritten;
      if (!TryRoots()) form = PartForm::kWhole;
    }
    if (!best_) throw *refusal_;
    return std::move(*best_);
  }

 private:
  /*! Whether one is better than what was found before. */
  bool TryRoots() {
    bool is_better = false;
    known_.clear();
    for (size_t root = 0; root < members_.size(); ++root) {
      try {
        if (FollowsFromKnown(root)) continue;
        Candidate c = SettleFrom(root);
        if (best_ && c.cost >= best_->cost) continue;
        best_ = std::move(c);
        is_better = true;
      } catch (ffi::Error& e) {
        if (!refusal_) refusal_ = e;
      }
    }
    return is_better;
  }

  /*! The operator as it is before any choice, in its form. */
  OperatorUse Undecided(size_t member) const {
    OperatorUse use = operators_[members_[member]].Again();
    if (forms_[member] != PartForm::kOpen) use.op->TakeForm(forms_[member]);
    return use;
  }

  /*! What the operator would choose, another one's choice has led to. */
  bool FollowsFromKnown(size_t root) const {
    if (known_.empty()) return false;
    const OperatorUse use = Undecided(root);
    Placements own = Placements::OnTopOf(placed_);
    use.Infer(&own, InferLevel::kFree);
    const Fragment loop = use.op->LoopLayout();
    const auto placed = own.PlacedHere();
    return AnyOf(known_, [&](const Consequence& known) {
      const Fragment& other = known.loop_layouts[root];
      if (loop.defined() && (!other.defined() || !IsSameLayout(loop, other))) return false;
      return AllOf(placed, [&](const auto& choice) {
        const auto it = known.placed.find(choice.first.get());
        return it != known.placed.end() && IsSameLayout(it->second, choice.second);
      });
    });
  }

  /*! Lets `root` choose first. Throws what an operator refuses. */
  Candidate SettleFrom(size_t root) {
    Candidate c{{}, Placements::OnTopOf(placed_)};
    for (size_t k = 0; k < members_.size(); ++k) c.operators.push_back(Undecided(k));
    Propagation others(c.operators, *placed_.views);
    const bool has_forms = AnyOf(forms_, [](PartForm form) { return form != PartForm::kOpen; });
    if (has_forms) others.Run(&c.placed);
    const auto choose = [&](size_t k, InferLevel level) {
      if (!c.operators[k].Infer(&c.placed, level)) return;
      others.Wake(k);
      others.Run(&c.placed);
    };
    choose(root, InferLevel::kFree);
    others.Run(&c.placed);
    Note(c);
    for (const InferLevel level : {InferLevel::kFree, InferLevel::kParts}) {
      for (size_t k = 0; k < c.operators.size(); ++k) choose(k, level);
    }
    for (const OperatorUse& use : c.operators) PlaceAnywhere(use, &others, &c.placed);
    for (const OperatorUse& use : c.operators) use.Verify(&c.placed);
    for (const OperatorUse& use : c.operators) {
      use.Tell(&c.placed);
      c.cost += use.op->LayoutCost(c.placed) + ConvertedBits(use, c.placed);
      for (const Var& v : use.fragments) {
        c.cost += c.placed.FindFragment(v)->RegisterExtent() * DTypeOf(v).bits;
      }
    }
    return c;
  }

  void Note(const Candidate& c) {
    Consequence& known = known_.emplace_back();
    for (const OperatorUse& use : c.operators) known.loop_layouts.push_back(use.op->LoopLayout());
    for (const auto& [buffer, layout] : c.placed.PlacedHere()) known.placed[buffer.get()] = layout;
  }

  const Operators& operators_;
  const std::vector<size_t>& members_;
  const Placements& placed_;
  /*! The form of each member. */
  std::vector<PartForm> forms_;
  std::optional<Candidate> best_;
  std::optional<ffi::Error> refusal_;
  /*! What followed from each root that was tried with these forms. */
  std::vector<Consequence> known_;
};

/*! Where threads count from, and how many there are, is part of where a fragment lives. */
void RefuseMixedRanges(const Operators& operators, const Views& views) {
  std::unordered_map<const Object*, std::vector<const OperatorUse*>> users;
  for (const OperatorUse& use : operators) {
    for (const Var& v : use.fragments) {
      std::vector<const OperatorUse*>& known = users[views.RootOf(v).get()];
      const ThreadRange here = use.threads;
      bool is_new = true;
      for (const OperatorUse* other : known) {
        const ThreadRange there = other->threads;
        is_new &= !(here == there);
        const bool apart =
            here.first >= there.first + there.threads || there.first >= here.first + here.threads;
        if (here == there || (apart && here.threads == there.threads)) continue;
        const std::string where = Where(other->source->span);
        ThrowAt(use.source->span, "ValueError",
                "found fragment " + std::string(v->name) + " in a statement of " + RangeText(here) +
                    " and in one of " + RangeText(there) +
                    (where.empty() ? "" : " (" + where + ")") +
                    ", wanted the same threads, or as many others; use a second fragment, or move "
                    "one of the statements");
      }
      if (is_new) known.push_back(&use);
    }
  }
}

/*! Statements that dictate layouts of one fragment which differ, and the layout that it keeps. */
struct Disagreement {
  std::vector<Dictation> dictations;
  int keeper = 0;
};

/*! Runs strict inference; gives the fragments that are dictated differently. A fragment keeps the
 * layout that the user gave it, else the one of the statement with most loops around. */
std::optional<Disagreement> RunStrict(const Operators& operators, Placements* placed) {
  struct Known {
    std::vector<Layout> layouts;
    Disagreement found;
    int most_loops = -1;
  };
  std::vector<std::pair<Var, Known>> known;
  for (const OperatorUse& use : operators) {
    std::vector<std::pair<Var, Layout>> dictated;
    placed->dictated = &dictated;
    use.Infer(placed, InferLevel::kStrict);
    placed->dictated = nullptr;
    for (const auto& [fragment, layout] : dictated) {
      auto it = FindIf(known, [&, v = fragment](const auto& k) { return k.first.same_as(v); });
      if (it == known.end()) it = known.insert(it, {fragment, {}});
      Known& k = it->second;
      if (k.layouts.empty()) {
        // What a view's statement dictates stays, too.
        const Layout first = placed->Find(fragment);
        const bool is_given = placed->FindAnnotated(fragment).defined();
        if (is_given || !IsSameLayout(first, layout)) k.most_loops = INT32_MAX;
        k.layouts.push_back(first);
      }
      const auto same = FindIf(
          k.layouts, [&, l = layout](const Layout& other) { return IsSameLayout(l, other); });
      const int number = int(same - k.layouts.begin());
      if (same == k.layouts.end()) k.layouts.push_back(layout);
      k.found.dictations.push_back({use.source, fragment, number});
      if (use.around.Count() <= k.most_loops) continue;
      k.most_loops = use.around.Count();
      k.found.keeper = number;
    }
  }
  for (auto& [fragment, k] : known) {
    if (k.layouts.size() > 1) return k.found;
  }
  return std::nullopt;
}

/*! What a round of inference leaves to the next one: a fragment's place. */
struct Kept {
  Var fragment;
  Layout layout;
  Span asked_by;
  /*! The fragment was made by a conversion. */
  bool is_copy = false;
};

/*! Shuffles go between two layouts, which have to stay as they are: so do all. */
void KeepFragments(const OpCollector& ops, const Placements& placed,
                   const std::vector<Conversion>& conversions, std::vector<Kept>* kept) {
  const auto is_shuffled = [](const Conversion& c) { return c.held_as.defined(); };
  if (NoneOf(conversions, is_shuffled)) return;
  for (const Var& buffer : ops.buffers) {
    const auto is_kept = [&](const Kept& k) { return k.fragment.same_as(buffer); };
    if (!IsFragment(buffer) || !placed.Find(buffer).defined()) continue;
    if (AnyOf(*kept, is_kept)) continue;
    kept->push_back({buffer, placed.Find(buffer), placed.PlacedBy(buffer)});
  }
}

/*! The calls of copies with their instructions. A statement that the program has in several places
 * has one for each, in program order. */
using Selected = std::unordered_map<const Object*, std::queue<Call>>;

/*! The layouts that are decided, those of shared memory and reducers besides, and those of views.
 */
Map<Var, Layout> LayoutsOf(const OpCollector& ops, const Views& views, const Placements& placed) {
  Map<Var, Layout> out;
  for (const Var& buffer : ops.buffers) {
    Layout layout = placed.Find(buffer);
    if (!layout.defined()) {
      if ((IsShared(buffer) && !IsSizedAtLaunch(buffer)) || IsReducer(buffer)) {
        out.Set(buffer, MakeLinearLayout(ConstShape(buffer)));
      }
      continue;
    }
    // One that is known as a swizzle of the hardware, or as row-major, needs no look.
    const bool is_known = layout->swizzle_bytes != LayoutNode::kNoSwizzle;
    if (!IsFragment(buffer) && !is_known && !IsInjective(layout)) {
      ThrowAt(placed.PlacedBy(buffer), "ValueError",
              "found a layout of " + std::string(buffer->name) +
                  " that puts two elements in one place, wanted an injective one:\n  " +
                  LayoutText(layout));
    }
    out.Set(buffer, layout);
  }
  for (const Var& view : views.all) {
    const Var root = views.RootOf(view);
    auto it = out.find(root);
    if (it == out.end()) continue;
    out.Set(view, Placements::Carry((*it).second, root, view, view->span));
  }
  return out;
}

/*! Decides operators and buffers; or says what the program has to convert first. */
Map<Var, Layout> InferLayouts(OpCollector* collected, const Stmt& kernel, const Target& target,
                              Analyzer* analyzer, std::vector<Kept>* kept,
                              std::vector<Conversion>* conversions,
                              std::optional<Disagreement>* disagreement, Selected* selected) {
  OpCollector& ops = *collected;
  ops.scope.BindTo(analyzer);
  Placements placed;
  placed.target = &target;
  placed.analyzer = analyzer;
  const Views views(kernel);
  placed.views = std::make_shared<const Views>(views);
  RefuseMixedRanges(ops.operators, views);
  const TensorTraffic traffic(kernel);
  placed.traffic = &traffic;
  for (auto [buffer, layout] : ops.annotated) placed.PlaceAnnotated(buffer, layout);
  for (const Kept& k : *kept) placed.SetLayout(k.fragment, k.layout, k.asked_by);

  for (const OperatorUse& use : ops.operators) use.InferMmaOperandLayout(&placed);
  *disagreement = RunStrict(ops.operators, &placed);
  if (*disagreement) return {};
  Propagation all(ops.operators, views);
  all.Run(&placed);
  for (size_t k = 0; k < ops.operators.size(); ++k) {
    if (!ops.operators[k].Infer(&placed, InferLevel::kPrefer)) continue;
    all.Wake(k);
    all.Run(&placed);
  }
  for (const std::vector<size_t>& component : FreeComponents(ops.operators, placed)) {
    Candidate chosen = Component(ops.operators, component, placed).Settle();
    placed.Adopt(std::move(chosen.placed));
    for (size_t k = 0; k < component.size(); ++k) {
      ops.operators[component[k]] = std::move(chosen.operators[k]);
    }
  }
  for (const OperatorUse& use : ops.operators) use.InferSwizzle(&placed);
  ops.of_threads.InferSwizzle(ops.buffers, ops.scope, &placed);
  for (const OperatorUse& use : ops.operators) {
    use.Verify(&placed);
    use.Tell(&placed);
    for (const FragmentAccess& access : use.op->Unreached(placed)) {
      // What was copied for an access that the loop then made elsewhere is not copied again.
      const bool is_copy = AnyOf(
          *kept, [&](const Kept& k) { return k.is_copy && k.fragment.same_as(access.buffer); });
      const Fragment held = is_copy ? Fragment() : ShuffledLayout(use, access, placed);
      conversions->push_back({use.source, access.buffer, access.indices, access.is_write, held});
    }
  }
  if (!conversions->empty()) {
    KeepFragments(ops, placed, *conversions, kept);
    return {};
  }

  Map<Var, Layout> out = LayoutsOf(ops, views, placed);
  for (const OperatorUse& use : ops.operators) {
    const Call call = use.SelectInstruction(&placed);
    if (call.defined()) (*selected)[use.source.get()].push(call);
  }
  return out;
}

/*! Writes the result down: on the block, on the loops and on copies. */
class Annotator : public StmtExprMutator {
 public:
  Map<Var, Layout> layout_map;
  Selected selected;
  std::unordered_map<const Object*, Fragment> loops;

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    if (op->alloc_buffers.empty()) return block;
    SetLayoutMap(&block.CopyOnWrite()->annotations, layout_map);
    return block;
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    const auto it = selected.find(op);
    if (it == selected.end()) return GetRef<Stmt>(op);
    const Call call = it->second.front();
    it->second.pop();
    return MakeEvaluate(call, op->span);
  }
  Stmt Mutate_(const ForNode* op) final {
    auto it = loops.find(op);
    if (it == loops.end()) return Default<Stmt>(op);
    For loop = GetRef<For>(op);
    SetLoopLayout(&loop.CopyOnWrite()->annotations, it->second);
    return loop;
  }
};

PrimFunc LayoutInference(PrimFunc f) {
  Array<String> notes;
  const auto annotate_kernel = [&, &target = TargetOf(f)](const AttrStmtNode* op) {
    Stmt kernel = GetRef<Stmt>(op);
    std::unique_ptr<OpCollector> ops;
    Annotator annotate;
    // A conversion takes an access of a fragment away, so that this ends.
    std::optional<Disagreement> disagreement;
    std::vector<Kept> kept;
    for (std::vector<Conversion> conversions;; conversions.clear()) {
      ops = std::make_unique<OpCollector>();
      (*ops)(kernel);
      Analyzer analyzer;
      WithFacts(&analyzer, FactsWithin(kernel), [&] {
        annotate.layout_map = InferLayouts(ops.get(), kernel, target, &analyzer, &kept,
                                           &conversions, &disagreement, &annotate.selected);
      });
      if (disagreement) {
        kernel = ConvertAccumulators(kernel, disagreement->dictations, disagreement->keeper);
        continue;
      }
      if (conversions.empty()) break;
      HeldFragments made;
      kernel = ConvertLayouts(kernel, conversions, &notes, &made);
      for (const auto& [copy, layout] : made) kept.push_back({copy, layout, Span(), true});
    }
    for (const OperatorUse& use : ops->operators) {
      if (!use.source.as<ForNode>() || !use.op->LoopLayout().defined()) continue;
      annotate.loops[use.source.get()] = use.op->LoopLayout();
    }
    return annotate.Mutate(kernel);
  };
  const PrimFunc annotated = ForEachKernel(f, annotate_kernel);
  return WithNotes(annotated, notes);
}

TL_REGISTER_PASS(LayoutInference);

}  // namespace
}  // namespace tl
