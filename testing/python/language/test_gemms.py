"""T.gemm: operands and their agreement."""

import pytest

import tilelang.language as T

TILES = """
A_s = T.alloc_shared((2, 64, 32), T.float16)
B_s = T.alloc_shared((32, 48), T.float16)
Bt_s = T.alloc_shared((48, 32), T.float16)
A_f = T.alloc_fragment((64, 32), T.float16)
B_bf = T.alloc_shared((32, 48), T.bfloat16)
C_f = T.alloc_fragment((64, 48), T.float32)
"""
A, B, C = "A_s[1, 0:64, 0:32]", "B_s[0:32, 0:48]", "C_f[0:64, 0:48]"
OFF, ON = "T.bool(False)", "T.bool(True)"


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("A_s[1, :, :], B_s, C_f", f"{A}, {B}, {C}, {OFF}, {OFF}, 0, {OFF}"),
        ("A_f, B_s, C_f", f"A_f[0:64, 0:32], {B}, {C}, {OFF}, {OFF}, 0, {OFF}"),
        (
            "A_f, Bt_s, C_f, transpose_B=True, policy=T.GemmWarpPolicy.FullRow",
            f"A_f[0:64, 0:32], Bt_s[0:48, 0:32], {C}, {OFF}, {ON}, 1, {OFF}",
        ),
        (
            "A_f, B_s, C_f, clear_accum=n == 0",
            f"A_f[0:64, 0:32], {B}, {C}, {OFF}, {OFF}, 0, n == 0",
        ),
    ],
)
def test_calls(trace, traced, arguments, printed, round_trip):
    statements = f"{TILES}T.gemm({arguments})"
    assert traced(statements).splitlines()[-1] == f"T.tl.gemm({printed})"
    round_trip(trace(statements))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("A_f[0:32, :], B_s, C_f", "M shape check failed: M is 32 in A and 64 in C"),
        ("A_f, B_s[:, 0:16], C_f", "N shape check failed: N is 16 in B and 48 in C"),
        ("A_f[:, 0:16], B_s, C_f", "K shape check failed: K is 16 in A and 32 in B"),
        ("A_f, Bt_s, C_f", "N shape check failed: N is 32 in B and 48 in C"),
    ],
)
def test_shapes_must_agree(trace, arguments, message):
    with pytest.raises(AssertionError, match=rf"T\.gemm {message}[\s\S]*--> <kernel \d+>:\d+:9"):
        trace(f"{TILES}T.gemm({arguments})")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("A, B_s, C_f", ValueError, "A of T.gemm is A in memory 'global', wanted shared"),
        ("A_f, B_s, B_s", ValueError, "C of T.gemm is B_s in memory 'shared.dyn'"),
        ("A_s, B_s, C_f", ValueError, "index leading dimensions"),
        ("A_f[0, 0], B_s, C_f", TypeError, "wanted a buffer or a region"),
        ("A_f, B_bf, C_f", TypeError, "A of dtype float16 and B of dtype bfloat16"),
        ("A_f, B_s, C_f, policy=7", ValueError, "policy is 7 of type int, wanted T.GemmWarpPolicy"),
        ("A_f, B_s, C_f, transpose_A='T'", TypeError, "wanted True or False"),
        ("A_f, B_s, C_f, clear_accum=A", TypeError, "wanted a scalar condition"),
    ],
)
def test_errors(trace, arguments, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(f"{TILES}T.gemm({arguments})")


def test_policies():
    assert [p.value for p in T.GemmWarpPolicy] == [0, 1, 2]
