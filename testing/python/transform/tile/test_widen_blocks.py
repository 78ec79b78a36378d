"""Twice as many threads, as a second choice of the compiler."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import Fragment

KEY = "tl.second_choice.more_threads"


def rows_of_threads():
    """Each of 128 threads has a row of 128 elements."""
    return Fragment([128, 128], forward_thread_fn=lambda i, j: i, forward_index_fn=lambda i, j: j)


def products(form, threads=128):
    """Two accumulators that take all registers of 128 threads."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 256), "float16"),
        B: T.Tensor((128, 256), "float16"),
        C: T.Tensor((128, 128), "float32"),
    ):
        with T.Kernel(2, threads=threads, cluster_dims=2 if form == "a cluster" else None):
            if form == "registers of producers":
                T.annotate_producer_reg_dealloc(24)
            elif form == "registers of consumers":
                T.annotate_consumer_reg_alloc(232)
            elif form == "no setmaxnreg":
                T.no_set_max_nreg()
            elif form == "an mbarrier":
                T.mbarrier_arrive(T.alloc_barrier(threads))
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((128, 64), "float16")
            product = T.alloc_fragment((128, 128), "float32")
            total = T.alloc_fragment((128, 128), "float32")
            if form == "a layout":
                T.annotate_layout({total: rows_of_threads()})
            T.clear(total)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(B[0, k * 64], b)
                if form == "no product":
                    T.clear(product)
                else:
                    T.gemm(a, b, product, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(128, 128):
                    total[i, j] += product[i, j] * (k + 1)
            if form == "a thread" and T.get_thread_binding() == 0:
                a[0, 0] = 1
            if form == "a vote" and T.any_sync(A[0, 0] > 1000):
                T.clear(total)
            if form == "roles":
                with T.ws(0):
                    T.copy(total, C)
            if form == "a barrier":
                T.sync_threads(5, 128)
            T.copy(total, C)

    return main


@pytest.mark.parametrize(
    ("form", "threads", "wider"),
    [
        ("plain", 128, 256),
        ("plain", 256, 512),
        ("plain", 384, 384),
        ("plain", (64, 2), 128),
        ("plain", 192, 192),
        ("no product", 128, 128),
        ("a layout", 128, 128),
        ("registers of producers", 128, 128),
        ("registers of consumers", 128, 128),
        ("no setmaxnreg", 128, 128),
        ("an mbarrier", 128, 128),
        ("roles", 128, 128),
        ("a cluster", 128, 128),
        ("a thread", 128, 128),
        ("a vote", 128, 128),
        ("a barrier", 128, 128),
    ],
)
def test_threads(tile_passes, form, threads, wider):
    func = products(form, threads)
    text = tile_passes(func, "WidenBlocks", arch="sm_90a", config={KEY: True})["main"].script()
    assert f'T.launch_thread("threadIdx.x", {wider})' in text, text
    text = tile_passes(func, "WidenBlocks", arch="sm_90a")["main"].script()
    first = threads if isinstance(threads, int) else threads[0]
    assert f'T.launch_thread("threadIdx.x", {first})' in text, text


def test_threads_of_another_dimension_stay(tile_passes):
    config = {KEY: True}
    func = products("plain", (64, 2))
    text = tile_passes(func, "WidenBlocks", arch="sm_90a", config=config)["main"].script()
    assert 'T.launch_thread("threadIdx.y", 2)' in text, text


def test_results():
    a, b, c = torch.randn(128, 256).half(), torch.randn(128, 256).half(), torch.zeros(128, 128)
    kernel = tilelang.compile(
        products("plain"),
        target="cuda -arch=sm_90a",
        execution_backend="emulate",
        pass_configs={KEY: True},
    )
    assert "__launch_bounds__(384" in kernel.get_kernel_source()
    kernel(a, b, c)
    parts = (t.double().view(128, 4, 64) for t in (a, b))
    scale = torch.arange(1, 5).double()
    wanted = torch.einsum("ikd,jkd,k->ij", *parts, scale)
    torch.testing.assert_close(c.double(), wanted, rtol=1e-4, atol=1e-3)
