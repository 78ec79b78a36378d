/*! How a T.gemm is computed, from its operands, the number of threads and the chip alone. */
#include "../layout/mma_fragment.h"
#include "../target/mma.h"
#include "../target/registers.h"
#include "../tvm/analyzer.h"
#include "../tvm/error.h"
#include "../tvm/registry.h"
#include "gemm.h"

namespace tl {
namespace {

void CheckOperand(const GemmOp& op, const char* name, const TileRegion& r, bool right_place,
                  const char* wanted) {
  if (right_place) return;
  ThrowAt(op.span, "ValueError",
          op.Name() + std::string(": found ") + name + " = " + std::string(r.buffer->name) +
              " in scope " + ScopeOf(r.buffer) + ", wanted " + wanted);
}

bool IsInteger(DLDataType t) { return t.code == kDLInt || t.code == kDLUInt; }

/*! 8-bit floats of OCP, and those of CDNA3: of each, one instruction multiplies any two. */
bool IsOcpFloat8(DLDataType t) {
  return t.code == kDLFloat8_e4m3fn || t.code == kDLFloat8_e4m3 || t.code == kDLFloat8_e5m2;
}
bool IsFnuzFloat8(DLDataType t) {
  return t.code == kDLFloat8_e4m3fnuz || t.code == kDLFloat8_e5m2fnuz;
}

/*! Types that multiply and add, the accumulator no integer under floats. */
void CheckTypes(const GemmOp& op) {
  const DLDataType a = op.OperandType(), b = op.OtherType(), c = op.AccumulatorType();
  auto is_number = [&](DLDataType t) {
    if (t.code == kDLFloat4_e2m1fn || op.packed) return op.IsScaled();
    const bool is_float = t.code == kDLFloat || t.code == kDLBfloat || t.code == kDLFloat8_e4m3 ||
                          t.code == kDLFloat8_e4m3fn || t.code == kDLFloat8_e5m2 ||
                          t.code == kDLFloat8_e4m3fnuz || t.code == kDLFloat8_e5m2fnuz;
    return t.lanes == 1 && (is_float || IsInteger(t));
  };
  const bool alike =
      a == b || (IsOcpFloat8(a) && IsOcpFloat8(b)) || (IsFnuzFloat8(a) && IsFnuzFloat8(b));
  if (alike && is_number(a) && is_number(b) && is_number(c) && (IsInteger(a) || !IsInteger(c)))
    return;
  ThrowAt(op.span, "ValueError",
          op.Name() + std::string(": found ") + DTypeName(a) + " x " + DTypeName(b) + " -> " +
              DTypeName(c) +
              ", wanted floats of 8 bits and more or integers, and an accumulator that holds "
              "their sums; cast the operands while copying them");
}

void CheckOperands(const GemmOp& op) {
  const char* place = "shared memory or a fragment; copy it there with T.copy";
  auto is_operand = [](const Var& v) { return IsShared(v) || IsFragment(v); };
  CheckOperand(op, "A", op.a, is_operand(op.a.buffer), place);
  CheckOperand(op, "B", op.b, is_operand(op.b.buffer), place);
  CheckOperand(op, "C", op.c, IsFragment(op.c.buffer), "a fragment; make it with T.alloc_fragment");
  if (!op.c.IsWhole()) {
    ThrowAt(op.span, "ValueError",
            op.Name() + std::string(": found C a slice of ") + std::string(op.c.buffer->name) +
                ", wanted the whole fragment; allocate one of the slice's shape");
  }
  CheckTypes(op);
  const std::pair<const char*, const std::optional<TileRegion>*> others[] = {
      {"E", &op.metadata}, {"SFA", &op.scales_a}, {"SFB", &op.scales_b}};
  for (const auto& [name, region] : others) {
    if (!*region) continue;
    CheckOperand(op, name, **region, IsShared((*region)->buffer),
                 "shared memory; copy it there with T.copy");
  }
}

/*! Are tensor cores the only ones that multiply these operands? */
bool MustBeWhole(const GemmOp& op) {
  return op.IsSparse() || op.IsScaled() || op.OperandType().bits < 8;
}

[[noreturn]] void RefuseShape(const GemmOp& op, const std::string& why) {
  ThrowAt(op.span, "ValueError",
          op.Name() + std::string(": found a tile of ") + std::to_string(op.M()) + "x" +
              std::to_string(op.N()) + "x" + std::to_string(op.K()) +
              " that no tensor core multiplies (" + why + "); change it, or " +
              (op.IsScaled()   ? "use T.gemm on operands that are multiplied by their scales while "
                                 "they are copied"
               : op.IsSparse() ? "use T.gemm with the zeros stored"
                               : "cast the operands to int8 while copying them"));
}

/*! The 8-bit float with as many bits of exponent and mantissa, of the other family. */
std::optional<DLDataType> OtherFamily(DLDataType t) {
  static const std::pair<int, int> pairs[] = {{kDLFloat8_e4m3fn, kDLFloat8_e4m3fnuz},
                                              {kDLFloat8_e5m2, kDLFloat8_e5m2fnuz}};
  for (const auto& [ocp, fnuz] : pairs) {
    if (t.code == ocp) return DLDataType{static_cast<uint8_t>(fnuz), 8, 1};
    if (t.code == fnuz) return DLDataType{static_cast<uint8_t>(ocp), 8, 1};
  }
  return std::nullopt;
}

/*! Refuses 8-bit floats that another chip of the kind multiplies, and of which this one multiplies
 * the other family: each would be converted by several instructions of ordinary arithmetic. */
void CheckFamily(const GemmOp& op, const Target& target) {
  const DLDataType found = CanonicalOperand(op.OperandType());
  const std::optional<DLDataType> other = OtherFamily(found);
  if (!other || op.IsScaled()) return;
  bool exists = false, has_found = false, has_other = false;
  for (const MatrixInstruction& i : MatrixInstructionsOf(target.kind)) {
    exists |= i.operand == found;
    if (!target.Has(i.feature)) continue;
    has_found |= i.operand == found;
    has_other |= i.operand == *other;
  }
  if (!exists || has_found || !has_other) return;
  ThrowAt(op.span, "ValueError",
          op.Name() + std::string(": found operands of ") + DTypeName(found) +
              ", which no matrix instruction of " + target.arch + " multiplies, wanted " +
              DTypeName(*other) + "; allocate the tiles with it, so that copies cast to it");
}

/*! Bits of a vector of rows or columns that different MMAs take. Elements of less than a register
 * have to be put together along K from several vectors, which takes too many registers for longer
 * ones. */
constexpr int MostBits(int element_bits) { return element_bits < 32 ? 64 : 128; }

/*! Has the target instructions that read an operand of such elements which is not K-major? */
bool ReadsMatrices(const Target& target, int bits) {
  for (const CopyInstruction& row : target.copies) {
    if (row.from != MemorySpace::kShared || row.to != MemorySpace::kRegisters) continue;
    if (!target.Has(row.feature)) continue;
    for (const LaneMatrix& m : row.matrices) {
      if (m.bits == bits) return true;
    }
  }
  return false;
}

/*! As many warps as can share the tile; an instruction's unit divides it, so one can. */
WarpPartition MostWarps(const GemmOp& op, int64_t warps, const MatrixInstruction& i) {
  for (; warps > 1; --warps) {
    auto split = PartitionWarps(op.M(), op.N(), warps, i.m, i.n, op.policy);
    if (split) return *split;
  }
  return {1, 1};
}

/*! A layout of a matrix for a buffer of more dimensions, the leading ones of extent 1. */
Fragment WithLeadingDims(const Fragment& f, const Var& buffer) {
  Array<Var> vars;
  std::vector<int64_t> shape = ConstShape(buffer);
  for (size_t d = 0; d + 2 < shape.size(); ++d) vars.push_back(MakeVar("s" + std::to_string(d)));
  if (vars.empty()) return f;
  for (const Var& v : f->vars) vars.push_back(v);
  return MakeFragment(vars, shape, f->index[0], f->thread, f->replica, f->replicate);
}

[[noreturn]] void RefuseAsynchronous(const GemmOp& op, const std::string& why) {
  ThrowAt(op.span, "ValueError",
          op.Name() + std::string(": found a product of ") + std::to_string(op.M()) + "x" +
              std::to_string(op.N()) + "x" + std::to_string(op.K()) + " that is no wgmma: " + why +
              "; change it, or use " +
              (op.IsSparse() ? "T.gemm_sp, which is mma.sp" : "T.gemm, which takes any"));
}

/*! Reads an operand by descriptors; why it cannot, empty if it can. */
std::string WhyNotDescriptors(const WgmmaOperand& operand, const Layout& layout) {
  std::string why;
  WgmmaLayout(operand, &why);
  return why.empty() && layout.defined() ? WhyNotWgmmaLayout(operand, layout) : why;
}

/*!
 * How warp groups share the tile. Square splits its columns, unless the tile is twice as high as
 * wide. A wgmma of 64 rows reads A and B from shared memory. Of a tile of 128 x 128, two warp
 * groups with 64 x 128 each issue one wgmma each, which reads 64 rows of A and 128 columns of B.
 * With 128 x 64 each they issue two, which read 64 rows and 64 columns: 512 in all, not 384. So
 * rows are shared: 4096^3 by tiles of 128 x 192 takes 240 us for 269, by 256 x 128 and four groups
 * 231 for 287 (H200). A wide wgmma takes more of the registers that a thread begins with. Where
 * these would keep a second block away, Square stays: 233 us for 295 (128 x 128, three stages).
 */
GemmWarpPolicy PolicyOfGroups(const GemmOp& op, const GemmContext& context) {
  if (op.policy != GemmWarpPolicy::kSquare || !IsShared(op.a.buffer)) return op.policy;
  const int64_t threads = context.num_threads + kWarpGroupThreads;
  const int64_t all = RegistersAtStart(threads, 2);
  const bool fits_twice =
      MostRegistersBeside(kWarpGroupThreads * kLeastRegisters, context.num_threads, all) >=
      context.fragment_registers + kFewOtherRegisters;
  const int64_t columns = std::min<int64_t>(op.N(), 256);
  const int64_t wanted = columns * op.AccumulatorType().bits / 64 + kBesideAccumulators;
  return fits_twice && all / threads < wanted ? op.policy : GemmWarpPolicy::kFullRow;
}

/*! Chooses the instruction of warp groups; returns why there is none, empty if there is one. */
std::string ChooseWgmma(const GemmOp& op, const GemmShape& want, const GemmContext& context,
                        GemmPlan* plan) {
  if (PassConfigFlag("tl.disable_wgmma", false)) return "tl.disable_wgmma is set";
  if (context.first_thread % kWarpGroupThreads) {
    return "the threads begin with " + std::to_string(context.first_thread) +
           ", inside of a warp group of " + std::to_string(kWarpGroupThreads);
  }
  std::string why;
  const bool shared_a = IsShared(op.a.buffer);
  if (op.IsSparse() && !op.asynchronous) return "T.wgmma_gemm_sp asks for it";
  if (op.IsSparse() && !shared_a) return "A is not in shared memory";
  if (op.IsSparse() && op.trans_a) return "A must have elements along K side by side";
  const bool k_major = (!shared_a || !op.trans_a) && op.trans_b;
  std::optional<GroupChoice> choice =
      SelectGroupMma(want, k_major, PolicyOfGroups(op, context), &why);
  if (!choice) return why;
  if (!IsShared(op.b.buffer)) return "B is not in shared memory";
  if (context.views) return "an operand is a view with elements of another width";
  plan->wgmma = *choice;
  plan->warps = choice->warps;
  plan->fma_begin = op.K();
  if (shared_a) why = WhyNotDescriptors(plan->SharedA(op), context.a);
  if (why.empty()) why = WhyNotDescriptors(plan->SharedB(op), context.b);
  if (why.empty()) why = context.no_common_layout;
  if (!why.empty()) *plan = GemmPlan();
  return why;
}

}  // namespace

WgmmaOperand GemmPlan::SharedA(const GemmOp& op) const {
  return {op.a, !op.trans_a, wgmma.instruction->m, wgmma.instruction->StoredK()};
}

WgmmaOperand GemmPlan::SharedB(const GemmOp& op) const {
  return {op.b, op.trans_b, wgmma.n, wgmma.instruction->k};
}

Fragment GemmPlan::LayoutOfA(const GemmOp& op) const {
  if (UsesWgmma()) {
    return WithLeadingDims(MakeWgmmaFragmentA(op.M(), op.K(), warps.m_warps, warps.n_warps,
                                              wgmma.instruction->PerRegister(), op.trans_a),
                           op.a.buffer);
  }
  const int64_t k = mma[0].instruction->StoredOf(op.IsSparse() ? op.K() / 2 : op.K());
  const OperandTile tile{op.M(), k, warps.m_warps, warps.n_warps, true};
  return WithLeadingDims(MakeGemmFragmentOperand(mma[0].instruction->a, tile, op.trans_a),
                         op.a.buffer);
}

Fragment GemmPlan::LayoutOfB(const GemmOp& op) const {
  const int64_t k = mma[0].instruction->StoredOf(op.K());
  const OperandTile tile{op.N(), k, warps.n_warps, warps.m_warps, false};
  return WithLeadingDims(MakeGemmFragmentOperand(mma[0].instruction->b, tile, !op.trans_b),
                         op.b.buffer);
}

Fragment GemmPlan::LayoutOfC(const GemmOp& op) const {
  const auto placed = [&](const Fragment& c) {
    return WithLeadingDims(op.trans_c ? TransposeFragment(c) : c, op.c.buffer);
  };
  if (UsesWgmma()) {
    return placed(MakeWgmmaFragmentC(op.M(), op.N(), warps.m_warps, warps.n_warps));
  }
  const MatrixInstruction& i = *mma[0].instruction;
  Fragment c = MakeGemmFragmentC(i.c, op.M(), op.N(), warps.m_warps, warps.n_warps);
  c = InterleaveUnits(c, 0, i.m, warps.m_warps, interleaving.m);
  c = InterleaveUnits(c, 1, i.n, warps.n_warps, interleaving.n);
  return placed(c);
}

Interleaving InterleavingOf(const GemmOp& op, const GemmPlan& plan, const Target& target) {
  Interleaving wanted;
  if (!plan.UsesMma() || op.IsSparse() || op.IsScaled()) return wanted;
  const MatrixInstruction& i = *plan.mma[0].instruction;
  const int bits = i.operand.bits;
  if (i.has_ldmatrix || bits < 8 || ReadsMatrices(target, bits)) return wanted;
  const auto count = [&](int64_t tiles) {
    int64_t most = 1;
    while (tiles % (2 * most) == 0 && 2 * most * bits <= MostBits(bits)) most *= 2;
    return most;
  };
  if (IsShared(op.a.buffer) && op.trans_a) wanted.m = count(op.M() / (i.m * plan.warps.m_warps));
  if (IsShared(op.b.buffer) && !op.trans_b) wanted.n = count(op.N() / (i.n * plan.warps.n_warps));
  return wanted;
}

std::string GemmPlan::Text(const GemmOp& op) const {
  const char* name = op.IsScaled()   ? "T.gemm_blockscaled "
                     : op.IsSparse() ? "T.gemm_sp "
                                     : "T.gemm ";
  std::string text = name + std::to_string(op.M()) + "x" + std::to_string(op.N()) + "x" +
                     std::to_string(op.K()) + (op.trans_c ? ", turned: " : ": ");
  if (UsesWgmma()) {
    text += std::to_string(op.K() / wgmma.instruction->k) + " x " +
            wgmma.instruction->Text(wgmma.n) + " along K, ";
  }
  for (const MmaSteps& s : mma) {
    text += std::to_string(s.steps) + " x " + s.instruction->Text() + " along K, ";
  }
  if (UsesTensorCores()) {
    text += std::to_string(warps.m_warps) + "x" + std::to_string(warps.n_warps) + " warps";
  }
  if (fma_begin != op.K()) {
    text += (UsesMma() ? ", " : "") + ("multiply-add from K=" + std::to_string(fma_begin)) +
            " on (" + why_fma + ")";
  }
  return why_no_wgmma.empty() ? text : text + "; no wgmma: " + why_no_wgmma;
}

GemmPlan PlanGemm(const GemmOp& op, const GemmContext& context) {
  CheckOperands(op);
  CheckFamily(op, *context.target);
  GemmPlan plan;
  GemmShape want{
      op.M(),         op.N(),
      op.K(),         op.OperandType(),
      op.OtherType(), op.AccumulatorType(),
      context.target, context.num_threads,
      op.allow_tf32,  IsFragment(op.a.buffer) || IsFragment(op.b.buffer) || MustBeWhole(op),
      op.IsSparse(),  op.IsScaled()};
  plan.why_no_wgmma = ChooseWgmma(op, want, context, &plan);
  if (plan.UsesWgmma()) return plan;
  if (op.asynchronous) RefuseAsynchronous(op, plan.why_no_wgmma);
  // Targets without the instruction need no explanation.
  if (!context.target->ChipHas(Feature::kWgmma)) plan.why_no_wgmma.clear();
  const MatrixInstruction* first = SelectMma(want, &plan.why_fma);
  if (!first && MustBeWhole(op)) RefuseShape(op, plan.why_fma);
  want.whole_k = false;
  if (!first) first = SelectMma(want, &plan.why_fma);
  for (const MatrixInstruction* i = first; i; i = SelectMma(want, &plan.why_fma)) {
    // What is left of K is for a smaller instruction on the same accumulators.
    if (i->m != first->m || i->n != first->n) break;
    plan.mma.push_back({i, plan.fma_begin, want.k / i->k});
    plan.fma_begin += want.k / i->k * i->k;
    want.k = op.K() - plan.fma_begin;
    if (want.k == 0) break;
  }
  if (plan.fma_begin == op.K()) plan.why_fma.clear();
  if (first) plan.warps = MostWarps(op, context.num_threads / context.target->warp_threads, *first);
  return plan;
}

}  // namespace tl
