"""A warp-specialised GEMM with TMA and wgmma, written as the compiler would emit it."""

from pathlib import Path

import numpy as np
import pytest

from tilelang.emulator import schedule

SOURCE = (Path(__file__).parents[1] / "hopper_gemm.cu").read_text()
SHARED = 4 * 32768


def gemm(run, map_of, aligned, m, n, k, source=SOURCE, blocks=1):
    rng = np.random.default_rng(0)
    a, b = (aligned(rng.standard_normal((rows, k)).astype(np.float16)) for rows in (m, n))
    c = aligned(np.full((m, n), np.nan, np.float16))
    loads = [map_of(x, box=(64, rows), swizzle=128) for x, rows in ((a, 128 // blocks), (b, 128))]
    out = map_of(c, box=(64, 64), swizzle=128)
    how = {"grid": (-(-n // 128), -(-m // 128)), "block": 384, "cluster": (blocks, 1, 1)}
    run(source, "gemm", [*loads, out, -(-k // 64)], shared=SHARED, **how)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - exact).max() < 2e-3 * np.abs(exact).max()


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (256, 128, 448), (200, 136, 328)])
def test_gemm(run, map_of, aligned, m, n, k):
    gemm(run, map_of, aligned, m, n, k)


@pytest.mark.parametrize(
    "how",
    [{"asynchronous": "early"}, {"seed": 1}, {"order": "adversarial"}, {"seed": 3, "workers": 2}],
)
def test_gemm_in_any_schedule(run, map_of, aligned, how):
    with schedule(**how):
        gemm(run, map_of, aligned, 256, 136, 448)


@pytest.mark.parametrize("how", [{}, {"seed": 7}, {"order": "adversarial", "seed": 1}])
def test_gemm_of_clusters(run, map_of, aligned, how):
    source = SOURCE.replace("kBlocks = 1", "kBlocks = 2")
    with schedule(**how):
        gemm(run, map_of, aligned, 200, 504, 328, source, blocks=2)
