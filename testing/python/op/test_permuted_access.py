"""Loops that name each element of a fragment once, in another order than their own."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T


def compiled(program, arch="sm_80"):
    return tilelang.compile(program, target=f"cuda -arch={arch}", execution_backend="emulate")


def test_a_free_fragment_in_another_order_stays_in_registers():
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), C: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((32, 64), "float32")
            for i, j, k in T.Parallel(32, 16, 4):
                F[i, j * 4 + k] = A[i, k * 16 + j]
            T.copy(F, C)

    kernel = compiled(main)
    assert "shared" not in kernel.get_kernel_source()
    a, c = torch.randn(32, 64), torch.full((32, 64), torch.nan)
    kernel(a, c)
    torch.testing.assert_close(c, a.view(32, 4, 16).transpose(1, 2).reshape(32, 64))


ORDERS = {
    # What an MMA's thread has of a row of A, 32 elements of 128, lies side by side.
    "thread": lambda j: j % 8 // 2 * 32 + j // 16 * 4 + j % 16 // 8 * 2 + j % 2,
    "pairs": lambda j: j % 2 * 64 + j // 2,
    "reversed": lambda j: 127 - j,
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("order", ORDERS)
def test_an_operand_of_an_mma_in_another_order(order, arch):
    place = ORDERS[order]

    @T.prim_func
    def main(
        A: T.Tensor((128, 128), "int8"),
        B: T.Tensor((64, 128), "float16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((128, 128), "int8")
            B_shared = T.alloc_shared((64, 128), "float16")
            A_local = T.alloc_fragment((128, 128), "int8")
            A_half = T.alloc_fragment((128, 128), "float16")
            C_local = T.alloc_fragment((128, 64), "float32")
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.copy(A_shared, A_local)
            for i, j in T.Parallel(128, 128):
                A_half[i, j] = T.cast(A_local[i, place(j)], "float16")
            T.gemm(A_half, B_shared, C_local, transpose_B=True, clear_accum=True)
            T.copy(C_local, C)

    kernel = compiled(main, arch)
    source = kernel.get_kernel_source()
    assert ("A_local_shared" in source) == (order == "reversed")
    if order == "thread":
        assert "tl::load<int8_t, 16>(A_shared" in source
    a, b = torch.randint(-8, 8, (128, 128), dtype=torch.int8), torch.randint(-8, 8, (64, 128))
    c = torch.full((128, 64), torch.nan)
    kernel(a, b.half(), c)
    ordered = a.double()[:, [place(j) for j in range(128)]]
    assert torch.equal(c.double(), ordered @ b.double().T)


def test_registers_of_a_role_have_constant_numbers():
    """A consumer's threads do not begin at 0: that their number drops out shows by its bounds."""

    def place(i):  # A thread's rows g, g + 8, g + 64 and g + 72 are neighbours.
        return i % 64 // 16 * 32 + i % 8 * 4 + i // 64 * 2 + i % 16 // 8

    @T.prim_func
    def main(
        A: T.Tensor((256, 128), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 128), "float16")
            B_shared = T.alloc_shared((64, 64), "float16")
            A_rows = T.alloc_fragment((64, 128), "float16")
            A_local = T.alloc_fragment((128, 64), "float16")
            C_local = T.alloc_fragment((128, 64), "float32")
            T.clear(C_local)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64, 0], A_shared)
                T.copy(B[k * 64, 0], B_shared)
                T.copy(A_shared, A_rows)
                for i, j in T.Parallel(128, 64):
                    A_local[i, j] = A_rows[j, place(i)]
                T.gemm(A_local, B_shared, C_local)
            T.copy(C_local, C)

    kernel = compiled(main, "sm_90a")
    source = kernel.get_kernel_source()
    read = re.findall(r"= A_rows\[(.*)\];", source)
    assert read
    assert not any("tx" in number for number in read)
    a, b = torch.randint(-8, 8, (256, 128)), torch.randint(-8, 8, (256, 64))
    c = torch.full((128, 64), torch.nan)
    kernel(a.half(), b.half(), c)
    assert torch.equal(c.double(), a.double().T[[place(i) for i in range(128)]] @ b.double())
