#include "mma.h"

#include <cmath>
#include <map>

#include "../tvm/registry.h"

namespace tl {
namespace {

/*! The instructions of each kind of targets. */
std::map<std::string, std::vector<MatrixInstruction>>& Tables() {
  static auto* tables = new std::map<std::string, std::vector<MatrixInstruction>>();
  return *tables;
}

bool HasTypes(const MatrixInstruction& i, const GemmShape& s) {
  return i.sparse == s.sparse && CanonicalOperand(s.a) == i.operand &&
         CanonicalOperand(s.b) == i.operand && s.c == i.accumulator;
}

/*! The first precondition that fails, empty if all hold. */
std::string WhyNot(const MatrixInstruction& i, const GemmShape& s) {
  if (i.opt_in && !s.allow_tf32) {
    return "rounds float32 to 10 bits of mantissa; allow it with annotations={\"allow_tf32\": "
           "True}";
  }
  if (!s.target->Has(i.feature)) {
    return "needs " + FirstTargetWith(i.feature) + ", found " + s.target->arch;
  }
  if (s.num_threads < s.target->warp_threads) {
    return "needs a warp of " + std::to_string(s.target->warp_threads) + " threads, found " +
           std::to_string(s.num_threads);
  }
  auto multiple = [](const char* name, int64_t value, int unit) {
    return value % unit == 0 ? std::string()
                             : std::string(name) + " must be a multiple of " +
                                   std::to_string(unit) + ", found " + std::to_string(value);
  };
  std::string why = multiple("M", s.m, i.m);
  if (why.empty()) why = multiple("N", s.n, i.n);
  if (why.empty() && s.whole_k) why = multiple("K", s.k, i.k);
  if (why.empty() && s.k < i.k) {
    why = "K must be at least " + std::to_string(i.k) + ", found " + std::to_string(s.k);
  }
  return why;
}

}  // namespace

std::string MatrixInstruction::Text() const {
  return name + " (" + DTypeName(operand) + " x " + DTypeName(operand) + " -> " +
         DTypeName(accumulator) + ")";
}

void AddMatrixInstructions(const std::string& kind, std::vector<MatrixInstruction> rows) {
  Tables()[kind] = std::move(rows);
}

const std::vector<MatrixInstruction>& MatrixInstructionsOf(const std::string& kind) {
  return Tables()[kind];
}

const MatrixInstruction* FindMatrixInstruction(const std::string& intrinsic,
                                               const std::vector<std::string>& template_args) {
  for (const auto& [kind, rows] : Tables()) {
    for (const MatrixInstruction& row : rows) {
      if (row.intrinsic == intrinsic && row.template_args == template_args) return &row;
    }
  }
  return nullptr;
}

const MatrixInstruction* SelectMma(const GemmShape& shape, std::string* reasons) {
  std::string all;
  for (const MatrixInstruction& i : MatrixInstructionsOf(shape.target->kind)) {
    if (!HasTypes(i, shape)) continue;
    std::string why = WhyNot(i, shape);
    if (why.empty()) return &i;
    all += (all.empty() ? "" : "; ") + i.Text() + ": " + why;
  }
  *reasons = !all.empty() ? all
                          : "no instruction for " + DTypeName(shape.a) + " x " +
                                DTypeName(shape.b) + " -> " + DTypeName(shape.c);
  return nullptr;
}

DLDataType CanonicalOperand(DLDataType t) {
  if (t.code == kDLFloat8_e4m3) t.code = kDLFloat8_e4m3fn;
  return t;
}

std::optional<WarpPartition> PartitionWarps(int64_t m, int64_t n, int64_t warps, int64_t m_unit,
                                            int64_t n_unit, GemmWarpPolicy policy, int64_t m_step) {
  std::optional<WarpPartition> best;
  double best_cost = 0;
  for (int64_t mw = m_step; mw <= warps; mw += m_step) {
    const int64_t nw = warps / mw;
    if (warps % mw || m % (m_unit * mw) || n % (n_unit * nw)) continue;
    const double rows = static_cast<double>(m) / static_cast<double>(m_unit * mw);
    const double cols = static_cast<double>(n) / static_cast<double>(n_unit * nw);
    const double square = std::fabs(rows / cols - static_cast<double>(m) / static_cast<double>(n));
    const double cost = policy == GemmWarpPolicy::kFullRow   ? static_cast<double>(-mw)
                        : policy == GemmWarpPolicy::kFullCol ? static_cast<double>(mw)
                                                             : square;
    if (best && cost >= best_cost) continue;
    best = WarpPartition{mw, nw};
    best_cost = cost;
  }
  return best;
}

}  // namespace tl
