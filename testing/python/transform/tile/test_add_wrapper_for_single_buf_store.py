"""Elements of fragments outside of T.Parallel: every thread holds them."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PASSES = ("Simplify", "AddWrapperForSingleBufStore")


def test_only_stores_of_fragments_are_wrapped(statements):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment((2,), "float32")
            S = T.alloc_shared((2,), "float32")
            F[1] = A[0]
            S[0] = A[1]
            A[2] = F[1]
            for i in T.Parallel(2):
                F[i] = A[i]

    text = statements(main, *PASSES)
    assert text.count("parallel_loop_layout") == 2
    assert re.search(r"\n\s*S\[0\] = A\[1\]\n", text)
    assert text.count("for u in T.parallel(1") == 2


@pytest.mark.parametrize("threads", [32, 96, 128])
def test_running_values_and_their_users(threads):
    @T.prim_func
    def main(A: T.Tensor((17,), "float32"), B: T.Tensor((100, 4), "float32")):
        with T.Kernel(1, threads=threads):
            F = T.alloc_fragment((2,), "float32")
            F[0] = 0.0
            F[1] = 1.0
            for k in T.serial(17):
                F[0] = F[0] + A[k]
                F[1] = T.max(F[1], A[k])
            for i in T.Parallel(100):
                B[i, 0] = F[0] * i
                B[i, 1] = F[1]
            B[0, 2] = F[0] - F[1]

    a = torch.randn(17, device=DEVICE)
    kernel = tilelang.compile(main)
    b = torch.zeros(100, 4, device=DEVICE)
    kernel(a, b)
    total, largest = a.double().sum(), a.double().max().clamp(min=1)
    rows = torch.arange(100, device=DEVICE)
    assert torch.allclose(b[:, 0].double(), total * rows, rtol=1e-5, atol=1e-3)
    assert torch.allclose(b[:, 1].double(), largest.expand(100))
    assert torch.allclose(b[0, 2].double(), total - largest, atol=1e-5)


def test_an_element_of_a_fragment_that_threads_share_out():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.clear(F)
            T.gemm(S, S, F)
            F[3, 5] = 1.0
            T.copy(F, C)

    a = torch.randint(-3, 4, (64, 64)).to(torch.float16).to(DEVICE)
    c = torch.zeros(64, 64, device=DEVICE)
    tilelang.compile(main)(a, c)
    wanted = a.float() @ a.float()
    wanted[3, 5] = 1
    assert torch.equal(c, wanted)
