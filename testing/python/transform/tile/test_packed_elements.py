"""Loops whose neighbouring iterations share an element, as unpacking bytes does: index `v // n`."""

import pytest
import torch

import tilelang
import tilelang.language as T

ROWS, BYTES = 32, 32


@T.macro
def unpack(packed, values, n):
    for i, j in T.Parallel(ROWS, BYTES * n):
        shift = T.cast(j % n * (8 // n), "uint8")
        values[i, j] = T.cast(packed[i, j // n] >> shift & (2 ** (8 // n) - 1), "float16")


def copy_unpacked(n):
    """The loop follows the bytes."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, BYTES), "uint8"), B: T.Tensor((ROWS, BYTES * n), "float16")):
        with T.Kernel(1, threads=64):
            packed = T.alloc_fragment((ROWS, BYTES), "uint8")
            values = T.alloc_fragment((ROWS, BYTES * n), "float16")
            T.copy(A, packed)
            unpack(packed, values, n)
            T.copy(values, B)

    return main


def multiply_unpacked(n):
    """The bytes follow the loop, and that the operand of the product in registers."""

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, BYTES), "uint8"),
        B: T.Tensor((BYTES * n, 32), "float16"),
        C: T.Tensor((ROWS, 32), "float32"),
    ):
        with T.Kernel(1, threads=64):
            packed = T.alloc_fragment((ROWS, BYTES), "uint8")
            values = T.alloc_fragment((ROWS, BYTES * n), "float16")
            S = T.alloc_shared((BYTES * n, 32), "float16")
            F = T.alloc_fragment((ROWS, 32), "float32")
            T.copy(A, packed)
            T.copy(B, S)
            unpack(packed, values, n)
            T.clear(F)
            T.gemm(values, S, F)
            T.copy(F, C)

    return main


def unpacked(a, n):
    bits = 8 // n
    return torch.stack([a >> bits * k & 2**bits - 1 for k in range(n)], -1).flatten(1).double()


def build(func):
    return tilelang.compile(
        func, out_idx=-1, target={"kind": "cuda", "arch": "sm_80"}, execution_backend="emulate"
    )


def threads_of(layout):
    size = layout.num_replicas
    table = layout.thread_table()
    return [tuple(sorted(table[k : k + size])) for k in range(0, len(table), size)]


@pytest.mark.parametrize("func", [copy_unpacked, multiply_unpacked])
def test_thread_has_the_byte_of_its_elements(tile_passes, layouts, func):
    found, _ = layouts(tile_passes(func(2), "Simplify", "LayoutInference"))
    packed, values = threads_of(found["packed"]), threads_of(found["values"])
    assert values == [threads for threads in packed for _ in range(2)]


@pytest.mark.parametrize("n", [2, 4])
def test_bytes_are_unpacked(n):
    a = torch.randint(0, 256, (ROWS, BYTES), dtype=torch.uint8)
    assert torch.equal(build(copy_unpacked(n))(a).double(), unpacked(a, n))


def test_product_of_unpacked_bytes():
    a, b = (
        torch.randint(0, 256, (ROWS, BYTES), dtype=torch.uint8),
        torch.randn(BYTES * 2, 32).half(),
    )
    kernel = build(multiply_unpacked(2))
    assert "values_shared" not in kernel.get_kernel_source()
    wanted = unpacked(a, 2) @ b.double()
    torch.testing.assert_close(kernel(a, b).double(), wanted, atol=1e-3, rtol=1e-4)


def test_elements_that_threads_would_have_to_share_go_through_shared_memory():
    # A register of the operand has two elements along K, the byte four.
    a, b = (
        torch.randint(0, 256, (ROWS, BYTES), dtype=torch.uint8),
        torch.randn(BYTES * 4, 32).half(),
    )
    kernel = build(multiply_unpacked(4))
    assert "_shared" in kernel.get_kernel_source()
    wanted = unpacked(a, 4) @ b.double()
    torch.testing.assert_close(kernel(a, b).double(), wanted, atol=1e-3, rtol=1e-4)
