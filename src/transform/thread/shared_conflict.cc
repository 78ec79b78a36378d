#include "shared_conflict.h"

#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <unordered_map>

#include "../../analysis/effects.h"
#include "../../analysis/shared_memory.h"
#include "../../layout/index_box.h"
#include "../../op/intrinsics.h"
#include "../../op/launch_sized.h"
#include "../../op/thread_range.h"
#include "../../target/mma.h"
#include "../../tvm/attrs.h"
#include "../../tvm/conjuncts.h"
#include "../../tvm/disjoint.h"
#include "../../tvm/functor.h"
#include "access_pair.h"
#include "tensor_owners.h"
#include "thread_subset.h"

namespace tl {
namespace {

// Enumeration gives up beyond these: twice the largest shared memory in bytes, and numbers that do
// not overflow when a buffer's extent multiplies them.
constexpr int64_t kMaxConflictPoints = 1 << 19;
constexpr int64_t kMaxNames = int64_t(1) << 31;
/*! Up to here owners are in an array, beyond in a map of those that there are. */
constexpr int64_t kMaxDenseNames = 1 << 19;

/*! Above every number of a thread in its block. */
constexpr int64_t kNoThread = 1 << 20;

/*! Renames in the later access what has another value there: its thread, its iterations, what it
 * read. */
class LaterNames {
 public:
  LaterNames(const AccessPair& pair, const std::vector<Var>& opaque, Analyzer* analyzer)
      : analyzer_(analyzer) {
    const std::optional<std::vector<Axis>> threads = ThreadAxes(pair.b.node);
    for (const Var& v : ThreadVars(pair.b.node)) Fresh(v);
    if (threads) {
      for (const Axis& t : *threads) {
        analyzer_->BindConst(names_.map[t.var.get()].as_or_throw<Var>(), t.extent);
      }
    }
    for (const Var& v : opaque) Fresh(v);
    for (const Axis& axis : pair.a.inner) BindAxis(axis.var, axis);
    for (const Axis& axis : pair.b.inner) BindAxis(Fresh(axis.var), axis);
    for (const SyncNode* loop : pair.b_free) {
      const ForNode* op = LoopOf(loop);
      if (loop == pair.distance.loop && Shift(op, pair.distance.next)) continue;
      const Expr min = names_.Mutate(op->min), extent = names_.Mutate(op->extent);
      analyzer_->Bind(Fresh(op->loop_var), min, extent);
    }
  }
  Expr operator()(const Expr& e) { return names_.Mutate(e); }

 private:
  Var Fresh(const Var& v) {
    Var fresh = MakeVar(std::string(v->name) + "_later", v->dtype());
    names_.map[v.get()] = fresh;
    return fresh;
  }
  void BindAxis(const Var& v, const Axis& axis) {
    analyzer_->Bind(v, MakeInt(v->dtype(), axis.min), MakeInt(v->dtype(), axis.extent));
  }
  bool Shift(const ForNode* op, bool next) {
    const std::optional<int64_t> step = op->step ? AsInt(*op->step) : 1;
    if (!step) return false;
    const Var& v = op->loop_var;
    Expr later = v + *step;
    if (!next) {
      const Var more = MakeVar("distance", v->dtype());
      // A loop of unknown length ends before its variable leaves int32, and so do TVM's bounds of
      // sums with this.
      const int64_t most = (INT32_MAX - 2) / std::max<int64_t>(1, std::abs(*step));
      analyzer_->BindConst(more, AsInt(op->extent).value_or(most));
      later = later + (more + 1) * *step;
    }
    names_.map[v.get()] = later;
    return true;
  }

