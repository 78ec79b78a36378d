"""Loops and spills in machine code, beside what nvdisasm says of it."""

import re

import pytest

from tilelang.cuda.disassembler import disassemble
from tilelang.cuda.machine_code import branch_targets, instructions, spills_in_loops
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
INSIDE = f"""extern "C" __global__ void k(float* a, float* b, int n) {{
{LOADS}for (int i = 0; i < n; ++i) {{
{"".join(f"x{i} = x{i} * x{(i + 7) % COUNT} + b[i];" for i in VALUES)}
}}
{STORES}}}"""
INDEXED = """extern "C" __global__ void k(int* a, int n) {
  int x[100];
  for (int i = 0; i < 100; ++i) x[i] = a[i];
  for (int i = 0; i < n; ++i) a[i] = x[a[i] & 63];
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
