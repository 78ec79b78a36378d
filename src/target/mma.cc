#include "mma.h"

#include <cstdlib>
#include <map>
#include <set>

#include "../tvm/registry.h"

namespace tl {
namespace {

/*! Every element of a warp's fragment, as often as lanes have it: row, column, lane, register. */
Array<Array<int64_t>> ElementsOf(const Fragment& f) {
  Array<Array<int64_t>> elements;
  const int64_t columns = f->Shape()[1];
  for (size_t e = 0; e < f->Table().size(); ++e) {
    const auto at = static_cast<int64_t>(e);
    for (int64_t r = 0; r < f->replicate; ++r) {
      elements.push_back(
          {at / columns, at % columns, f->ThreadTable()[e * f->replicate + r], f->Table()[e]});
    }
  }
  return elements;
}

/*! The matrix instructions of a target, in order of preference, with their fragments. */
Array<Any> DescribeMatrixInstructions(const String& kind, const String& arch) {
  const Target& target = FindTarget(kind, arch, Span());
  Array<Any> all;
  for (const MatrixInstruction& i : MatrixInstructionsOf(target.kind)) {
    if (i.IsOfGroup() || !target.Has(i.feature)) continue;
    all.push_back(Map<String, Any>{{"name", String(i.Text())},
                                   {"shape", Array<int64_t>{i.m, i.n, i.k}},
                                   {"operand", String(DTypeName(i.operand))},
                                   {"operand_b", String(DTypeName(i.OperandB()))},
                                   {"accumulator", String(DTypeName(i.accumulator))},
                                   {"exchanges_operands", i.exchanges_operands},
                                   {"scale_k", i.scale_k},
                                   {"opt_in", i.opt_in},
                                   {"A", ElementsOf(i.a)},
                                   {"B", ElementsOf(i.b)},
                                   {"C", ElementsOf(i.c)}});
  }
  return all;
}

/*! Which types a target multiplies, by instructions of warps and of groups, in order of preference.
 */
Array<Any> DescribeMatrixTypes(const String& kind, const String& arch) {
  const Target& target = FindTarget(kind, arch, Span());
  Array<Any> all;
  for (const MatrixInstruction& i : MatrixInstructionsOf(target.kind)) {
    if (!target.Has(i.feature)) continue;
    all.push_back(Map<String, Any>{{"name", String(i.name)},
                                   {"operand", String(DTypeName(i.operand))},
                                   {"operand_b", String(DTypeName(i.OperandB()))},
                                   {"accumulator", String(DTypeName(i.accumulator))},
                                   {"sparse", i.sparse},
                                   {"scaled", i.scale_k > 0},
                                   {"opt_in", i.opt_in}});
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

Registration mma_registration([] {
  RegisterFunction("target.MatrixInstructions", DescribeMatrixInstructions);
  RegisterFunction("target.MatrixTypes", DescribeMatrixTypes);
  RegisterFunction("target.AddMatrixInstruction", AddMatrixInstruction);
});

bool HasTypes(const MatrixInstruction& i, const GemmShape& s) {
  return i.sparse == s.sparse && (i.scale_k > 0) == s.scaled &&
         CanonicalOperand(s.a) == i.operand && CanonicalOperand(s.b) == i.OperandB() &&
         s.c == i.accumulator;
}

/*! Columns of a group's instruction come in eights. */
constexpr int64_t kColumnUnit = 8;

/*! The first precondition that fails, empty if all hold. */
std::string WhyNot(const MatrixInstruction& i, const GemmShape& s, bool k_major = true) {
  const auto multiple = [](const char* name, int64_t value, int64_t unit) {
    return value % unit == 0 ? std::string()
                             : std::string(name) + " must be a multiple of " +
                                   std::to_string(unit) + ", found " + std::to_string(value);
  };
  if (i.opt_in && !s.allow_tf32) {
    return "rounds float32 to 10 bits of mantissa; allow it with annotations={\"allow_tf32\": "
           "True}";
  }
  if (!s.target->Has(i.feature)) {
    return "needs " + FirstTargetWith(i.feature) + ", found " + s.target->arch;
  }
  if (i.IsOfGroup() && s.num_threads % i.group_threads) {
    return multiple("threads", s.num_threads, i.group_threads);
  }
  if (s.num_threads < s.target->warp_threads) {
    return "needs a warp of " + std::to_string(s.target->warp_threads) + " threads, found " +
           std::to_string(s.num_threads);
  }
  if (i.shared_only && s.whole_k) return "needs operands in shared memory";
  std::string why = multiple("M", s.m, i.m);
  if (why.empty()) why = multiple("N", s.n, i.IsOfGroup() ? kColumnUnit : i.n);
  if (why.empty() && (s.whole_k || i.IsOfGroup())) why = multiple("K", s.k, i.k);
  if (why.empty() && s.k < i.k) {
    why = "K must be at least " + std::to_string(i.k) + ", found " + std::to_string(s.k);
  }
  if (why.empty() && i.IsOfGroup() && !k_major && !i.any_order) {
    why = "operands of " + DTypeName(i.operand) +
          " must have elements along K side by side: A not transposed, B transposed";
  }
  return why;
}

}  // namespace

bool MatrixInstruction::HasColumns(int64_t columns) const {
  if (columns < kColumnUnit || columns > n || columns % kColumnUnit) return false;
  return accumulator.code != kDLInt || columns % 16 == 0 || columns <= 24;
}

int64_t MatrixInstruction::ColumnsFor(int64_t columns) const {
  for (int64_t most = n; most > 0; most -= kColumnUnit) {
    if (columns % most == 0 && HasColumns(most)) return most;
  }
  return 0;
}

std::string MatrixInstruction::Text(int64_t columns) const {
  const std::string shape =
      "m" + std::to_string(m) + "n" + std::to_string(columns) + "k" + std::to_string(k);
  return name + (IsOfGroup() ? shape : "") + " (" + DTypeName(operand) + " x " +
         DTypeName(OperandB()) + " -> " + DTypeName(accumulator) + ")";
}

void AddMatrixInstructions(const std::string& kind, std::vector<MatrixInstruction> rows) {
  // A plan has an instruction by its text (`MmaNamed`).
  std::set<std::string> texts;
  for (const MatrixInstruction& row : rows) {
    TVM_FFI_ICHECK(row.IsOfGroup() || texts.insert(row.Text(0)).second)
        << kind << " has two rows " << row.Text(0);
  }
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

const MatrixInstruction* MmaNamed(const std::string& text, int64_t* columns) {
  const size_t at = text.find('n', text.find(".m"));
  *columns = at == std::string::npos ? 0 : std::atoll(text.c_str() + at + 1);
  for (const auto& [kind, rows] : Tables()) {
    for (const MatrixInstruction& row : rows) {
      if (row.Text(*columns) == text) return &row;
    }
  }
  return nullptr;
}

const MatrixInstruction* SelectMma(const GemmShape& shape, std::string* reasons) {
  std::string all;
  const MatrixInstruction* first = nullptr;
  const int64_t warps = shape.num_threads / shape.target->warp_threads;
  for (const MatrixInstruction& i : MatrixInstructionsOf(shape.target->kind)) {
    if (i.IsOfGroup() || !HasTypes(i, shape)) continue;
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

std::optional<GroupChoice> SelectGroupMma(const GemmShape& shape, bool k_major,
                                          GemmWarpPolicy policy, std::string* why) {
  const MatrixInstruction* i = nullptr;  // of another kind: its feature says whose
  for (const auto& [kind, rows] : Tables()) {
    for (const MatrixInstruction& row : rows) {
      const bool fits = row.IsOfGroup() && HasTypes(row, shape);
      if (fits && (!i || kind == shape.target->kind)) i = &row;
    }
  }
  if (!i) {
    *why =
        "none for " + DTypeName(shape.a) + " x " + DTypeName(shape.b) + " -> " + DTypeName(shape.c);
    return std::nullopt;
  }
  *why = WhyNot(*i, shape, k_major);
  if (!why->empty()) return std::nullopt;
  const int64_t warp = shape.target->warp_threads, warps = shape.num_threads / warp;
  const int64_t of_group = i->group_threads / warp;
  const auto split =
      PartitionWarps(shape.m, shape.n, warps, i->m / of_group, kColumnUnit, policy, of_group);
  if (!split) {
    *why = "no way to share " + std::to_string(shape.m) + "x" + std::to_string(shape.n) +
           " among " + std::to_string(warps) + " warps, a multiple of " + std::to_string(of_group) +
           " of them along M";
    return std::nullopt;
  }
  return GroupChoice{i, *split, i->ColumnsFor(shape.n / split->n_warps)};
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
