#include "running_sums.h"

#include <tvm/ffi/extra/structural_equal.h>

#include <functional>
#include <limits>

#include "../../analysis/effects.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/parallel.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "buffer_bytes.h"
#include "pipeline_barriers.h"
#include "pipeline_bindings.h"
#include "warp_roles.h"

namespace tl {
namespace {

bool IsEqual(const Expr& a, const Expr& b) { return ffi::StructuralEqual()(a, b); }

bool IsMinusInfinity(const Expr& e) {
  const auto* number = e.as<FloatImmNode>();
  return number && number->value == -std::numeric_limits<double>::infinity();
}

/*! A maximum or a sum over elements along the axis, of an iteration. */
struct Total {
  bool is_max;
  /*! What the elements are added to, or compared with; undefined where nothing is. */
  Expr before;
  /*! Factors of an element, functions of the total's indices and of a place along the axis. */
  std::vector<Expr> factors;
};

/*! Values of an iteration's buffers as functions of `indices` and of what the loop carries: loads
 * of a buffer that the loop writes are of what the iteration before has left, and totals are loads
 * of a buffer that stands for each. */
class IterationReader : public StmtExprMutator {
 public:
  explicit IterationReader(const ForNode* loop, const AxisTiles& along)
      : along_(along), body_(loop->body), views_(loop->body) {
    for (const char* name : {"i0", "i1", "i2", "i3"}) indices_.push_back(MakeVar(name));
    ForEachIn<EvaluateNode>(body_, [&](const EvaluateNode* op) { NoteWrites(GetRef<Stmt>(op)); });
    ForEachIn<BufferStoreNode>(
        body_, [&](const BufferStoreNode* op) { written.insert({op->buffer.get(), op->buffer}); });
    for (const Stmt& s : FlatSeq(body_)) Read(s);
  }

  bool fits = true;
  std::unordered_map<const Object*, Var> written;
  /*! Buffers of which an iteration reads what the one before has left. */
  std::unordered_set<const Object*> carried;

  /*! The element at `indices` at the end of an iteration. */
  Expr ValueOf(const Var& buffer) const { return values_.at(buffer.get()); }
  bool HasValue(const Var& buffer) const { return values_.count(buffer.get()) != 0; }
  /*! The element at `indices` that the iteration before has left. */
  Expr Entry(const Var& buffer) const { return LoadOf(buffer, Indices(buffer)); }
  /*! The total that an element at `indices` is; nullptr for other values. */
  const Total* TotalOf(const Expr& e) const {
    const auto* load = e.as<TensorLoadNode>();
    const Total* total = load ? TotalAt(load) : nullptr;
    return total && IsEqual(e, Entry(load->source.as_or_throw<Var>())) ? total : nullptr;
  }
  const Total* TotalAt(const TensorLoadNode* load) const {
    const auto it = totals_.find(load->source.as_or_throw<Var>().get());
    return it == totals_.end() ? nullptr : &it->second;
  }
  /*! Neither of what the loop carries nor of a total. */
  bool IsFree(const Expr& e) const {
    return !HasNode<TensorLoadNode>(e, [&](const TensorLoadNode* load) {
      return written.count(load->source.as_or_throw<Var>().get()) || TotalAt(load);
    });
  }

 protected:
  Expr Mutate_(const TensorLoadNode* op) final {
    const Var buffer = op->source.as_or_throw<Var>();
    const Array<Expr> indices = MutateArray(op->indices);
    const auto it = values_.find(buffer.get());
    if (it != values_.end()) return At(it->second, indices);
    if (written.count(buffer.get())) carried.insert(buffer.get());
    return LoadOf(buffer, indices);
  }

 private:
  Array<Expr> Indices(const Var& buffer) const {
    const size_t rank = BufferOf(buffer)->shape.size();
    return {indices_.begin(), indices_.begin() + std::min(rank, indices_.size())};
  }

  Expr At(const Expr& value, const Array<Expr>& indices) const {
    Substituter at;
    for (size_t d = 0; d < indices.size(); ++d)
      at.map[indices_[d].as_or_throw<Var>().get()] = indices[d];
    return at.Mutate(value);
  }

