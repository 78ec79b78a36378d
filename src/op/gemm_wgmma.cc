/*! T.gemm by wgmma: a warp group multiplies 64 rows of A, in shared memory or registers, with B in
 * shared memory. Instructions are issued as one group, which the operator or someone else waits
 * for.
 */
#include "../tvm/functor.h"
#include "block_reduce.h"
#include "gemm.h"
#include "intrinsics.h"
#include "wgmma_wait.h"

namespace tl {
namespace {

constexpr DLDataType kDescriptor{kDLUInt, 64, 1};
constexpr int64_t kGroupWarps = 4, kWarpRows = 16;

/*! Without the swizzle's `x ^ 0`: an operand begins at the first row of a pattern. */
class DropXorOfZero : public StmtExprMutator {
 protected:
  Expr Mutate_(const BitwiseXorNode* op) final {
    return IsConst(op->b, 0) ? Mutate(op->a) : Default<Expr>(op);
  }
};

/*! A bound descriptor and the steps from it. */
struct Described {
  Var descriptor;
  WgmmaStrides strides;
};

class WgmmaEmitter {
 public:
  WgmmaEmitter(const GemmOp& op, const GemmPlan& plan, LoweringScope* scope)
      : op_(op),
        plan_(plan),
        wgmma_(*plan.wgmma.instruction),
        scope_(scope),
        registers_c_(scope->RegistersOf(op.c.buffer)),
        m_tiles_(op.M() / (kWarpRows * plan.warps.m_warps)),
        columns_(op.N() / plan.warps.n_warps),
        warp_(FloorDivOf(scope->thread, scope->target->warp_threads)) {}

  Stmt Emit() {
    std::vector<Stmt> body;
    const GemmOperand a = LowerOperand(op_, op_.a, op_.trans_a, plan_.LayoutOfA(op_), scope_, &body,
                                       /*for_wgmma=*/true);
    // The MMA before this one may still read what an operand is moved to.
    if (!body.empty() && op_.asynchronous) body.insert(body.begin(), WaitForMmas(0, op_.span));
    WgmmaOperand shared_a = plan_.SharedA(op_);
    if (a.shared.defined()) {
      if (!a.shared.same_as(op_.a.buffer)) shared_a.region = TileRegion::Whole(a.shared);
      a_ = Describe(shared_a, GroupRow(), &body);
    }
    b_ = Describe(plan_.SharedB(op_), GroupColumn(), &body);
    if (op_.metadata) body.push_back(scope_->PlaceAccesses(LoadMetadata(&body)));
    body.push_back(FenceAccumulator(registers_c_, op_.span));
    body.push_back(Command(kWarpgroupArrive));
    body.push_back(scope_->PlaceAccesses(Products(a)));
    body.push_back(Command(kWarpgroupCommit));
    if (!op_.asynchronous) {
      body.push_back(WaitForMmas(0, op_.span));
      body.push_back(FenceAccumulator(registers_c_, op_.span));
    }
    return MakeSeq(body);
  }

 private:
  Stmt Command(const char* name) const { return MakeEvaluate(CallOp(name, {}), op_.span); }

  /*! First row and column of the thread's warp group. */
  Expr GroupRow() const {
    if (plan_.warps.m_warps == kGroupWarps) return MakeInt(0);
    return FloorDivOf(FloorModOf(warp_, plan_.warps.m_warps), kGroupWarps) * wgmma_.m;
  }
  Expr GroupColumn() const {
    if (plan_.warps.n_warps == 1) return MakeInt(0);
    return FloorDivOf(warp_, plan_.warps.m_warps) * columns_;
  }

  Described Describe(const WgmmaOperand& operand, const Expr& row, std::vector<Stmt>* body) const {
    const TileRegion& region = operand.region;
    const WgmmaStrides strides = StridesOf(operand, scope_->LayoutOf(region.buffer));
    Array<Expr> first = region.Mins();
    const size_t along_rows = first.size() - (operand.k_major ? 2 : 1);
    first.Set(along_rows, first[along_rows] + row);
    auto [buffer, placed] = scope_->ToPhysical(region.buffer, first);
    const Array<Expr> indices = placed.Map(
        [&](const Expr& e) { return scope_->analyzer->Simplify(DropXorOfZero().Mutate(e)); });
    const Expr value = CallOp(kWgmmaDescriptor,
                              {MakeInt(strides.span), AddressOf(buffer, indices),
                               MakeInt(strides.leading), MakeInt(strides.stride)},
                              PrimTy(kDescriptor));
    Var descriptor = MakeVar(std::string(region.buffer->name) + "_desc", kDescriptor);
    body->push_back(MakeBind(descriptor, value, op_.span));
    return {descriptor, strides};
  }

  Expr Advance(const Described& d, const Expr& row, const Expr& k) const {
    const Expr bytes = scope_->analyzer->Simplify(d.strides.Offset(row, k));
    if (IsConst(bytes, 0)) return d.descriptor;
    return CallOp(kWgmmaDescriptorAdvance, {d.descriptor, bytes}, PrimTy(kDescriptor));
  }

  /*! The steps along K of the warp group's only block of rows and columns, in one operand. */
  Expr Steps(const Described& d) const {
    const int64_t count = op_.K() / wgmma_.k;
    if (count == 1) return d.descriptor;
    auto bytes = [&](int64_t k) {
      return ToInt(scope_->analyzer->Simplify(d.strides.Offset(MakeInt(0), MakeInt(k * wgmma_.k))));
    };
    int64_t row = 1;
    while (row < count && bytes(row) == row * bytes(1)) ++row;
    const int64_t row_bytes = row < count ? bytes(row) : 0;
    for (int64_t k = 0; k < count; ++k) {
      TVM_FFI_ICHECK(bytes(k) == k / row * row_bytes + k % row * bytes(1));
    }
    return CallOp(
        kWgmmaSteps,
        {MakeInt(count), MakeInt(bytes(1)), MakeInt(row), MakeInt(row_bytes), d.descriptor},
        PrimTy(kDescriptor));
  }

