"""Loops over shared memory whose lengths the run tells, against torch."""

import pytest
import torch

import tilelang.language as T


def add_length(form, A, S, k):
    """What is done to the zeros in S."""

    @T.macro
    def copy(A, S, k):
        T.copy(A[0:k], S[0:k])

    @T.macro
    def behind(A, S, k):
        T.copy(A[0:k], S[k : 2 * k])

    @T.macro
    def loop(A, S, k):
        for i in T.Parallel(k):
            S[i] = A[i]
        for i in T.Parallel(k):
            S[i] = S[i] * 2

    @T.macro
    def backwards(A, S, k):
        for i in T.Parallel(k):
            S[k - 1 - i] = A[i]

    @T.macro
    def every_second(A, S, k):
        for i in T.Parallel(k):
            S[2 * i + 1] = A[i]

    @T.macro
    def fill(A, S, k):
        T.fill(S[k : k + k], 9)

    @T.macro
    def in_turn(A, S, k):
        for t in T.serial(3):
            T.copy(A[0:k], S[0:k])
            for i in T.Parallel(k):
                S[i] = S[i] + t

    macros = [copy, behind, loop, backwards, every_second, fill, in_turn]
    return {macro.__name__: macro for macro in macros}[form](A, S, k)


WANTED = {
    "copy": lambda a, s, k: s[:k].copy_(a[:k]),
    "behind": lambda a, s, k: s[k : 2 * k].copy_(a[:k]),
    "loop": lambda a, s, k: s[:k].copy_(a[:k] * 2),
    "backwards": lambda a, s, k: s[:k].copy_(a[:k].flip(0)),
    "every_second": lambda a, s, k: s[1 : 2 * k : 2].copy_(a[:k]),
    "fill": lambda a, s, k: s[k : 2 * k].fill_(9),
    "in_turn": lambda a, s, k: s[:k].copy_(a[:k] + 2),
}


@pytest.mark.parametrize(
    ("form", "length"),
    [
        *((form, "scalar") for form in WANTED),
        *((form, source) for form in ("copy", "loop", "fill") for source in ("loaded", "dynamic")),
    ],
)
def test_of_shared_memory(compiled, device, form, length):
    n = T.dynamic("n")

    @T.prim_func
    def func(
        A: T.Tensor((n,), "float32"),
        C: T.Tensor((1000,), "float32"),
        L: T.Tensor((1,), "int32"),
        m: T.int32,
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((1000,), "float32")
            T.clear(S)
            if length == "scalar":
                add_length(form, A, S, m)
            elif length == "loaded":
                add_length(form, A, S, L[0])
            else:
                add_length(form, A, S, n)
            T.copy(S, C)

    kernel = compiled(func)
    for k in (0, 3, 413, 500):
        a = torch.randn(k if length == "dynamic" else 600, device=device)
        c, wanted = torch.ones(1000, device=device), torch.zeros(1000, device=device)
        WANTED[form](a, wanted, k)
        kernel(a, c, torch.tensor([k], dtype=torch.int32, device=device), k)
        assert torch.equal(c, wanted)


def test_a_buffer_shorter_than_a_pass(compiled, device):
    @T.prim_func
    def func(A: T.Tensor((96,), "float32"), C: T.Tensor((96,), "float32"), k: T.int32):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((96,), "float32")
            T.clear(S)
            T.copy(A[0:k], S[0:k])
            T.copy(S, C)

    kernel = compiled(func)
    a = torch.randn(96, device=device)
    for k in (0, 70, 96):
        c, wanted = torch.ones(96, device=device), torch.zeros(96, device=device)
        wanted[:k] = a[:k]
        kernel(a, c, k)
        assert torch.equal(c, wanted)