  Analyzer* analyzer_;
  Substituter names_;
};

/*! Whether constants bound each of these loops of which an index of the access makes use. */
bool HaveConstantRanges(const std::vector<const SyncNode*>& loops, const SharedAccess& access) {
  return AllOf(loops, [&](const SyncNode* n) {
    const ForNode* loop = LoopOf(n);
    return (AsInt(loop->min) && AsInt(loop->extent)) ||
           NoneOf(access.indices, [&](const Expr& e) { return Uses(e, loop->loop_var); });
  });
}

bool DifferInSomeIndex(const AccessPair& pair, const std::vector<Var>& opaque, Analyzer* analyzer) {
  LaterNames later(pair, opaque, analyzer);
  // Ranges with symbols in them bound nothing by constants, and proofs from them are slow.
  // A loop that no index makes use of, such as that over the tiles of a persistent kernel, has
  // none.
  const bool constant =
      HaveConstantRanges(pair.a_free, pair.a) && HaveConstantRanges(pair.b_free, pair.b);
  const size_t rank = pair.a.indices.size();
  for (size_t i = 0; i < rank; ++i) {
    const Expr& a = pair.a.indices[i];
    const Expr& b = pair.b.indices[i];
    const bool last = i + 1 == rank;
    if (last && (pair.a.lanes == 0 || pair.b.lanes == 0)) break;
    if (!IsPureInteger(a) || !IsPureInteger(b)) continue;
    const int a_lanes = last ? pair.a.lanes : 1, b_lanes = last ? pair.b.lanes : 1;
    const Expr other = later(b);
    if (AreDisjoint(a, a_lanes, other, b_lanes, analyzer)) return true;
    if (constant) continue;
    if (analyzer->CanProveSymbolic(a >= other + b_lanes)) return true;
    if (analyzer->CanProveSymbolic(other >= a + a_lanes)) return true;
  }
  return false;
}

/*! The thread or the warp group that touches an element, by the element's number. */
class OwnerTable {
 public:
  static constexpr int kNobody = -1, kSeveral = -2;

  explicit OwnerTable(int64_t size) {
    if (size <= kMaxDenseNames) dense_.assign(size, kNobody);
  }
  int& operator[](int64_t element) {
    if (!dense_.empty()) return dense_[element];
    return sparse_.try_emplace(element, kNobody).first->second;
  }

 private:
  std::vector<int> dense_;
  std::unordered_map<int64_t, int> sparse_;
};

/*! Wide ranges of elements that were visited and need no other visit. The enumeration cannot see
 * which thread of a warp group issues a copy by TMA, so it has the copy's box for each of them. */
class SettledRanges {
 public:
  static constexpr int kAnybody = -1;

  bool Has(int64_t first, int64_t count, int by) const {
    if (count < kWide) return false;
    const auto it = settled_.find(first);
    return it != settled_.end() && it->second.first >= count &&
           (it->second.second == by || it->second.second == kAnybody);
  }
  /*! A visit by `by`, or by anybody, changes nothing. */
  void Add(int64_t first, int64_t count, int by) {
    if (count >= kWide) settled_[first] = {count, by};
  }

 private:
  static constexpr int64_t kWide = 64;
  std::unordered_map<int64_t, std::pair<int64_t, int>> settled_;
};

/*! Enumerates which thread, or which warp group, touches which element; the loops of `same` are
 * part of an element's name. */
class Owners {
 public:
  Owners(const AccessPair& pair, const std::vector<Var>& opaque, SharedConflict::Between between,
         Analyzer* analyzer)
      : pair_(pair),
        opaque_(opaque),
        between_(between),
        analyzer_(analyzer),
        a_indices_(pair.a.indices),
        b_indices_(pair.b.indices),
        extents_of_(BufferOf(pair.a.name)->shape) {
    for (size_t i = 0; i < a_indices_.size(); ++i) DropCommon(i, analyzer);
    ChooseIndices();
    decided_ = ChooseKeys() && ChooseSize();
    if (decided_) ChooseConditions();
  }

  /*! `known` has what the same enumerations found before. */
  bool EachElementHasOneOwner(std::map<std::vector<int64_t>, bool>* known) const {
    if (!decided_) return false;
    const std::optional<Points> a = PointsOf(pair_.a, pair_.a_free);
    const std::optional<Points> b = PointsOf(pair_.b, pair_.b_free);
    if (!a || !b) return false;
    const auto [it, is_new] = known->try_emplace(KeyOf(*a, *b));
    if (is_new) it->second = Enumerate(*a, *b);
    return it->second;
  }