  void NoteWrites(const Stmt& s) {
    for (const Var& buffer : CollectBufferUse(s).writes) written.insert({buffer.get(), buffer});
  }

  void Set(const Var& buffer, const Expr& value) {
    fits &= IsTile(buffer) && BufferOf(buffer)->shape.size() <= indices_.size();
    values_[buffer.get()] = value;
  }

  /*! A buffer that stands for what is not looked into. */
  Var Symbol(const Var& buffer) const {
    return MakeBuffer(buffer->name, DTypeOf(buffer), BufferOf(buffer)->shape, ScopeOf(buffer));
  }
  /*! Made of `inputs` elementwise along the axis. */
  void SetOpaque(const Var& buffer, const std::vector<Expr>& inputs) {
    for (const Expr& e : inputs) fits &= IsFree(e);
    Set(buffer, Entry(Symbol(buffer)));
  }
  void SetTotal(const Var& buffer, Total total) {
    if (total.before.defined() && IsMinusInfinity(total.before)) total.before = Expr();
    const Var symbol = Symbol(buffer);
    totals_[symbol.get()] = std::move(total);
    Set(buffer, Entry(symbol));
  }

  void Read(const Stmt& s) {
    if (!fits) return;
    if (const auto* loop = s.as<ForNode>(); loop && loop->kind == ForKind::kParallel) {
      return ReadNest(InlinedNestOfLoop(loop, views_));
    }
    const CallNode* call = AsTileOp(s);
    fits &= call != nullptr;
    if (!fits) return;
    if (IsGemm(s)) return ReadGemm(ParseGemm(call, s->span));
    if (IsCallTo(call, kCopy)) return ReadCopy(call);
    if (IsCallTo(call, kReduce)) return ReadReduction(call);
    fits &= IsCallTo(call, kFill);
    if (!fits) return;
    const TileRegion tile = TileRegion::From(call->args[0]);
    fits &= tile.IsWhole();
    Set(tile.buffer, CastTo(DTypeOf(tile.buffer), Mutate(call->args[1])));
  }

  Expr ElementOf(const Var& buffer) { return Mutate(Entry(buffer)); }

  void ReadCopy(const CallNode* call) {
    const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
    fits &= IsTile(dst.buffer) && dst.IsWhole();
    if (!fits) return;
    if (!IsTile(src.buffer)) {
      std::vector<Expr> places;
      for (const Range& range : src.ranges) places.push_back(Mutate(range->min));
      return SetOpaque(dst.buffer, places);
    }
    fits &= src.IsWhole() && src.ranges.size() == dst.ranges.size();
    if (fits) Set(dst.buffer, CastTo(DTypeOf(dst.buffer), ElementOf(src.buffer)));
  }

  void ReadReduction(const CallNode* call) {
    const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
    const std::string kind = ToString(call->args[2]);
    const int64_t reduced = ToInt(call->args[3]);
    const auto along = along_.dims.find(src.buffer.get());
    fits &= (kind == "max" || kind == "sum") && src.IsWhole() && dst.IsWhole() &&
            along != along_.dims.end() && int64_t(along->second) == reduced;
    if (!fits) return;
    Array<Expr> places = Indices(dst.buffer);
    places.insert(places.begin() + reduced, place_);
    const bool clears = IsConst(call->args[4], 1);
    fits &= clears || IsConst(call->args[4], 0);
    SetTotal(dst.buffer, {kind == "max",
                          clears ? Expr() : ElementOf(dst.buffer),
                          {At(ElementOf(src.buffer), places)}});
  }

