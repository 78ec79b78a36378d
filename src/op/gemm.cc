#include "gemm.h"

#include "../layout/swizzle.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "../tvm/functor.h"
#include "call_attrs.h"
#include "gemm_instruction.h"

namespace tl {

namespace {

bool IsSparse(const CallNode* call) { return IsCallTo(call, kGemmSp); }
bool IsScaled(const CallNode* call) { return IsCallTo(call, kGemmScaled); }

/*! Which argument of the call is what: A, B, C, two transposes, policy, clear_accum; with metadata
 * behind A and its transpose behind that of A; with scales behind A and B. */
struct ArgumentNumbers {
  int64_t a, metadata = -1, scales_a = -1, b, scales_b = -1, c;
  int64_t trans_a, trans_metadata = -1, trans_b, policy, clear_accum;

  explicit ArgumentNumbers(const CallNode* call) {
    const bool sparse = IsSparse(call), scaled = IsScaled(call);
    int64_t next = 0;
    a = next++;
    if (sparse) metadata = next++;
    if (scaled) scales_a = next++;
    b = next++;
    if (scaled) scales_b = next++;
    c = next++;
    trans_a = next++;
    if (sparse) trans_metadata = next++;
    trans_b = next++;
    policy = next++;
    clear_accum = next;
  }
};

GemmOp ParseArguments(const CallNode* call) {
  const ArgumentNumbers at(call);
  auto region = [&](int64_t number) { return TileRegion::From(call->args[number]); };
  auto flag = [&](int64_t number) { return ToInt(call->args[number]) != 0; };
  GemmOp op;
  op.a = region(at.a);
  op.b = region(at.b);
  op.c = region(at.c);
  if (IsSparse(call)) {
    op.metadata = region(at.metadata);
    op.trans_metadata = flag(at.trans_metadata);
  }
  if (IsScaled(call)) {
    op.scales_a = region(at.scales_a);
    op.scales_b = region(at.scales_b);
  }
  op.trans_a = flag(at.trans_a);
  op.trans_b = flag(at.trans_b);
  op.policy = static_cast<GemmWarpPolicy>(ToInt(call->args[at.policy]));
  op.clear_accum = call->args[at.clear_accum];
  return op;
}

}  // namespace

bool IsGemm(const CallNode* call) {
  return IsCallTo(call, kGemm) || IsSparse(call) || IsScaled(call);
}

GemmOp ParseGemm(const CallNode* call, const Span& span) {
  GemmOp op = ParseArguments(call);
  op.allow_tf32 = TileOpIntAttr(call, "allow_tf32", 0) != 0;
  op.trans_c = TileOpIntAttr(call, kTransposeC, 0) != 0;
  op.asynchronous = TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
  const Any packed = TileOpAttr(call, kPackedOperand);
  if (packed != nullptr) op.packed = StringToDLDataType(packed.cast<String>());
  op.span = span;
  return op;
}

Expr AccumulatorOf(const CallNode* call) { return call->args[ArgumentNumbers(call).c]; }

Call WithClearAccum(const CallNode* call, const Expr& clear_accum) {
  auto gemm = make_object<CallNode>(*call);
  gemm->args.Set(ArgumentNumbers(call).clear_accum, clear_accum);
  return Call(gemm);
}

Call WithOperands(const CallNode* call, const GemmOp& op) {
  const ArgumentNumbers at(call);
  auto gemm = make_object<CallNode>(*call);
  const auto set = [&](int64_t number, int64_t value) {
    gemm->args.Set(number, MakeInt(call->args[number]->dtype(), value));
  };
  gemm->args.Set(at.a, op.a.ToExpr());
  gemm->args.Set(at.b, op.b.ToExpr());
  gemm->args.Set(at.c, op.c.ToExpr());
  set(at.trans_a, op.trans_a);
  set(at.trans_b, op.trans_b);
  set(at.policy, static_cast<int64_t>(op.policy));
  const Call out(gemm);
  return op.trans_c ? WithTileOpAttr(out.get(), kTransposeC, MakeInt(1)) : out;
}

namespace {

/*! Row-major parts of 16 bytes, dealt to all threads: for a fragment that nobody else places. */
Fragment RowMajorPartition(const Var& buffer, int64_t num_threads) {
  const std::vector<int64_t> shape = ConstShape(buffer);
  Array<Var> vars;
  Expr flat = MakeInt(0);
  for (size_t d = 0; d < shape.size(); ++d) {
    vars.push_back(MakeVar("i" + std::to_string(d)));
    flat = flat * shape[d] + vars[d];
  }
  int64_t width = 128 / DTypeOf(buffer).bits;
  while (shape.back() % width) width /= 2;
  const Expr part = FloorDivOf(flat, width);
  return MakeFragment(vars, shape, FloorDivOf(part, num_threads) * width + FloorModOf(flat, width),
                      FloorModOf(part, num_threads), MakeVar("rep"), 1);
}

class GemmOperator : public TileOperator {
 public:
  explicit GemmOperator(const CallNode* call, GemmOp op)
      : TileOperator(op.span), call_(GetRef<Call>(call)), op_(std::move(op)) {}

