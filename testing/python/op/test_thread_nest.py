"""Copies, fills and atomic operations with memory of one thread: each thread has its own."""

import pytest
import torch

import tilelang.language as T

pytestmark = pytest.mark.usefixtures("tensors_on_device")


def test_each_thread_fills_and_copies_its_own(compiled):
    @T.prim_func
    def main(A: T.Tensor((32, 2, 4), "float16"), B: T.Tensor((32, 2, 4), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            held = T.alloc_local((2, 4), "float16")
            sums = T.alloc_local((2, 4), "float32")
            S = T.alloc_shared((32, 2, 4), "float32")
            T.fill(sums, 2)
            T.copy(A[tx, 0:2, 0:4], held)
            for i, j in T.grid(2, 4):
                sums[i, j] += held[i, j]
            T.clear(held[1, :])
            sums[1, 0] += held[1, 3]
            T.copy(sums, S[tx, 0:2, 0:4])
            T.copy(S[31 - tx, 0:2, 0:4], sums)
            T.copy(sums, B[31 - tx, 0:2, 0:4])

    kernel = compiled(main)
    assert "sums[i * 4 + j] = 2.0f;" in kernel.get_kernel_source()
    a, b = torch.randn(32, 2, 4).half(), torch.zeros(32, 2, 4)
    kernel(a, b)
    assert torch.equal(b, a.float() + 2)


def test_each_thread_adds_its_own(compiled):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), B: T.Tensor((2, 3), "int32")):
        with T.Kernel(2, threads=32):
            tx = T.get_thread_binding()
            sums, most = T.alloc_local((4,), "float32"), T.alloc_local((3,), "int32")
            T.fill(sums, tx)
            T.fill(most, tx)
            T.atomic_add(A, sums)
            T.atomic_max(B[1, :], most)

    a, b = torch.zeros(4), torch.zeros(2, 3, dtype=torch.int32)
    compiled(main)(a, b)
    assert torch.equal(a, torch.full((4,), 2.0 * 31 * 16))
    assert b.tolist() == [[0] * 3, [31] * 3]


def test_a_fragment_is_no_memory_of_one_thread(compiled):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            held = T.alloc_local((4,), "float32")
            tile = T.alloc_fragment((4,), "float32")
            T.copy(A, tile)
            T.copy(tile, held)

    message = "found tile, which is spread over the threads, beside memory of one thread.*shared"
    with pytest.raises(ValueError, match=message):
        compiled(main)
