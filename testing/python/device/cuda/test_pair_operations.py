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


@pytest.mark.parametrize(("narrow", "masks", "sums"), [("int8", 32, 16), ("uint8", 40, 32)])
def test_bfloat16_of_bytes_takes_no_conversion(narrow, masks, sums):
    """A permutation, two masks and a difference a pair; of unsigned ones a sum more."""
    sass = conversion(narrow, "bfloat16").sass
    code = re.findall(r"\*/\s+(?:@!?P\d )?([A-Z0-9]+)", sass)
    assert not {"I2F", "I2FP", "F2FP"} & set(code)
    assert (code.count("PRMT"), code.count("LOP3"), code.count("HFMA2")) == (16, masks, sums)


def test_floats_of_bfloat16_take_one_instruction_an_element():
    """A shift for the low one of a pair, a mask for the high one."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), T.bfloat16), C: T.Tensor((64, 64), T.float32)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), T.bfloat16)
            F = T.alloc_fragment((64, 64), T.bfloat16)
            G = T.alloc_fragment((64, 64), T.float32)
            T.copy(A, S)
            T.copy(S, F)
            for i, j in T.Parallel(64, 64):
                G[i, j] = F[i, j] * 3.0
            T.copy(G, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    code = re.findall(r"\*/\s+(?:@!?P\d )?([A-Z0-9]+)", kernel.sass)
    assert code.count("FMUL") == 32
    assert "PRMT" not in code


def test_pairs_of_8_bit_floats_out_of_order_take_one_instruction():
    """Words are not taken apart into bytes, whichever vectors they are copied by."""

    @T.prim_func
    def main(A: T.Tensor((128, 64), T.float8_e4m3fn), C: T.Tensor((128, 64), T.float16)):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((128, 64), T.float8_e4m3fn)
            G = T.alloc_fragment((128, 64), T.float16)
            T.copy(A, F)
            for i, j in T.Parallel(128, 64):
                G[i, j] = F[i, j // 4 * 4 + 2 - j % 4 // 2 * 2 + j % 2]
            T.copy(G, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    code = re.findall(r"\*/\s+(?:@!?P\d )?([A-Z0-9]+)", kernel.sass)
    assert code.count("F2FP") == 32
    assert not {"PRMT", "SHF", "LOP3"} & set(code)


def instructions_of_a_word(narrow, wide, distant):
    """Of eight elements of a thread's 32: all that are neither accesses nor control flow."""

    @T.prim_func
    def main(A: T.Tensor((128, 32), narrow), C: T.Tensor((128, 32), wide)):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((128, 32), narrow)
            G = T.alloc_fragment((128, 32), wide)
            T.copy(A, F)
            for i, j in T.Parallel(128, 32):
                place = j // 8 * 8 + j % 2 * 4 + j % 8 // 2 if distant else j
                G[i, j] = T.cast(F[i, place], wide)
            T.copy(G, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    names = ("HFMA2", "HADD2", "HMUL2", "LOP3", "PRMT", "SHF", "IMAD", "MOV", "LEA", "F2FP", "I2F")
    code = re.findall(r"\*/\s+(?:@!?P\d )?([A-Z0-9]+)", kernel.sass)
    addresses_and_constants = 6
    return (sum(name in names for name in code) - addresses_and_constants) / 4


@pytest.mark.parametrize(
    ("narrow", "wide", "distant", "wanted"),
    [
        # A mask and an addition a pair, and a permutation or for two pairs a shift.
        ("int4", "float16", False, 12),
        ("uint4", "float16", True, 9),
        # One more shift a word, or one for each pair but one.
        ("uint4", "bfloat16", False, 14),
        ("int4", "bfloat16", True, 12),
        # Two masks, a product of integers and one of floats.
        ("float4_e2m1fn", "bfloat16", False, 19),
        ("float4_e2m1fn", "bfloat16", True, 17),
        # Two shifts, two masks, a product of floats.
        ("float4_e2m1fn", "float16", True, 19),
    ],
)
def test_elements_of_4_bits_are_converted_by_words(narrow, wide, distant, wanted):
    assert instructions_of_a_word(narrow, wide, distant) <= wanted


@pytest.mark.parametrize("wide", ["float16", "bfloat16"])
@pytest.mark.parametrize("scope", ["shared", "fragment"])
def test_a_constant_is_added_by_the_conversion(wide, scope):
    """One addition a pair, which takes the power away that the conversion puts in, too."""
    alloc = T.alloc_shared if scope == "shared" else T.alloc_fragment

    @T.prim_func
    def main(A: T.Tensor((128, 16), "uint8"), C: T.Tensor((128, 32), wide)):
        with T.Kernel(1, threads=128):
            S = alloc((128, 16), "uint8")
            G = T.alloc_fragment((128, 32), wide)
            T.copy(A, S)
            for i, j in T.Parallel(128, 32):
                nibble = S[i, j // 2] >> T.cast(j % 2 * 4, "uint8") & T.uint8(15)
                G[i, j] = T.cast(T.cast(nibble, "int32") - 8, wide)
            T.copy(G, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    assert "tl::cast_sum" in kernel.get_kernel_source()
    code = re.findall(r"\*/\s+(?:@!?P\d )?([A-Z0-9]+)", kernel.sass)
    assert sum(name in ("HADD2", "HFMA2") for name in code) == 16
