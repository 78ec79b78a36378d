"""A product with weights of 4 bits, two in a byte, whose scales belong to groups along K (as in
GPTQ, Frantar et al. 2022); plain functions unpack them, which ask their operands for the type."""

import pytest
import torch

import tilelang
import tilelang.language as T

ROWS, COLUMNS, STEP = 64, 32, 64


def low_bits(x, position):
    """Nibble `position` of a byte, as a signed number."""
    assert x.dtype == T.uint8, f"found {x.dtype}"
    bits = (x >> (position * 4).astype("uint8")) & T.uint8(15)
    assert bits.dtype == "uint8"
    return bits.astype("int32") - 8


def scaled(x, scale):
    """The product in the type of the scale."""
    return x.astype(scale.dtype) * scale


def dequantised_gemm(
    group, n=None, k=None, rows=ROWS, columns=COLUMNS, step=STEP, threads=128, num_stages=2
):
    """C = A W^T, W (n, k) as W4 (n, k // 2) bytes and one scale for `group` elements along k."""
    m, n, k = T.dynamic("m"), n or T.dynamic("n"), k or T.dynamic("k")

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        W4: T.Tensor((n, k // 2), "uint8"),
        Scales: T.Tensor((n, k // group), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, rows), threads=threads) as (bx, by):
            a = T.alloc_shared((rows, step), "float16")
            packed = T.alloc_shared((columns, step // 2), "uint8")
            packed_local = T.alloc_fragment((columns, step // 2), "uint8")
            w_local = T.alloc_fragment((columns, step), "float16")
            w = T.alloc_shared((columns, step), "float16")
            acc = T.alloc_fragment((rows, columns), "float32")
            T.clear(acc)
            for t in T.Pipelined(T.ceildiv(k, step), num_stages=num_stages):
                T.copy(A[by * rows, t * step], a)
                T.copy(W4[bx * columns, t * (step // 2)], packed)
                T.copy(packed, packed_local)
                for i, j in T.Parallel(columns, step):
                    scale = T.if_then_else(
                        bx * columns + i < n and t * step + j < k,
                        Scales[bx * columns + i, (t * step + j) // group],
                        T.float16(0),
                    )
                    w_local[i, j] = scaled(low_bits(packed_local[i, j // 2], j % 2), scale)
                T.copy(w_local, w)
                T.gemm(a, w, acc, transpose_B=True)
            T.copy(acc, C[by * rows, bx * columns])

    return main


def quantised(n, k, group, device):
    """Weights (n, k) as packed nibbles and scales, and what they stand for, float16."""
    numbers = torch.randint(-8, 8, (n, k), device=device)
    nibbles = (numbers + 8).to(torch.uint8)
    scales = torch.rand(n, k // group, device=device).half()
    packed = nibbles[:, ::2] | nibbles[:, 1::2] << 4
    return packed, scales, numbers.half() * scales.repeat_interleave(group, 1)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    m, n, k, group = 67, 45, 160, 32
    kernel = tilelang.compile(
        dequantised_gemm(group), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    a = torch.randn(m, k).half().to(device)
    packed, scales, weights = quantised(n, k, group, device)
    c = torch.full((m, n), torch.nan, device=device)
    kernel(a, packed, scales, c)
    torch.testing.assert_close(c.double(), a.double() @ weights.double().T, rtol=1e-3, atol=1e-3)
