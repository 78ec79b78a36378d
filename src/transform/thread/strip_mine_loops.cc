/*!
 * StripMineLoops: serial loops along neighbours in memory run in strips of a vector.
 *
 * In:  a flat thread program, before it is simplified.
 * Out: the same, where `for k in range(n): x = x + float(S[.. + k])` is a serial loop over strips
 * of as many iterations as elements of S have room in kVectorBytes, and in it an unrolled loop over
 * a strip: the iterations in their order. Establishes: the reads of a strip are neighbours, and
 * begin at a multiple of its length, so NVVM makes one load of them. It does not see that in a loop
 * whose index has quotients, as those of swizzled tiles do. Left alone: loops with an unrolling of
 * their own, of another number of iterations, and with other statements than names and stores to
 * the thread's own variables. Refuses nothing.
 */

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

constexpr int64_t kVectorBytes = 16;

/*! Names, and stores to what the thread owns, of values without effects. */
bool IsArithmeticAlone(const Stmt& body) {
  const std::vector<Stmt> stmts = FlatSeq(body);
  return AllOf(stmts, [](const Stmt& s) {
    if (const auto* bind = s.as<BindNode>()) return !HasEffect(bind->value);
    const auto* store = s.as<BufferStoreNode>();
    return store && IsLocal(store->buffer) && !HasEffect(store->value);
  });
}

class StripMiner : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  /*! The note of a loop's unrolling is the program's. */
  Stmt Mutate_(const AttrStmtNode* op) override {
    const auto* loop = op->attr_key == kUnrollFactor ? op->body.as<ForNode>() : nullptr;
    noted_ = loop ? loop : noted_;
    return AnalyzingMutator::Mutate_(op);
  }
  Stmt Mutate_(const ForNode* op) override {
    const int64_t strip = StripOf(op);
    if (strip <= 1) return AnalyzingMutator::Mutate_(op);
    const DLDataType t = op->loop_var->dtype();
    const Var outer = MakeVar(std::string(op->loop_var->name), t), inner = MakeVar("v", t);
    Substituter in_strip;
    in_strip.map[op->loop_var.get()] = outer * strip + inner;
    const Stmt iteration = in_strip.Mutate(op->body);
    const Stmt iterations =
        MakeFor(inner, MakeInt(t, strip), ForKind::kUnrolled, iteration, op->span);
    const Expr strips = MakeInt(t, ToInt(op->extent) / strip);
    return MakeFor(outer, strips, ForKind::kSerial, iterations, op->span);
  }

 private:
  /*! 1 for loops that stay as they are. */
  int64_t StripOf(const ForNode* op) {
    const std::optional<int64_t> extent = AsInt(op->extent);
    if (op->kind != ForKind::kSerial || op == noted_ || !op->annotations.empty() || op->step ||
        !extent || !IsConst(op->min, 0) || !IsArithmeticAlone(op->body)) {
      return 1;
    }
    int64_t strip = 1;
    ForEachIn<TensorLoadNode>(op->body, [&](const TensorLoadNode* load) {
      const Var source = load->source.as_or_throw<Var>();
      const DLDataType t = load->dtype();
      if (IsLocal(source) || t.lanes != 1 || t.bits < 8 || load->indices.size() != 1) return;
      const int64_t elements = kVectorBytes * 8 / t.bits;
      if (elements <= strip || *extent % elements || *extent == elements) return;
      if (AreNeighbours(load->indices[0], op->loop_var, elements, *extent)) strip = elements;
    });
    return strip;
  }

  /*! Whether the elements of a strip are neighbours, from a multiple of its length on. */
  bool AreNeighbours(const Expr& index, const Var& k, int64_t elements, int64_t extent) {
    if (!Uses(index, k)) return false;
    const Var outer = MakeVar("strip", k->dtype()), inner = MakeVar("v", k->dtype());
    analyzer_.BindConst(outer, extent / elements);
    analyzer_.BindConst(inner, elements);
    const auto at = [&](const Expr& place) {
      Substituter s;
      s.map[k.get()] = place;
      return analyzer_.Simplify(s.Mutate(index));
    };
    const Expr first = at(outer * elements);
    const auto place = analyzer_.ModularSet(first);
    return place.coeff % elements == 0 && place.base % elements == 0 &&
           analyzer_.CanProveEqual(at(outer * elements + inner), first + inner);
  }

  const ForNode* noted_ = nullptr;
};

PrimFunc StripMineLoops(PrimFunc f) { return WithBody(f, StripMiner(f).Mutate(f->body)); }

TL_REGISTER_PASS(StripMineLoops);

}  // namespace
}  // namespace tl