  void ReadGemm(const GemmOp& op) {
    const Var &a = op.a.buffer, &b = op.b.buffer, &c = op.c.buffer;
    const bool clears = IsConst(op.clear_accum, 1);
    fits &= clears || IsConst(op.clear_accum, 0);
    const auto along = along_.dims.find(a.get());
    const size_t depth = op.trans_a ? 0 : 1;
    const Expr before = clears ? Expr() : ElementOf(c);
    if (along == along_.dims.end() || along->second != depth) {
      std::vector<Expr> inputs = {ElementOf(a), ElementOf(b)};
      if (before.defined()) inputs.push_back(before);
      return SetOpaque(c, inputs);
    }
    const Expr &row = indices_[0], &column = indices_[1];
    const Array<Expr> of_a = {op.trans_a ? place_ : row, op.trans_a ? row : place_};
    const Array<Expr> of_b = {op.trans_b ? column : place_, op.trans_b ? place_ : column};
    SetTotal(c, {false, before, {At(ElementOf(a), of_a), At(ElementOf(b), of_b)}});
  }

  /*! Stores of all elements of fragments or tiles. */
  void ReadNest(const ParallelNest& nest) {
    for (const Stmt& s : FlatSeq(nest.body)) {
      const auto* store = s.as<BufferStoreNode>();
      fits &= store && IsTile(store->buffer) && NamesAll(store, nest) && ReadsOwn(store, nest.body);
      if (!fits) return;
      Substituter at;
      for (size_t d = 0; d < store->indices.size(); ++d) {
        at.map[store->indices[d].as_or_throw<Var>().get()] = indices_[d];
      }
      SetStored(store->buffer, Mutate(at.Mutate(store->value)));
    }
  }

  /*! Each element of the buffer is one iteration's. */
  static bool NamesAll(const BufferStoreNode* store, const ParallelNest& nest) {
    const auto& shape = BufferOf(store->buffer)->shape;
    bool names_all = store->indices.size() == nest.vars.size();
    for (size_t d = 0; names_all && d < shape.size(); ++d) {
      size_t i = 0;
      while (i < nest.vars.size() && !nest.vars[i].same_as(store->indices[d])) ++i;
      names_all = i < nest.vars.size() && AsInt(nest.extents[i]) == AsInt(shape[d]) &&
                  AsInt(shape[d]).has_value();
      for (size_t e = 0; names_all && e < d; ++e) {
        names_all = !store->indices[e].same_as(store->indices[d]);
      }
    }
    return names_all;
  }
  /*! Of the buffer that it stores to, the nest reads an iteration's own element. */
  static bool ReadsOwn(const BufferStoreNode* store, const Stmt& body) {
    return !HasNode<TensorLoadNode>(body, [&](const TensorLoadNode* load) {
      return load->source.same_as(store->buffer) &&
             !IsEqual(GetRef<Expr>(load), LoadOf(store->buffer, store->indices));
    });
  }

  /*! `max(total, e)` is a total whose elements are compared with e, too. */
  void SetStored(const Var& buffer, const Expr& value) {
    if (const auto* max = value.as<MaxNode>()) {
      for (const auto& [e, other] : {std::pair(max->a, max->b), std::pair(max->b, max->a)}) {
        const Total* total = TotalOf(e);
        if (!total || !total->is_max) continue;
        if (!total->before.defined()) return SetTotal(buffer, {true, other, total->factors});
        if (IsEqual(total->before, other)) return Set(buffer, e);
      }
    }
    Set(buffer, value);
  }

