"""Names that each read the one before twice: what is lowered stays as long as the program."""

import pytest

import tilelang.language as T
from tilelang.engine.lower import lower

ROUNDS = 24


@T.prim_func
def hash_of_places(C: T.Tensor((256,), T.uint32)):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(256):
            v = T.cast(i, T.uint32)
            for _ in list(range(ROUNDS)):
                v = v ^ (v << 13)
            C[i] = v


@T.prim_func
def hash_of_elements(A: T.Tensor((256,), T.uint32), C: T.Tensor((256,), T.uint32)):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(256):
            v = A[i]
            for _ in list(range(ROUNDS)):
                v = v ^ (v << 13)
            C[i] = v


@pytest.mark.parametrize("program", [hash_of_places, hash_of_elements])
def test_a_chain_of_names_is_not_written_out(program):
    """Each round would double it, to 2^24 names."""
    assert len(lower(program, target="cuda -arch=sm_90a").kernel_source) < 2**19
