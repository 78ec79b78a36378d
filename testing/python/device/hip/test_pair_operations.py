"""Narrow elements are converted in pairs, by few instructions: what LLVM makes of the headers."""

import re

import pytest

from tilelang.hip.compile import compile_code_object

KERNEL = """#include <tl/common.h>
#include <tl/subbyte.h>
extern "C" __global__ void __launch_bounds__(64) kernel(const uint32_t* words, uint32_t* out) {{
  tl::vec<{narrow}, {elements}> x;
  memcpy(&x, words + threadIdx.x, 4);
  const auto y = tl::cast<{wide}>(x);
  memcpy(out + threadIdx.x * {pairs}, &y, sizeof(y));
}}
"""
ARITHMETIC = re.compile(r"^\s+v_(?!mov_b32|lshlrev_b32_e32 v\d+, [0-9]+, v0\b)\w+", re.MULTILINE)


@pytest.mark.parametrize(
    ("narrow", "wide", "arch", "most"),
    [
        # A permutation, a mask, a power of two, an addition a pair.
        ("int4b_t", "half_t", "gfx942", 16),
        ("uint4b_t", "half_t", "gfx950", 16),
        # For both halves: one addition of floats and a permutation.
        ("int4b_t", "bfloat16_t", "gfx942", 29),
        # Two tables and the signs of a word, a permutation a pair.
        ("fp4_e2_t", "half_t", "gfx942", 13),
        ("fp4_e2_t", "bfloat16_t", "gfx90a", 20),
        ("fp4_e2_t", "half_t", "gfx950", 4),
        ("fp4_e2_t", "bfloat16_t", "gfx950", 4),
        ("fp8_e4_t", "half_t", "gfx950", 2),
        ("fp8_e5_t", "bfloat16_t", "gfx950", 2),
        ("fp8_e5_t", "half_t", "gfx942", 2),
        ("fp8_e4_t", "half_t", "gfx942", 16),
        ("int8_t", "half_t", "gfx942", 5),
    ],
)
def test_a_word_is_converted_by_few_instructions(narrow, wide, arch, most):
    elements = 4 if "8" in narrow else 8
    source = KERNEL.format(narrow=narrow, wide=wide, elements=elements, pairs=elements // 2)
    code = compile_code_object(source, arch, ["kernel"])
    found = ARITHMETIC.findall(code.assembly)
    assert 0 < len(found) <= most, "\n".join(found)


@pytest.mark.parametrize(("wide", "letters"), [("half_t", "f16"), ("bfloat16_t", "bf16")])
def test_two_floats_are_rounded_together(wide, letters):
    source = KERNEL.format(narrow="float", wide=wide, elements=2, pairs=1)
    source = source.replace("words + threadIdx.x, 4", "words + threadIdx.x * 2, 8")
    code = compile_code_object(source, "gfx950", ["kernel"])
    assert code.assembly.count(f"v_cvt_pk_{letters}_f32") == 1