  const AxisTiles& along_;
  const Stmt body_;
  const Views views_;
  Array<Expr> indices_;
  /*! A place along the axis, of the elements of a total. */
  const Expr place_ = MakeVar("j");
  std::unordered_map<const Object*, Expr> values_;
  std::unordered_map<const Object*, Total> totals_;
};

/*! A sum of multiples of expressions. */
using Multiples = std::vector<std::pair<double, Expr>>;

/*! Adds `times` * e. Factors that `is_free` holds for are factors of all addends. */
void AddMultiples(const Expr& e, double times, const std::function<bool(const Expr&)>& is_free,
                  Multiples* out) {
  if (const auto* add = e.as<AddNode>()) {
    AddMultiples(add->a, times, is_free, out);
    return AddMultiples(add->b, times, is_free, out);
  }
  if (const auto* sub = e.as<SubNode>()) {
    AddMultiples(sub->a, times, is_free, out);
    return AddMultiples(sub->b, -times, is_free, out);
  }
  if (const auto* mul = e.as<MulNode>()) {
    const std::pair<Expr, Expr> orders[] = {{mul->a, mul->b}, {mul->b, mul->a}};
    for (const auto& [a, b] : orders) {
      if (const auto* number = b.as<FloatImmNode>()) {
        return AddMultiples(a, times * number->value, is_free, out);
      }
      if (!is_free(b)) continue;
      Multiples of_a;
      AddMultiples(a, times, is_free, &of_a);
      for (const auto& [count, addend] : of_a) out->emplace_back(count, addend * b);
      return;
    }
  }
  out->emplace_back(times, e);
}

/*! Whether two sums are one of the same addends. */
bool IsSameSum(const Multiples& a, Multiples b) {
  for (const auto& [times, addend] : a) {
    size_t i = 0;
    while (i < b.size() && !(b[i].first == times && IsEqual(b[i].second, addend))) ++i;
    if (i == b.size()) return false;
    b.erase(b.begin() + i);
  }
  return b.empty();
}

/*! The call of exp or exp2 that an expression is, nullptr for others. */
const CallNode* AsExponential(const Expr& e) {
  const auto* call = e.as<CallNode>();
  return call && (IsCallTo(call, "tirx.exp") || IsCallTo(call, "tirx.exp2")) ? call : nullptr;
}

class CarriedChecker {
 public:
  explicit CarriedChecker(const IterationReader& reader) : reader_(reader) {}

  bool IsRunning(const Var& buffer) const {
    if (!reader_.HasValue(buffer)) return false;
    const Expr value = reader_.ValueOf(buffer), entry = reader_.Entry(buffer);
    if (const Total* total = reader_.TotalOf(value)) {
      if (!total->before.defined()) return false;
      if (!total->is_max) return Continues(total->before, entry, {total});
      return IsEqual(total->before, entry) && AllFree(total->factors);
    }
    std::vector<Expr> addends;
    Split(value, &addends);
    Expr before;
    std::vector<const Total*> totals;
    for (const Expr& e : addends) {
      if (const Total* total = reader_.TotalOf(e)) {
        if (total->is_max || total->before.defined()) return false;
        totals.push_back(total);
      } else if (before.defined()) {
        return false;
      } else {
        before = e;
      }
    }
    return before.defined() && !totals.empty() && Continues(before, entry, totals);
  }

 private:
  static void Split(const Expr& e, std::vector<Expr>* addends) {
    const auto* add = e.as<AddNode>();
    if (!add) return addends->push_back(e);
    Split(add->a, addends);
    Split(add->b, addends);
  }

  bool AllFree(const std::vector<Expr>& factors) const {
    return AllOf(factors, [&](const Expr& e) { return reader_.IsFree(e); });
  }

  /*! `before` is `entry`, or that times what a rise of a maximum multiplies, to which `totals` are
   * relative. */
  bool Continues(const Expr& before, const Expr& entry,
                 const std::vector<const Total*>& totals) const {
    if (IsEqual(before, entry)) {
      return AllOf(totals, [&](const Total* t) { return AllFree(t->factors); });
    }
    const auto* mul = before.as<MulNode>();
    if (!mul) return false;
    const bool is_left = IsEqual(mul->a, entry);
    if (!is_left && !IsEqual(mul->b, entry)) return false;
    const CallNode* decay = AsExponential(is_left ? mul->b : mul->a);
    const std::optional<Multiples> of_next = decay ? OfNextMaximum(decay->args[0]) : std::nullopt;
    return of_next &&
           AllOf(totals, [&](const Total* t) { return IsRelative(*t, decay, *of_next); });
  }

  Multiples MultiplesOf(const Expr& e) const {
    Multiples out;
    AddMultiples(e, 1, [&](const Expr& factor) { return reader_.IsFree(factor); }, &out);
    return out;
  }

