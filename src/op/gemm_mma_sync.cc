#include "../tvm/functor.h"
#include "gemm.h"
#include "intrinsics.h"

namespace tl {
namespace {

DLDataType DTypeOf(const TileRegion& r) { return BufferOf(r.buffer)->dtype->dtype; }

/*! The type's name in generated source, as mma_sync's template arguments want it. */
std::string DeviceTypeName(DLDataType t) {
  if (t.code == kDLFloat && t.bits == 16) return "half_t";
  if (t.code == kDLBfloat && t.bits == 16) return "bfloat16_t";
  return "float";
}

Stmt UnrolledFor(const Var& v, int64_t extent, const Stmt& body, const Span& span) {
  if (extent == 1) return Substitute(body, v, MakeInt(0));
  return MakeFor(v, MakeInt(extent), ForKind::kUnrolled, body, span);
}

/*! Emits one gemm; m16n8k16 fragments as in PTX ISA "Matrix Fragments for mma.m16n8k16". */
class GemmEmitter {
 public:
  GemmEmitter(const GemmOp& op, const GemmPlan& plan, LoweringScope* scope)
      : op_(op),
        scope_(scope),
        registers_c_(scope->RegistersOf(op.c.buffer)),
        m_warps_(plan.warps.m_warps),
        n_warps_(plan.warps.n_warps),
        m_tiles_(op.M() / (plan.instruction->m * plan.warps.m_warps)),
        n_tiles_(op.N() / (plan.instruction->n * plan.warps.n_warps)),
        lane_(FloorModOf(scope->thread, 32)),
        row_warp_(FloorModOf(FloorDivOf(scope->thread, 32), plan.warps.m_warps)),
        col_warp_(FloorDivOf(FloorDivOf(scope->thread, 32), plan.warps.m_warps)),
        a_(MakeBuffer(std::string(op.a.buffer->name) + "_frag", DTypeOf(op.a),
                      {MakeInt(m_tiles_ * kRegistersA)}, "local")),
        b_(MakeBuffer(std::string(op.b.buffer->name) + "_frag", DTypeOf(op.b),
                      {MakeInt(n_tiles_ * kRegistersB)}, "local")) {}

  Stmt Emit() {
    Var k = MakeVar("ki");
    std::vector<Stmt> body = {Alloc(a_), Alloc(b_)};
    Var i = MakeVar("i");
    body.push_back(UnrolledFor(i, m_tiles_, LoadA(k, i), op_.span));
    Var j = MakeVar("j");
    if (n_tiles_ >= 2)
      body.push_back(UnrolledFor(j, n_tiles_ / 2, LoadB(k, Expr(j) * 2, 2), op_.span));
    if (n_tiles_ % 2) body.push_back(LoadB(k, MakeInt(n_tiles_ - 1), 1));
    Var mi = MakeVar("i"), nj = MakeVar("j");
    body.push_back(
        UnrolledFor(mi, m_tiles_, UnrolledFor(nj, n_tiles_, Mma(mi, nj), op_.span), op_.span));
    Stmt main = UnrolledFor(k, op_.K() / 16, MakeSeq(body), op_.span);
    if (IsConst(op_.clear_accum, 0)) return main;
    return MakeSeq({Clear(), main});
  }

 private:
  // Elements that a lane holds of one 16x16 tile of A, 16x8 of B and 16x8 of C.
  static constexpr int64_t kRegistersA = 8, kRegistersB = 4, kRegistersC = 4;

  static Stmt Alloc(const Var& buffer) {
    auto n = make_object<AllocBufferNode>();
    n->buffer = buffer;
    return AllocBuffer(n);
  }

  Stmt LoadMatrix(const TileRegion& from, bool transposed, int matrices, const Expr& row,
                  const Expr& col, const Var& to, const Expr& reg) {
    Array<Expr> element = from.Mins();
    const size_t lead = element.size() - 2;
    element.Set(lead, element[lead] + row);
    element.Set(lead + 1, element[lead + 1] + col);
    auto [buffer, indices] = scope_->Place(from.buffer, element);
    const std::string op =
        "tl.ptx_ldmatrix_x" + std::to_string(matrices) + (transposed ? "_trans" : "");
    return MakeEvaluate(CallOp(op, {AddressOf(buffer, indices), AddressOf(to, {reg})}), op_.span);
  }

  /*! Lanes 8 g .. 8 g + 7 give the rows of matrix g. */
  Expr RowInMatrix() const { return FloorModOf(lane_, 8); }
  Expr Matrix(int64_t bit) const { return FloorModOf(FloorDivOf(lane_, 8 * bit), 2); }

  /*! Matrices in register order: (rows 0-7, k 0-7), (rows 8-15, k 0-7), (rows 0-7, k 8-15), (rows
   * 8-15, k 8-15). */
  Stmt LoadA(const Expr& k, const Expr& i) {
    const Expr row0 = (row_warp_ + i * m_warps_) * 16, k0 = k * 16;
    const Expr reg = i * kRegistersA;
    if (op_.trans_a) {
      return LoadMatrix(op_.a, true, 4, k0 + RowInMatrix() + Matrix(2) * 8, row0 + Matrix(1) * 8,
                        a_, reg);
    }
    return LoadMatrix(op_.a, false, 4, row0 + FloorModOf(lane_, 16), k0 + Matrix(2) * 8, a_, reg);
  }

  /*! Matrices in register order: (k 0-7), (k 8-15) of column tile j, then of the next one of this
   * warp. */
  Stmt LoadB(const Expr& k, const Expr& j, int tiles) {
    Expr tile = tiles == 2 ? j + Matrix(2) : j;
    const Expr col0 = (col_warp_ + tile * n_warps_) * 8, k0 = k * 16 + Matrix(1) * 8;
    const Expr reg = j * kRegistersB;
    if (op_.trans_b) {
      return LoadMatrix(op_.b, false, 2 * tiles, col0 + RowInMatrix(), k0, b_, reg);
    }
    return LoadMatrix(op_.b, true, 2 * tiles, k0 + RowInMatrix(), col0, b_, reg);
  }

  Stmt Mma(const Expr& i, const Expr& j) {
    Expr c = (j * m_tiles_ + i) * kRegistersC;
    Array<Expr> args = {MakeInt(16),
                        MakeInt(8),
                        MakeInt(16),
                        StringOf(DeviceTypeName(DTypeOf(op_.a))),
                        StringOf(DeviceTypeName(DTypeOf(op_.b))),
                        StringOf(DeviceTypeName(DTypeOf(op_.c))),
                        AddressOf(registers_c_, {c}),
                        AddressOf(a_, {i * kRegistersA}),
                        AddressOf(b_, {j * kRegistersB})};
    return MakeEvaluate(CallOp(kMmaSync, args), op_.span);
  }

  Stmt Clear() {
    Var r = MakeVar("i");
    const int64_t n = m_tiles_ * n_tiles_ * kRegistersC;
    Stmt store = MakeStore(registers_c_, ZeroOf(DTypeOf(op_.c)), {r}, op_.span);
    return MakeIf(op_.clear_accum, UnrolledFor(r, n, store, op_.span), op_.span);
  }

  const GemmOp& op_;
  LoweringScope* scope_;
  Var registers_c_;
  int64_t m_warps_, n_warps_, m_tiles_, n_tiles_;
  Expr lane_, row_warp_, col_warp_;
  Var a_, b_;
};

}  // namespace

Stmt LowerGemmToMmaSync(const GemmOp& op, const GemmPlan& plan, LoweringScope* scope) {
  return GemmEmitter(op, plan, scope).Emit();
}

}  // namespace tl
