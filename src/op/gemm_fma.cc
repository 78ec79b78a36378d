/*!
 * T.gemm by multiply and add: for sizes, types and thread counts that no tensor-core instruction
 * takes, and for the rest of K that one leaves. Every thread computes the elements of C that it
 * holds, whatever C's layout is.
 */
#include "../tvm/functor.h"
#include "gemm.h"
#include "loop_layout.h"

namespace tl {
namespace {

/*! Sums are formed in C's type, in float32 where that is narrower, in A's type where that is wider.
 */
DLDataType ComputeType(const GemmOp& op) {
  const DLDataType a = op.OperandType(), c = op.AccumulatorType();
  if (c.code == kDLInt || c.code == kDLUInt) return c;
  const bool is_float64 = c.bits == 64 || (a.bits == 64 && a.code == kDLFloat);
  return {kDLFloat, static_cast<uint8_t>(is_float64 ? 64 : 32), 1};
}

class FmaEmitter {
 public:
  FmaEmitter(const GemmOp& op, const GemmOperand& a, const GemmOperand& b, LoweringScope* scope)
      : op_(op), a_(a), b_(b), scope_(scope), compute_(ComputeType(op)), sums_(op.c.buffer) {
    registers_ = scope->RegistersOf(op.c.buffer);
    if (compute_ == op.AccumulatorType()) return;
    const std::string name = std::string(op.c.buffer->name) + "_sums";
    sums_ = MakeBuffer(name, compute_, BufferOf(op.c.buffer)->shape, "local.fragment");
    registers_ = MakeBuffer(name, compute_, BufferOf(registers_)->shape, "local");
  }

  Stmt Emit(int64_t begin) {
    Var k = MakeVar("k");
    scope_->analyzer->Bind(k, MakeInt(begin), MakeInt(op_.K() - begin));
    Stmt loop = ForEachElement([&](const Expr& i, const Expr& j) {
      const Expr product = Load(a_, i, k) * Load(b_, j, k);
      return MakeStore(sums_, LoadOf(sums_, ElementOfC(i, j)) + product, ElementOfC(i, j),
                       op_.span);
    });
    loop = Substitute(loop, k, Expr(k) + begin);
    loop = MakeFor(k, MakeInt(op_.K() - begin), ForKind::kSerial, loop, op_.span);
    if (sums_.same_as(op_.c.buffer)) return loop;
    return MakeSeq(
        {MakeAlloc(registers_), Convert(op_.c.buffer, sums_), loop, Convert(sums_, op_.c.buffer)});
  }

 private:
  Expr Load(const GemmOperand& from, const Expr& row, const Expr& k) const {
    return CastTo(compute_, LoadOf(from.shared, from.Element(row, k)));
  }

  Array<Expr> ElementOfC(const Expr& i, const Expr& j) const {
    Array<Expr> element = op_.c.Mins();
    element.Set(element.size() - 2, op_.trans_c ? j : i);
    element.Set(element.size() - 1, op_.trans_c ? i : j);
    return element;
  }

  Stmt Convert(const Var& from, const Var& to) {
    return ForEachElement([&](const Expr& i, const Expr& j) {
      const Expr value = LoadOf(from, ElementOfC(i, j));
      return MakeStore(to, CastTo(DTypeOf(to), value), ElementOfC(i, j), op_.span);
    });
  }

  /*! The elements of C that this thread holds. */
  template <typename F>
  Stmt ForEachElement(F body) {
    const Fragment layout = scope_->FragmentOf(op_.c.buffer);
    ParallelNest nest;
    nest.span = op_.span;
    nest.vars = {MakeVar("i"), MakeVar("j")};
    nest.extents = {MakeInt(op_.M()), MakeInt(op_.N())};
    nest.body = body(nest.vars[0], nest.vars[1]);
    const FragmentAccess c{op_.c.buffer, ElementOfC(nest.vars[0], nest.vars[1]), true, {}, {}};
    NestLowering ctx{
        scope_->thread, scope_->num_threads, scope_->analyzer,
        [layout](const Var&) { return layout; },
        [this](const Var& b) { return b.same_as(sums_) ? registers_ : scope_->RegistersOf(b); }};
    return scope_->PlaceAccesses(LowerNest(nest, *LayoutFromFragment(nest, c, layout), ctx));
  }

  const GemmOp& op_;
  const GemmOperand &a_, &b_;
  LoweringScope* scope_;
  DLDataType compute_;
  /*! Fragment that the sums are formed in, and its registers: C itself if its type allows. */
  Var sums_, registers_;
};

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Fragment MakeFmaLayout(const GemmOp& op, int64_t num_threads) {
  const int64_t m = op.M(), n = op.N();
  int64_t vector = op.trans_b ? 1 : 128 / std::max<int64_t>(32, op.AccumulatorType().bits);
  while (n % vector) vector /= 2;
  int64_t best_rows = 1, best_cols = 1, best_vector = 1;
  std::pair<int64_t, int64_t> best{INT64_MAX, INT64_MAX};
  for (int64_t v = vector; v >= 1; v /= 2) {
    for (int64_t rows = 1; rows <= std::min(num_threads, m); ++rows) {
      const int64_t cols = std::min(num_threads / rows, n / v);
      const int64_t down = CeilDiv(m, rows), across = CeilDiv(n / v, cols);
      // Fewest elements, that is most threads at work, then fewest loads for each k.
      const std::pair<int64_t, int64_t> cost{down * across * v, down + across};
      if (cost >= best) continue;
      best = cost;
      best_rows = rows;
      best_cols = cols;
      best_vector = v;
    }
  }
  Array<Var> vars;
  const std::vector<int64_t> shape = ConstShape(op.c.buffer);
  for (size_t d = 0; d < shape.size(); ++d) vars.push_back(MakeVar("i" + std::to_string(d)));
  const size_t row = shape.size() - (op.trans_c ? 1 : 2), column = 2 * shape.size() - 3 - row;
  const Expr i = vars[row], j = vars[column];
  const Expr part = FloorDivOf(j, best_vector);
  const int64_t across = CeilDiv(n / best_vector, best_cols);
  const Expr thread = FloorModOf(i, best_rows) * best_cols + FloorModOf(part, best_cols);
  const Expr index =
      (FloorDivOf(i, best_rows) * across + FloorDivOf(part, best_cols)) * best_vector +
      FloorModOf(j, best_vector);
  return MakeFragment(vars, shape, index, thread, MakeVar("rep"), 1);
}

Stmt LowerGemmToFma(const GemmOp& op, int64_t begin, const GemmOperand& a, const GemmOperand& b,
                    LoweringScope* scope) {
  return FmaEmitter(op, a, b, scope).Emit(begin);
}

}  // namespace tl
