/*!
 * SizeFacts: what a compiler would like to know about the sizes of a call.
 *
 * In:  a tile program as it was traced.
 * Out: lists of conditions on the variables of its tensors' extents and strides: one list for each
 *      variant of the program that is worth having besides the one for any sizes. Each list implies
 *      the next one:
 *      1. what follows, and:
 *         - what T.ceildiv cuts into tiles has no smaller last tile (no predicates);
 *         - no extent is 0 (no branches around pipelines);
 *         - a tensor has so few elements, and the longest of several extents is so short, that
 *           places in it, those of a tile behind it as well, and numbers of tiles are in int32.
 *      2. strides of tensors are multiples of 16 bytes (TMA, vectors).
 *      A condition is `v % constant == 0`, `v >= 1` or `product of variables <= constant`.
 * Conditions that follow from the program's own `T.assume` are left out, and so are those on the
 * strides of a tensor that no size helps: its rows have 100 bytes, or neighbours are not adjacent.
 */
#include <numeric>

#include "../tvm/analyzer.h"
#include "../tvm/functor.h"
#include "../tvm/registry.h"
#include "analyzing_mutator.h"
#include "effects.h"
#include "size_product.h"

namespace tl {
namespace {

constexpr int64_t kChunkBits = 128;
/*! A tile of less than as many elements more fits int32, too. */
constexpr int64_t kMostElements = int64_t(1) << 30;
/*! The product of two numbers of tiles does, of 64 elements or more, in groups of 8. */
constexpr int64_t kMostOfSeveral = int64_t(1) << 20;

/*! Variables, each with what it is a multiple of, in the order in which they came. */
class Multiples {
 public:
  void Add(const Var& v, int64_t factor) {
    int64_t& known = factors_.try_emplace(v.get(), 1).first->second;
    if (known == 1) order_.push_back(v);
    known = std::lcm(known, factor);
  }
  int64_t Of(const Var& v) const {
    const auto it = factors_.find(v.get());
    return it == factors_.end() ? 1 : it->second;
  }
  std::vector<Expr> Conditions() const {
    std::vector<Expr> conditions;
    for (const Var& v : order_) {
      conditions.push_back(EqualOf(FloorModOf(v, Of(v)), MakeInt(v->dtype(), 0)));
    }
    return conditions;
  }

 private:
  std::unordered_map<const Object*, int64_t> factors_;
  std::vector<Var> order_;
};

class Collector : public StmtExprVisitor {
 public:
  explicit Collector(const PrimFunc& f) : f_(f) {
    for (const Var& p : f->params) {
      if (!AsBuffer(p)) continue;
      for (const Expr& extent : BufferOf(p)->shape) Note(extent);
      for (const Expr& stride : BufferOf(p)->strides) Note(stride);
    }
    Visit(f->body);
  }

  Array<Array<Expr>> Get() {
    Array<Array<Expr>> found;
    for (const bool all : {true, false}) {
      const Array<Expr> facts = WithAssumptions(0, [&] { return Facts(all); });
      if (!facts.empty()) found.push_back(facts);
    }
    return found;
  }

 protected:
  void Visit_(const EvaluateNode* op) override {
    const Expr fact = AssumptionOf(GetRef<Stmt>(op));
    if (fact.defined() && IsOfSizes(fact)) assumed_.push_back(fact);
    Default(op);
  }
  /*! T.ceildiv(v, constant) */
  void Visit_(const FloorDivNode* op) override {
    const auto divisor = AsInt(op->b);
    // As a value of a name it is (v + constant) - 1.
    const Expr dividend = analyzer_.Simplify(op->a);
    const auto* sum = dividend.as<AddNode>();
    const auto* v = sum ? sum->a.as<VarNode>() : nullptr;
    if (divisor && *divisor > 1 && v && IsConst(sum->b, *divisor - 1) && variables_.count(v)) {
      tiles_.emplace_back(GetRef<Var>(v), *divisor);
    }
    Default(op);
  }

 private:
  void Note(const Expr& e) {
    for (const Var& v : VarsOf(e)) {
      if (v->dtype().code == kDLInt && variables_.insert(v.get()).second) order_.push_back(v);
    }
  }

  bool IsOfSizes(const Expr& condition) const {
    const std::vector<Var> used = VarsOf(condition);
    return IsArithmetic(condition) &&
           AllOf(used, [&](const Var& v) { return variables_.count(v.get()) != 0; });
  }