  BufferUse Use() const final {
    BufferUse use{{op_.a.buffer, op_.b.buffer}, {op_.c.buffer}};
    for (const auto* more : {&op_.metadata, &op_.scales_a, &op_.scales_b}) {
      if (*more) use.reads.push_back((*more)->buffer);
    }
    if (!IsConst(op_.clear_accum, 1)) use.reads.push_back(op_.c.buffer);
    return use;
  }
  bool MayRead(const Var& buffer) const final {
    return buffer.same_as(op_.c.buffer) && !AsInt(op_.clear_accum);
  }

  void InferMmaOperandLayout(LayoutScope* scope) const final {
    const GemmPlan plan = Plan();
    PlaceSwizzle(op_.a.buffer, plan.swizzle_a, scope);
    PlaceSwizzle(op_.b.buffer, plan.swizzle_b, scope);
  }

  bool Infer(LayoutScope* scope, InferLevel level) final {
    if (level == InferLevel::kCommon) return false;
    const GemmPlan plan = Plan();
    if (level == InferLevel::kStrict) return PlaceStrict(plan, scope);
    if (level == InferLevel::kPrefer) return PlacePreferred(plan, scope);
    bool placed = false;
    for (const TileRegion* r : {&op_.a, &op_.b}) {
      if (!IsFragment(r->buffer)) continue;
      placed |= PlaceIfFree(r->buffer, RowMajorPartition(r->buffer, scope->num_threads), scope);
    }
    return placed;
  }

  void Verify(const LayoutScope& scope) const final {
    for (const TileRegion* r : {&op_.a, &op_.b}) {
      if (IsFragment(r->buffer)) VerifyOperand(op_, *r, scope.FindFragment(r->buffer));
    }
    const GemmPlan plan = Plan();
    if (!plan.UsesWgmma()) return;
    for (const WgmmaOperand& operand : {plan.SharedA(op_), plan.SharedB(op_)}) {
      const Var& buffer = operand.region.buffer;
      if (!IsShared(buffer)) continue;
      const std::string why = WhyNotWgmmaLayout(operand, scope.Find(buffer));
      if (!why.empty()) ThrowBug(span, "LayoutInference", "T.gemm by wgmma: " + why);
    }
  }

  Stmt Lower(LoweringScope* scope) const final {
    const GemmPlan plan = Plan();
    scope->Note(span, plan.Text(op_));
    if (plan.UsesWgmma()) return LowerGemmToWgmma(op_, plan, scope);
    const bool direct = plan.TakesFragments();
    std::vector<Stmt> body;
    const GemmOperand a = LowerOperand(op_, op_.a, op_.trans_a,
                                       direct ? plan.LayoutOfA(op_) : Fragment(), scope, &body);
    const GemmOperand b = LowerOperand(op_, op_.b, !op_.trans_b,
                                       direct ? plan.LayoutOfB(op_) : Fragment(), scope, &body);
    if (!IsConst(op_.clear_accum, 0)) body.push_back(Clear(scope));
    for (const MmaSteps& steps : plan.mma) {
      body.push_back(LowerGemmToMma(op_, plan, steps, a, b, scope));
    }
    if (plan.fma_begin < op_.K()) {
      body.push_back(LowerGemmToFma(op_, plan.fma_begin, a, b, scope));
    }
    return MakeSeq(body);
  }

