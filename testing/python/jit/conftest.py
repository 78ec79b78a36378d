"""A small program that the tests of this folder compile."""

import pytest

import tilelang.language as T


@pytest.fixture(scope="session")
def double():
    """A function of the size: the program B = 2 * A."""

    def program(n=256):
        @T.prim_func
        def double(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
            with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
                for i in T.Parallel(64):
                    B[bx * 64 + i] = A[bx * 64 + i] * 2

        return double

    return program
