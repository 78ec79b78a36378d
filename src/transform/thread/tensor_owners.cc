#include "tensor_owners.h"

#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "../../analysis/effects.h"
#include "../../target/mma.h"
#include "../../tvm/functor.h"
#include "../../tvm/hidden_operations.h"
#include "thread_subset.h"

namespace tl {
namespace {

/*! More points than this are not looked at. */
constexpr int64_t kMaxOwnerPoints = 1 << 19;
constexpr int kSeveral = -1;

/*! A part of a sum. */
struct Term {
  Expr value;
  int64_t factor;
};
using Terms = std::vector<Term>;

bool IsIndexInteger(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  return type && type->dtype.lanes == 1 &&
         (type->dtype.code == kDLInt || type->dtype.code == kDLUInt);
}

/*! Adds `e * factor`; constants are terms with the value 1. Indices are mathematical integers. */
void AddTerms(const Expr& e, int64_t factor, Terms* terms) {
  if (const std::optional<int64_t> constant = AsInt(e)) {
    terms->push_back({MakeInt(1), factor * *constant});
  } else if (IsModulo(e->dtype()) && !e.as<CastNode>()) {
    terms->push_back({e, factor});
  } else if (const auto* op = e.as<AddNode>()) {
    AddTerms(op->a, factor, terms);
    AddTerms(op->b, factor, terms);
  } else if (const auto* op = e.as<SubNode>()) {
    AddTerms(op->a, factor, terms);
    AddTerms(op->b, -factor, terms);
  } else if (const auto* op = e.as<MulNode>(); op && AsInt(op->b)) {
    AddTerms(op->a, factor * *AsInt(op->b), terms);
  } else if (const auto* op = e.as<MulNode>(); op && AsInt(op->a)) {
    AddTerms(op->b, factor * *AsInt(op->a), terms);
  } else if (const auto* op = e.as<CastNode>();
             op && IsIndexInteger(op->value) && HoldsAll(e->dtype(), op->value->dtype())) {
    AddTerms(op->value, factor, terms);
  } else {
    terms->push_back({e, factor});
  }
}

/*! How the elements of one access are named in one dimension. */
struct Name {
  Terms known;
  /*! The rest is a multiple of this; 0 if there is none. */
  int64_t modulus = 0;
  int lanes = 1;
};

class TensorOwners {
 public:
  TensorOwners(const AccessPair& pair, const std::vector<Var>& opaque,
               SharedConflict::Between between, Analyzer* analyzer, int64_t most_iterations)
      : pair_(pair),
        opaque_(opaque),
        between_(between),
        analyzer_(analyzer),
        most_iterations_(most_iterations) {}

  /*! The extent of the longest enumerated loop if there were too many points, else 0. */
  int64_t LongestOfTooMany() const { return has_too_many_ ? longest_ : 0; }

  bool EachElementHasOneOwner() {
    const std::optional<std::vector<Axis>> threads = ThreadAxes(pair_.a.node);
    if (!threads) return false;
    threads_ = *threads;
    for (const SyncNode* loop : pair_.same) AddAxis(loop, &same_);
    std::vector<Axis> a_free = pair_.a.inner, b_free = pair_.b.inner;
    for (const SyncNode* loop : pair_.a_free) AddFreeAxis(loop, &a_free);
    for (const SyncNode* loop : pair_.b_free) AddFreeAxis(loop, &b_free);
    NameElements(a_free, b_free);
    std::unordered_map<uint64_t, int> owners;
    const auto note = [&](uint64_t element, int by) {
      const auto [it, is_new] = owners.try_emplace(element, by);
      if (!is_new && it->second != by) it->second = kSeveral;
      return true;
    };
    const auto compare = [&](uint64_t element, int by) {
      const auto it = owners.find(element);
      return it == owners.end() || it->second == by;
    };
    return Enumerate(pair_.a, a_free, a_names_, note) &&
           Enumerate(pair_.b, b_free, b_names_, compare);
  }

