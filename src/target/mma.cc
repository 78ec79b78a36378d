#include "mma.h"

#include <cmath>
#include <sstream>

#include "../tvm/registry.h"

namespace tl {
namespace {

constexpr DLDataType kF16{kDLFloat, 16, 1}, kBF16{kDLBfloat, 16, 1}, kF32{kDLFloat, 32, 1},
    kF64{kDLFloat, 64, 1}, kS8{kDLInt, 8, 1}, kU8{kDLUInt, 8, 1}, kS32{kDLInt, 32, 1},
    kE4M3{kDLFloat8_e4m3fn, 8, 1}, kE5M2{kDLFloat8_e5m2, 8, 1}, kS4{kDLInt, 4, 1},
    kU4{kDLUInt, 4, 1};

constexpr Feature kSm75 = Feature::kMmaSm75, kSm80 = Feature::kMmaSm80, kSm89 = Feature::kMmaSm89;

/*! In order of preference. PTX ISA, "Target ISA Notes" of mma and mma.sp: m16n8k8 and m8n8k16 need
 * sm_75, the 8-bit floats sm_89, the others sm_80. From sm_90 on ptxas makes those of 4 bits of two
 * of 8 bits and some hundred instructions that unpack. */
const std::vector<MmaInstruction>& Table() {
  static const std::vector<MmaInstruction> table = {
      {16, 8, 16, kF16, kF32, kSm80, "half_t", "float"},
      {16, 8, 8, kF16, kF32, kSm75, "half_t", "float"},
      {16, 8, 16, kF16, kF16, kSm80, "half_t", "half_t"},
      {16, 8, 8, kF16, kF16, kSm75, "half_t", "half_t"},
      {16, 8, 16, kBF16, kF32, kSm80, "bfloat16_t", "float"},
      {16, 8, 8, kBF16, kF32, kSm80, "bfloat16_t", "float"},
      {16, 8, 8, kF32, kF32, kSm80, "tfloat32_t", "float", true},
      {16, 8, 4, kF32, kF32, kSm80, "tfloat32_t", "float", true},
      {8, 8, 4, kF64, kF64, kSm80, "double", "double"},
      {16, 8, 32, kS8, kS32, kSm80, "int8_t", "int"},
      {16, 8, 16, kS8, kS32, kSm80, "int8_t", "int"},
      {8, 8, 16, kS8, kS32, kSm75, "int8_t", "int"},
      {16, 8, 32, kU8, kS32, kSm80, "uint8_t", "int"},
      {16, 8, 16, kU8, kS32, kSm80, "uint8_t", "int"},
      {8, 8, 16, kU8, kS32, kSm75, "uint8_t", "int"},
      {16, 8, 32, kE4M3, kF32, kSm89, "fp8_e4_t", "float"},
      {16, 8, 32, kE5M2, kF32, kSm89, "fp8_e5_t", "float"},
      {16, 8, 64, kS4, kS32, kSm80, "int4b_t", "int"},
      {16, 8, 64, kU4, kS32, kSm80, "uint4b_t", "int"},
      {16, 8, 32, kF16, kF32, kSm80, "half_t", "float", false, true},
      {16, 8, 32, kF16, kF16, kSm80, "half_t", "half_t", false, true},
      {16, 8, 32, kBF16, kF32, kSm80, "bfloat16_t", "float", false, true},
      {16, 8, 16, kF32, kF32, kSm80, "tfloat32_t", "float", true, true},
      {16, 8, 64, kS8, kS32, kSm80, "int8_t", "int", false, true},
      {16, 8, 64, kU8, kS32, kSm80, "uint8_t", "int", false, true},
      {16, 8, 64, kE4M3, kF32, kSm89, "fp8_e4_t", "float", false, true},
      {16, 8, 64, kE5M2, kF32, kSm89, "fp8_e5_t", "float", false, true},
  };
  return table;
}

bool HasTypes(const MmaInstruction& i, const GemmShape& s) {
  return i.sparse == s.sparse && CanonicalOperand(s.a) == i.operand &&
         CanonicalOperand(s.b) == i.operand && s.c == i.accumulator;
}

/*! The first precondition that fails, empty if all hold. */
std::string WhyNot(const MmaInstruction& i, const GemmShape& s) {
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

/*! Rows as a program asks for them by hand: "m16n8k16", whether A is sparse, types, their names in
 * the device headers, and elements of A, B and C that a lane holds. */
Array<Any> MmaRows() {
  Array<Any> rows;
  for (const MmaInstruction& i : Table()) {
    const std::string shape =
        "m" + std::to_string(i.m) + "n" + std::to_string(i.n) + "k" + std::to_string(i.k);
    rows.push_back(Array<Any>{String(shape), i.sparse, String(DTypeName(i.operand)),
                              String(DTypeName(i.accumulator)), String(i.operand_name),
                              String(i.accumulator_name), i.ElementsA(), i.ElementsB(),
                              i.ElementsC()});
  }
  return rows;
}

Registration registration([] { RegisterFunction("target.MmaRows", MmaRows); });

}  // namespace

std::string MmaInstruction::Text() const {
  std::ostringstream os;
  os << (sparse ? "mma.sp.m" : "mma.m") << m << "n" << n << "k" << k << " (" << DTypeName(operand)
     << " x " << DTypeName(operand) << " -> " << DTypeName(accumulator) << ")";
  return os.str();
}

const MmaInstruction* FindMma(int64_t m, int64_t n, int64_t k, const std::string& operand,
                              const std::string& accumulator, bool sparse) {
  for (const MmaInstruction& i : Table()) {
    if (i.m == m && i.n == n && i.k == k && i.sparse == sparse && i.operand_name == operand &&
        i.accumulator_name == accumulator) {
      return &i;
    }
  }
  return nullptr;
}

const MmaInstruction* MmaNamed(const std::string& text) {
  for (const MmaInstruction& i : Table()) {
    if (i.Text() == text) return &i;
  }
  return nullptr;
}

const MmaInstruction* SelectMma(const GemmShape& shape, std::string* reasons) {
  std::string all;
  for (const MmaInstruction& i : Table()) {
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