 private:
  /*! Where an access happens: of its axes the first are threads, then come the loops that name
   * elements, then all others. */
  struct Points {
    IndexBox box;
    std::vector<IntProgram> indices;
    size_t threads;
    int64_t lanes;
    /*! Its threads are others than those of the other access. */
    bool by_others;
    bool is_later;
  };

  bool Enumerate(const Points& a, const Points& b) const {
    OwnerTable owners(size_);
    SettledRanges noted, compared;
    const auto note = [&](int64_t first, int64_t count, int by) {
      if (noted.Has(first, count, by)) return true;
      bool several = true;
      for (int64_t i = first; i < first + count; ++i) {
        int& owner = owners[i];
        owner = owner == OwnerTable::kNobody || owner == by ? by : OwnerTable::kSeveral;
        several &= owner == OwnerTable::kSeveral;
      }
      noted.Add(first, count, several ? SettledRanges::kAnybody : by);
      return true;
    };
    const auto compare = [&](int64_t first, int64_t count, int by) {
      if (compared.Has(first, count, by)) return true;
      bool nobody = true;
      for (int64_t i = first; i < first + count; ++i) {
        const int owner = owners[i];
        if (owner == OwnerTable::kNobody) continue;
        if (owner != by) return false;
        nobody = false;
      }
      compared.Add(first, count, nobody ? SettledRanges::kAnybody : by);
      return true;
    };
    return ForEachRange(a, note) && ForEachRange(b, compare);
  }

  /*! All that decides what an enumeration finds. It finds the same for `b` and `a`. */
  std::vector<int64_t> KeyOf(const Points& a, const Points& b) const {
    const auto key_of = [](const Points& points) {
      std::vector<int64_t> key = {static_cast<int64_t>(points.threads), points.lanes,
                                  points.by_others};
      points.box.AppendKey(&key);
      for (const IntProgram& index : points.indices) index.AppendKey(&key);
      return key;
    };
    std::vector<int64_t> key = {static_cast<int64_t>(between_), static_cast<int64_t>(keys_.size()),
                                static_cast<int64_t>(extents_.size())};
    AppendRange(&key, extents_);
    std::vector<int64_t> first = key_of(a), second = key_of(b);
    if (second < first) std::swap(first, second);
    AppendRange(&key, first);
    AppendRange(&key, second);
    return key;
  }

  const Array<Expr>& IndicesOf(const SharedAccess& access) const {
    return &access == &pair_.b ? b_indices_ : a_indices_;
  }

  /*! What both accesses add to an index, an iteration of unknown number or a symbol times a number,
   * tells no elements apart: without it the index is a name that is as good. */
  void DropCommon(size_t i, Analyzer* analyzer) {
    // The variables of other indices may be buffers, which have no step.
    if (!IsPureInteger(a_indices_[i]) || !IsPureInteger(b_indices_[i])) return;
    std::set<const Object*> seen;
    for (const Var& v : VarsOf(a_indices_[i])) {
      if (!seen.insert(v.get()).second || !IsCommon(v)) continue;
      const auto by = StepOf(a_indices_[i], v, analyzer),
                 other = StepOf(b_indices_[i], v, analyzer);
      if (!by || by != other) continue;
      const Expr zero = MakeInt(v->dtype(), 0);
      const Expr a = Substitute(a_indices_[i], v, zero), b = Substitute(b_indices_[i], v, zero);
      const int64_t end = std::max(analyzer->ConstBound(a).max, analyzer->ConstBound(b).max);
      if (end >= kMaxNames) continue;
      a_indices_.Set(i, a);
      b_indices_.Set(i, b);
      const int64_t lanes = std::max({pair_.a.lanes, pair_.b.lanes, 1});
      const auto extent = AsInt(extents_of_[i]);
      if (!extent || *extent < end + lanes) extents_of_.Set(i, MakeInt(end + lanes));
    }
  }
  /*! Does the variable have one unknown value in both accesses? */
  bool IsCommon(const Var& v) const {
    const std::vector<Var> threads = ThreadVars(pair_.a.node);
    const auto is_inner = [&](const SharedAccess& access) {
      return AnyOf(access.inner, [&](const Axis& axis) { return axis.var.same_as(v); });
    };
    const auto is_axis = [&](const SyncNode* n) {
      return LoopOf(n)->loop_var.same_as(v) && AxisOf(LoopOf(n));
    };
    return !Contains(threads, v) && !Contains(opaque_, v) && !IsLoopOf(pair_.a_free, v) &&
           !IsLoopOf(pair_.b_free, v) && !is_inner(pair_.a) && !is_inner(pair_.b) &&
           NoneOf(pair_.same, is_axis);
  }
  /*! What an index grows by with a variable, if that is always the same number. */
  static std::optional<int64_t> StepOf(const Expr& index, const Var& v, Analyzer* analyzer) {
    return AsInt(analyzer->Simplify(Substitute(index, v, v + 1) - index));
  }

