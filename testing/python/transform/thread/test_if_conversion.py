"""Choices between functions of values have no branch; loads that the condition guards keep it."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T


def weights(value):
    """exp2(x - shift[i]) where `value` of it says so, of 100 rows of 128, which are registers."""

    @T.prim_func
    def main(
        X: T.Tensor((128, 64), "float32"),
        Shift: T.Tensor((128,), "float32"),
        Rows: T.int32,
        Y: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((128, 64), "float32")
            shift = T.alloc_shared((128,), "float32")
            T.copy(X, x)
            T.copy(Shift, shift)
            for i, j in T.Parallel(128, 64):
                x[i, j] = value(x[i, j], shift, i, Rows)
            T.copy(x, Y)

    return main


def masked(x, shift, i, rows):
    return T.if_then_else(i < rows, T.exp2(x - shift[i]), -1)


def test_an_exponential_is_computed_in_any_case(device):
    kernel = tilelang.compile(weights(masked), execution_backend="auto")
    source = kernel.get_kernel_source()
    assert "tl::select<" in source
    # What the condition guards is read where it holds alone.
    assert source.count("? tl::load") + source.count("? shift[") > 0
    x, shift = torch.randn(128, 64, device=device), torch.randn(128, device=device)
    y = torch.full_like(x, torch.nan)
    kernel(x, shift, 100, y)
    wanted = torch.exp2(x - shift[:, None])
    wanted[100:] = -1
    torch.testing.assert_close(y, wanted)


def test_what_may_trap_or_is_long_stays_behind_its_branch():
    values = (
        lambda x, shift, i, rows: T.if_then_else(i < rows, T.exp2(x) * (100 // rows), 0),
        lambda x, shift, i, rows: T.if_then_else(i < rows, T.sin(x - shift[i]), 0),
        lambda x, shift, i, rows: T.if_then_else(shift[i] < 0, T.exp2(x - shift[i]), 0),
        lambda x, shift, i, rows: T.if_then_else(i < rows, shift[i], x),
    )
    for value in values:
        kernel = tilelang.compile(weights(value), target="cuda -arch=sm_90a")
        assert "tl::select<" not in kernel.get_kernel_source()


def test_both_loads_of_a_choice_in_a_choice_are_guarded(device):
    """The inner condition does not hold behind the last row, either: there its other load was made,
    out of bounds."""

    @T.prim_func
    def main(
        A: T.Tensor((100, 64), "float32"),
        B: T.Tensor((100,), "float32"),
        Y: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            y = T.alloc_fragment((128, 64), "float32")
            for i, j in T.Parallel(128, 64):
                of_row = T.if_then_else(j < 40, A[i, j], B[i])
                y[i, j] = T.if_then_else(i < 100, T.exp2(of_row), 0)
            T.copy(y, Y)

    kernel = tilelang.compile(main)
    (line,) = [s for s in kernel.get_kernel_source().splitlines() if "exp2" in s]
    assert "tl::select<" in line
    assert line.count("100") == line.count("? ") + 1  # each load's condition, and the choice's
    a, b = torch.randn(100, 64, device=device), torch.randn(100, device=device)
    y = torch.full((128, 64), torch.nan, device=device)
    kernel(a, b, y)
    wanted = torch.zeros_like(y)
    wanted[:100] = torch.exp2(torch.where(torch.arange(64, device=device) < 40, a, b[:, None]))
    torch.testing.assert_close(y, wanted)


@pytest.mark.parametrize("value", [lambda x: 2 * x, T.exp2])
def test_loads_of_a_select_are_guarded(device, value):
    """TVM drops their guards, since it takes the condition for a fact in the operands."""

    @T.prim_func
    def main(A: T.Tensor((100,), "float32"), Y: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                Y[i] = T.Select(i < 100, value(A[i]), 0)

    kernel = tilelang.compile(main)
    assert re.search(r"tx < 100 \? [\w:(]*A\[tx\]", kernel.get_kernel_source())
    a, y = torch.randn(100, device=device), torch.full((128,), torch.nan, device=device)
    kernel(a, y)
    wanted = torch.zeros_like(y)
    wanted[:100] = 2 * a if value is not T.exp2 else torch.exp2(a)
    torch.testing.assert_close(y, wanted)
