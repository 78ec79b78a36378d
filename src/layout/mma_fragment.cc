#include "mma_fragment.h"

#include "../tvm/registry.h"

namespace tl {

Fragment MakeGemmFragment8x8() {
  Var i = MakeVar("i"), j = MakeVar("j"), rep = MakeVar("rep");
  return MakeFragment({i, j}, {8, 8}, FloorModOf(j, 2), Expr(i) * 4 + FloorDivOf(j, 2), rep, 1);
}

Fragment MakeGemmFragmentC(int64_t m, int64_t n, int64_t m_warps, int64_t n_warps) {
  Fragment warp_tile = RepeatFragment(MakeGemmFragment8x8(), {2, 1}, false, true);
  Fragment block_tile = RepeatFragment(warp_tile, {m_warps, n_warps}, true, true);
  return RepeatFragment(block_tile, {m / (16 * m_warps), n / (8 * n_warps)}, false, true);
}

namespace {

Registration registration([] {
  RegisterFunction("MakeGemmFragment8x8", MakeGemmFragment8x8);
  RegisterFunction("MakeGemmFragmentC", MakeGemmFragmentC);
});

}  // namespace
}  // namespace tl
