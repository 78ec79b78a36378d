"""Products that ptxas would take for each other are in basic blocks of their own, and no others."""

import pytest

import tilelang
import tilelang.language as T


def kernel(body):
    """What `body(a, b, product, into)` makes of two tiles and fragments."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "bfloat16"),
        B: T.Tensor((64, 64), "bfloat16"),
        C: T.Tensor((64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "bfloat16")
            b = T.alloc_shared((64, 64), "bfloat16")
            product = T.alloc_fragment((64, 64), "float32")
            into = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(product)
            T.clear(into)
            body(a, b, product, into, n)
            T.copy(into, C)

    return tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")


@T.macro
def multiply(a, b, product, clear=True):
    T.wgmma_gemm(a, b, product, clear_accum=clear)
    T.wait_wgmma(0)


@T.macro
def add(product, into):
    for i, j in T.Parallel(64, 64):
        into[i, j] += product[i, j] * 2


@T.macro
def once(a, b, product, into, n):
    multiply(a, b, product)
    add(product, into)


@T.macro
def twice(a, b, product, into, n):
    once(a, b, product, into, n)
    once(b, a, product, into, n)


@T.macro
def with_a_wait_between(a, b, product, into, n):
    arrived = T.alloc_barrier(128)
    once(a, b, product, into, n)
    T.mbarrier_arrive(arrived)
    T.mbarrier_wait_parity(arrived, 0)
    once(b, a, product, into, n)


@T.macro
def in_a_loop(a, b, product, into, n):
    for _ in T.serial(n):
        once(a, b, product, into, n)


@T.macro
def in_copies(a, b, product, into, n):
    for _ in T.unroll(2):
        once(a, b, product, into, n)


@T.macro
def two_at_a_time(a, b, product, into, n):
    for _ in T.serial(n, annotations={"pragma_unroll_factor": 2}):
        once(a, b, product, into, n)


@T.macro
def one_at_a_time(a, b, product, into, n):
    for _ in T.unroll(n, unroll_factor=1):
        once(a, b, product, into, n)


@T.macro
def behind_a_loop(a, b, product, into, n):
    in_a_loop(a, b, product, into, n)
    once(b, a, product, into, n)


@T.macro
def without_a_read_between(a, b, product, into, n):
    multiply(a, b, product)
    multiply(b, a, product)
    add(product, into)


@T.macro
def added(a, b, product, into, n):
    once(a, b, product, into, n)
    multiply(b, a, product, clear=False)
    add(product, into)


@T.macro
def added_to_zeros(a, b, product, into, n):
    once(a, b, product, into, n)
    T.clear(product)
    multiply(b, a, product, clear=False)
    add(product, into)


@pytest.mark.parametrize(
    ("body", "places"),
    [
        *[(once, 0), (in_a_loop, 0), (without_a_read_between, 0), (added, 0)],
        *[(with_a_wait_between, 0), (one_at_a_time, 0), (two_at_a_time, 1)],
        *[(twice, 1), (in_copies, 1), (behind_a_loop, 1), (added_to_zeros, 1)],
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_places(body, places):
    source = kernel(body).get_kernel_source()
    assert source.count("tl::warpgroup_arrive_apart();") == places
