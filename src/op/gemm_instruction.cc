#include "gemm_instruction.h"

#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "call_attrs.h"

namespace tl {
namespace {

constexpr const char* kWarps = "warps";
constexpr const char* kInterleaved = "interleaved";
constexpr const char* kArithmetic = "multiply-add";
constexpr const char* kInterleaveReads = "interleave_reads";
constexpr const char* kSwizzleBytes = "swizzle";

Array<Any> StepsAlongK(const std::string& name, int64_t begin, int64_t end) {
  return {String(name), begin, end};
}

Array<Any> RowsOf(const GemmOp& op, const GemmPlan& plan) {
  Array<Any> rows;
  if (plan.UsesWgmma()) {
    rows.push_back(StepsAlongK(plan.wgmma.instruction->Text(plan.wgmma.n), 0, op.K()));
  }
  for (const MmaSteps& s : plan.mma) {
    const int64_t end = s.begin + s.steps * s.instruction->k;
    rows.push_back(StepsAlongK(s.instruction->Text(), s.begin, end));
  }
  if (plan.fma_begin < op.K()) rows.push_back(StepsAlongK(kArithmetic, plan.fma_begin, op.K()));
  return rows;
}

/*! Adds a row to the plan; false if there is none of the name. */
bool AddRow(const std::string& name, int64_t begin, int64_t end, GemmPlan* plan) {
  plan->fma_begin = name == kArithmetic ? begin : end;
  if (name == kArithmetic) return true;
  int64_t columns = 0;
  const MatrixInstruction* row = MmaNamed(name, &columns);
  if (row && row->IsOfGroup()) {
    plan->wgmma = {row, plan->wgmma.warps, columns};
  } else if (row) {
    plan->mma.push_back({row, begin, (end - begin) / row->k});
  }
  return row != nullptr;
}

}  // namespace

Call WithInstruction(const CallNode* gemm, const GemmOp& op, const GemmPlan& plan) {
  Map<String, Any> attrs = TileOpAttrs(gemm);
  attrs.Set(kInstruction, RowsOf(op, plan));
  if (plan.UsesTensorCores()) {
    attrs.Set(kWarps, Array<int64_t>{plan.warps.m_warps, plan.warps.n_warps});
  }
  if (plan.interleaves_reads) attrs.Set(kInterleaveReads, MakeInt(1));
  if (!(plan.interleaving == Interleaving())) {
    attrs.Set(kInterleaved, Array<int64_t>{plan.interleaving.m, plan.interleaving.n});
  }
  if (plan.swizzle_a || plan.swizzle_b) {
    attrs.Set(kSwizzleBytes, Array<int64_t>{plan.swizzle_a, plan.swizzle_b});
  }
  Map<String, String> rejected;
  if (!plan.why_no_wgmma.empty()) rejected.Set("wgmma", plan.why_no_wgmma);
  if (!plan.why_fma.empty()) rejected.Set("mma", plan.why_fma);
  if (!rejected.empty()) attrs.Set(kRejected, rejected);
  return WithTileOpAttrs(gemm, attrs);
}

GemmPlan PlanOf(const CallNode* gemm, const Span& span) {
  const Map<String, Any> attrs = TileOpAttrs(gemm);
  if (!attrs.count(kInstruction)) {
    ThrowBug(span, "SelectInstructions", "a gemm without an instruction");
  }
  GemmPlan plan;
  for (const Any& entry : attrs.at(kInstruction).cast<Array<Any>>()) {
    const auto row = entry.cast<Array<Any>>();
    const std::string name = row[0].cast<String>();
    if (AddRow(name, row[1].cast<int64_t>(), row[2].cast<int64_t>(), &plan)) continue;
    ThrowBug(span, "SelectInstructions", "no instruction " + name);
  }
  if (attrs.count(kWarps)) {
    const auto warps = attrs.at(kWarps).cast<Array<int64_t>>();
    plan.warps = plan.wgmma.warps = {warps[0], warps[1]};
  }
  plan.interleaves_reads = TileOpIntAttr(gemm, kInterleaveReads, 0) != 0;
  if (attrs.count(kInterleaved)) {
    const auto counts = attrs.at(kInterleaved).cast<Array<int64_t>>();
    plan.interleaving = {counts[0], counts[1]};
  }
  if (attrs.count(kSwizzleBytes)) {
    const auto bytes = attrs.at(kSwizzleBytes).cast<Array<int64_t>>();
    plan.swizzle_a = bytes[0];
    plan.swizzle_b = bytes[1];
  }
  if (attrs.count(kRejected)) {
    for (const auto& [family, why] : attrs.at(kRejected).cast<Map<String, String>>()) {
      (family == "wgmma" ? plan.why_no_wgmma : plan.why_fma) = why;
    }
  }
  return plan;
}

}  // namespace tl
