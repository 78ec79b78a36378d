"""Choices between functions of values have no branch; loads that the condition guards keep it."""

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
