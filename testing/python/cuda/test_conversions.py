"""Conversions of elements in machine code."""

import pytest

import tilelang
import tilelang.language as T
from tilelang.cuda.disassembler import disassemble

ELEMENTS, THREADS = 1024, 128


@pytest.mark.parametrize("dtype", [T.float16, T.bfloat16])
def test_half_a_word_of_float8_is_no_shift(dtype):
    @T.prim_func
    def widen(A: T.Tensor((ELEMENTS,), T.float8_e4m3fn), B: T.Tensor((ELEMENTS,), dtype)):
        with T.Kernel(1, threads=THREADS):
            narrow = T.alloc_fragment((ELEMENTS,), T.float8_e4m3fn)
            T.copy(A, narrow)
            T.copy(narrow, B)

    kernel = tilelang.compile(widen, target="cuda -arch=sm_90a", execution_backend="nvrtc")
    found = [line.split(";")[0] for line in disassemble(kernel.cubin).splitlines()]
    assert sum("UNPACK_B" in line for line in found) == ELEMENTS // THREADS // 2
    assert not any("SHF.R" in line for line in found)