  /*! A condition around both accesses, `f == u`, f of the thread and u the same for both: threads
   * that differ in f are not both there, so f is as good a name as an index. */
  void ChooseConditions() {
    for (const SyncNode* n = pair_.a.node; n->parent; n = n->parent) {
      const SyncNode* around = n->parent;
      if (around->kind == SyncNode::Kind::kIf && !n->in_otherwise && IsThere(pair_.b, around)) {
        for (const Expr& condition : ConjunctsOf(around->condition)) ChooseCondition(condition);
      }
    }
  }
  /*! In the branch that is taken where the condition holds. */
  static bool IsThere(const SharedAccess& access, const SyncNode* branch) {
    const SyncNode* n = access.node;
    while (n->parent && n->parent != branch) n = n->parent;
    return n->parent == branch && !n->in_otherwise;
  }
  void ChooseCondition(const Expr& condition) {
    const auto* equal = condition.as<EQNode>();
    if (!equal) return;
    const bool swapped = IsOfThread(equal->b);
    const Expr &f = swapped ? equal->b : equal->a, &u = swapped ? equal->a : equal->b;
    // With a constant it is evaluated for each thread.
    if (!IsOfThread(f) || !IsFixed(u) || AsInt(u)) return;
    const Analyzer::Bound bound = analyzer_->ConstBound(f);
    if (bound.min < 0 || bound.max >= kMaxNames || size_ * (bound.max + 1) > kMaxNames) return;
    size_ *= bound.max + 1;
    // In front of the last index, whose elements may be several.
    indices_.insert(indices_.begin(), a_indices_.size());
    extents_.insert(extents_.begin(), bound.max + 1);
    a_indices_.push_back(f);
    b_indices_.push_back(f);
  }
  bool IsOfThread(const Expr& e) const {
    if (!IsPureInteger(e)) return false;
    const std::vector<Var> vars = VarsOf(e), threads = ThreadVars(pair_.a.node);
    return !vars.empty() && AllOf(vars, [&](const Var& v) { return Contains(threads, v); });
  }

  /*! Indices that are equal for both accesses and all threads need no enumeration. Where one
   * cannot be evaluated, a slot by a running count or an iteration of unknown number, elements
   * that differ in it alone are one: if that has one thread, so has each of them. */
  void ChooseIndices() {
    const bool known_lanes = pair_.a.lanes != 0 && pair_.b.lanes != 0;
    const size_t rank = pair_.a.indices.size();
    for (size_t i = 0; i < rank; ++i) {
      const bool last = i + 1 == rank;
      if (last && !known_lanes) break;
      if (!IsKnown(a_indices_[i]) || !IsKnown(b_indices_[i])) continue;
      if (!IsFixed(a_indices_[i]) || !ffi::StructuralEqual()(a_indices_[i], b_indices_[i])) {
        indices_.push_back(i);
      }
    }
  }
  bool IsKnown(const Expr& e) const {
    const auto is_known = [&](const SyncNode* n) {
      return RangeOf(n, analyzer_) || !Uses(e, LoopOf(n)->loop_var);
    };
    const std::vector<Var> vars = VarsOf(e);
    const bool is_opaque = AnyOf(vars, [&](const Var& v) { return Contains(opaque_, v); });
    return IsPureInteger(e) && !is_opaque && AllOf(pair_.same, is_known) &&
           AllOf(pair_.a_free, is_known) && AllOf(pair_.b_free, is_known);
  }
  bool IsFixed(const Expr& e) const {
    if (!IsPureInteger(e)) return false;
    const std::vector<Var> vars = VarsOf(e);
    const std::vector<Var> threads = ThreadVars(pair_.a.node);
    return NoneOf(vars, [&](const Var& v) {
      return Contains(threads, v) || Contains(opaque_, v) || IsLoopOf(pair_.a_free, v) ||
             IsLoopOf(pair_.b_free, v);
    });
  }
  static bool IsLoopOf(const std::vector<const SyncNode*>& loops, const Var& v) {
    return AnyOf(loops, [&](const SyncNode* n) { return LoopOf(n)->loop_var.same_as(v); });
  }

