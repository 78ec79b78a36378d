"""Rows in 8-bit floats with a scale for each group of elements: check them against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

LARGEST = 448.0  # of float8_e4m3fn


@tilelang.jit
def quantize(rows, width, group=128, block_M=8, threads=128, dtype=T.bfloat16):
    """X (rows, width) as float8_e4m3fn, and scales (rows, groups) in float32 whose product with it
    is X again; the largest element of each group is the largest that there is."""

    @T.prim_func
    def main(X: T.Tensor((rows, width), dtype)):
        Y = T.empty((rows, width), T.float8_e4m3fn)
        scales = T.empty((rows, T.ceildiv(width, group)), T.float32)
        with T.Kernel(T.ceildiv(width, group), T.ceildiv(rows, block_M), threads=threads) as (
            bx,
            by,
        ):
            tile = T.alloc_fragment((block_M, group), dtype)
            scaled = T.alloc_fragment((block_M, group), T.float8_e4m3fn)
            largest = T.alloc_fragment((block_M,), dtype)
            scale = T.alloc_fragment((block_M,), T.float32)

            T.copy(X[by * block_M, bx * group], tile)
            T.reduce_absmax(tile, largest, dim=1)
            for i in T.Parallel(block_M):
                # Not zero where the group is.
                scale[i] = T.max(T.cast(largest[i], T.float32), 1e-4) / LARGEST
                if by * block_M + i < rows:
                    scales[by * block_M + i, bx] = scale[i]
            for i, j in T.Parallel(block_M, group):
                scaled[i, j] = T.clamp(tile[i, j] / scale[i], -LARGEST, LARGEST)
            T.copy(scaled, Y[by * block_M, bx * group])
        return Y, scales

    return main


def errors(rows, width, group=128, device="cpu", **tile):
    """The largest differences: of the scales, relative, and of the elements, in roundings."""
    torch.manual_seed(0)
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    y, scales = quantize(rows, width, group, **tile)(x)
    padded = torch.nn.functional.pad(x.double(), (0, -width % group)).view(rows, -1, group)
    wanted = padded.abs().amax(-1).clamp(min=1e-4) / LARGEST
    found = y.double() * scales.double().repeat_interleave(group, 1)[:, :width]
    # Half of a unit in the last of 4 bits, above the smallest normal number, 2 ** -6.
    rounding = (x.double().abs() / 16).clamp(min=2.0**-10 * scales.max().double())
    element = ((found - x.double()).abs() / rounding).max()
    return float(((scales - wanted) / wanted).abs().max()), float(element)


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[8192, 7168] if gpu else [50, 500])
    rows, width = parser.parse_args().size
    scale, element = errors(rows, width, device="cuda" if gpu else "cpu")
    assert scale < 1e-6, f"scales differ by {scale:.1e}, wanted under 1e-6"
    assert element < 1.01, f"elements are {element:.2f} roundings off, wanted 1"
    print(f"{rows} x {width}: {element:.2f} roundings off")