 private:
  GemmPlan Plan() const { return PlanOf(call_.get(), span); }

  void PlaceSwizzle(const Var& buffer, int64_t bytes, LayoutScope* scope) const {
    if (!bytes) return;
    const int bits = DTypeOf(buffer).bits;
    scope->SetLayout(buffer, MakeBankSwizzle(ConstShape(buffer), bits, bytes / 16), span);
  }

  bool PlaceIfFree(const Var& buffer, const Layout& layout, LayoutScope* scope) const {
    if (scope->Find(buffer).defined()) return false;
    scope->SetLayout(buffer, layout, span);
    return true;
  }

  bool PlaceStrict(const GemmPlan& plan, LayoutScope* scope) const {
    if (!plan.UsesTensorCores()) return false;
    scope->SetLayout(op_.c.buffer, plan.LayoutOfC(op_), span);
    if (plan.UsesWgmma()) return true;
    for (const TileRegion* r : {&op_.a, &op_.b}) {
      if (IsShared(r->buffer)) {
        scope->SetLayout(r->buffer,
                         MakeSwizzledLayout(ConstShape(r->buffer), op_.StoredType().bits, true,
                                            scope->target->banks),
                         span);
      }
    }
    return true;
  }

  /*! A fragment that follows another one, such as an accumulator that was cast, is taken as it is;
   * the others get what this gemm reads best. */
  bool PlacePreferred(const GemmPlan& plan, LayoutScope* scope) const {
    bool placed = false;
    if (plan.TakesFragments()) {
      if (IsFragment(op_.a.buffer) && op_.a.IsWhole()) {
        placed |= PlaceIfFree(op_.a.buffer, plan.LayoutOfA(op_), scope);
      }
      if (!plan.UsesWgmma() && IsFragment(op_.b.buffer) && op_.b.IsWhole()) {
        placed |= PlaceIfFree(op_.b.buffer, plan.LayoutOfB(op_), scope);
      }
    }
    if (plan.UsesTensorCores()) return placed;
    placed |= PlaceIfFree(op_.c.buffer, MakeFmaLayout(op_, scope->num_threads), scope);
    // Threads of one column of the grid read rows: these must not start in the same banks.
    for (auto [r, rows_along_k] :
         {std::pair(&op_.a, !op_.trans_a), std::pair(&op_.b, op_.trans_b)}) {
      if (!IsShared(r->buffer) || !rows_along_k) continue;
      placed |= PlaceIfFree(r->buffer,
                            MakePaddedLayout(ConstShape(r->buffer), op_.OperandType().bits), scope);
    }
    return placed;
  }

  Stmt Clear(LoweringScope* scope) const {
    const Var registers = scope->RegistersOf(op_.c.buffer);
    const Expr count = BufferOf(registers)->shape[0];
    Var r = MakeVar("i");
    Stmt store = MakeStore(registers, ZeroOf(op_.AccumulatorType()), {r}, span);
    Stmt loop = IsConst(count, 1) ? Substitute(store, r, MakeInt(0))
                                  : Stmt(MakeFor(r, count, ForKind::kUnrolled, store, span));
    return scope->PlaceAccesses(MakeIf(op_.clear_accum, loop, span));
  }

  Call call_;
  GemmOp op_;
};

std::unique_ptr<TileOperator> MakeGemm(const CallNode* call, const Span& span) {
  return std::make_unique<GemmOperator>(call, ParseGemm(call, span));
}

OperatorRegistration gemm(kGemm, "tl.gemm", MakeGemm);
OperatorRegistration gemm_sp(kGemmSp, "tl.gemm_sp", MakeGemm);
OperatorRegistration gemm_blockscaled(kGemmScaled, "tl.gemm_blockscaled", MakeGemm);

}  // namespace
}  // namespace tl
