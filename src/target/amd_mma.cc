/*! MFMA (AMD's instruction set guides of CDNA 2, CDNA 3 and CDNA 4, "Matrix instructions"; AMD
 * matrix instruction calculator) and WMMA (RDNA3 ISA, "Wave Matrix Multiply Accumulate"). */
#include <algorithm>

#include "../tvm/registry.h"
#include "intrinsic_names.h"
#include "mma.h"

namespace tl {
namespace {

constexpr DLDataType kF16{kDLFloat, 16, 1}, kBF16{kDLBfloat, 16, 1}, kF32{kDLFloat, 32, 1},
    kF64{kDLFloat, 64, 1}, kS8{kDLInt, 8, 1}, kU8{kDLUInt, 8, 1}, kS32{kDLInt, 32, 1},
    kE4M3{kDLFloat8_e4m3fn, 8, 1}, kE5M2{kDLFloat8_e5m2, 8, 1}, kE4M3Fnuz{kDLFloat8_e4m3fnuz, 8, 1},
    kE5M2Fnuz{kDLFloat8_e5m2fnuz, 8, 1}, kE2M1{kDLFloat4_e2m1fn, 4, 1},
    kE2M3{kDLFloat6_e2m3fn, 6, 1}, kE3M2{kDLFloat6_e3m2fn, 6, 1};

constexpr int kLanes = 64;

/*! How many elements along K of an operand of mfma_scale share a scale (CDNA4 ISA,
 * V_MFMA_SCALE_F32_16X16X128_F8F6F4). */
constexpr int kScaleK = 32;

/*! A or B of `rows` by k: lane l has row l % rows, and of k pieces of up to `piece_bits`, the first
 * of all lanes in front of the second. */
Fragment Operand(int rows, int k, int bits, int piece_bits = 128) {
  const int of_lane = rows * k / kLanes, piece = std::min(of_lane, piece_bits / bits);
  const int lanes = kLanes / rows;
  return MakeWarpFragment({{0, rows, 1}, {1, lanes, piece}},
                          {{1, piece, 1}, {1, of_lane / piece, piece * lanes}});
}

/*!
 * C of the transposed MMA. The instruction has column l % m in lane l, and there rows in fours:
 * with A and B exchanged lane l has row l % m, and columns in fours, side by side in memory. A row
 * of it then is where the A of a following MFMA of 16-bit floats has it. float64 has rows one by
 * one.
 */
Fragment Accumulator(int m, DLDataType type) {
  if (type.bits == 64) return MakeWarpFragment({{0, m, 1}, {1, 4, 1}}, {{1, 4, 4}});
  const int lanes = kLanes / m;
  return MakeWarpFragment({{0, m, 1}, {1, lanes, 4}}, {{1, 4, 1}, {1, m / (4 * lanes), 4 * lanes}});
}

MatrixInstruction Mfma(int m, int k, DLDataType operand, DLDataType accumulator, Feature feature,
                       const char* operand_name, const char* accumulator_name) {
  const std::string rows = std::to_string(m), depth = std::to_string(k);
  MatrixInstruction i{m,
                      m,
                      k,
                      operand,
                      accumulator,
                      feature,
                      operand_name,
                      accumulator_name,
                      Operand(m, k, operand.bits),
                      Operand(m, k, operand.bits),
                      Accumulator(m, accumulator),
                      "mfma." + rows + "x" + rows + "x" + depth,
                      kMfma,
                      {rows, rows, depth, operand_name, accumulator_name}};
  i.exchanges_operands = true;
  return i;
}

/*! The same of two types of 8-bit floats. The intrinsic has the types of what it is called with,
 * operands exchanged. */
MatrixInstruction MixedMfma(int m, int k, DLDataType a, DLDataType b, Feature feature,
                            const char* name_a, const char* name_b) {
  MatrixInstruction i = Mfma(m, k, a, kF32, feature, name_a, "float");
  i.other_operand = b;
  i.other_name = name_b;
  i.intrinsic = kMfmaMixed;
  i.template_args[3] = name_b;
  i.template_args[4] = name_a;
  i.template_args.push_back("float");
  return i;
}

/*! The same with scales of 32 elements. Those of 6 bits are 24 bytes side by side in six registers
 * of a lane. */
MatrixInstruction ScaledMfma(int m, int k, DLDataType operand, const char* operand_name) {
  MatrixInstruction i = Mfma(m, k, operand, kF32, Feature::kMfmaOcp, operand_name, "float");
  if (operand.bits == 6) i.a = i.b = Operand(m, i.StoredK(), i.Stored().bits, 192);
  i.name = "mfma_scale" + i.name.substr(i.name.find('.'));
  i.intrinsic = kMfmaScale;
  i.template_args[4] = operand_name;
  i.scale_k = kScaleK;
  return i;
}

/*!
 * gfx950's MFMA of 16-bit floats for operands that lie as sums do. The instruction wants 16 bytes
 * of a lane side by side along K, but which elements along K those are is free if A and B agree:
 * they are those of two instructions of half the K, one after the other.
 */
MatrixInstruction MfmaOfSums(int m, int k, DLDataType operand, const char* operand_name) {
  MatrixInstruction i = Mfma(m, k, operand, kF32, Feature::kMfmaGfx950, operand_name, "float");
  i.name =
      "mfma." + std::to_string(m) + "x" + std::to_string(m) + "x" + std::to_string(k / 2) + "x2";
  i.a = i.b = Operand(m, k, operand.bits, 64);
  return i;
}

/*! WMMA of 16 x 16 x 16, by 32 lanes: lanes l and l + 16 both have row l of A, and column l of B.
 * Lane l has column l % 16 of C, and of its rows every other one. */
MatrixInstruction Wmma(DLDataType operand, DLDataType accumulator, const char* operand_name,
                       const char* accumulator_name) {
  constexpr int kSide = 16;
  const Fragment of_half = MakeWarpFragment({{0, kSide, 1}}, {{1, kSide, 1}});
  const Fragment rows = ReplicateFragment(of_half, 2);
  const Fragment sums = MakeWarpFragment({{1, kSide, 1}, {0, 2, 1}}, {{0, kSide / 2, 2}});
  return {kSide,        kSide,
          kSide,        operand,
          accumulator,  Feature::kWmma,
          operand_name, accumulator_name,
          rows,         rows,
          sums,         "wmma.16x16x16",
          kWmma,        {"16", "16", "16", operand_name, accumulator_name}};
}

/*!
 * In order of preference: the most elements along K, then the larger tile, which reads an operand
 * half as often. Where a lane has 16 bytes of an operand, it reads them from shared memory at once;
 * where an architecture has no such instruction, several take them (`tl/mfma.h`). A sum of another
 * type than float32 does not lie as such operands do.
 */
std::vector<MatrixInstruction> Rows() {
  std::vector<MatrixInstruction> rows;
  const auto add = [&](int k_of_32, DLDataType operand, DLDataType accumulator, Feature feature,
                       const char* operand_name, const char* accumulator_name) {
    for (int m : {32, 16}) {
      rows.push_back(Mfma(m, m == 32 ? k_of_32 : 2 * k_of_32, operand, accumulator, feature,
                          operand_name, accumulator_name));
    }
  };
  const auto add_float8 = [&](int k_of_32, DLDataType e4, DLDataType e5, Feature feature,
                              const char* name_e4, const char* name_e5, bool shared_only) {
    for (int m : {32, 16}) {
      const int k = m == 32 ? k_of_32 : 2 * k_of_32;
      rows.push_back(Mfma(m, k, e4, kF32, feature, name_e4, "float"));
      rows.push_back(Mfma(m, k, e5, kF32, feature, name_e5, "float"));
      rows.push_back(MixedMfma(m, k, e4, e5, feature, name_e4, name_e5));
      rows.push_back(MixedMfma(m, k, e5, e4, feature, name_e5, name_e4));
    }
    for (size_t i = rows.size() - 8; i < rows.size(); ++i) rows[i].shared_only = shared_only;
  };
  // Of the same shape and types as those of float32, which does not round.
  const auto name_xf32 = [&] {
    for (size_t i = rows.size() - 2; i < rows.size(); ++i) {
      rows[i].name = "mfma_xf32" + rows[i].name.substr(rows[i].name.find('.'));
    }
  };
  const auto mark = [&](bool MatrixInstruction::* flag) {
    for (size_t i = rows.size() - 2; i < rows.size(); ++i) rows[i].*flag = true;
  };
  add(16, kF16, kF32, Feature::kMfma, "half_t", "float");
  mark(&MatrixInstruction::shared_only);
  add(16, kBF16, kF32, Feature::kMfma, "bfloat16_t", "float");
  mark(&MatrixInstruction::shared_only);
  add(32, kS8, kS32, Feature::kMfma, "int8_t", "int");
  mark(&MatrixInstruction::shared_only);
  for (int m : {32, 16}) {
    rows.push_back(MfmaOfSums(m, 512 / m, kF16, "half_t"));
    rows.push_back(MfmaOfSums(m, 512 / m, kBF16, "bfloat16_t"));
  }
  add(8, kF16, kF32, Feature::kMfma, "half_t", "float");
  add(8, kBF16, kF32, Feature::kMfma, "bfloat16_t", "float");
  add(16, kS8, kS32, Feature::kMfmaGfx942, "int8_t", "int");
  add(8, kS8, kS32, Feature::kMfmaGfx90a, "int8_t", "int");
  // f8f6f4, which takes twice as many a cycle as the others of 8 bits.
  for (int k : {64, 16}) {
    add_float8(k, kE4M3, kE5M2, Feature::kMfmaOcp, "fp8_e4_t", "fp8_e5_t", false);
  }
  for (int k : {32, 16}) {
    add_float8(k, kE4M3Fnuz, kE5M2Fnuz, Feature::kMfmaFnuz, "fp8_e4_fnuz_t", "fp8_e5_fnuz_t",
               k == 32);
  }
  for (int k : {8, 4}) {
    add(k, kF32, kF32, Feature::kMfmaXf32, "tfloat32_t", "float");
    mark(&MatrixInstruction::opt_in);
    name_xf32();
  }
  // Sums of float32 lie as the operands of four instructions.
  add(8, kF32, kF32, Feature::kMfma, "float", "float");
  add(2, kF32, kF32, Feature::kMfma, "float", "float");
  rows.push_back(Mfma(16, 8, kF64, kF64, Feature::kMfma, "double", "double"));
  rows.back().shared_only = true;
  rows.push_back(Mfma(16, 4, kF64, kF64, Feature::kMfma, "double", "double"));
  rows.push_back(Wmma(kF16, kF32, "half_t", "float"));
  rows.push_back(Wmma(kBF16, kF32, "bfloat16_t", "float"));
  rows.push_back(Wmma(kS8, kS32, "int8_t", "int"));
  rows.push_back(Wmma(kU8, kS32, "uint8_t", "int"));
  for (int m : {32, 16}) {
    const int k = m == 32 ? 64 : 128;
    rows.push_back(ScaledMfma(m, k, kE4M3, "fp8_e4_t"));
    rows.push_back(ScaledMfma(m, k, kE5M2, "fp8_e5_t"));
    rows.push_back(ScaledMfma(m, k, kE2M1, "fp4_e2_t"));
    rows.push_back(ScaledMfma(m, k, kE2M3, "fp6_e2_t"));
    rows.push_back(ScaledMfma(m, k, kE3M2, "fp6_e3_t"));
  }
  return rows;
}

Registration amd_mma_registration([] { AddMatrixInstructions("hip", Rows()); });

}  // namespace
}  // namespace tl