  /*! All of it before the first MMA: a register that another instruction writes between two
   * MMAs makes ptxas run them one after the other. */
  Stmt LoadMetadata(std::vector<Stmt>* body) {
    const int64_t steps = op_.K() / wgmma_.k;
    metadata_ = MakeBuffer(std::string(op_.metadata->buffer->name) + "_frag", {kDLUInt, 32, 1},
                           {MakeInt(steps * m_tiles_)}, "local");
    body->push_back(MakeAlloc(metadata_));
    Var k = MakeVar("ki"), i = MakeVar("i");
    scope_->analyzer->BindConst(k, steps);
    scope_->analyzer->BindConst(i, m_tiles_);
    const Expr row =
        (FloorModOf(warp_, plan_.warps.m_warps) + Expr(i) * plan_.warps.m_warps) * kWarpRows;
    const Expr value =
        MetadataOfLane(op_, row, FloorModOf(scope_->thread, scope_->target->warp_threads),
                       Expr(k) * wgmma_.k, wgmma_.k, scope_);
    const Stmt store = MakeStore(metadata_, value, {Expr(k) * m_tiles_ + i}, op_.span);
    return UnrolledFor(k, steps, UnrolledFor(i, m_tiles_, store, op_.span), op_.span);
  }

  /*! Is the MMA of a warp group one block of rows and columns? Its steps along K are then one
   * call, for which the C++ compiler needs less time than for several. */
  bool IsOneBlock() const { return m_tiles_ == 1 && columns_ == plan_.wgmma.n && !op_.metadata; }

  /*! Steps along K, in each the blocks of rows and columns of the warp group. */
  Stmt Products(const GemmOperand& a) const {
    const int64_t steps = op_.K() / wgmma_.k, blocks = columns_ / plan_.wgmma.n;
    if (IsOneBlock()) {
      return MakeEvaluate(Product(a, MakeInt(0), MakeInt(0), MakeInt(0)), op_.span);
    }
    Var k = MakeVar("ki"), i = MakeVar("i"), j = MakeVar("j");
    scope_->analyzer->BindConst(k, steps);
    scope_->analyzer->BindConst(i, m_tiles_);
    scope_->analyzer->BindConst(j, blocks);
    Stmt product = MakeEvaluate(Product(a, k, i, j), op_.span);
    Stmt row = UnrolledFor(i, m_tiles_, UnrolledFor(j, blocks, product, op_.span), op_.span);
    return UnrolledFor(k, steps, row, op_.span);
  }

  Expr Product(const GemmOperand& a, const Expr& k, const Expr& i, const Expr& j) const {
    const Expr at_k = k * wgmma_.k;
    const Expr c = AddressOf(registers_c_, {i * (columns_ / 2) + j * (plan_.wgmma.n / 2)});
    const Expr b = IsOneBlock() ? Steps(b_) : Advance(b_, j * plan_.wgmma.n, at_k);
    Array<Expr> args = {MakeInt(wgmma_.m),        MakeInt(plan_.wgmma.n),
                        MakeInt(wgmma_.k),        StringOf(wgmma_.operand_name),
                        StringOf(wgmma_.NameB()), StringOf(wgmma_.accumulator_name)};
    const Expr b_k_major = StringOf(b_.strides.k_major ? "true" : "false");
    // The first MMA along K begins an accumulator that is cleared.
    const Expr sum = NotEqualOf(k, MakeInt(0)) || NotOf(op_.clear_accum);
    if (a.registers.defined()) {
      const Expr fragment =
          AddressOf(a.registers, {(i * (op_.K() / wgmma_.k) + k) * (4 * wgmma_.PerRegister())});
      const Expr own_b =
          m_tiles_ == 1 ? b : CallOp(kWgmmaDescriptorApart, {b, i}, PrimTy(kDescriptor));
      for (const Expr& e : {b_k_major, c, fragment, own_b, sum}) args.push_back(e);
      return CallOp(kWgmmaRegisters, args);
    }
    const Expr at_a =
        IsOneBlock() ? Steps(a_)
                     : Advance(a_, i * (kWarpRows * plan_.warps.m_warps), k * wgmma_.StoredK());
    if (op_.metadata) {
      const Expr e = LoadOf(metadata_, {k * m_tiles_ + i});
      for (const Expr& x : {b_k_major, c, at_a, b, e, sum}) args.push_back(x);
      return CallOp(kWgmmaSparse, args);
    }
    args.push_back(StringOf(a_.strides.k_major ? "true" : "false"));
    for (const Expr& e : {b_k_major, c, at_a, b, sum}) args.push_back(e);
    return CallOp(kWgmmaShared, args);
  }

  const GemmOp& op_;
  const GemmPlan& plan_;
  const MatrixInstruction& wgmma_;
  LoweringScope* scope_;
  Var registers_c_;
  /*! Instructions of a warp group one below the other, and its columns. */
  int64_t m_tiles_, columns_;
  Expr warp_;
  Described a_, b_;
  Var metadata_;
};

}  // namespace

Stmt LowerGemmToWgmma(const GemmOp& op, const GemmPlan& plan, LoweringScope* scope) {
  return WgmmaEmitter(op, plan, scope).Emit();
}

}  // namespace tl
