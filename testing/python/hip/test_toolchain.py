"""Which clang compiles for AMD, and which library has its functions."""

import importlib.util
from pathlib import Path

import pytest

from tilelang.env import env
from tilelang.hip import compile as hip
from tilelang.hip import toolchain
from tilelang.hip.compile import compile_code_object, configured, parse_resource_usage

KERNEL = """#include <tl/common.h>
#include <tl/exponential.h>
#include <tl/floor.h>
#include <tl/number_bits.h>
#include <tl/trigonometric.h>
extern "C" __global__ void __launch_bounds__(64) kernel(float* x) {
  x[threadIdx.x] = tl::%s(x[threadIdx.x]);
}
"""


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """A machine without ROCm, clang, and the packages that have parts of them."""
    monkeypatch.setattr(env, "ROCM_PATH", tmp_path / "rocm")
    monkeypatch.setattr(toolchain.shutil, "which", lambda *args, **kwargs: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    yield tmp_path
    env.ROCM_PATH = None


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_rocm_comes_first(nothing):
    clang = program(nothing / "rocm/llvm/bin/clang++", 'printf "\\tgfx942\\n"')
    lld = program(nothing / "rocm/llvm/bin/ld.lld", "")
    found = toolchain.find_toolchain("gfx942")
    assert (found.clang, found.lld) == ((str(clang),), (str(lld),))


def test_a_clang_without_the_architecture_is_passed_over(nothing, monkeypatch):
    old = program(nothing / "old", 'echo "clang version 18"; printf "\\tgfx90a\\n"')
    new = program(nothing / "new", 'printf "\\tgfx90a\\n\\tgfx950\\n"')
    there = {"clang++": str(old), "ld.lld": "lld", "clang++-21": str(new), "ld.lld-21": "lld"}
    monkeypatch.setattr(toolchain.shutil, "which", lambda name, path=None: there.get(name))
    assert toolchain.find_toolchain("gfx90a").clang == (str(old),)
    assert toolchain.find_toolchain("gfx950").clang == (str(new),)
    with pytest.raises(RuntimeError, match=r"old \(clang version 18\), .*new .*, which do not"):
        toolchain.find_toolchain("gfx1100")


def test_without_a_clang_the_packages_are_named(nothing):
    with pytest.raises(
        RuntimeError, match=r"gfx942 needs a clang.*found none; pip install ziglang"
    ):
        compile_code_object(KERNEL % "exp", "gfx942", ["kernel"])


def test_a_function_without_its_library_is_named(monkeypatch):
    monkeypatch.setattr(hip, "find_math_library", lambda: None)
    with pytest.raises(
        RuntimeError, match=r"^a\.py:3: found tanh in the kernel, wanted ROCm's dev"
    ):
        compile_code_object(KERNEL % "tanh", "gfx942", ["kernel"], location="a.py:3")
    assert compile_code_object(KERNEL % "exp", "gfx942", ["kernel"]).cubin


def test_the_library_of_rocm_is_linked(nothing, monkeypatch):
    file = nothing / "rocm" / "amdgcn" / "bitcode" / "ocml.bc"
    file.parent.mkdir(parents=True)
    file.touch()
    assert toolchain.find_math_library() == file
    assert str(file) in hip._math_library_flags(["tanh"], "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int x = y;", "found `use of undeclared identifier 'y'`, wanted source and options"),
        ('__device__ void g(int); extern "C" __global__ void k(int* x) { g(*x); }', "found a call"),
        (
            'extern "C" __global__ void k(int* x) { __shared__ int s[20000]; s[*x] = 1; '
            "__syncthreads(); *x = s[x[1]]; }",
            "k: found 80000 bytes of static shared memory, wanted at most 65536",
        ),
    ],
)
def test_what_clang_and_lld_refuse(text, message):
    source = "#include <tl/common.h>\n" + text
    with pytest.raises(RuntimeError, match=f"^b.py:1: {message}") as error:
        compile_code_object(source, "gfx942", [], location="b.py:1")
    assert "--offload-arch=gfx942" in str(error.value) or "kernel.o" in str(error.value)


def test_a_kernel_that_is_not_there():
    code = compile_code_object(KERNEL % "exp", "gfx942", ["other"])
    with pytest.raises(RuntimeError, match="no kernel other; it has kernel"):
        _ = code.resource_usage


def test_options_and_configurations_reach_clang():
    found = configured({"tl.device_compile_flags": "-DCOUNT=3", "tl.enable_fast_math": True}.get)
    assert found == {"options": ["-DCOUNT=3"], "fast_math": True}
    division = "#include <tl/common.h>\n"
    division += 'extern "C" __global__ void k(float* x) { x[0] = x[1] / x[COUNT]; }'
    exact = compile_code_object(division, "gfx942", ["k"], ["-DCOUNT=3"]).assembly
    fast = compile_code_object(division, "gfx942", ["k"], **found).assembly
    assert ("v_div_fixup_f32" in exact, "v_div_fixup_f32" in fast) == (True, False)


def test_resources_are_those_of_the_metadata():
    assembly = """
amdhsa.kernels:
  - .agpr_count:     4
    .args:
      - .name:           x
        .offset:         0
    .group_segment_fixed_size: 512
    .name:           a_kernel
    .private_segment_fixed_size: 16
    .vgpr_count:     132
    .vgpr_spill_count: 3
  - .agpr_count:     0
    .group_segment_fixed_size: 0
    .name:           b_kernel
    .private_segment_fixed_size: 0
    .vgpr_count:     7
    .vgpr_spill_count: 0
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
amdhsa.version:
  - 1
  - 2
"""
    found = parse_resource_usage(assembly)
    a, b = found["a_kernel"], found["b_kernel"]
    assert (a.registers, a.spill_stores, a.spill_loads) == (132, 12, 12)
    assert (a.stack, a.static_shared) == (16, 512)
    assert (b.registers, b.stack) == (7, 0)
    assert parse_resource_usage("") == {}


def sums(tiles: int) -> str:
    """A kernel with 16 registers of a lane for each of its tiles of 32 x 32."""
    return f"""#include <tl/common.h>
#include <tl/mfma.h>
extern "C" __global__ void __launch_bounds__(256) kernel(const half_t* x, float* out, int n) {{
  float c[{tiles}][16] = {{}};
  for (int k = 0; k < n; ++k) {{
    half_t a[4], b[4];
    for (int i = 0; i < 4; ++i) a[i] = x[k * 512 + threadIdx.x * 4 + i];
#pragma unroll
    for (int t = 0; t < {tiles}; ++t) {{
      for (int i = 0; i < 4; ++i) b[i] = x[k * 512 + t * 256 + threadIdx.x + i];
      tl::mfma<32, 32, 8, half_t, float>(c[t], a, b);
      for (int i = 0; i < 16; ++i) c[t][i] *= 0.5f;
    }}
  }}
#pragma unroll
  for (int t = 0; t < {tiles}; ++t) {{
#pragma unroll
    for (int i = 0; i < 16; ++i) out[(t * 16 + i) * 256 + threadIdx.x] = c[t][i];
  }}
}}
"""


@pytest.mark.parametrize(("tiles", "waves"), [(4, 2), (18, 1)])
def test_as_many_registers_as_two_wavefronts_leave_where_that_is_enough(tiles, waves):
    """Accumulators that other instructions read need no copies then."""
    code = compile_code_object(sums(tiles), "gfx942", ["kernel"])
    usage = code.resource_usage["kernel"]
    assert usage.spill_stores == 0
    assert (usage.registers > 256) == (waves == 1)
    assert ("v_accvgpr" in code.assembly) == (waves == 1)
