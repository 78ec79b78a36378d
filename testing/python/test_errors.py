"""Errors that a user can cause: the class, the kernel's place, what was found, and no launch."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

HERE = r"test_errors\.py:\d+"


def scale(n=64, dtype="float32"):
    @T.prim_func
    def main(A: T.Tensor((8, n), dtype), B: T.Tensor((8, n), dtype)):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(8, n):
                B[i, j] = A[i, j] * 2

    return main


@pytest.fixture(scope="module")
def kernel():
    return tilelang.compile(scale(), execution_backend="emulate")


def tensors():
    return torch.randn(8, 64), torch.full((8, 64), 7.0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (torch.randn(8), "expected 2 dimensions .* got 1"),
        (torch.randn(8, 63), "expected 64 at index 1 .* got 63"),
        (torch.randn(8, 64).double(), "expected float32, got float64"),
        (torch.randn(64, 8).t(), "non-contiguous: expected stride 1 at index 1"),
        (torch.randn(8, 64, device="meta"), "on device meta"),
    ],
    ids=["rank", "shape", "dtype", "contiguity", "device"],
)
def test_call_with_a_wrong_tensor(kernel, wrong, told):
    _, b = tensors()
    with pytest.raises(ValueError, match=rf"{HERE}.*parameter `A`.*{told}"):
        kernel(wrong, b)
    assert (b == 7).all()


def test_call_with_a_wrong_number_of_tensors(kernel):
    a, b = tensors()
    with pytest.raises(ValueError, match=rf"{HERE}.*Expected 2 inputs, got 3"):
        kernel(a, b, b)


def trace_error(error, told, define):
    with pytest.raises(error) as raised:
        define()
    text = str(raised.value)
    assert re.search(HERE, text), text
    assert re.search(told, text), text


def test_statement_without_meaning():
    def define():
        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1):
                try:
                    A[0] = 1.0
                finally:
                    A[1] = 1.0

    trace_error(NotImplementedError, "try", define)


def test_wrong_rank():
    def define():
        @T.prim_func
        def main(A: T.Tensor((8, 8), "float32")):
            with T.Kernel(1):
                A[0, 0, 0] = 1.0

    trace_error(IndexError, r"3.*2", define)


def test_gemm_shapes_that_do_not_match():
    def define():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float16")):
            with T.Kernel(1):
                S = T.alloc_shared((64, 32), "float16")
                W = T.alloc_shared((64, 64), "float16")
                F = T.alloc_fragment((64, 64), "float32")
                T.gemm(S, W, F)

    trace_error(AssertionError, r"K shape.*32.*64", define)


def test_more_shared_memory_than_the_target_has():
    @T.prim_func
    def main(A: T.Tensor((512, 128), "float32"), B: T.Tensor((512, 128), "float32")):
        with T.Kernel(1):
            S = T.alloc_shared((512, 128), "float32")
            T.copy(A, S)
            T.copy(S, B)

    with pytest.raises(ValueError, match=rf"(?s){HERE}.*262144.*S, float32\["):
        tilelang.lower(main, target="cuda -arch=sm_90a")