  bool ChooseKeys() {
    for (const SyncNode* loop : pair_.same) {
      if (!IsUsed(pair_.a, loop) && !IsUsed(pair_.b, loop)) continue;
      if (!AddAxis(loop, &keys_, &conditions_)) return false;
    }
    return true;
  }
  bool IsUsed(const SharedAccess& access, const SyncNode* loop) const {
    return AnyOf(indices_,
                 [&](size_t i) { return Uses(IndicesOf(access)[i], LoopOf(loop)->loop_var); });
  }
  using Conditions = std::vector<std::pair<Expr, bool>>;
  bool AddAxis(const SyncNode* loop, std::vector<Axis>* axes, Conditions* conditions) const {
    const std::optional<LoopRange> range = RangeOf(loop, analyzer_);
    if (!range) return false;
    axes->push_back(range->axis);
    AppendRange(conditions, range->conditions);
    return true;
  }

  bool ChooseSize() {
    for (const Axis& k : keys_) {
      if (k.extent > kMaxNames || size_ > kMaxNames) return false;
      size_ *= k.extent;
    }
    for (size_t i : indices_) {
      const std::optional<int64_t> extent = AsInt(extents_of_[i]);
      if (!extent || *extent > kMaxNames || size_ > kMaxNames) return false;
      extents_.push_back(*extent);
      size_ *= *extent;
    }
    return size_ <= kMaxNames;
  }

  /*! nullopt if the elements that threads touch cannot be told. */
  std::optional<Points> PointsOf(const SharedAccess& access,
                                 const std::vector<const SyncNode*>& free) const {
    std::optional<std::vector<Axis>> axes = ThreadAxes(access.node);
    if (!axes) return std::nullopt;
    const size_t threads = axes->size();
    AppendRange(&*axes, keys_);
    Conditions conditions = conditions_;
    for (const SyncNode* loop : free) {
      if (IsUsed(access, loop) && !AddAxis(loop, &*axes, &conditions)) return std::nullopt;
    }
    AppendRange(&*axes, access.inner);
    const bool has_last = !indices_.empty() && indices_.back() + 1 == access.indices.size();
    // Lanes of one warp keep its order, but the lane that gives a row's address is not the one
    // that acts on each element: against a thread's own access it is somebody else.
    const bool by_others = access.by_warp && pair_.a.by_warp != pair_.b.by_warp;
    Points points{IndexBox(*axes),    {}, threads, has_last ? access.lanes : 1, by_others,
                  &access == &pair_.b};
    if (points.box.Points() > kMaxConflictPoints) return std::nullopt;
    for (size_t i : indices_) {
      if (!points.box.CanEvaluate(IndicesOf(access)[i])) return std::nullopt;
      points.indices.push_back(points.box.Compile(IndicesOf(access)[i]));
    }
    for (const auto& [condition, value] : conditions) points.box.Require(condition, value);
    for (const auto& [condition, value] : access.guards) points.box.Require(condition, value);
    return points;
  }

