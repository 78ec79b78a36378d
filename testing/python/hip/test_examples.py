"""Examples for AMD, but for their tiles unchanged (benchmark/amd_examples.py): right in the
emulator with its checks, also under other schedules; compiled without spills; bound by MFMA."""

import importlib
import pathlib
import sys

import pytest

from tilelang.emulator import schedule
from tilelang.hip.compile import compile_code_object

BENCHMARK = pathlib.Path(__file__).resolve().parents[3] / "benchmark"
QUICK = [("attention 64", "gfx942"), ("gemm mxfp4", "gfx950"), ("softmax", "gfx90a")]


@pytest.fixture(scope="module")
def benchmark_module():
    """The modules of that folder."""
    before = list(sys.path)
    sys.path.insert(0, str(BENCHMARK))
    yield importlib.import_module
    sys.path[:] = before


def names():
    """Examples by name, and their architectures, without importing them all where tests are
    collected."""
    all_archs = ("gfx90a", "gfx942", "gfx950")
    only = {"gemm float8 fnuz": ("gfx942",), "gemm float8": ("gfx950",), "gemm mxfp4": ("gfx950",)}
    only["gemm mxfp6"] = ("gfx950",)
    listed = (
        *("gemm float16", "gemm float16 NN", "gemm bfloat16", "gemm float8 fnuz", "gemm float8"),
        *("gemm int8", "gemm int8 NN", "gemm mxfp4", "gemm mxfp6", "int4 gemm", "attention 64"),
        *("attention 128", "attention backward", "mla decode", "softmax", "rms_norm"),
    )
    return [(name, arch) for name in listed for arch in only.get(name, all_archs)]


def compiled(benchmark_module, name, arch):
    kernel = benchmark_module("amd_examples").EXAMPLES[name].kernel(arch)
    kernels = [launch.name for launch in kernel.launch_plan.kernels]
    return compile_code_object(kernel.get_kernel_source(), arch, kernels)


def check_code(benchmark_module, name, arch):
    code = compiled(benchmark_module, name, arch)
    for usage in code.resource_usage.values():
        assert (usage.spill_stores, usage.stack) == (0, 0)
    if name not in ("softmax", "rms_norm"):
        assert "v_mfma_" in code.assembly


def test_all_examples_are_listed(benchmark_module):
    examples = benchmark_module("amd_examples").EXAMPLES
    assert names() == [(name, arch) for name, e in examples.items() for arch in e.archs]


@pytest.mark.parametrize(("name", "arch"), QUICK)
def test_it_is_compiled_without_spills(benchmark_module, name, arch):
    check_code(benchmark_module, name, arch)


@pytest.mark.parametrize(("name", "arch"), names())
def test_every_example_is_compiled_without_spills(benchmark_module, name, arch):
    check_code(benchmark_module, name, arch)


@pytest.mark.parametrize(("name", "arch"), QUICK[:1])
def test_it_is_right(benchmark_module, name, arch):
    example = benchmark_module("amd_examples").EXAMPLES[name]
    assert example.check(arch) < example.bound


@pytest.mark.parametrize(("name", "arch"), names())
def test_every_example_is_right_under_twenty_schedules(benchmark_module, name, arch):
    example = benchmark_module("amd_examples").EXAMPLES[name]
    for seed in range(20):
        with schedule("random", asynchronous="random", seed=seed):
            assert example.check(arch) < example.bound


# Of the cycles of the loop, if one wavefront runs it alone.
@pytest.mark.parametrize(
    ("name", "arch", "least"),
    [
        ("gemm float16", "gfx90a", 0.9),
        ("gemm float16", "gfx942", 0.8),
        ("gemm float16", "gfx950", 0.8),
        ("gemm mxfp4", "gfx950", 0.8),
        ("gemm mxfp6", "gfx950", 0.55),
        # B is read by ds_read_tr.
        ("gemm float16 NN", "gfx950", 0.75),
        ("gemm int8 NN", "gfx950", 0.75),
    ],
)
def test_the_loop_of_a_gemm_is_bound_by_mfma(benchmark_module, name, arch, least):
    code = compiled(benchmark_module, name, arch)
    loops = benchmark_module("amd_code").loops(code.assembly, arch)
    assert max(loops, key=lambda loop: loop.mfma).bound >= least


LOOP = """
.LBB0_1:                                ; =>This Loop Header: Depth=1
	s_waitcnt lgkmcnt(0)
	ds_read_b128 v[0:3], v4
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
	v_mfma_scale_f32_32x32x64_f8f6f4 a[0:15], v[0:3], v[4:7], a[0:15], v8, v9 cbsz:4 blgp:4
	v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[0:7], v[8:15], a[0:3]
.LBB0_2:
	v_exp_f32_e32 v0, v0
	s_cbranch_scc1 .LBB0_2
	s_cbranch_scc1 .LBB0_3
	v_add_f32_e32 v0, v0, v0
.LBB0_3:
	s_cbranch_scc0 .LBB0_1
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
"""


def test_loops_are_counted(benchmark_module):
    """Around a loop that does not multiply; waits and what a branch skips count for nothing. 32
    cycles each."""
    (loop,) = benchmark_module("amd_code").loops(LOOP, "gfx950")
    assert (loop.mfma, loop.other, loop.cycles) == (3, 5, 32 + 32 + 32)
    assert loop.bound == 96 / (96 + 5 * 4 + 12)


def test_the_order_of_a_loop_counts(benchmark_module):
    """A read of 64 lanes by four wavefronts takes 32 cycles, and arrives 64 later; each of two MFMA
    takes 32."""
    read, wait = "\tds_read_b128 v[0:3], v4", "\ts_waitcnt lgkmcnt(0)"
    mfma = ["\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]"] * 2
    in_order = benchmark_module("amd_code").in_order
    assert in_order([read, wait, *mfma], "gfx942") == 96 + 32 + 4
    assert in_order([read, *mfma, wait], "gfx942") == 96
    # One may be on its way: that of the iteration before.
    assert in_order([read, "\ts_waitcnt lgkmcnt(1)", *mfma], "gfx942") == 2 * 32
