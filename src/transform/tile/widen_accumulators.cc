/*!
 * WidenAccumulators: sums of 16 bits that no instruction forms are formed in 32.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where a gemm whose accumulators are 16-bit floats, of a type that no matrix
 *      instruction of the target adds to but float32 of the same operands, is
 *        copy(C, wide); gemm(A, B, wide); copy(wide, C)
 *      without the first copy where the gemm clears its accumulators. `wide` is a fragment.
 * Establishes: MFMA, which forms sums in float32 alone, is taken for programs that ask for float16,
 *      as is mma.sync for bfloat16: by multiply-adds a tile of 64 x 64 x 32 took 512 registers of a
 *      lane of gfx942 and 6148 spills. A step's sum is rounded once, not in each addition.
 * Left alone: products that float32 has no instruction for either; those that clear by a condition;
 *      parts of fragments; asynchronous products, whose wait is elsewhere; loops whose statements
 *      the program gives an order; programs that give threads roles. Refuses nothing.
 */
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../target/mma.h"
#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "kernel_scope.h"
#include "ws_schedule.h"

namespace tl {
namespace {

constexpr DLDataType kWide{kDLFloat, 32, 1};

class AccumulatorWidener : public StmtExprMutator {
 public:
  explicit AccumulatorWidener(const Target& target) : target_(target) {}

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadRange || op->attr_key == kWsOp) return GetRef<Stmt>(op);
    return scope_.Within(op, [&] { return Default<Stmt>(op); });
  }
  Stmt Mutate_(const SBlockNode* op) final {
    if (op->annotations.count(kWsSchedule)) return GetRef<Stmt>(op);
    const size_t outside = made_.size();
    const SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    const std::vector<Var> own(made_.begin() + outside, made_.end());
    made_.resize(outside);
    return WithBuffers(block, own);
  }
  Stmt Mutate_(const ForNode* op) final {
    return op->annotations.count(kUserOrder) ? GetRef<Stmt>(op) : Default<Stmt>(op);
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = AsTileOp(s);
    if (!call || !IsCallTo(op->value, kGemm)) return s;
    GemmOp gemm = ParseGemm(call, op->span);
    const bool clears = IsConst(gemm.clear_accum, 1);
    if (!IsNarrow(gemm) || !(clears || IsConst(gemm.clear_accum, 0))) return s;
    const TileRegion sums = gemm.c;
    const Var wide = MakeBuffer(std::string(sums.buffer->name) + "_wide", kWide,
                                BufferOf(sums.buffer)->shape, "local.fragment");
    gemm.c = TileRegion::Whole(wide);
    if (!HasInstruction(gemm, kWide) || HasInstruction(gemm, AccumulatorOf(sums))) return s;
    made_.push_back(wide);
    const auto copy = [&](const TileRegion& from, const TileRegion& to) {
      return MakeEvaluate(CallOp(kCopy, {from.ToExpr(), to.ToExpr()}), op->span);
    };
    std::vector<Stmt> out;
    if (!clears) out.push_back(copy(sums, gemm.c));
    out.push_back(MakeEvaluate(WithOperands(call, gemm), op->span));
    out.push_back(copy(gemm.c, sums));
    return MakeSeq(out);
  }

 private:
  static DLDataType AccumulatorOf(const TileRegion& c) { return DTypeOf(c.buffer); }

  static bool IsNarrow(const GemmOp& op) {
    const DLDataType t = op.AccumulatorType();
    const bool is_float = t.code == kDLFloat || t.code == kDLBfloat;
    return is_float && t.bits == 16 && IsFragment(op.c.buffer) && op.c.IsWhole() &&
           !op.asynchronous && !op.IsSparse() && !op.IsScaled() && !op.packed;
  }

  /*! One of a warp, or of a group, forms the sums in this type. */
  bool HasInstruction(const GemmOp& op, DLDataType sums) const {
    const int64_t threads = scope_.Threads(op.span).threads;
    const GemmShape shape{op.M(), op.N(),   op.K(),  DTypeOf(op.a.buffer), DTypeOf(op.b.buffer),
                          sums,   &target_, threads, op.allow_tf32,        false,
                          false,  false};
    std::string why;
    return SelectMma(shape, &why) ||
           SelectGroupMma(shape, true, GemmWarpPolicy::kSquare, &why).has_value();
  }

  const Target& target_;
  KernelScope scope_;
  std::vector<Var> made_;
};

PrimFunc WidenAccumulators(PrimFunc f) {
  return ForEachKernel(f, [&target = TargetOf(f)](const AttrStmtNode* op) {
    return AccumulatorWidener(target).Mutate(GetRef<Stmt>(op));
  });
}

TL_REGISTER_PASS(WidenAccumulators);

}  // namespace
}  // namespace tl
