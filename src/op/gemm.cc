#include "gemm.h"

#include "../layout/mma_fragment.h"
#include "../layout/swizzle.h"
#include "../tvm/error.h"
#include "../tvm/functor.h"
#include "intrinsics.h"

namespace tl {

int64_t GemmOp::Extent(const TileRegion& r, size_t from_last) {
  return ToInt(r.ranges[r.ranges.size() - 1 - from_last]->extent);
}

GemmOp GemmOp::From(const CallNode* call, const Span& span) {
  GemmOp op;
  op.a = TileRegion::From(call->args[0]);
  op.b = TileRegion::From(call->args[1]);
  op.c = TileRegion::From(call->args[2]);
  op.trans_a = ToInt(call->args[3]) != 0;
  op.trans_b = ToInt(call->args[4]) != 0;
  op.policy = static_cast<GemmWarpPolicy>(ToInt(call->args[5]));
  op.clear_accum = call->args[6];
  op.span = span;
  return op;
}

namespace {

DLDataType DTypeOf(const TileRegion& r) { return BufferOf(r.buffer)->dtype->dtype; }

void CheckOperand(const GemmOp& op, const char* name, const TileRegion& r, bool right_place,
                  const char* wanted) {
  if (right_place) return;
  ThrowAt(op.span, "ValueError",
          std::string("T.gemm: found ") + name + " = " + std::string(r.buffer->name) +
              " in scope " + ScopeOf(r.buffer) + ", wanted " + wanted);
}

}  // namespace

GemmPlan PlanGemm(const GemmOp& op, int64_t num_threads, int arch) {
  const char* shared = "shared memory; copy it there with T.alloc_shared and T.copy";
  CheckOperand(op, "A", op.a, IsShared(op.a.buffer), shared);
  CheckOperand(op, "B", op.b, IsShared(op.b.buffer), shared);
  CheckOperand(op, "C", op.c, IsFragment(op.c.buffer), "a fragment; make it with T.alloc_fragment");
  const std::vector<int64_t> c_shape = ConstShape(op.c.buffer);
  if (Product(c_shape) != op.M() * op.N()) {
    ThrowAt(op.span, "ValueError",
            "T.gemm: found C a slice of " + std::string(op.c.buffer->name) +
                ", wanted the whole fragment; allocate one of the slice's shape");
  }
  GemmPlan plan;
  std::string reasons;
  plan.instruction = SelectMma(
      {op.M(), op.N(), op.K(), DTypeOf(op.a), DTypeOf(op.b), DTypeOf(op.c), arch}, &reasons);
  if (!plan.instruction) {
    ThrowAt(op.span, "ValueError",
            "T.gemm: no instruction does " + std::to_string(op.M()) + "x" + std::to_string(op.N()) +
                "x" + std::to_string(op.K()) + " on sm_" + std::to_string(arch) +
                "; change tile sizes or dtypes so that one line below holds:" + reasons);
  }
  if (num_threads % 32) {
    ThrowAt(op.span, "ValueError",
            "T.gemm: found " + std::to_string(num_threads) +
                " threads, wanted whole warps; use a multiple of 32");
  }
  auto warps = PartitionWarps(op.M(), op.N(), num_threads / 32, plan.instruction->m,
                              plan.instruction->n, op.policy);
  if (!warps) {
    ThrowAt(
        op.span, "ValueError",
        "T.gemm: found M=" + std::to_string(op.M()) + ", N=" + std::to_string(op.N()) + " for " +
            std::to_string(num_threads / 32) +
            " warps, wanted a split into warps of multiples of 16 rows and 8 columns; use fewer "
            "threads or a larger tile");
  }
  plan.warps = *warps;
  return plan;
}

Fragment GemmLayoutC(const GemmOp& op, const GemmPlan& plan) {
  return MakeGemmFragmentC(op.M(), op.N(), plan.warps.m_warps, plan.warps.n_warps);
}

Layout GemmLayoutShared(const TileRegion& operand) {
  return MakeSwizzledLayout(ConstShape(operand.buffer), DTypeOf(operand).bits);
}

namespace {

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
  GemmEmitter(const GemmOp& op, const GemmPlan& plan, const GemmLowering& ctx)
      : op_(op),
        ctx_(ctx),
        m_warps_(plan.warps.m_warps),
        n_warps_(plan.warps.n_warps),
        m_tiles_(op.M() / (plan.instruction->m * plan.warps.m_warps)),
        n_tiles_(op.N() / (plan.instruction->n * plan.warps.n_warps)),
        lane_(FloorModOf(ctx.thread, 32)),
        row_warp_(FloorModOf(FloorDivOf(ctx.thread, 32), plan.warps.m_warps)),
        col_warp_(FloorDivOf(FloorDivOf(ctx.thread, 32), plan.warps.m_warps)),
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
    auto [buffer, indices] = ctx_.place(from, {row, col});
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
                        AddressOf(ctx_.registers_c, {c}),
                        AddressOf(a_, {i * kRegistersA}),
                        AddressOf(b_, {j * kRegistersB})};
    return MakeEvaluate(CallOp(kMmaSync, args), op_.span);
  }

  Stmt Clear() {
    Var r = MakeVar("i");
    const int64_t n = m_tiles_ * n_tiles_ * kRegistersC;
    Stmt store = MakeStore(ctx_.registers_c, ZeroOf(DTypeOf(op_.c)), {r}, op_.span);
    return MakeIf(op_.clear_accum, UnrolledFor(r, n, store, op_.span), op_.span);
  }

  const GemmOp& op_;
  const GemmLowering& ctx_;
  int64_t m_warps_, n_warps_, m_tiles_, n_tiles_;
  Expr lane_, row_warp_, col_warp_;
  Var a_, b_;
};

}  // namespace

Stmt LowerGemm(const GemmOp& op, const GemmPlan& plan, const GemmLowering& ctx) {
  return GemmEmitter(op, plan, ctx).Emit();
}

}  // namespace tl
