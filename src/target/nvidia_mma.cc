/*! mma.sync and mma.sp.sync (PTX ISA, "Matrix multiply-accumulate operation using mma
 * instruction"), and wgmma ("Asynchronous Warpgroup Level Matrix Instructions"). */
#include "../tvm/registry.h"
#include "intrinsic_names.h"
#include "mma.h"

namespace tl {
namespace {

constexpr DLDataType kF16{kDLFloat, 16, 1}, kBF16{kDLBfloat, 16, 1}, kF32{kDLFloat, 32, 1},
    kF64{kDLFloat, 64, 1}, kS8{kDLInt, 8, 1}, kU8{kDLUInt, 8, 1}, kS32{kDLInt, 32, 1},
    kE4M3{kDLFloat8_e4m3fn, 8, 1}, kE5M2{kDLFloat8_e5m2, 8, 1}, kS4{kDLInt, 4, 1},
    kU4{kDLUInt, 4, 1};

constexpr Feature kSm75 = Feature::kMmaSm75, kSm80 = Feature::kMmaSm80, kSm89 = Feature::kMmaSm89;

/*! Whether half of A is stored, whether operands are rounded, and B's type where it is not A's. */
struct Marks {
  bool sparse = false, opt_in = false;
  DLDataType other{kDLOpaqueHandle, 0, 1};
  const char* other_name = "";
};

MatrixInstruction Mma(int m, int n, int k, DLDataType operand, DLDataType accumulator,
                      Feature feature, const char* operand_name, const char* accumulator_name,
                      Marks marks = {}) {
  MatrixInstruction i;
  i.m = m;
  i.n = n;
  i.k = k;
  i.operand = operand;
  i.accumulator = accumulator;
  i.feature = feature;
  i.operand_name = operand_name;
  i.accumulator_name = accumulator_name;
  i.other_operand = marks.other;
  i.other_name = marks.other_name;
  i.sparse = marks.sparse;
  i.opt_in = marks.opt_in;
  i.has_ldmatrix = true;
  i.a = MakeMmaSyncOperand(m / 8, i.StoredK() / i.BlockDepth(), i.PerRegister());
  i.b = MakeMmaSyncOperand(1, k / i.BlockDepth(), i.PerRegister());
  i.c = MakeMmaSyncAccumulator(m);
  const std::string sizes[] = {std::to_string(m), std::to_string(n), std::to_string(k)};
  i.name = (i.sparse ? "mma.sp.m" : "mma.m") + sizes[0] + "n" + sizes[1] + "k" + sizes[2];
  i.intrinsic = i.sparse ? kMmaSpSync : kMmaSync;
  i.template_args = {sizes[0], sizes[1], sizes[2], operand_name, i.NameB(), accumulator_name};
  return i;
}

/*! PTX ISA, wgmma.mma_async: 64 rows of C, `k` elements (32 bytes of what is stored of A) along K,
 * up to 256 columns. A of wgmma.sp is in shared memory and K-major. */
MatrixInstruction Wgmma(int k, DLDataType operand, DLDataType accumulator, const char* operand_name,
                        const char* accumulator_name, Marks marks = {}) {
  MatrixInstruction i;
  i.m = 64;
  i.n = 256;
  i.k = k;
  i.operand = operand;
  i.accumulator = accumulator;
  i.feature = Feature::kWgmma;
  i.operand_name = operand_name;
  i.accumulator_name = accumulator_name;
  i.other_operand = marks.other;
  i.other_name = marks.other_name;
  i.name = marks.sparse ? "wgmma.sp." : "wgmma.";
  i.group_threads = kWarpGroupThreads;
  i.any_order = operand.bits == 16;
  i.sparse = marks.sparse;
  i.opt_in = marks.opt_in;
  return i;
}

/*! In order of preference. PTX ISA, "Target ISA Notes" of mma and mma.sp: m16n8k8 and m8n8k16 need
 * sm_75, the 8-bit floats sm_89, the others sm_80. From sm_90 on ptxas makes those of 4 bits of two
 * of 8 bits and some hundred instructions that unpack. */
std::vector<MatrixInstruction> Rows() {
  constexpr Marks kSparse{true, false}, kRounds{false, true}, kSparseRounds{true, true},
      kByE4M3{false, false, kE4M3, "fp8_e4_t"}, kByE5M2{false, false, kE5M2, "fp8_e5_t"};
  return {
      Wgmma(16, kF16, kF32, "half_t", "float"),
      Wgmma(16, kF16, kF16, "half_t", "half_t"),
      Wgmma(16, kBF16, kF32, "bfloat16_t", "float"),
      Wgmma(8, kF32, kF32, "tfloat32_t", "float", kRounds),
      Wgmma(32, kE4M3, kF32, "fp8_e4_t", "float"),
      Wgmma(32, kE4M3, kF16, "fp8_e4_t", "half_t"),
      Wgmma(32, kE5M2, kF32, "fp8_e5_t", "float"),
      Wgmma(32, kE5M2, kF16, "fp8_e5_t", "half_t"),
      Wgmma(32, kE4M3, kF32, "fp8_e4_t", "float", kByE5M2),
      Wgmma(32, kE4M3, kF16, "fp8_e4_t", "half_t", kByE5M2),
      Wgmma(32, kE5M2, kF32, "fp8_e5_t", "float", kByE4M3),
      Wgmma(32, kE5M2, kF16, "fp8_e5_t", "half_t", kByE4M3),
      Wgmma(32, kS8, kS32, "int8_t", "int"),
      Wgmma(32, kU8, kS32, "uint8_t", "int"),
      Wgmma(32, kF16, kF32, "half_t", "float", kSparse),
      Wgmma(32, kF16, kF16, "half_t", "half_t", kSparse),
      Wgmma(32, kBF16, kF32, "bfloat16_t", "float", kSparse),
      Wgmma(64, kE4M3, kF32, "fp8_e4_t", "float", kSparse),
      Wgmma(64, kE5M2, kF32, "fp8_e5_t", "float", kSparse),
      Wgmma(64, kS8, kS32, "int8_t", "int", kSparse),
      Wgmma(64, kU8, kS32, "uint8_t", "int", kSparse),
      Mma(16, 8, 16, kF16, kF32, kSm80, "half_t", "float"),
      Mma(16, 8, 8, kF16, kF32, kSm75, "half_t", "float"),
      Mma(16, 8, 16, kF16, kF16, kSm80, "half_t", "half_t"),
      Mma(16, 8, 8, kF16, kF16, kSm75, "half_t", "half_t"),
      Mma(16, 8, 16, kBF16, kF32, kSm80, "bfloat16_t", "float"),
      Mma(16, 8, 8, kBF16, kF32, kSm80, "bfloat16_t", "float"),
      Mma(16, 8, 8, kF32, kF32, kSm80, "tfloat32_t", "float", kRounds),
      Mma(16, 8, 4, kF32, kF32, kSm80, "tfloat32_t", "float", kRounds),
      Mma(8, 8, 4, kF64, kF64, kSm80, "double", "double"),
      Mma(16, 8, 32, kS8, kS32, kSm80, "int8_t", "int"),
      Mma(16, 8, 16, kS8, kS32, kSm80, "int8_t", "int"),
      Mma(8, 8, 16, kS8, kS32, kSm75, "int8_t", "int"),
      Mma(16, 8, 32, kU8, kS32, kSm80, "uint8_t", "int"),
      Mma(16, 8, 16, kU8, kS32, kSm80, "uint8_t", "int"),
      Mma(8, 8, 16, kU8, kS32, kSm75, "uint8_t", "int"),
      Mma(16, 8, 32, kE4M3, kF32, kSm89, "fp8_e4_t", "float"),
      Mma(16, 8, 32, kE5M2, kF32, kSm89, "fp8_e5_t", "float"),
      Mma(16, 8, 32, kE4M3, kF32, kSm89, "fp8_e4_t", "float", kByE5M2),
      Mma(16, 8, 32, kE5M2, kF32, kSm89, "fp8_e5_t", "float", kByE4M3),
      Mma(16, 8, 64, kS4, kS32, kSm80, "int4b_t", "int"),
      Mma(16, 8, 64, kU4, kS32, kSm80, "uint4b_t", "int"),
      Mma(16, 8, 32, kF16, kF32, kSm80, "half_t", "float", kSparse),
      Mma(16, 8, 32, kF16, kF16, kSm80, "half_t", "half_t", kSparse),
      Mma(16, 8, 32, kBF16, kF32, kSm80, "bfloat16_t", "float", kSparse),
      Mma(16, 8, 16, kF32, kF32, kSm80, "tfloat32_t", "float", kSparseRounds),
      Mma(16, 8, 64, kS8, kS32, kSm80, "int8_t", "int", kSparse),
      Mma(16, 8, 64, kU8, kS32, kSm80, "uint8_t", "int", kSparse),
      Mma(16, 8, 64, kE4M3, kF32, kSm89, "fp8_e4_t", "float", kSparse),
      Mma(16, 8, 64, kE5M2, kF32, kSm89, "fp8_e5_t", "float", kSparse),
  };
}

/*! Rows of one type as a program asks for them by hand: "m16n8k16", whether A is sparse, types,
 * their names in the device headers, and elements of A, B and C that a lane holds. */
Array<Any> MmaRows() {
  Array<Any> rows;
  for (const MatrixInstruction& i : MatrixInstructionsOf("cuda")) {
    if (i.IsOfGroup() || i.other_operand.bits) continue;
    const std::string shape =
        "m" + std::to_string(i.m) + "n" + std::to_string(i.n) + "k" + std::to_string(i.k);
    rows.push_back(Array<Any>{String(shape), i.sparse, String(DTypeName(i.operand)),
                              String(DTypeName(i.accumulator)), String(i.operand_name),
                              String(i.accumulator_name), i.ElementsA(), i.ElementsB(),
                              i.ElementsC()});
  }
  return rows;
}

/*! The same of wgmma: elements along K of an instruction, types, their names, whether operands may
 * have other orders than K-major, whether half of A is stored, and the numbers of columns. */
Array<Any> WgmmaRows() {
  Array<Any> rows;
  for (const MatrixInstruction& i : MatrixInstructionsOf("cuda")) {
    if (!i.IsOfGroup() || i.other_operand.bits) continue;
    Array<int64_t> columns;
    for (int64_t n = 1; n <= i.n; ++n) {
      if (i.HasColumns(n)) columns.push_back(n);
    }
    rows.push_back(Array<Any>{i.k, String(DTypeName(i.operand)), String(DTypeName(i.accumulator)),
                              String(i.operand_name), String(i.accumulator_name), i.any_order,
                              i.sparse, columns});
  }
  return rows;
}

Registration nvidia_mma_registration([] {
  RegisterFunction("target.WgmmaRows", WgmmaRows);
  AddMatrixInstructions("cuda", Rows());
  RegisterFunction("target.MmaRows", MmaRows);
});

}  // namespace
}  // namespace tl