  /*! Calls `visit` for elements that follow each other and their owner, which may end the
   * enumeration by false. False then, and if elements are outside of the buffer. */
  template <typename Visit>
  bool ForEachRange(const Points& points, const Visit& visit) const {
    return points.box.ForEachBatch(points.indices, [&](const IndexBox::Batch& batch) {
      for (int64_t k = 0; k < batch.count; ++k) {
        if (!batch.inside[k]) continue;
        const int64_t element = ElementAt(points, batch, k);
        if (element < 0 || !visit(element, points.lanes, OwnerAt(points, batch, k))) return false;
      }
      return true;
    });
  }

  /*! The number of the first element at a point; negative if it is outside. */
  int64_t ElementAt(const Points& points, const IndexBox::Batch& batch, int64_t k) const {
    int64_t element = 0;
    for (size_t i = 0; i < keys_.size(); ++i) {
      element = element * keys_[i].extent + batch.Slot(points.threads + i, k) - keys_[i].min;
    }
    for (size_t i = 0; i < extents_.size(); ++i) {
      const int64_t index = batch.Value(i, k);
      const int64_t width = i + 1 == extents_.size() ? points.lanes : 1;
      if (index < 0 || index + width > extents_[i]) return -1;
      element = element * extents_[i] + index;
    }
    return element;
  }

  int OwnerAt(const Points& points, const IndexBox::Batch& batch, int64_t k) const {
    if (between_ == SharedConflict::Between::kAccesses) return points.is_later;
    int64_t thread = 0;
    for (size_t i = points.threads; i-- > 0;) {
      thread = thread * points.box.axes()[i].extent + batch.Slot(i, k);
    }
    if (between_ == SharedConflict::Between::kWarpGroups) {
      return static_cast<int>(thread / kWarpGroupThreads);
    }
    return static_cast<int>(thread + (points.by_others ? kNoThread : 0));
  }