 private:
  void AddAxis(const SyncNode* loop, std::vector<Axis>* axes) {
    const std::optional<LoopRange> range = RangeOf(loop, analyzer_);
    if (!range) return;
    axes->push_back(range->axis);
    AppendRange(&conditions_, range->conditions);
  }

  /*! Adds the axis of a short loop; the variable of a longer one is an unknown number. */
  void AddFreeAxis(const SyncNode* loop, std::vector<Axis>* axes) {
    const std::optional<LoopRange> range = RangeOf(loop, analyzer_);
    if (!range || range->axis.extent > most_iterations_) return;
    longest_ = std::max(longest_, range->axis.extent);
    AddAxis(loop, axes);
  }

  void NameElements(const std::vector<Axis>& a_free, const std::vector<Axis>& b_free) {
    const size_t rank = pair_.a.indices.size();
    for (size_t i = 0; i < rank; ++i) {
      Terms a, b;
      AddTerms(pair_.a.indices[i], 1, &a);
      AddTerms(pair_.b.indices[i], 1, &b);
      LeaveOutCommon(&a, &b);
      Name name_a, name_b;
      int64_t unknown = std::gcd(Split(a, a_free, &name_a), Split(b, b_free, &name_b));
      if (i + 1 == rank) {
        if (pair_.a.lanes == 0 || pair_.b.lanes == 0) unknown = 1;
        name_a.lanes = pair_.a.lanes;
        name_b.lanes = pair_.b.lanes;
      }
      if (unknown == 1) continue;
      name_a.modulus = name_b.modulus = unknown;
      a_names_.push_back(std::move(name_a));
      b_names_.push_back(std::move(name_b));
    }
  }

