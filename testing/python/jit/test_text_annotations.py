"""Functions in eager style in a module whose annotations are text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T

pytestmark = pytest.mark.usefixtures("tensors_on_device")


def test_annotations_that_are_text():
    size, dtype = 64, T.float32

    @tilelang.jit
    def copy(A: T.Tensor[[size, T.dyn], Any], B, block: int = 32, out: T.dtype = "float32"):
        M, N = A.shape
        K = T.const("K")
        B: T.Tensor[[K], dtype]
        C = T.empty((M, N), out)
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i, j in T.Parallel(M, block):
                C[i, bx * block + j] = A[i, bx * block + j] + B[0] * K
        return C

    a, b = torch.randn(64, 40), torch.ones(2)
    assert torch.equal(copy(a, b), a + 2)
    assert copy.func.annot == {"A": "T.Tensor((64, A_shape_1$dyn), Any)"}
