"""Activations for 8-bit products: SiLU(gate) * up, then each row as 8-bit floats or integers with a
scale of its own; and weights with a scale for each 128 x 128 block. Check them against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

LARGEST = {"float8_e4m3fn": 448.0, "int8": 127.0}


def threads_for(width):
    """Threads of a block that share a row in vectors of 8 elements, 16 bytes, if there are."""
    return next((n for n in (256, 128, 512, 64) if width % (8 * n) == 0), 128)


@tilelang.jit
def quantize_tokens(width, gated=False, out_dtype=T.float8_e4m3fn, dtype=T.bfloat16, threads=None):
    """X (rows, width) as `out_dtype`, and scales (rows,) in float32 whose product with it is X
    again. With `gated` a row has twice as many elements, a and b, and what is quantised is
    SiLU(a) * b. A row stays in registers."""
    rows, largest = T.dynamic("rows"), LARGEST[str(out_dtype)]
    threads = threads or threads_for(width)

    @T.prim_func
    def main(X: T.Tensor((rows, width * (2 if gated else 1)), dtype)):
        Y, scales = T.empty((rows, width), out_dtype), T.empty((rows,), T.float32)
        with T.Kernel(rows, threads=threads) as row:
            x = T.alloc_fragment((width,), dtype)
            up = T.alloc_fragment((width,), dtype)
            value = T.alloc_fragment((width,), T.float32)
            y = T.alloc_fragment((width,), out_dtype)
            top = T.alloc_fragment((1,), T.float32)
            T.copy(X[row, :width], x)
            if gated:
                T.copy(X[row, width:], up)
            for j in T.Parallel(width):
                value[j] = T.cast(x[j], T.float32)
                if gated:
                    value[j] = value[j] / (1 + T.exp(-value[j])) * up[j]
            T.reduce_absmax(value, top, dim=0)
            for i in T.Parallel(1):
                # Not zero where the row is.
                top[i] = T.max(top[i], 1e-4)
                scales[row] = top[i] / largest
            for j in T.Parallel(width):
                scaled = value[j] * (largest / top[0])
                if str(out_dtype) == "int8":
                    scaled = T.round(scaled)
                y[j] = T.clamp(scaled, -largest, largest)
            T.copy(y, Y[row, :])
        return Y, scales

    return main


@tilelang.jit
def quantize_blocks(N, K, block=128, dtype=T.bfloat16, threads=256):
    """W (N, K) as float8_e4m3fn, and scales (N / block, K / block) in float32, one for each square,
    whose product with it is W again."""
    largest = LARGEST["float8_e4m3fn"]

    @T.prim_func
    def main(W: T.Tensor((N, K), dtype)):
        Y = T.empty((N, K), T.float8_e4m3fn)
        scales = T.empty((T.ceildiv(N, block), T.ceildiv(K, block)), T.float32)
        with T.Kernel(T.ceildiv(K, block), T.ceildiv(N, block), threads=threads) as (bx, by):
            # Of one dimension, so that one step reduces it.
            w = T.alloc_fragment((block * block,), dtype)
            y = T.alloc_fragment((block * block,), T.float8_e4m3fn)
            top = T.alloc_fragment((1,), dtype)
            for i, j in T.Parallel(block, block):
                w[i * block + j] = W[by * block + i, bx * block + j]
            T.reduce_absmax(w, top, dim=0)
            tallest = T.max(T.cast(top[0], T.float32), 1e-4)
            factor = T.alloc_var(T.float32, init=largest / tallest)
            # No product is so far beyond `largest` that it would not be rounded to it.
            for j in T.Parallel(block * block):
                y[j] = T.cast(w[j], T.float32) * factor
            for i, j in T.Parallel(block, block):
                Y[by * block + i, bx * block + j] = y[i * block + j]
            scales[by, bx] = tallest / largest
        return Y, scales

    return main


def reference(x, gated=False, largest=448.0):
    """Values and scales of rows in float64."""
    x = x.double()
    if gated:
        gate, up = x.chunk(2, dim=1)
        x = torch.nn.functional.silu(gate) * up
    return x, x.abs().amax(1).clamp(min=1e-4) / largest


def roundings(y, wanted, scales):
    """The largest difference of y * scales from `wanted`, in roundings of y's dtype."""
    difference = (y.double() * scales - wanted).abs()
    if y.dtype == torch.int8:
        return float((difference / (scales / 2)).max())
    # Half of a unit in the last of 4 bits, above the smallest normal number, 2 ** -6.
    rounding = torch.maximum(wanted.abs() / 16, 2.0**-10 * scales)
    return float((difference / rounding).max())


def off_tokens(rows, width, gated, out_dtype, device="cpu"):
    """How many roundings rows are off; the scales are checked."""
    torch.manual_seed(0)
    x = torch.randn(rows, width * (2 if gated else 1), device=device).bfloat16()
    y, scales = quantize_tokens(width, gated, out_dtype)(x)
    value, wanted = reference(x, gated, LARGEST[str(out_dtype)])
    assert ((scales - wanted) / wanted).abs().max() < 1e-5, "scales differ"
    return roundings(y, value, scales.double()[:, None])


def off_blocks(N, K, device="cpu"):
    """How many roundings blocks are off; the scales are checked."""
    torch.manual_seed(0)
    w = torch.randn(N, K, device=device).bfloat16()
    y, scales = quantize_blocks(N, K)(w)
    padded = torch.nn.functional.pad(w.double().abs(), (0, -K % 128, 0, -N % 128))
    wanted = padded.unfold(0, 128, 128).unfold(1, 128, 128).amax((2, 3)) / 448
    assert ((scales - wanted) / wanted).abs().max() < 1e-5, "scales differ"
    wide = scales.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    return roundings(y, w.double(), wide[:N, :K])


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[8192, 7168] if gpu else [9, 1000])
    rows, width = parser.parse_args().size
    device = "cuda" if gpu else "cpu"
    for name, off in [
        ("rows", off_tokens(rows, width, False, T.float8_e4m3fn, device)),
        ("SiLU and rows", off_tokens(rows, width, True, T.float8_e4m3fn, device)),
        ("rows as int8", off_tokens(rows, width, False, T.int8, device)),
        ("blocks", off_blocks(rows + 200, width // 4, device)),
    ]:
        assert off < 1.01, f"{name}: {off:.2f} roundings off, wanted 1"
        print(f"{name} of {rows} x {width}: {off:.2f} roundings off")
