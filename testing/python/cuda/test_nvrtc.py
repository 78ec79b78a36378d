"""Compiling to a cubin, and what ptxas says about it."""

import pytest

from tilelang.cuda.nvrtc import ResourceUsage, compile_cubin, parse_resource_usage

SOURCE = """#include <tl/common.h>
extern "C" __global__ void add_kernel(const float* a, float* b) { b[0] += a[threadIdx.x]; }
extern "C" __global__ void div_kernel(float* a) {
  __shared__ float s[64];
  s[threadIdx.x] = a[threadIdx.x];
  tl::sync_threads();
  a[threadIdx.x] = a[1] / s[63 - threadIdx.x];
}
extern "C" __global__ void stack_kernel(int* a) {
  volatile int local[100];
  for (int i = 0; i < 100; ++i) local[i] = a[i];
  a[0] = local[a[1]];
}
"""


def test_resource_usage():
    compiled = compile_cubin(SOURCE, "sm_90a", ["add_kernel", "div_kernel", "stack_kernel"])
    usage = compiled.resource_usage
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.arch == "sm_90a"
    assert 4 <= usage["add_kernel"].registers <= 32
    assert usage["add_kernel"].static_shared == 0
    assert usage["div_kernel"].static_shared == 256
    assert usage["stack_kernel"].stack == 400


def test_spills_are_read():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a_kernel' for 'sm_80'
ptxas info    : Function properties for helper
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for a_kernel
    96 bytes stack frame, 52 bytes spill stores, 60 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 49152 bytes smem, 380 bytes cmem[0]
"""
    assert parse_resource_usage(log) == {"a_kernel": ResourceUsage(255, 52, 60, 96, 49152)}


def test_options_reach_the_compiler():
    spilling = "".join(f"  float x{i} = a[{i}];\n" for i in range(64))
    total = " + ".join(f"x{i} * x{63 - i}" for i in range(64))
    stores = "".join(f"  a[{i}] = x{i} + total;\n" for i in range(64))
    source = (
        f'extern "C" __global__ void k(float* a) {{\n{spilling} float total = {total};\n{stores}}}'
    )
    free = compile_cubin(source, "sm_80", ["k"]).resource_usage["k"]
    bound = compile_cubin(source, "sm_80", ["k"], ["--maxrregcount=32"]).resource_usage["k"]
    assert free.spill_stores == 0
    assert bound.registers <= 32
    assert bound.spill_stores > 0
    assert bound.spill_loads > 0


def test_fast_math_changes_the_code():
    exact = compile_cubin(SOURCE, "sm_80", ["div_kernel"])
    fast = compile_cubin(SOURCE, "sm_80", ["div_kernel"], fast_math=True)
    assert len(fast.cubin) < len(exact.cubin)


def test_an_error_has_the_line_and_the_options():
    source = '#line 7 "user.py"\nextern "C" __global__ void k() { undefined(); }\n'
    with pytest.raises(RuntimeError) as error:
        compile_cubin(source, "sm_80", ["k"], ["--maxrregcount=40"])
    for text in [
        'user.py(7): error: identifier "undefined"',
        "--maxrregcount=40",
        "architecture=sm_80",
    ]:
        assert text in str(error.value)


def test_an_unknown_architecture_is_an_error():
    with pytest.raises(RuntimeError, match="sm_1"):
        compile_cubin(SOURCE, "sm_1", ["add_kernel"])


def test_a_missing_kernel_is_an_error():
    compiled = compile_cubin(SOURCE, "sm_80", ["main_kernel"])
    with pytest.raises(RuntimeError, match=r"no kernel main_kernel; it has .*add_kernel"):
        _ = compiled.resource_usage
