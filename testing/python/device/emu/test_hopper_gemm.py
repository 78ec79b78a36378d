"""A warp-specialised GEMM with TMA and wgmma, written as the compiler would emit it."""

import re
from pathlib import Path

import numpy as np
import pytest

from tilelang.cuda.nvrtc import compile_cubin

SOURCE = (Path(__file__).parents[1] / "hopper_gemm.cu").read_text()
SHARED = 4 * 32768


def gemm(run, map_of, aligned, m, n, k, source=SOURCE):
    rng = np.random.default_rng(0)
    a, b = (aligned(rng.standard_normal((rows, k)).astype(np.float16)) for rows in (m, n))
    c = aligned(np.full((m, n), np.nan, np.float16))
    loads = [map_of(x, box=(64, 128), swizzle=128) for x in (a, b)]
    out = map_of(c, box=(64, 64), swizzle=128)
    grid = (-(-n // 128), -(-m // 128))
    run(source, "gemm", [*loads, out, -(-k // 64)], grid=grid, block=384, shared=SHARED)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - exact).max() < 2e-3 * np.abs(exact).max()


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (256, 128, 448), (200, 136, 328)])
def test_gemm(run, map_of, aligned, m, n, k):
    gemm(run, map_of, aligned, m, n, k)


@pytest.mark.parametrize("moment", ["kEarly", "kRandom"])
def test_gemm_whenever_engines_work(run, map_of, aligned, moment):
    schedule = f"tl::emu::async_schedule = {{tl::emu::Moment::{moment}, 1}};\n  const int group ="
    source = SOURCE.replace("const int group =", schedule)
    assert source != SOURCE
    gemm(run, map_of, aligned, 256, 136, 448, source)