  /*! Terms with one value in both accesses. */
  void LeaveOutCommon(Terms* a, Terms* b) const {
    for (size_t i = a->size(); i-- > 0;) {
      if (!IsFixed((*a)[i].value)) continue;
      const auto same = FindIf(*b, [&](const Term& t) {
        return t.factor == (*a)[i].factor && ffi::StructuralEqual()(t.value, (*a)[i].value);
      });
      if (same == b->end()) continue;
      b->erase(same);
      a->erase(a->begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  /*! Made of blocks, symbols and common loops. */
  bool IsFixed(const Expr& e) const {
    if (!IsPureInteger(e)) return false;
    const std::vector<Var> vars = VarsOf(e);
    const std::vector<Var> threads = ThreadVars(pair_.a.node);
    const auto is_loop = [](const std::vector<const SyncNode*>& loops, const Var& v) {
      return AnyOf(loops, [&](const SyncNode* n) { return LoopOf(n)->loop_var.same_as(v); });
    };
    const auto is_inner = [](const SharedAccess& access, const Var& v) {
      return AnyOf(access.inner, [&](const Axis& axis) { return axis.var.same_as(v); });
    };
    return NoneOf(vars, [&](const Var& v) {
      return Contains(threads, v) || Contains(opaque_, v) || is_loop(pair_.a_free, v) ||
             is_loop(pair_.b_free, v) || is_inner(pair_.a, v) || is_inner(pair_.b, v);
    });
  }

  /*! The terms that can be evaluated; returns the greatest divisor of the others. */
  int64_t Split(const Terms& terms, const std::vector<Axis>& free, Name* name) const {
    std::vector<Axis> axes = threads_;
    AppendRange(&axes, same_);
    AppendRange(&axes, free);
    const IndexBox box(std::move(axes));
    int64_t unknown = 0;
    for (const Term& t : terms) {
      if (IsPureInteger(t.value) && box.CanEvaluate(t.value)) {
        name->known.push_back(t);
      } else {
        unknown = std::gcd(unknown, t.factor);
      }
    }
    return unknown;
  }

  static bool IsUsed(const std::vector<Name>& names, const Axis& axis) {
    return AnyOf(names, [&](const Name& name) {
      return AnyOf(name.known, [&](const Term& t) { return Uses(t.value, axis.var); });
    });
  }

  /*! Calls `visit` for what the access touches and who does; false if that cannot be told, or it
   * says so. */
  template <typename Visit>
  bool Enumerate(const SharedAccess& access, const std::vector<Axis>& free,
                 const std::vector<Name>& names, const Visit& visit) {
    std::vector<Axis> axes = threads_;
    for (const Axis& axis : same_) {
      if (IsUsed(a_names_, axis) || IsUsed(b_names_, axis)) axes.push_back(axis);
    }
    const size_t keys = axes.size();
    for (const Axis& axis : free) {
      if (IsUsed(names, axis)) axes.push_back(axis);
    }
    IndexBox box(std::move(axes));
    has_too_many_ = box.Points() > kMaxOwnerPoints;
    if (has_too_many_) return false;
    std::vector<std::vector<std::pair<IntProgram, int64_t>>> programs(names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      for (const Term& t : names[i].known) {
        programs[i].emplace_back(box.Compile(t.value), t.factor);
      }
    }
    for (const auto& [condition, value] : conditions_) box.Require(condition, value);
    for (const auto& [condition, value] : access.guards) box.Require(condition, value);
    return box.ForEach([&](const std::vector<int64_t>& point) {
      int64_t thread = 0;
      for (size_t i = threads_.size(); i-- > 0;) {
        thread = thread * box.axes()[i].extent + point[i];
      }
      uint64_t element = 0;
      for (size_t i = threads_.size(); i < keys; ++i) element = Combine(element, point[i]);
      return VisitElements(names, programs, point, 0, element,
                           [&](uint64_t e) { return visit(e, Owner(access, thread)); });
    });
  }

  /*! The elements of one point, dimension by dimension. */
  template <typename Programs, typename Visit>
  static bool VisitElements(const std::vector<Name>& names, const Programs& programs,
                            const std::vector<int64_t>& point, size_t dim, uint64_t element,
                            const Visit& visit) {
    if (dim == names.size()) return visit(element);
    int64_t first = 0;
    for (const auto& [program, factor] : programs[dim]) first += factor * program(point.data());
    for (int64_t i = first; i < first + names[dim].lanes; ++i) {
      const int64_t m = names[dim].modulus;
      const int64_t name = m == 0 ? i : (i % m + m) % m;
      if (!VisitElements(names, programs, point, dim + 1, Combine(element, name), visit)) {
        return false;
      }
    }
    return true;
  }

  /*! Two elements with one number are taken for one, which only finds more owners. */
  static uint64_t Combine(uint64_t element, int64_t name) {
    return (element + static_cast<uint64_t>(name)) * 0x9E3779B97F4A7C15u + 1;
  }

  int Owner(const SharedAccess& access, int64_t thread) const {
    using Between = SharedConflict::Between;
    if (between_ == Between::kAccesses) return &access == &pair_.b;
    return static_cast<int>(between_ == Between::kWarpGroups ? thread / kWarpGroupThreads : thread);
  }

  const AccessPair& pair_;
  const std::vector<Var>& opaque_;
  const SharedConflict::Between between_;
  Analyzer* analyzer_;
  const int64_t most_iterations_;
  int64_t longest_ = 0;
  bool has_too_many_ = false;
  std::vector<std::pair<Expr, bool>> conditions_;  // of loops' variables
  std::vector<Axis> threads_, same_;
  std::vector<Name> a_names_, b_names_;
};

}  // namespace

bool EachTensorElementHasOneOwner(const AccessPair& pair, const std::vector<Var>& opaque,
                                  SharedConflict::Between between, Analyzer* analyzer) {
  // All loops are enumerated. Where that is too much, the longest are unknown numbers.
  int64_t most = INT64_MAX;
  do {
    TensorOwners owners(pair, opaque, between, analyzer, most);
    if (owners.EachElementHasOneOwner()) return true;
    most = owners.LongestOfTooMany() - 1;
  } while (most >= 0);
  return false;
}

}  // namespace tl
