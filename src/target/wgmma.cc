#include "wgmma.h"

#include <cstdlib>
#include <vector>

#include "../tvm/registry.h"

namespace tl {
namespace {

/*! The warps of a group have 16 rows each; columns come in eights. */
constexpr int64_t kWarpRows = 16, kColumnUnit = 8;

constexpr DLDataType kF16{kDLFloat, 16, 1}, kBF16{kDLBfloat, 16, 1}, kF32{kDLFloat, 32, 1},
    kS8{kDLInt, 8, 1}, kU8{kDLUInt, 8, 1}, kS32{kDLInt, 32, 1}, kE4M3{kDLFloat8_e4m3fn, 8, 1},
    kE5M2{kDLFloat8_e5m2, 8, 1};

/*! PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma. */
const std::vector<WgmmaInstruction>& Table() {
  static const std::vector<WgmmaInstruction> table = {
      {16, kF16, kF32, "half_t", "float", true},
      {16, kF16, kF16, "half_t", "half_t", true},
      {16, kBF16, kF32, "bfloat16_t", "float", true},
      {8, kF32, kF32, "tfloat32_t", "float", false, true},
      {32, kE4M3, kF32, "fp8_e4_t", "float"},
      {32, kE4M3, kF16, "fp8_e4_t", "half_t"},
      {32, kE5M2, kF32, "fp8_e5_t", "float"},
      {32, kE5M2, kF16, "fp8_e5_t", "half_t"},
      {32, kS8, kS32, "int8_t", "int"},
      {32, kU8, kS32, "uint8_t", "int"},
      {32, kF16, kF32, "half_t", "float", true, false, true},
      {32, kF16, kF16, "half_t", "half_t", true, false, true},
      {32, kBF16, kF32, "bfloat16_t", "float", true, false, true},
      {64, kE4M3, kF32, "fp8_e4_t", "float", false, false, true},
      {64, kE5M2, kF32, "fp8_e5_t", "float", false, false, true},
      {64, kS8, kS32, "int8_t", "int", false, false, true},
      {64, kU8, kS32, "uint8_t", "int", false, false, true},
  };
  return table;
}

/*! The row of the types; a tile has one at most. */
const WgmmaInstruction* RowOf(const GemmShape& s) {
  for (const WgmmaInstruction& i : Table()) {
    if (CanonicalOperand(s.a) == i.operand && CanonicalOperand(s.b) == i.operand &&
        s.c == i.accumulator && s.sparse == i.sparse) {
      return &i;
    }
  }
  return nullptr;
}

/*! The first precondition of the chip and the tile that fails, empty if all hold. */
std::string WhyNot(const WgmmaInstruction& i, const GemmShape& s, bool k_major) {
  auto multiple = [](const char* name, int64_t value, int64_t unit) {
    return std::string(name) + " must be a multiple of " + std::to_string(unit) + ", found " +
           std::to_string(value);
  };
  if (!s.target->Has(Feature::kWgmma)) {
    return "needs " + FirstTargetWith(Feature::kWgmma) + ", found " + s.target->arch;
  }
  if (i.opt_in && !s.allow_tf32) {
    return "rounds float32 to 10 bits of mantissa; allow it with annotations={\"allow_tf32\": "
           "True}";
  }
  if (s.num_threads % kWarpGroupThreads)
    return multiple("threads", s.num_threads, kWarpGroupThreads);
  if (s.m % WgmmaInstruction::kRows) return multiple("M", s.m, WgmmaInstruction::kRows);
  if (s.n % kColumnUnit) return multiple("N", s.n, kColumnUnit);
  if (s.k % i.k) return multiple("K", s.k, i.k);
  if (!k_major && !i.any_order) {
    return "operands of " + DTypeName(i.operand) +
           " must have elements along K side by side: A not transposed, B transposed";
  }
  return "";
}

/*! Rows as a program asks for them by hand: elements along K of an instruction, types, their names
 * in the device headers, whether operands may have other orders than K-major, whether half of A is
 * stored, and the numbers of columns. */
Array<Any> WgmmaRows() {
  Array<Any> rows;
  for (const WgmmaInstruction& i : Table()) {
    Array<int64_t> columns;
    for (int64_t n = kColumnUnit; n <= WgmmaInstruction::kMaxColumns; n += kColumnUnit) {
      if (i.HasColumns(n)) columns.push_back(n);
    }
    rows.push_back(Array<Any>{i.k, String(DTypeName(i.operand)), String(DTypeName(i.accumulator)),
                              String(i.operand_name), String(i.accumulator_name), i.any_order,
                              i.sparse, columns});
  }
  return rows;
}

Registration registration([] { RegisterFunction("target.WgmmaRows", WgmmaRows); });

}  // namespace

bool WgmmaInstruction::HasColumns(int64_t n) const {
  if (n < kColumnUnit || n > kMaxColumns || n % kColumnUnit) return false;
  return !(accumulator == kS32) || n % 16 == 0 || n <= 24;
}

int64_t WgmmaInstruction::ColumnsFor(int64_t n) const {
  for (int64_t columns = kMaxColumns; columns > 0; columns -= kColumnUnit) {
    if (n % columns == 0 && HasColumns(columns)) return columns;
  }
  return 0;
}

std::string WgmmaInstruction::Text(int64_t n) const {
  return std::string(sparse ? "wgmma.sp.m64n" : "wgmma.m64n") + std::to_string(n) + "k" +
         std::to_string(k) + " (" + DTypeName(operand) + " x " + DTypeName(operand) + " -> " +
         DTypeName(accumulator) + ")";
}

const WgmmaInstruction* WgmmaNamed(const std::string& text, int64_t* n) {
  const std::string head = "m64n";
  const size_t at = text.find(head);
  if (at == std::string::npos) return nullptr;
  *n = std::atoll(text.c_str() + at + head.size());
  for (const WgmmaInstruction& i : Table()) {
    if (i.Text(*n) == text) return &i;
  }
  return nullptr;
}

std::optional<WgmmaChoice> SelectWgmma(const GemmShape& shape, bool k_major, GemmWarpPolicy policy,
                                       std::string* why) {
  const WgmmaInstruction* i = RowOf(shape);
  if (!i) {
    *why =
        "none for " + DTypeName(shape.a) + " x " + DTypeName(shape.b) + " -> " + DTypeName(shape.c);
    return std::nullopt;
  }
  *why = WhyNot(*i, shape, k_major);
  if (!why->empty()) return std::nullopt;
  const int64_t warps = shape.num_threads / shape.target->warp_threads;
  const auto split = PartitionWarps(shape.m, shape.n, warps, kWarpRows, kColumnUnit, policy, 4);
  if (!split) {
    *why = "no way to share " + std::to_string(shape.m) + "x" + std::to_string(shape.n) +
           " among " + std::to_string(warps) + " warps, a multiple of 4 of them along M";
    return std::nullopt;
  }
  return WgmmaChoice{i, *split, i->ColumnsFor(shape.n / split->n_warps)};
}

}  // namespace tl