  const AccessPair& pair_;
  const std::vector<Var>& opaque_;
  const SharedConflict::Between between_;
  Analyzer* analyzer_;
  Array<Expr> a_indices_, b_indices_;
  /*! As many names as an index has. */
  Array<Expr> extents_of_;
  bool decided_;
  std::vector<size_t> indices_;
  std::vector<int64_t> extents_;
  std::vector<Axis> keys_;
  Conditions conditions_;  // of the keys
  int64_t size_ = 1;
};

/*! Threads of the range around a node, or else of the block; 0 if that is not known. */
int64_t ThreadsAround(const SyncNode* node) {
  int64_t threads = 0;
  if (node->range) {
    const auto* attr = node->range->stmt.as<AttrStmtNode>();
    for (const ThreadRange& r : ThreadRangesOf(attr)) threads += r.threads;
    return threads;
  }
  if (const std::optional<std::vector<Axis>> axes = ThreadAxes(node)) {
    threads = 1;
    for (const Axis& axis : *axes) threads *= axis.extent;
  }
  return threads;
}

/*! A branch that one thread takes, of all that get to it. */
bool ElectsOne(const SyncNode* node) {
  if (node->kind != SyncNode::Kind::kIf || !node->otherwise.empty()) return false;
  if (!IsCallTo(node->condition, kShuffleElect)) return false;
  // One of so many consecutive threads; 0 is the block.
  const int64_t of = ToInt(node->condition.as<CallNode>()->args[0]);
  return of == 0 || of == ThreadsAround(node);
}

/*! Both happen in one run of such a branch; `loop` carries the later one to another iteration,
 * nullptr if none does. */
bool HaveOneThread(const SharedAccess& a, const SharedAccess& b, const SyncNode* loop) {
  for (const SyncNode* n = a.node->parent; n; n = n->parent) {
    if (ElectsOne(n) && b.node->IsInside(n)) return !loop || loop->depth > n->depth;
  }
  return false;
}

/*! The elements of a name in row-major order; nullopt unless constants give its places. */
std::optional<int64_t> CompactElements(const Var& name) {
  const BufferTypeNode* type = BufferOf(name);
  if (!type->strides.empty() || !IsConst(type->elem_offset, 0)) return std::nullopt;
  int64_t elements = 1;
  for (const Expr& extent : type->shape) {
    const std::optional<int64_t> known = AsInt(extent);
    if (!known) return std::nullopt;
    elements *= *known;
  }
  return elements;
}

int BitsOf(const Var& name) {
  const DLDataType t = DTypeOf(name);
  return t.bits * t.lanes;
}

/*! The access by a name of the memory whose elements are a part of its own. */
SharedAccess ByUnits(SharedAccess access, const Var& units) {
  const Array<Expr> shape = BufferOf(access.name)->shape;
  const int parts = BitsOf(access.name) / BitsOf(units);
  Expr place = access.indices[0];
  for (size_t d = 1; d < shape.size(); ++d) place = place * shape[d] + access.indices[d];
  access.indices = {parts == 1 ? place : place * parts};
  access.lanes *= parts;
  access.name = units;
  return access;
}

/*! Two accesses whose indices mean the same: those by one name of the memory as they are, those by
 * two in the largest unit of which elements of both consist. nullopt where constants do not say
 * where the elements of both are. */
std::optional<std::pair<SharedAccess, SharedAccess>> Comparable(const SharedAccess& a,
                                                                const SharedAccess& b) {
  if (a.name.same_as(b.name)) return std::pair(a, b);
  const auto x = CompactElements(a.name), y = CompactElements(b.name);
  if (!x || !y || a.indices.empty() || b.indices.empty()) return std::nullopt;
  constexpr int kMostBits = 64;
  const int bits = std::gcd(kMostBits, std::gcd(BitsOf(a.name), BitsOf(b.name)));
  const int64_t units = std::max(*x * BitsOf(a.name), *y * BitsOf(b.name)) / bits;
  const Var name = MakeBuffer("units", DLDataType{kDLUInt, static_cast<uint8_t>(bits), 1},
                              {MakeInt(units)}, ScopeOf(a.name));
  return std::pair(ByUnits(a, name), ByUnits(b, name));
}

}  // namespace

SharedConflict::SharedConflict(const SyncTree& tree) : scalars_(tree.scalars) {
  for (const Var& v : tree.opaque) opaque_.insert(v.get());
  const std::function<void(const SyncNode&)> bind = [&](const SyncNode& n) {
    const auto* attr = n.stmt.as<AttrStmtNode>();
    if (attr && attr->attr_key == kThreadExtent) analyzer_.BindThread(attr);
    if (const ForNode* loop = LoopOf(&n)) analyzer_.BindLoop(loop);
    if (const auto* alloc = n.stmt.as<AllocBufferNode>()) NotePlace(alloc);
    for (const auto& child : n.body) bind(*child);
    for (const auto& child : n.otherwise) bind(*child);
  };
  bind(*tree.root);
}

void SharedConflict::NotePlace(const AllocBufferNode* alloc) {
  if (IsSizedAtLaunch(alloc->buffer)) return;  // shares bytes with nothing
  const std::optional<int64_t> offset = IntAnnotation(alloc->annotations, kSharedOffset);
  if (offset) places_[alloc->buffer.get()] = {*offset, *offset + SharedBytes(alloc)};
}

bool SharedConflict::ShareBytes(const Var& a, const Var& b) const {
  if (a.same_as(b)) return true;
  auto x = places_.find(a.get()), y = places_.find(b.get());
  if (x == places_.end() || y == places_.end()) return false;
  return x->second.first < y->second.second && y->second.first < x->second.second;
}

bool SharedConflict::MayConflict(const SharedAccess& a, const SharedAccess& b, Distance distance,
                                 Between between) {
  if (!a.writes && !b.writes) return false;
  // What two buffers with disjoint lives keep in the same bytes has nothing in common.
  if (!a.buffer.same_as(b.buffer)) return ShareBytes(a.buffer, b.buffer);
  const bool commute = a.update.empty() || b.update.empty() || a.update == b.update;
  if (a.atomic && b.atomic && commute) return false;
  // One thread issues copies of the async proxy, and waits for those that have to be over for
  // others.
  if (a.tensor && a.async_proxy && b.async_proxy) return false;
  if (a.whole || b.whole) return true;
  if (AreApart(a, b)) return false;
  const Question question = QuestionOf(a, b, distance, between);
  auto it = known_.find(question);
  if (it == known_.end()) it = known_.emplace(question, Decide(a, b, distance, between)).first;
  return it->second;
}

const std::vector<Analyzer::Bound>& SharedConflict::BoundsOf(const SharedAccess& access) {
  AccessBounds& known = bounds_[static_cast<size_t>(access.order)];
  if (known.access == &access) return known.of_indices;
  known = {&access};
  for (const Expr& index : access.indices) {
    known.of_indices.push_back(analyzer_.ConstBound(index));
  }
  return known.of_indices;
}

bool SharedConflict::AreApart(const SharedAccess& a, const SharedAccess& b) {
  if (!a.name.same_as(b.name) || a.whole || b.whole || a.order == b.order) return false;
  const size_t last_place = static_cast<size_t>(std::max(a.order, b.order));
  if (last_place >= bounds_.size()) bounds_.resize(std::max(last_place + 1, 2 * bounds_.size()));
  const std::vector<Analyzer::Bound>&x = BoundsOf(a), &y = BoundsOf(b);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool last = i + 1 == x.size();
    const int a_lanes = last ? a.lanes : 1, b_lanes = last ? b.lanes : 1;
    if (a_lanes == 0 || b_lanes == 0) continue;
    if (x[i].max < y[i].min && x[i].max <= y[i].min - a_lanes) return true;
    if (y[i].max < x[i].min && y[i].max <= x[i].min - b_lanes) return true;
  }
  return false;
}

