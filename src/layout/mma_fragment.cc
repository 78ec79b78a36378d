#include "mma_fragment.h"

#include <array>

#include "../tvm/functor.h"
#include "../tvm/registry.h"
#include "inverse.h"

namespace tl {

Fragment MakeGemmFragment8x8() {
  Var i = MakeVar("i"), j = MakeVar("j"), rep = MakeVar("rep");
  return MakeFragment({i, j}, {8, 8}, FloorModOf(j, 2), Expr(i) * 4 + FloorDivOf(j, 2), rep, 1);
}

Fragment MakeWarpFragment(const std::vector<WarpDigit>& lane, const std::vector<WarpDigit>& reg) {
  const std::array<Var, 2> at = {MakeVar("i"), MakeVar("j")};
  std::array<int64_t, 2> extent = {1, 1};
  const auto number = [&](const std::vector<WarpDigit>& digits) {
    Expr sum = MakeInt(0);
    int64_t stride = 1;
    for (const WarpDigit& d : digits) {
      sum = sum + FloorModOf(FloorDivOf(at[d.dim], d.divisor), d.extent) * stride;
      extent[d.dim] *= d.extent;
      stride *= d.extent;
    }
    return sum;
  };
  const Expr thread = number(lane), index = number(reg);
  const Fragment f =
      MakeFragment({at[0], at[1]}, {extent[0], extent[1]}, index, thread, MakeVar("rep"), 1);
  TVM_FFI_ICHECK(PlacementDefect(f).empty()) << "warp fragment: " << PlacementDefect(f);
  return f;
}

Fragment MakeMmaSyncOperand(int64_t row_blocks, int64_t depth_blocks, int64_t per_register) {
  const int64_t p = per_register;
  return MakeWarpFragment({{1, 4, p}, {0, 8, 1}},
                          {{1, p, 1}, {0, row_blocks, 8}, {1, depth_blocks, 4 * p}});
}

Fragment MakeMmaSyncAccumulator(int64_t m) {
  return MakeWarpFragment({{1, 4, 2}, {0, 8, 1}}, {{1, 2, 1}, {0, m / 8, 8}});
}

Fragment MakeGemmFragmentC(const Fragment& unit, int64_t m, int64_t n, int64_t m_warps,
                           int64_t n_warps) {
  const std::vector<int64_t> shape = unit->Shape();
  Fragment block_tile = RepeatFragment(unit, {m_warps, n_warps}, true, true);
  return RepeatFragment(block_tile, {m / (shape[0] * m_warps), n / (shape[1] * n_warps)}, false,
                        true);
}

Fragment InterleaveUnits(const Fragment& tile, size_t dim, int64_t unit, int64_t warps,
                         int64_t count) {
  if (count == 1) return tile;
  const Expr at = tile->vars[dim];
  const Expr of_warp = FloorDivOf(at, count * unit);
  const Expr place = ((FloorDivOf(of_warp, warps) * count + FloorModOf(at, count)) * warps +
                      FloorModOf(of_warp, warps)) *
                         unit +
                     FloorModOf(FloorDivOf(at, count), unit);
  return MakeFragment(tile->vars, tile->Shape(), Substitute(tile->index[0], tile->vars[dim], place),
                      Substitute(tile->thread, tile->vars[dim], place), tile->replica,
                      tile->replicate);
}

Fragment MakeGemmFragmentOperand(const Fragment& unit, const OperandTile& t, bool transposed) {
  Fragment f = unit;
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
  Fragment f = MakeGemmFragmentOperand(MakeMmaSyncOperand(2, 2, per_register),
                                       {16 * m_warps, k, m_warps, n_warps, true}, false);
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
    Fragment c = MakeGemmFragmentC(MakeMmaSyncAccumulator(inst[0]), rows, cols, warps[0], warps[1]);
    return transposed ? TransposeFragment(c) : c;
  }
  const bool is_a = operand == "A";
  const int64_t per_register = bits >= 32 ? 1 : 32 / bits;
  const int64_t unit = inst[is_a ? 0 : 1], along = warps[is_a ? 0 : 1];
  RequireMultiple(is_a ? "rows" : "columns", rows, unit * along);
  RequireMultiple("elements along K", cols, inst[2]);
  RequireMultiple("elements along K of the instruction", inst[2], 4 * per_register);
  return MakeGemmFragmentOperand(
      MakeMmaSyncOperand(unit / 8, inst[2] / (4 * per_register), per_register),
      {rows, cols, along, warps[is_a ? 1 : 0], is_a}, transposed);
}

Registration mma_fragment_registration([] {
  RegisterFunction("MakeGemmFragment8x8", MakeGemmFragment8x8);
  RegisterFunction("MakeGemmFragmentC", [](int64_t m, int64_t n, int64_t m_warps, int64_t n_warps) {
    return MakeGemmFragmentC(MakeMmaSyncAccumulator(16), m, n, m_warps, n_warps);
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
