"""8-bit floats in tile programs: buffers, conversions, arithmetic, ragged edges."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("n", [100, 128, 129])
@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2"])
def test_conversions_and_arithmetic(dtype, n):
    """Each operation on 8-bit values rounds once, as torch's, which goes by way of float32."""
    m = 17

    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float32"),
        B: T.Tensor((m, n), dtype),
        C: T.Tensor((m, n), dtype),
        D: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            a = T.alloc_shared((m, 64), dtype)
            b = T.alloc_fragment((m, 64), dtype)
            c = T.alloc_fragment((m, 64), dtype)
            T.copy(A[0, bx * 64], a)
            T.copy(B[0, bx * 64], b)
            T.fill(c, 1.5)
            for i, j in T.Parallel(m, 64):
                c[i, j] = T.max(a[i, j] * b[i, j] + c[i, j], a[i, j])
            T.copy(c, C[0, bx * 64])
            T.copy(c, D[0, bx * 64])

    kernel = tilelang.compile(main, out_idx=[2, 3], execution_backend="auto")
    torch_dtype = T.dtype(dtype).as_torch()
    x = torch.randn(m, n)
    y = torch.randn(m, n).to(torch_dtype)
    c, d = kernel(x.to(DEVICE), y.to(DEVICE))
    a = x.to(torch_dtype)
    product = (a.float() * y.float()).to(torch_dtype)
    total = (product.float() + 1.5).to(torch_dtype)
    wanted = torch.maximum(total.float(), a.float())
    assert torch.equal(c.cpu().float(), wanted)
    assert torch.equal(d.cpu().float(), wanted)


@pytest.mark.parametrize("n", [256, 251])
def test_scales_of_microscaling_formats(n):
    """float8_e8m0fnu to and from float32, bfloat16, uint8: every code, against torch."""

    @T.prim_func
    def main(
        A: T.Tensor((n,), "float8_e8m0fnu"),
        x: T.Tensor((n,), "float32"),
        y: T.Tensor((n,), "bfloat16"),
        bits: T.Tensor((n,), "uint8"),
        back: T.Tensor((3, n), "float8_e8m0fnu"),
    ):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((256,), "float8_e8m0fnu")
            f = T.alloc_fragment((256,), "float32")
            T.copy(A[0], a)
            T.copy(a, f)
            T.copy(f[0:n], x)
            for i in T.Parallel(n):
                y[i] = a[i]
                bits[i] = T.reinterpret(a[i], "uint8")
                back[0, i] = f[i]
                back[1, i] = T.cast(y[i], "float8_e8m0fnu")
                back[2, i] = T.reinterpret(bits[i], T.float8_e8m0fnu)

    kernel = tilelang.compile(main, out_idx=[1, 2, 3, 4], execution_backend="auto")
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE)[256 - n :].clone()
    scales = codes.view(torch.float8_e8m0fnu)
    x, y, bits, back = kernel(scales)
    assert torch.equal(x.nan_to_num(7), scales.float().nan_to_num(7))
    assert torch.equal(y.nan_to_num(7), scales.bfloat16().nan_to_num(7))
    assert torch.equal(bits, codes)
    assert torch.equal(back.view(torch.uint8), codes.expand(3, n))
