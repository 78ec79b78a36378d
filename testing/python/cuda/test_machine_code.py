"""Loops and spills in machine code, beside what nvdisasm says of it."""

import re

import pytest

from tilelang.cuda.disassembler import disassemble
from tilelang.cuda.machine_code import (
    branch_targets,
    instructions,
    is_product,
    spills_in_loops,
)
from tilelang.cuda.nvrtc import compile_cubin

# Branches of both directions, near and far.
BRANCHES = """extern "C" __global__ void k(float* a, int n) {
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < a[3]; ++k) {
      if (k == n - 5) break;
      a[k] = sinf(a[k]);
      __syncthreads();
    }
    FAR
  }
}""".replace("FAR", "".join(f"a[{i} * n] += a[n + {i}];\n" for i in range(60)))
COUNT = 64
VALUES = range(COUNT)
LOADS = "".join(f"float x{i} = a[threadIdx.x + {i} * n];\n" for i in VALUES)
STORES = "".join(f"a[threadIdx.x + {i} * n] = x{i};\n" for i in VALUES)
LOOP = (
    "for (int i = 0; i < n; ++i) {\n" + "".join(f"b[i + {i}] += b[{i}];\n" for i in range(8)) + "}"
)
BESIDE = f"""extern "C" __global__ void k(float* a, float* b, int n) {{
{LOADS}{LOOP}{STORES}}}"""
SPILLING = "".join(f"x{i} = x{i} * x{(i + 7) % COUNT} + b[i];" for i in VALUES)
SPILLING = f"for (int i = 0; i < n; ++i) {{\n{SPILLING}\n}}\n"
INSIDE = f"""extern "C" __global__ void k(float* a, float* b, int n) {{
{LOADS}{SPILLING}{STORES}}}"""
INDEXED = """extern "C" __global__ void k(int* a, int n) {
  int x[100];
  for (int i = 0; i < 100; ++i) x[i] = a[i];
  for (int i = 0; i < n; ++i) a[i] = x[a[i] & 63];
}"""

# A product of a warp, and those of a warp group with the first operand in memory and in registers.
PRODUCTS = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {D}, {A}, {%8,%9}, {D};": "HMMA",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {I}, {A}, {%8,%9}, {I};": "IMMA",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, %10, %11, 1, 1, 1, 0, 0;": "HGMMA",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, {A}, %11, 1, 1, 1, 0;": "HGMMA",
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {D}, %10, %11, 1, 1, 1;": "QGMMA",
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {D}, {A}, %11, 1, 1, 1;": "QGMMA",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {I}, %10, %11, 1;": "IGMMA",
    "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {I}, %10, %11, 1;": "BGMMA",
}


def product(text):
    """CUDA C++ of a product, of numbers that the kernel has in `d` and `u`."""
    of_integers = "{I}" in text
    held = "{%0,%1,%2,%3}"
    text = text.replace("{D}", held).replace("{I}", held).replace("{A}", "{%4,%5,%6,%7}")
    kind, name = ("r", "v") if of_integers else ("f", "d")
    sums = ", ".join(f'"+{kind}"({name}[{i}])' for i in range(4))
    given = ", ".join(f'"r"(u[{i}])' for i in range(6))
    return f'asm volatile("{text}" : {sums} : {given}, "l"(x), "l"(y));'


MULTIPLIES = """extern "C" __global__ void k(float* a, float* b, int n, unsigned long long x,
                                   unsigned long long y) {
  float d[4]; int v[4]; unsigned u[6];
  for (int i = 0; i < 6; ++i) u[i] = a[i];
  for (int i = 0; i < 4; ++i) v[i] = d[i] = b[i];
  BESIDE
  for (int i = 0; i < n; ++i) { PRODUCT }
  for (int i = 0; i < 4; ++i) b[i] = d[i] + v[i];
}"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_branches_are_those_of_nvdisasm(arch):
    cubin = compile_cubin(BRANCHES, arch, ["k"]).cubin
    found = branch_targets(instructions(cubin, "k"), arch)
    labels, branches, number = {}, {}, 0
    for line in disassemble(cubin).splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = number
        elif re.match(r"\s+/\*[0-9a-f]{4,}\*/", line):
            if branch := re.search(r"\bBRA\b.*(\.L_x_\d+)", line):
                branches[number] = branch[1]
            number += 1
    assert len(branches) > 3
    assert found == {at: labels[label] for at, label in branches.items()}


def compiled(source, *options):
    found = compile_cubin(source, "sm_90a", ["k"], options)
    return found.resource_usage["k"], spills_in_loops(found.cubin, "k", "sm_90a")


def test_spills_beside_a_loop_are_not_in_it():
    usage, (spills, instructions) = compiled(BESIDE, "--maxrregcount=32")
    assert usage.spill_stores > 0
    assert spills == 0
    assert instructions > 8


def test_spills_in_a_loop():
    usage, (spills, instructions) = compiled(INSIDE, "--maxrregcount=32")
    assert usage.spill_stores > 0
    assert instructions > 2 * COUNT
    assert spills > COUNT
    assert compiled(INSIDE)[1][0] == 0


@pytest.mark.parametrize(("text", "name"), PRODUCTS.items())
def test_products_are_those_of_nvdisasm(text, name):
    source = MULTIPLIES.replace("BESIDE", "").replace("PRODUCT", product(text))
    cubin = compile_cubin(source, "sm_90a", ["k"]).cubin
    lines = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/.*", disassemble(cubin), re.M)
    found = [is_product(one) for one in instructions(cubin, "k")]
    assert any(name in line for line in lines)
    assert found == ["MMA" in line for line in lines]


def test_spills_beside_a_loop_that_multiplies_do_not_count():
    beside = f"if (threadIdx.x < 32) {{ {LOADS}{SPILLING}{STORES} return; }}"
    text = next(iter(PRODUCTS))
    for inside, counts in ((product(text), False), ("d[i & 3] += a[i];", True)):
        source = MULTIPLIES.replace("BESIDE", beside).replace("PRODUCT", inside)
        usage, (spills, instructions) = compiled(source, "--maxrregcount=32")
        assert usage.spill_stores > 0
        assert (spills > COUNT) == counts
        assert (instructions > 2 * COUNT) == counts
        assert spills == 0 or counts


def test_an_array_that_is_indexed_is_no_spill():
    usage, (spills, _) = compiled(INDEXED)
    assert usage.stack > 0
    assert usage.spill_stores == 0
    assert spills == 0


def test_of_a_kernel_without_a_loop_all_counts():
    source = f'extern "C" __global__ void k(float* a, int n) {{\n{LOADS}{STORES}}}'
    found = compile_cubin(source, "sm_90a", ["k"])
    _, count = spills_in_loops(found.cubin, "k", "sm_90a")
    assert count == len(instructions(found.cubin, "k"))


def test_a_binary_without_the_kernel():
    with pytest.raises(ValueError, match="has no kernel other"):
        instructions(compile_cubin(INDEXED, "sm_90a", ["k"]).cubin, "other")
