#include "mma.h"

#include <cmath>
#include <sstream>

namespace tl {
namespace {

constexpr DLDataType kF16{kDLFloat, 16, 1}, kBF16{kDLBfloat, 16, 1}, kF32{kDLFloat, 32, 1};

const std::vector<MmaInstruction>& Table() {
  static const std::vector<MmaInstruction> table = {
      {16, 8, 16, kF16, kF16, kF32, 80},
      {16, 8, 16, kF16, kF16, kF16, 80},
      {16, 8, 16, kBF16, kBF16, kF32, 80},
  };
  return table;
}

std::string Describe(const MmaInstruction& i) {
  std::ostringstream os;
  os << "mma.m" << i.m << "n" << i.n << "k" << i.k << " (" << DTypeName(i.a) << " x "
     << DTypeName(i.b) << " -> " << DTypeName(i.c) << ")";
  return os.str();
}

/*! The first precondition that fails, empty if all hold. */
std::string WhyNot(const MmaInstruction& i, const GemmShape& s) {
  if (s.a != i.a || s.b != i.b || s.c != i.c) {
    return "found " + DTypeName(s.a) + " x " + DTypeName(s.b) + " -> " + DTypeName(s.c);
  }
  if (s.arch < i.min_arch) {
    return "needs sm_" + std::to_string(i.min_arch) + ", found sm_" + std::to_string(s.arch);
  }
  auto multiple = [](const char* name, int64_t value, int unit) {
    return value % unit == 0 ? std::string()
                             : std::string(name) + " must be a multiple of " +
                                   std::to_string(unit) + ", found " + std::to_string(value);
  };
  std::string why = multiple("M", s.m, i.m);
  if (why.empty()) why = multiple("N", s.n, i.n);
  if (why.empty()) why = multiple("K", s.k, i.k);
  return why;
}

}  // namespace

const MmaInstruction* SelectMma(const GemmShape& shape, std::string* reasons) {
  std::string all;
  for (const MmaInstruction& i : Table()) {
    std::string why = WhyNot(i, shape);
    if (why.empty()) return &i;
    all += "\n  " + Describe(i) + ": " + why;
  }
  *reasons = all;
  return nullptr;
}

std::optional<WarpPartition> PartitionWarps(int64_t m, int64_t n, int64_t warps, int64_t m_unit,
                                            int64_t n_unit, GemmWarpPolicy policy) {
  std::optional<WarpPartition> best;
  double best_cost = 0;
  for (int64_t mw = 1; mw <= warps; ++mw) {
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
