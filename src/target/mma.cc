#include "mma.h"

#include <cmath>
#include <map>

#include "../tvm/registry.h"

namespace tl {
namespace {

/*! Every element of a warp's fragment: row, column, lane, register. */
Array<Array<int64_t>> ElementsOf(const Fragment& f) {
  Array<Array<int64_t>> elements;
  const int64_t columns = f->Shape()[1];
  for (size_t e = 0; e < f->Table().size(); ++e) {
    const auto at = static_cast<int64_t>(e);
    elements.push_back({at / columns, at % columns, f->ThreadTable()[e], f->Table()[e]});
  }
  return elements;
}

/*! The matrix instructions of a target, in order of preference, with their fragments. */
Array<Any> DescribeMatrixInstructions(const String& kind, const String& arch) {
  const Target& target = FindTarget(kind, arch, Span());
  Array<Any> all;
  for (const MatrixInstruction& i : MatrixInstructionsOf(target.kind)) {
    if (!target.Has(i.feature)) continue;
    all.push_back(Map<String, Any>{{"name", String(i.Text())},
                                   {"shape", Array<int64_t>{i.m, i.n, i.k}},
                                   {"operand", String(DTypeName(i.operand))},
                                   {"accumulator", String(DTypeName(i.accumulator))},
                                   {"exchanges_operands", i.exchanges_operands},
                                   {"A", ElementsOf(i.a)},
                                   {"B", ElementsOf(i.b)},
                                   {"C", ElementsOf(i.c)}});
  }
  return all;
}

/*! The instructions of each kind of targets. */
std::map<std::string, std::vector<MatrixInstruction>>& Tables() {
  static auto* tables = new std::map<std::string, std::vector<MatrixInstruction>>();
  return *tables;
}

/*! A fragment from the digits of lane and register, each (coordinate, extent, divisor). */
Fragment FragmentFrom(const Array<Array<Array<int64_t>>>& digits) {
  std::vector<WarpDigit> parts[2];
  for (size_t side = 0; side < 2; ++side) {
    for (const Array<int64_t>& d : digits[side]) {
      parts[side].push_back({static_cast<size_t>(d[0]), d[1], d[2]});
    }
  }
  return MakeWarpFragment(parts[0], parts[1]);
}

/*! Adds an instruction that every target of the kind has. */
void AddMatrixInstruction(const String& kind, const String& name, const Array<int64_t>& shape,
                          DLDataType operand, DLDataType accumulator,
                          const Array<Array<Array<Array<int64_t>>>>& fragments,
                          const String& intrinsic, const Array<String>& template_args) {
  MatrixInstruction i;
  i.m = static_cast<int>(shape[0]);
  i.n = static_cast<int>(shape[1]);
  i.k = static_cast<int>(shape[2]);
  i.operand = operand;
  i.accumulator = accumulator;
  i.feature = Feature::kNone;
  i.a = FragmentFrom(fragments[0]);
  i.b = FragmentFrom(fragments[1]);
  i.c = FragmentFrom(fragments[2]);
  i.name = std::string(name);
  i.intrinsic = std::string(intrinsic);
  for (const String& arg : template_args) i.template_args.push_back(std::string(arg));
  Tables()[std::string(kind)].push_back(i);
}

Registration registration([] {
  RegisterFunction("target.MatrixInstructions", DescribeMatrixInstructions);
  RegisterFunction("target.AddMatrixInstruction", AddMatrixInstruction);
});

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
  if (i.shared_only && s.whole_k) return "needs operands in shared memory";
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

const MatrixInstruction* MmaNamed(const std::string& text) {
  for (const auto& [kind, rows] : Tables()) {
    for (const MatrixInstruction& row : rows) {
      if (row.Text() == text) return &row;
    }
  }
  return nullptr;
}

const MatrixInstruction* SelectMma(const GemmShape& shape, std::string* reasons) {
  std::string all;
  const MatrixInstruction* first = nullptr;
  const int64_t warps = shape.num_threads / shape.target->warp_threads;
  for (const MatrixInstruction& i : MatrixInstructionsOf(shape.target->kind)) {
    if (!HasTypes(i, shape)) continue;
    std::string why = WhyNot(i, shape);
    if (why.empty()) {
      if (!first) first = &i;
      // One of a smaller tile may keep more warps busy.
      const auto policy = GemmWarpPolicy::kSquare;
      if (i.k >= first->k && PartitionWarps(shape.m, shape.n, warps, i.m, i.n, policy)) return &i;
    }
    all += (all.empty() ? "" : "; ") + i.Text() + ": " + why;
  }
  if (first) return first;
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
