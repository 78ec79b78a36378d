"""A product with weights of 4 bits, two in a byte, whose scales belong to groups along K (as in
GPTQ, Frantar et al. 2022); plain functions unpack them, which ask their operands for the type."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

ROWS, COLUMNS, STEP = 64, 64, 64


def low_bits(x, position):
    """Nibble `position` of a byte, as a signed number."""
    assert x.dtype == T.uint8, f"found {x.dtype}"
    bits = (x >> (position * 4).astype("uint8")) & T.uint8(15)
    assert bits.dtype == "uint8"
    return bits.astype("int32") - 8


def scaled_by(x, scale):
    """The product in the type of the scale."""
    return x.astype(scale.dtype) * scale


def dequantised_gemm(
    group, n=None, k=None, rows=ROWS, columns=COLUMNS, step=STEP, threads=128, num_stages=2, split=1
):
    """C = A W^T, W (n, k) as W4 (n, k // 2) bytes and one scale for `group` elements along k.

    It is computed as its transpose, so that weights are unpacked into the registers that the matrix
    instruction reads. `split` blocks share k and add to C, which is zero before."""
    m, n, k = T.dynamic("m"), n or T.dynamic("n"), k or T.dynamic("k")
    scaled = min(group, step)

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        W4: T.Tensor((n, k // 2), "uint8"),
        Scales: T.Tensor((k // group, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, rows), split, threads=threads) as (
            bx,
            by,
            bz,
        ):
            a = T.alloc_shared((rows, step), "float16")
            packed = T.alloc_shared((columns, step // 2), "uint8")
            scales = T.alloc_shared((step // scaled, columns), "float16")
            packed_local = T.alloc_fragment((columns, step // 2), "uint8")
            w = T.alloc_fragment((columns, step), "float16")
            acc = T.alloc_fragment((columns, rows), "float32")
            c = T.alloc_shared((rows, columns), "float32")
            T.annotate_layout({packed: make_swizzled_layout(packed)})
            T.clear(acc)
            steps = T.ceildiv(k, step * split)
            for t in T.Pipelined(steps, num_stages=num_stages):
                first = (bz * steps + t) * step
                T.copy(A[by * rows, first], a)
                T.copy(W4[bx * columns, first // 2], packed)
                T.copy(Scales[first // group, bx * columns], scales)
                T.copy(packed, packed_local)
                for i, j in T.Parallel(columns, step):
                    scale = scales[j // scaled, i]
                    w[i, j] = scaled_by(low_bits(packed_local[i, j // 2], j % 2), scale)
                T.gemm(w, a, acc, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(columns, rows):
                c[j, i] = acc[i, j]
            if split == 1:
                T.copy(c, C[by * rows, bx * columns])
            else:
                T.atomic_add(C[by * rows, bx * columns], c)

    return main


def unpacked_to_a_tile(
    group, n=None, k=None, rows=ROWS, columns=COLUMNS, step=STEP, threads=128, num_stages=2
):
    """The same C, as float16 and not turned: weights go to a tile in shared memory, as most
    programs have it, and the compiler chooses their way to the matrix instruction."""
    m, n, k = T.dynamic("m"), n or T.dynamic("n"), k or T.dynamic("k")
    scaled = min(group, step)

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        W4: T.Tensor((n, k // 2), "uint8"),
        Scales: T.Tensor((k // group, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, rows), threads=threads) as (bx, by):
            a = T.alloc_shared((rows, step), "float16")
            packed = T.alloc_shared((columns, step // 2), "uint8")
            scales = T.alloc_shared((step // scaled, columns), "float16")
            w = T.alloc_shared((columns, step), "float16")
            acc = T.alloc_fragment((rows, columns), "float32")
            T.clear(acc)
            for t in T.Pipelined(T.ceildiv(k, step), num_stages=num_stages):
                T.copy(A[by * rows, t * step], a)
                T.copy(W4[bx * columns, t * step // 2], packed)
                T.copy(Scales[t * step // group, bx * columns], scales)
                for i, j in T.Parallel(columns, step):
                    scale = scales[j // scaled, i]
                    w[i, j] = scaled_by(low_bits(packed[i, j // 2], j % 2), scale)
                T.gemm(a, w, acc, transpose_B=True)
            T.copy(acc, C[by * rows, bx * columns])

    return main


def quantised(n, k, group, device):
    """Weights (n, k) as packed nibbles and scales, and what they stand for, float16."""
    numbers = torch.randint(-8, 8, (n, k), device=device)
    nibbles = (numbers + 8).to(torch.uint8)
    scales = torch.rand(k // group, n, device=device).half()
    packed = nibbles[:, ::2] | nibbles[:, 1::2] << 4
    return packed, scales, numbers.half() * scales.T.repeat_interleave(group, 1)


@pytest.mark.parametrize(("arch", "split"), [("sm_80", 1), ("sm_90a", 1), ("sm_90a", 2)])
def test_results(device, arch, split):
    m, n, k, group = 67, 45, 160, 32
    kernel = tilelang.compile(
        dequantised_gemm(group, split=split), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    a = torch.randn(m, k).half().to(device)
    packed, scales, weights = quantised(n, k, group, device)
    c = torch.full((m, n), torch.nan if split == 1 else 0.0, device=device)
    kernel(a, packed, scales, c)
    torch.testing.assert_close(c.double(), a.double() @ weights.double().T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_weights_in_a_tile(device, arch):
    m, n, k, group = 67, 48, 160, 32
    kernel = tilelang.compile(
        unpacked_to_a_tile(group), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    assert ("tl::wgmma_rs<" in kernel.get_kernel_source()) == (arch == "sm_90a")
    a = torch.randn(m, k).half().to(device)
    packed, scales, weights = quantised(n, k, group, device)
    c = torch.full((m, n), torch.nan, device=device).half()
    kernel(a, packed, scales, c)
    torch.testing.assert_close(c.double(), a.double() @ weights.double().T, rtol=2e-3, atol=0.02)
