"""Which tensors are ``__restrict__``: not those that a kernel writes and reads."""

import re

import pytest

import tilelang
import tilelang.language as T


@T.prim_func
def by_threads(
    A: T.Tensor((64,), "float32"),
    B: T.Tensor((64,), "float32"),
    C: T.Tensor((64,), "float32"),
):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            B[i] = A[i]
        for i in T.Parallel(64):
            C[i] = B[63 - i]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_tensor_that_other_threads_change_is_not_restrict(arch):
    """NVVM moves loads of a __restrict__ pointer over barriers."""
    kernel = tilelang.compile(by_threads, target=f"cuda -arch={arch}", execution_backend="emulate")
    head = re.search(r"by_threads_kernel\((.*?)\)", kernel.get_kernel_source())
    assert head is not None
    parameters = head[1].split(", ")
    assert parameters == ["const float* __restrict__ A", "float* B", "float* __restrict__ C"]


def test_no_pointer_is_restrict_beside_tensors_that_may_be_one():
    """NVVM would take A for memory that nothing writes, and load it in front of the store to B."""

    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")
    ):
        with T.Kernel(1, threads=64):
            T.annotate_restrict_buffers(A, B)
            tx = T.get_thread_binding()
            B[tx] = 1.0
            C[tx] = A[63 - tx]

    source = tilelang.compile(main, target="cuda -arch=sm_90a").get_kernel_source()
    assert "__restrict__" not in source
