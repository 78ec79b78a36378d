"""Mistakes and what their messages advise: the mistake is refused or warned of, its twin is silent
and computes what was meant."""

import textwrap

import pytest
import torch

import tilelang
import tilelang.language as T

HEAD = """\
@T.prim_func
def main(
    A: T.Tensor((64, 2), "float32"), X: T.Tensor((64,), "float32"), N: T.Tensor((64,), "int32"),
    B: T.Tensor((64,), "float32"),
):
    with T.Kernel(2, threads=32) as bx:
        tx = T.get_thread_binding()
"""
COLUMN = "s = T.alloc_shared((32,), 'float32')\nT.copy(A[{}], s)\nT.copy(s, B[bx * 32])"
NEGATIVE = "u = T.cast(N[i], 'uint32')\nB[i] = {}"
JUMP = """\
total = T.alloc_var('float32', 0)
for k in T.unroll(8{}):
    if N[i] < k: break
    total += 1
B[i] = total"""
WALRUS = "v = T.alloc_var('int32', 3)\n{}"
PAIRS = {
    "a column that is taken for a row": (
        COLUMN.format("bx * 32, 1"),
        COLUMN.format("bx * 32 : bx * 32 + 32, 1"),
        r"leaves dimension 1 wherever it is .* A\[bx \* 32:bx \* 32 \+ 32, 1\]",
        lambda a, x, n: a[:, 1],
    ),
    "a number that the other operand's dtype lacks": (
        NEGATIVE.format("u - (-3)"),
        NEGATIVE.format("T.cast(u, 'int64') - (-3)"),
        "found -3 beside",
        lambda a, x, n: n + 3,
    ),
    "a jump out of a loop that is written out": (
        JUMP.format(", explicit=True"),
        JUMP.format(""),
        "without explicit",
        lambda a, x, n: (n + 1).clip(0, 8),
    ),
    "an assignment that an operand on the left may read": (
        WALRUS.format("B[i] = v + (v := N[i])"),
        WALRUS.format("old = v + 0\nv = N[i]\nB[i] = old + v"),
        "assign in a statement before",
        lambda a, x, n: n + 3,
    ),
    "a plain function that divides": (
        "B[i] = half(N[i])",
        "B[i] = macro(N[i])",
        "put @T.macro above it",
        lambda a, x, n: n / 2,
    ),
    "a function of torch": (
        "B[i] = torch.exp(X[i])",
        "B[i] = T.exp(X[i])",
        r"use T\.exp",
        lambda a, x, n: torch.exp(x),
    ),
    "bits of a float": (
        "B[i] = T.cast(X[i] & 0, 'float32')",
        "B[i] = T.cast(T.reinterpret(X[i], T.uint32) & 0, 'float32')",
        r"T\.reinterpret\(x, T\.uint32\)",
        lambda a, x, n: torch.zeros(64),
    ),
    "rounding to digits": (
        "B[i] = round(X[i], 1)",
        "B[i] = T.round(X[i] * 10) / 10",
        "keeps two",
        lambda a, x, n: torch.round(x * 10) / 10,
    ),
    "a method of tensors": (
        "B[i] = X[i].abs()",
        "B[i] = T.abs(X[i])",
        r"the language has T\.abs",
        lambda a, x, n: x.abs(),
    ),
}


def half(x):
    return x / 2


def traced(define, statements):
    text = HEAD + textwrap.indent("i = bx * 32 + tx\n" + statements, " " * 8) + "\n"
    return define(text, half=half, macro=T.macro(half), torch=torch)["main"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mistake", PAIRS)
def test_the_mistake_is_told_and_its_repair_works(define, mistake):
    wrong, repaired, said, wanted = PAIRS[mistake]
    with pytest.raises(Exception, match=said):
        traced(define, wrong)
    main = traced(define, repaired)
    n = torch.arange(64, dtype=torch.int32) % 11
    a, x = torch.randn(64, 2), torch.randn(64)
    found = tilelang.compile(main, out_idx=-1, execution_backend="emulate")(a, x, n)
    torch.testing.assert_close(found, wanted(a, x, n).float(), rtol=1e-6, atol=1e-7)
