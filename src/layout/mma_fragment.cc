#include "mma_fragment.h"

#include "../tvm/registry.h"
#include "inverse.h"

namespace tl {

Fragment MakeGemmFragment8x8() {
  Var i = MakeVar("i"), j = MakeVar("j"), rep = MakeVar("rep");
  return MakeFragment({i, j}, {8, 8}, FloorModOf(j, 2), Expr(i) * 4 + FloorDivOf(j, 2), rep, 1);
}

Fragment MakeGemmFragmentC(int64_t m, int64_t n, int64_t m_warps, int64_t n_warps, int64_t unit) {
  Fragment warp_tile = RepeatFragment(MakeGemmFragment8x8(), {unit / 8, 1}, false, true);
  Fragment block_tile = RepeatFragment(warp_tile, {m_warps, n_warps}, true, true);
  return RepeatFragment(block_tile, {m / (unit * m_warps), n / (8 * n_warps)}, false, true);
}

Fragment MakeGemmFragmentOperand(const MmaOperandTile& t, bool transposed) {
  const int64_t p = t.per_register;
  Var i = MakeVar("i"), j = MakeVar("j");
  Fragment f = MakeFragment({i, j}, {8, 4 * p}, FloorModOf(j, p), Expr(i) * 4 + FloorDivOf(j, p),
                            MakeVar("rep"), 1);
  f = RepeatFragment(f, {t.row_blocks, t.depth_blocks}, false, true);
  if (!t.is_a) f = ReplicateFragment(f, t.copies);
  f = RepeatFragment(f, {t.warps, 1}, true, true);
  if (t.is_a) f = ReplicateFragment(f, t.copies);
  const std::vector<int64_t> done = f->Shape();
  f = RepeatFragment(f, {t.rows / done[0], t.depth / done[1]}, false, true);
  return transposed ? TransposeFragment(f) : f;
}

Fragment MakeWgmmaFragmentC(int64_t m, int64_t n, int64_t m_warps, int64_t n_warps) {
  Fragment warp_tile = RepeatFragment(MakeGemmFragment8x8(), {2, n / (8 * n_warps)}, false, true);
  Fragment block_tile = RepeatFragment(warp_tile, {m_warps, n_warps}, true, true);
  return RepeatFragment(block_tile, {m / (16 * m_warps), 1}, false, true);
}

Fragment MakeWgmmaFragmentA(int64_t m, int64_t k, int64_t m_warps, int64_t n_warps,
                            int64_t per_register, bool transposed) {
  Fragment f =
      MakeGemmFragmentOperand({16 * m_warps, k, per_register, 2, 2, m_warps, n_warps, true}, false);
  f = RepeatFragment(f, {m / (16 * m_warps), 1}, false, true);
  return transposed ? TransposeFragment(f) : f;
}

namespace {

void RequireMultiple(const char* what, int64_t found, int64_t unit) {
  if (unit > 0 && found > 0 && found % unit == 0) return;
  TVM_FFI_THROW(ValueError) << "fragment: found " << found << " " << what
                            << ", wanted a positive multiple of " << unit;
}

/*! Operand "A", "B" or "C" of the instruction m x n x k in `inst`; rows and columns of `tile` are
 * those of the transposed fragment if `transposed`. */
Fragment MakeOperand(const std::string& operand, const Array<int64_t>& tile,
                     const Array<int64_t>& warps, int64_t bits, const Array<int64_t>& inst,
                     bool transposed) {
  const int64_t rows = tile[transposed ? 1 : 0], cols = tile[transposed ? 0 : 1];
  if (operand == "C") {
    RequireMultiple("rows", rows, inst[0] * warps[0]);
    RequireMultiple("columns", cols, inst[1] * warps[1]);
    Fragment c = MakeGemmFragmentC(rows, cols, warps[0], warps[1], inst[0]);
    return transposed ? TransposeFragment(c) : c;
  }
  const bool is_a = operand == "A";
  const int64_t per_register = bits >= 32 ? 1 : 32 / bits;
  const int64_t unit = inst[is_a ? 0 : 1], along = warps[is_a ? 0 : 1];
  RequireMultiple(is_a ? "rows" : "columns", rows, unit * along);
  RequireMultiple("elements along K", cols, inst[2]);
  RequireMultiple("elements along K of the instruction", inst[2], 4 * per_register);
  return MakeGemmFragmentOperand({rows, cols, per_register, unit / 8, inst[2] / (4 * per_register),
                                  along, warps[is_a ? 1 : 0], is_a},
                                 transposed);
}
Registration registration([] {
  RegisterFunction("MakeGemmFragment8x8", MakeGemmFragment8x8);
  RegisterFunction("MakeGemmFragmentC", [](int64_t m, int64_t n, int64_t m_warps, int64_t n_warps) {
    return MakeGemmFragmentC(m, n, m_warps, n_warps);
  });
  RegisterFunction("MakeGemmFragment8x8Transposed",
                   [] { return TransposeFragment(MakeGemmFragment8x8()); });
  RegisterFunction("MakeGemmOperand", MakeOperand);
  RegisterFunction("MakeReplicatedFragment", [](Array<int64_t> shape, int64_t threads) {
    return MakeReplicatedFragment({shape.begin(), shape.end()}, threads);
  });
});

}  // namespace
}  // namespace tl