  /*! -a(m') of a(m) - a(m'), m being a maximum that the loop carries and m' the next one. */
  std::optional<Multiples> OfNextMaximum(const Expr& e) const {
    Multiples of_last, of_next, moved;
    for (const auto& [times, addend] : MultiplesOf(e)) {
      std::vector<const TensorLoadNode*> last, next;
      ForEachIn<TensorLoadNode>(addend, [&](const TensorLoadNode* load) {
        if (reader_.TotalAt(load)) next.push_back(load);
        if (reader_.written.count(load->source.as_or_throw<Var>().get())) last.push_back(load);
      });
      if (last.empty() == next.empty()) return std::nullopt;
      if (next.empty()) {
        of_last.emplace_back(times, addend);
        continue;
      }
      const Var total = next[0]->source.as_or_throw<Var>(), maximum = CarriedAs(next[0]);
      const auto is_total = [&](const auto* load) { return load->source.same_as(total); };
      if (!maximum.defined() || !AllOf(next, is_total)) return std::nullopt;
      of_next.emplace_back(times, addend);
      moved.emplace_back(-times, Substitute(addend, total, maximum));
    }
    if (of_next.empty() || !IsSameSum(of_last, moved)) return std::nullopt;
    return of_next;
  }

  /*! What the loop carries a maximum in; undefined for other totals. */
  Var CarriedAs(const TensorLoadNode* load) const {
    const Total* total = reader_.TotalAt(load);
    const auto* before = total->before.defined() ? total->before.as<TensorLoadNode>() : nullptr;
    if (!total->is_max || !before) return Var();
    const Var maximum = before->source.as_or_throw<Var>();
    if (!reader_.HasValue(maximum) || !IsRunning(maximum)) return Var();
    const auto* end = reader_.ValueOf(maximum).as<TensorLoadNode>();
    return end && end->source.same_as(load->source) ? maximum : Var();
  }

  /*! An element has a factor exp(g - a(m')), or 0 under a condition, and others that do not depend
   * on what is carried. */
  bool IsRelative(const Total& total, const CallNode* decay, const Multiples& of_next) const {
    if (total.is_max) return false;
    bool is_relative = false;
    for (const Expr& factor : total.factors) {
      if (reader_.IsFree(factor)) continue;
      const CallNode* power = AsExponential(Unconditional(factor));
      if (is_relative || !power || OpOf(power) != OpOf(decay)) return false;
      Multiples relative;
      for (const auto& addend : MultiplesOf(power->args[0])) {
        if (!reader_.IsFree(addend.second)) relative.push_back(addend);
      }
      if (!IsSameSum(relative, of_next)) return false;
      is_relative = true;
    }
    return is_relative;
  }

  /*! Without a change to another float, and without a condition that makes it 0. */
  Expr Unconditional(Expr e) const {
    while (true) {
      const auto* call = e.as<CallNode>();
      if (const auto* cast = e.as<CastNode>(); cast && IsFloat(e->dtype())) {
        e = cast->value;
      } else if (call && IsIfThenElse(call) && reader_.IsFree(call->args[0]) &&
                 (IsZero(call->args[1]) || IsZero(call->args[2]))) {
        e = IsZero(call->args[1]) ? call->args[2] : call->args[1];
      } else {
        return e;
      }
    }
  }
  static bool IsZero(const Expr& e) {
    const auto* number = e.as<FloatImmNode>();
    return number && number->value == 0;
  }
  static bool IsFloat(DLDataType t) {
    return t.code != kDLInt && t.code != kDLUInt && t.code != kDLBool;
  }

  const IterationReader& reader_;
};

}  // namespace

bool CarriesSoftmax(const ForNode* loop, const AxisTiles& along, const Stmt& kernel) {
  if (HasNode<DeclBufferNode>(kernel)) return false;
  const IterationReader reader(loop, along);
  if (!reader.fits) return false;
  const CarriedChecker checker(reader);
  bool has_maximum = false;
  for (const auto& [key, buffer] : reader.written) {
    const bool lives_on = reader.carried.count(key) ||
                          CountMentions(kernel, buffer) != CountMentions(loop->body, buffer);
    if (!lives_on) continue;
    if (!checker.IsRunning(buffer)) return false;
    const Total* total = reader.TotalOf(reader.ValueOf(buffer));
    has_maximum |= total && total->is_max;
  }
  return has_maximum;
}

}  // namespace tl
