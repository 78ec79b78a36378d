"""Loops over float32 of a thread take two at once, where the chip has arithmetic of pairs."""

import pytest
import torch

import tilelang
import tilelang.language as T

ROWS, COLUMNS = 64, 256


def row_sums(bound):
    """Of 2 ** (x * 3 - bound)."""

    @T.prim_func
    def main(X: T.Tensor((ROWS, COLUMNS), T.float32), Y: T.Tensor((ROWS,), T.float32)):
        with T.Kernel(1, threads=256):
            x = T.alloc_fragment((ROWS, COLUMNS), T.float32)
            y = T.alloc_fragment((ROWS,), T.float32)
            T.copy(X, x)
            for i, j in T.Parallel(ROWS, COLUMNS):
                x[i, j] = T.exp2(x[i, j] * 3.0 - bound)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, Y)

    return main


def compiled(program, arch, backend="tvm_ffi"):
    return tilelang.compile(program, target=f"hip -mcpu={arch}", execution_backend=backend)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_products_and_sums_of_pairs(arch):
    kernel = compiled(row_sums(2.0), arch)
    source = kernel.get_kernel_source()
    assert "tl::exp2(tl::load<float, 2>(x" in source
    assert "tl::load<float, 2>(y_own_pair" in source
    assert "v_pk_fma_f32" in kernel.sass
    assert "v_pk_add_f32" in kernel.sass


def test_elsewhere_they_are_computed_one_by_one():
    assert "tl::load<float, 2>" not in compiled(row_sums(2.0), "gfx1100").get_kernel_source()


def test_the_sums_are_right():
    kernel = compiled(row_sums(2.0), "gfx942", "emulate")
    x, y = torch.randint(-2, 3, (ROWS, COLUMNS)).float(), torch.zeros(ROWS)
    kernel(x, y)
    # Powers of two from 2 ** -8 to 2 ** 4: their sums are exact.
    assert torch.equal(y, torch.exp2(x * 3 - 2).sum(1))


def test_columns_have_sums_of_their_own():
    """Elements that lie side by side in a thread belong to several results."""

    @T.prim_func
    def main(X: T.Tensor((ROWS, COLUMNS), T.float32), Y: T.Tensor((COLUMNS,), T.float32)):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((ROWS, COLUMNS), T.float32)
            y = T.alloc_fragment((COLUMNS,), T.float32)
            T.copy(X, x)
            T.reduce_sum(x, y, dim=0)
            T.copy(y, Y)

    x, y = torch.randint(-9, 9, (ROWS, COLUMNS)).float(), torch.zeros(COLUMNS)
    compiled(main, "gfx942", "emulate")(x, y)
    assert torch.equal(y, x.sum(0))


def test_a_loop_that_reads_what_it_wrote_keeps_its_order():
    @T.prim_func
    def main(X: T.Tensor((128, 8), T.float32)):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            x = T.alloc_local((9,), T.float32)
            x[0] = 1.0
            for k in T.unroll(8):
                x[k + 1] = x[k] * 2.0 + 1.0
            for k in T.unroll(8):
                X[tx, k] = x[k + 1]

    x = torch.zeros(128, 8)
    compiled(main, "gfx942", "emulate")(x)
    assert torch.equal(x[5], 2.0 ** torch.arange(2, 10) - 1)
