"""Reductions and what normalises by them, in one pass over a row's registers: layer norm with a
residual (Ba, Kiros, Hinton 2016) and its gradients."""

import pytest
import torch

import tilelang
import tilelang.language as T

EPS = 1e-5


def forward(width, rows=4, threads=64):
    """h = x + residual; y = (h - mean) / std * weight + bias."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, width), "bfloat16"),
        Residual: T.Tensor((length, width), "bfloat16"),
        Weight: T.Tensor((width,), "float32"),
        Bias: T.Tensor((width,), "float32"),
        H: T.Tensor((length, width), "bfloat16"),
        Y: T.Tensor((length, width), "bfloat16"),
        Mean: T.Tensor((length,), "float32"),
        Scale: T.Tensor((length,), "float32"),
    ):
        with T.Kernel(T.ceildiv(length, rows), threads=threads) as bx:
            x = T.alloc_fragment((rows, width), "bfloat16")
            residual = T.alloc_fragment((rows, width), "bfloat16")
            h = T.alloc_fragment((rows, width), "float32")
            squares = T.alloc_fragment((rows, width), "float32")
            mean = T.alloc_fragment((rows,), "float32")
            scale = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.copy(Residual[bx * rows, 0], residual)
            for i, j in T.Parallel(rows, width):
                h[i, j] = T.cast(x[i, j], "float32") + T.cast(residual[i, j], "float32")
            T.copy(h, H[bx * rows, 0])
            T.reduce_sum(h, mean, dim=1)
            for i in T.Parallel(rows):
                mean[i] /= width
            for i, j in T.Parallel(rows, width):
                h[i, j] -= mean[i]
                squares[i, j] = h[i, j] * h[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(rows):
                scale[i] = T.rsqrt(scale[i] / width + EPS)
            for i, j in T.Parallel(rows, width):
                h[i, j] = h[i, j] * scale[i] * Weight[j] + Bias[j]
            T.copy(h, Y[bx * rows, 0])
            T.copy(mean, Mean[bx * rows])
            T.copy(scale, Scale[bx * rows])

    return main


def backward(width, rows=4, threads=64, blocks=2):
    """Gradients of h, and of weight and bias. A block goes through each `blocks`-th group of rows
    and keeps its sums of columns in registers, which blocks add up at their end."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        H: T.Tensor((length, width), "bfloat16"),
        Weight: T.Tensor((width,), "float32"),
        Mean: T.Tensor((length,), "float32"),
        Scale: T.Tensor((length,), "float32"),
        dY: T.Tensor((length, width), "bfloat16"),
        dH: T.Tensor((length, width), "float32"),
        dWeight: T.Tensor((width,), "float32"),
        dBias: T.Tensor((width,), "float32"),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            normal = T.alloc_fragment((rows, width), "float32")
            dy = T.alloc_fragment((rows, width), "float32")
            product = T.alloc_fragment((rows, width), "float32")
            mean = T.alloc_fragment((rows,), "float32")
            scale = T.alloc_fragment((rows,), "float32")
            along = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            of_weight = T.alloc_fragment((width,), "float32")
            of_bias = T.alloc_fragment((width,), "float32")
            T.clear(of_weight)
            T.clear(of_bias)
            for step in T.serial(T.ceildiv(T.ceildiv(length, rows) - bx, blocks)):
                first = (step * blocks + bx) * rows
                T.copy(H[first, 0], normal)
                T.copy(dY[first, 0], dy)
                T.copy(Mean[first], mean)
                T.copy(Scale[first], scale)
                for i, j in T.Parallel(rows, width):
                    normal[i, j] = (normal[i, j] - mean[i]) * scale[i]
                    product[i, j] = dy[i, j] * normal[i, j]
                T.reduce_sum(product, of_weight, dim=0, clear=False)
                T.reduce_sum(dy, of_bias, dim=0, clear=False)
                for i, j in T.Parallel(rows, width):
                    dy[i, j] *= Weight[j]
                    product[i, j] = dy[i, j] * normal[i, j]
                T.reduce_sum(product, along, dim=1)
                T.reduce_sum(dy, total, dim=1)
                for i, j in T.Parallel(rows, width):
                    dy[i, j] = (dy[i, j] - (total[i] + normal[i, j] * along[i]) / width) * scale[i]
                T.copy(dy, dH[first, 0])
            T.atomic_add(dWeight, of_weight)
            T.atomic_add(dBias, of_bias)

    return main


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    width, length = 72, 11
    ahead, back = (
        tilelang.compile(p(width), execution_backend="auto", target=f"cuda -arch={arch}")
        for p in (forward, backward)
    )
    x, residual, dy = (torch.randn(length, width, device=device).bfloat16() for _ in range(3))
    weight, bias = torch.randn(2, width, device=device)
    h, y = (torch.full_like(x, torch.nan) for _ in range(2))
    mean, scale = (torch.full((length,), torch.nan, device=device) for _ in range(2))
    ahead(x, residual, weight, bias, h, y, mean, scale)
    torch.testing.assert_close(h, x + residual, rtol=0, atol=0)
    exact = [t.double().requires_grad_() for t in (x.double() + residual.double(), weight, bias)]
    wanted = torch.nn.functional.layer_norm(exact[0], (width,), *exact[1:], eps=EPS)
    torch.testing.assert_close(y.double(), wanted, rtol=1e-2, atol=1e-2)
    dh = torch.full((length, width), torch.nan, device=device)
    dweight, dbias = torch.zeros(2, width, device=device)
    back(h, weight, mean, scale, dy, dh, dweight, dbias)
    wanted.backward(dy.double())
    for found, leaf in zip((dh, dweight, dbias), exact, strict=True):
        torch.testing.assert_close(found.double(), leaf.grad, rtol=2e-2, atol=3e-2)