  /*! The conditions of `make` that the program's assumptions, from this one on, do not imply. */
  template <typename F>
  Array<Expr> WithAssumptions(size_t first, F make) {
    if (first < assumed_.size()) {
      Array<Expr> found;
      analyzer_.WithConstraint(assumed_[first], [&] { found = WithAssumptions(first + 1, make); });
      return found;
    }
    Array<Expr> open;
    for (const Expr& condition : make()) {
      if (!analyzer_.CanProve(condition)) open.push_back(condition);
    }
    return open;
  }

  Multiples Strides() {
    Multiples multiples;
    for (const Var& p : f_->params) {
      if (AsBuffer(p)) AddStrides(BufferOf(p), &multiples);
    }
    return multiples;
  }

  /*! What makes the strides of a tensor multiples of 16 bytes, where something does. */
  void AddStrides(const BufferTypeNode* type, Multiples* multiples) {
    const size_t rank = type->shape.size();
    if (rank < 2 || type->strides.size() != rank || !IsConst(type->strides[rank - 1], 1)) return;
    Multiples found = *multiples;
    for (size_t d = rank - 1; d-- > 0;) {
      const auto stride = SizeProductOf(type->strides[d]);
      if (!stride) return;
      int64_t known = stride->constant * type->dtype->dtype.bits;
      for (const Var& v : stride->factors) known *= MultipleOf(v, found);
      const int64_t lacking = kChunkBits / std::gcd(kChunkBits, known);
      if (lacking == 1) continue;
      if (stride->factors.empty()) return;
      const Var v = Innermost(type, d, *stride);
      found.Add(v, MultipleOf(v, found) * lacking);
    }
    *multiples = found;
  }

  int64_t MultipleOf(const Var& v, const Multiples& found) {
    const Analyzer::Modular m = analyzer_.ModularSet(v);
    const int64_t assumed = std::max<int64_t>(1, std::gcd(m.coeff, m.base));
    return std::gcd(kChunkBits, std::lcm(std::gcd(kChunkBits, assumed), found.Of(v)));
  }

  /*! The factor of the stride that is the extent of the innermost dimension. */
  static Var Innermost(const BufferTypeNode* type, size_t d, const SizeProduct& stride) {
    for (size_t inner = type->shape.size(); inner-- > d + 1;) {
      for (const Var& v : stride.factors) {
        if (Uses(type->shape[inner], v)) return v;
      }
    }
    return stride.factors.back();
  }

  std::vector<Expr> Facts(bool all) {
    Multiples multiples = Strides();
    if (!all) return multiples.Conditions();
    for (const auto& [v, divisor] : tiles_) multiples.Add(v, divisor);
    std::vector<Expr> facts = multiples.Conditions();
    for (const Expr& fact : Sizes()) facts.push_back(fact);
    return facts;
  }

  std::vector<Expr> Sizes() {
    std::vector<Expr> conditions;
    for (const Var& v : order_) conditions.push_back(v >= MakeInt(v->dtype(), 1));
    std::vector<SizeProduct> known;
    for (const Var& p : f_->params) {
      if (!AsBuffer(p)) continue;
      const Array<Expr>& shape = BufferOf(p)->shape;
      const auto size = SizeProductOf(std::vector<Expr>(shape.begin(), shape.end()));
      if (!size || size->factors.empty() || size->constant > kMostElements) continue;
      const auto same = FindIf(known, [&](const SizeProduct& other) {
        return other.SameFactors(*size) && other.constant >= size->constant;
      });
      if (same != known.end()) continue;
      known.push_back(*size);
      conditions.push_back(AtMost(*size));
    }
    for (const Var& v : order_) {
      const bool several = AnyOf(known, [&](const SizeProduct& size) {
        return size.factors.size() > 1 && Contains(size.factors, v);
      });
      if (several) conditions.push_back(AtMost({1, {v}}, kMostOfSeveral));
    }
    return conditions;
  }

  /*! The product is at most `most`, as a bound of its variables. */
  static Expr AtMost(const SizeProduct& size, int64_t most = kMostElements) {
    Expr product = CastTo(kInt64, size.factors[0]);
    if (size.factors.size() == 1) product = size.factors[0];
    for (size_t i = 1; i < size.factors.size(); ++i) {
      product = product * CastTo(kInt64, size.factors[i]);
    }
    return TL_GLOBAL("prim._OpLE")(product, MakeInt(product->dtype(), most / size.constant),
                                   nullptr)
        .cast<Expr>();
  }

  const PrimFunc& f_;
  Analyzer analyzer_;
  std::vector<Expr> assumed_;
  std::vector<std::pair<Var, int64_t>> tiles_;
  std::unordered_set<const Object*> variables_;
  std::vector<Var> order_;
};

Registration size_facts_registration([] {
  RegisterFunction("analysis.SizeFacts", [](const PrimFunc& f) { return Collector(f).Get(); });
});

}  // namespace
}  // namespace tl
