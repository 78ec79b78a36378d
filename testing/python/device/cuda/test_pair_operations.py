"""Narrow elements are converted in pairs, by few instructions: what ptxas makes of the headers."""

import re

import pytest

import tilelang
import tilelang.language as T


def conversion(narrow, wide):
    @T.prim_func
    def main(A: T.Tensor((128, 32), narrow), C: T.Tensor((128, 32), wide)):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((128, 32), narrow)
            G = T.alloc_fragment((128, 32), wide)
            T.copy(A, F)
            T.copy(F, G)
            T.copy(G, C)

    return tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")


@pytest.mark.parametrize("narrow", ["float8_e4m3fn", "float8_e5m2"])
def test_bfloat16_of_8_bit_floats_takes_two_instructions_an_element(narrow):
    """Two halves of a pair, two floats, one pair; a shift for every second pair."""
    code = re.findall(
        r"\*/\s+(?:@!?P\d )?([A-Z0-9]+)\.?([A-Z0-9.]*)", conversion(narrow, "bfloat16").sass
    )
    found = [
        name for name, kind in code if name in ("F2FP", "HADD2", "FMUL", "F2F", "LOP3", "PRMT")
    ]
    assert found.count("F2FP") == 32
    assert found.count("HADD2") == 32
    assert len(found) < 72
