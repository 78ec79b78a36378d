"""A linear layer in 8-bit floats, forward and backward (DeepSeek-V3, 2024). A cast makes a tensor
and its transpose, each with scales along the dimension that its products sum over; three products
follow. Check them against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from gemm_fp8 import counters, scaled_matmul

import tilelang
import tilelang.language as T

GROUP, LARGEST = 128, 448.0


@T.macro
def store_scales(top, scale, scales, first, group, square):
    """Scales of `group`, GROUP rows from `first` on, from their largest elements."""
    for i in T.Parallel(GROUP):
        # Not zero where the row is.
        scale[i] = T.max(T.cast(top[i], T.float32), 1e-4) / LARGEST
    if square:
        scales[first // GROUP, group] = scale[0]
    else:
        T.copy(scale, scales[group, first : first + GROUP])


@tilelang.jit
def cast_transpose(rows, columns, square=False, dtype=T.bfloat16, threads=256):
    """X (rows, columns) and its transpose in float8_e4m3fn, and scales whose products with them are
    X again: one for each 128 elements of a row of either, (columns / 128, rows) and (rows / 128,
    columns), or with `square`, for weights, one for each 128 x 128 elements, (rows / 128, columns /
    128) and its transpose."""
    tiles = -(-rows // GROUP), -(-columns // GROUP)

    @T.prim_func
    def main(X: T.Tensor((rows, columns), dtype)):
        Y = T.empty((rows, columns), T.float8_e4m3fn)
        Turned = T.empty((columns, rows), T.float8_e4m3fn)
        scales = T.empty(tiles if square else (tiles[1], rows), T.float32)
        scales_turned = T.empty(tiles[::-1] if square else (tiles[0], columns), T.float32)
        with T.Kernel(tiles[1], tiles[0], threads=threads) as (bx, by):
            x = T.alloc_fragment((GROUP, GROUP), dtype)
            y = T.alloc_fragment((GROUP, GROUP), T.float8_e4m3fn)
            turned = T.alloc_shared((GROUP, GROUP), T.float8_e4m3fn)
            row_top = T.alloc_fragment((GROUP,), dtype)
            column_top = T.alloc_fragment((GROUP,), dtype)
            top = T.alloc_fragment((1,), dtype)
            row_scale = T.alloc_fragment((GROUP,), T.float32)
            column_scale = T.alloc_fragment((GROUP,), T.float32)
            T.copy(X[by * GROUP, bx * GROUP], x)
            T.reduce_absmax(x, row_top, dim=1)
            T.reduce_absmax(x, column_top, dim=0)
            if square:
                T.reduce_max(row_top, top, dim=0)
                T.fill(row_top, top[0])
                T.fill(column_top, top[0])
            store_scales(row_top, row_scale, scales, by * GROUP, bx, square)
            store_scales(column_top, column_scale, scales_turned, bx * GROUP, by, square)
            for i, j in T.Parallel(GROUP, GROUP):
                y[i, j] = T.clamp(x[i, j] / row_scale[i], -LARGEST, LARGEST)
            for i, j in T.Parallel(GROUP, GROUP):
                turned[j, i] = T.clamp(x[i, j] / column_scale[j], -LARGEST, LARGEST)
            T.copy(y, Y[by * GROUP, bx * GROUP])
            T.copy(turned, Turned[bx * GROUP, by * GROUP])
        return Y, Turned, scales, scales_turned

    return main


def forward(x, w):
    """X W^T (rows, outputs) of X (rows, inputs) and W (outputs, inputs), and the transposes that
    gradients are computed from, with their scales."""
    (rows, inner), outputs = x.shape, w.shape[0]
    x8, x8_turned, scale_x, scale_x_turned = cast_transpose(rows, inner)(x)
    w8, w8_turned, scale_w, scale_w_turned = cast_transpose(outputs, inner, square=True)(w)
    counts = counters(rows, outputs, x.device)
    y = scaled_matmul(rows, outputs, inner)(x8, w8, scale_x, scale_w, counts)
    return y, (x8_turned, scale_x_turned, w8_turned, scale_w_turned)


def backward(d_y, saved):
    """dX, and dW in float32, to which gradients of other rows may be added."""
    x8_turned, scale_x, w8_turned, scale_w = saved
    (rows, outputs), inner = d_y.shape, len(x8_turned)
    d8, d8_turned, scale_d, scale_d_turned = cast_transpose(rows, outputs)(d_y)
    counts = counters(rows, inner, d_y.device)
    d_x = scaled_matmul(rows, inner, outputs)(d8, w8_turned, scale_d, scale_w, counts)
    kernel = scaled_matmul(outputs, inner, rows, rows_of_B=True, out_dtype=T.float32)
    counts = counters(outputs, inner, d_y.device)
    return d_x, kernel(d8_turned, x8_turned, scale_d_turned, scale_x, counts)


def inputs(rows, inner, outputs, device="cpu"):
    """X, W and dY, of which some rows are larger than others."""
    shapes = (rows, inner), (outputs, inner), (rows, outputs)
    x, w, d_y = (torch.randn(shape, device=device) for shape in shapes)
    size = torch.exp2(torch.randint(-3, 4, (rows, 1), device=device))
    return (x * size).bfloat16(), w.bfloat16(), (d_y / size).bfloat16()


def widened(values, scales, square=False):
    """What 8-bit values stand for, in float64."""
    scales = scales.double() if square else scales.double().T
    if square:
        scales = scales.repeat_interleave(GROUP, 0)[: len(values)]
    return values.double() * scales.repeat_interleave(GROUP, 1)[:, : values.shape[1]]


def relative_errors(rows, inner, outputs, device="cpu"):
    """||ours - float64|| / ||float64|| of Y, dX and dW, and of the products of what the casts have
    made for the last two."""
    torch.manual_seed(0)
    x, w, d_y = inputs(rows, inner, outputs, device)
    y, saved = forward(x, w)
    d_x, d_w = backward(d_y, saved)
    leaves = [t.double().requires_grad_() for t in (x, w)]
    product = leaves[0] @ leaves[1].T
    slopes = torch.autograd.grad(product, leaves, d_y.double())
    d8, d8_turned, *scales = cast_transpose(rows, outputs)(d_y)
    x8_turned, w8_turned = widened(*saved[:2]), widened(*saved[2:], square=True)
    pairs = {
        "Y": (y, product.detach()),
        "dX": (d_x, slopes[0]),
        "dW": (d_w, slopes[1]),
        "dX of casts": (d_x, widened(d8, scales[0]) @ w8_turned.T),
        "dW of casts": (d_w, widened(d8_turned, scales[1]) @ x8_turned.T),
    }
    return {name: float((a.double() - b).norm() / b.norm()) for name, (a, b) in pairs.items()}


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    rows, inner, outputs = parser.parse_args().size
    for name, error in relative_errors(rows, inner, outputs, "cuda" if gpu else "cpu").items():
        # Two factors are rounded to 4 bits, by 0.026 each on average. The tensor cores of some
        # chips keep fewer bits of a sum of 8-bit products than float32.
        bound = 1e-2 if "casts" in name else 5e-2
        assert error < bound, f"{name}: relative error {error:.1e}, wanted under {bound:.0e}"
        print(f"{rows} x {inner} x {outputs} {name}: relative error {error:.1e}")