SharedConflict::Question SharedConflict::QuestionOf(const SharedAccess& a, const SharedAccess& b,
                                                    Distance distance, Between between) {
  const bool of_all = a.like && b.like && a.nest != b.nest;
  return {of_all ? a.like : &a, of_all ? b.like : &b, of_all,
          distance.loop,        distance.next,        between};
}

std::vector<Var> SharedConflict::OpaqueOf(const AccessPair& pair) const {
  std::vector<Var> opaque;
  std::unordered_set<const Object*> seen;
  const auto add = [&](const Expr& e) {
    for (const Var& v : VarsOf(e)) {
      if (opaque_.count(v.get()) && seen.insert(v.get()).second) opaque.push_back(v);
    }
  };
  for (const SharedAccess* access : {&pair.a, &pair.b}) {
    for (const Expr& e : access->indices) add(e);
    for (const auto& guard : access->guards) add(guard.first);
  }
  for (const auto* loops : {&pair.same, &pair.a_free, &pair.b_free}) {
    for (const SyncNode* loop : *loops) {
      add(LoopOf(loop)->min);
      add(LoopOf(loop)->extent);
    }
  }
  return opaque;
}

std::vector<Var> SharedConflict::OpaqueBetween(const AccessPair& pair) const {
  // All that runs between the two is inside of this.
  const SyncNode* around = pair.distance.loop ? pair.distance.loop : pair.a.node;
  while (!pair.b.node->IsInside(around)) around = around->parent;
  std::vector<Var> opaque;
  for (const Var& v : OpaqueOf(pair)) {
    const bool keeps = AnyOf(scalars_, [&](const SyncScalar& s) {
      return s.value.same_as(v) &&
             NoneOf(s.writers, [&](const SyncNode* w) { return w->IsInside(around); });
    });
    if (!keeps) opaque.push_back(v);
  }
  return opaque;
}

bool SharedConflict::Decide(const SharedAccess& a, const SharedAccess& b, Distance distance,
                            Between between) {
  if (between != Between::kAccesses && HaveOneThread(a, b, distance.loop)) return false;
  const auto comparable = Comparable(a, b);
  if (!comparable) return true;
  const AccessPair pair(comparable->first, comparable->second, distance);
  const std::vector<Var> opaque = OpaqueBetween(pair);
  if (a.tensor) {
    return !DifferInSomeIndex(pair, opaque, &analyzer_) &&
           !EachTensorElementHasOneOwner(pair, opaque, between, &analyzer_);
  }
  if (DifferInSomeIndex(pair, opaque, &analyzer_)) return false;
  return !Owners(pair, opaque, between, &analyzer_).EachElementHasOneOwner(&enumerated_);
}

}  // namespace tl
