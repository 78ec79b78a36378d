"""Which accesses may be of one element: many pairs of them."""

import time

import pytest

import tilelang
import tilelang.language as T


@pytest.mark.parametrize("place", ["constant", "thread"])
def test_many_statements_of_one_buffer_are_told_apart_by_bounds(place):
    """Each pair was analysed: 300 statements took 27 s on a busy machine, now 26 ms."""

    @T.prim_func
    def main(A: T.Tensor((12800,), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            for i in T.unroll(400, explicit=True):
                A[i * 32 + (tx if place == "thread" else 0)] += 1

    start = time.process_time()
    tilelang.lower(main, target="cuda -arch=sm_90a")
    assert time.process_time() - start < 5
