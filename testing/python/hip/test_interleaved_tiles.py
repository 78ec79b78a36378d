"""Operands that are not K-major, where no instruction transposes them: vectors of neighbouring rows
or columns, one for each of several MMAs of a warp."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

TARGET = "hip -mcpu=gfx942"


def product(m, n, k, dtype, accumulator, trans_a, trans_b, threads=128):
    """op(A) @ op(B), one tile."""
    of_a, of_b = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)

    @T.prim_func
    def main(A: T.Tensor(of_a, dtype), B: T.Tensor(of_b, dtype), C: T.Tensor((m, n), accumulator)):
        with T.Kernel(1, threads=threads):
            a, b = T.alloc_shared(of_a, dtype), T.alloc_shared(of_b, dtype)
            c = T.alloc_fragment((m, n), accumulator)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, trans_a, trans_b)
            T.copy(c, C)

    return main


def check_product(target, m, n, k, dtype, accumulator, trans_a, trans_b, threads=128):
    program = product(m, n, k, dtype, accumulator, trans_a, trans_b, threads)
    kernel = tilelang.compile(program, out_idx=-1, target=target)
    a, b = (
        torch.randint(-4, 5, shape).to(getattr(torch, dtype))
        for shape in ((k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n))
    )
    wanted = (a.double().T if trans_a else a.double()) @ (b.double().T if trans_b else b.double())
    assert torch.equal(kernel(a, b).double(), wanted)
    return kernel.get_kernel_source()


@pytest.mark.parametrize(
    ("target", "dtype", "accumulator", "tile", "vectors"),
    [
        (TARGET, "float16", "float32", (64, 128, 32), {"b": 4}),
        ("hip -mcpu=gfx90a", "bfloat16", "float32", (256, 32, 16), {"a": 4}),
        (TARGET, "int8", "int32", (32, 256, 32), {"b": 4}),
        (TARGET, "float32", "float32", (128, 64, 16), {"a": 2, "b": 2}),
        ("hip -mcpu=gfx950", "float64", "float64", (32, 64, 16), {"b": 2}),
        ("hip -mcpu=gfx1100", "float16", "float32", (64, 64, 32), {"a": 2, "b": 2}),
        # Three MMAs of a wavefront.
        (TARGET, "float16", "float32", (64, 96, 32), {}),
    ],
)
def test_product(target, dtype, accumulator, tile, vectors):
    """A by columns and B by rows; one of them; and K of which the last part is multiplied by
    ordinary arithmetic."""
    m, n, k = tile
    source = check_product(target, m, n, k, dtype, accumulator, True, False)
    found = re.findall(r"(\w)_vector, tl::load<\w+, (\d+)>\(\1 ", source)
    assert {name: int(width) for name, width in found} == vectors
    check_product(target, m, n, k, dtype, accumulator, True, True)
    check_product(target, m, n, k + 4, dtype, accumulator, False, False)


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_layout_of_the_programs(by_rows):
    """Elements of a row that do not lie side by side are read by themselves."""
    layout = (lambda k, j: [k, j]) if by_rows else (lambda k, j: [j, k])

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((32, 128), "float16"),
        C: T.Tensor((64, 128), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 128), "float16")
            c = T.alloc_fragment((64, 128), "float32")
            T.annotate_layout({b: T.Layout((32, 128), layout)})
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    kernel = tilelang.compile(main, out_idx=-1, target=TARGET)
    assert ("b_vector, tl::load" in kernel.get_kernel_source()) == by_rows
    a, b = torch.randint(-4, 5, (64, 32)).half(), torch.randint(-4, 5, (32, 128)).half()
    assert torch.equal(kernel(a, b), a.float() @ b.float())


def test_a_conversion_of_two_floats_is_two_instructions():
    """The second one writes the upper half of the first one's register."""

    @T.prim_func
    def main(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), "float16")):
        with T.Kernel(1, threads=128):
            f, h = T.alloc_fragment((1024,), "float32"), T.alloc_fragment((1024,), "float16")
            T.copy(A, f)
            T.copy(f, h)
            T.copy(h, B)

    assembly = tilelang.compile(main, target=TARGET).sass
    for name, count in {"v_fma_mixlo_f16": 4, "v_fma_mixhi_f16": 4, "v_cvt_f16_f32": 0}.items():
        assert len(re.findall(rf"{name}", assembly)) == count
