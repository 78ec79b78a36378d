"""A 2-D convolution as a matrix product of gathered windows: check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math
from dataclasses import dataclass

import torch

import tilelang
import tilelang.language as T


def outputs(height, width, kernel, stride, dilation, pad):
    """Rows and columns of the result."""
    window = dilation * (kernel - 1) + 1
    return [(extent + 2 * pad - window) // stride + 1 for extent in (height, width)]


@tilelang.jit(out_idx=[-1])
def convolution(
    batch,
    height,
    width,
    channels,
    filters,
    kernel,
    stride=1,
    dilation=1,
    pad=0,
    block_M=128,
    block_N=128,
    block_K=32,
    num_stages=3,
    threads=256,
):
    """Output (batch, rows, columns, filters) of image (batch, height, width, channels) and weight
    (kernel, kernel, channels, filters)."""
    rows, columns = outputs(height, width, kernel, stride, dilation, pad)
    M, N, K = batch * rows * columns, filters, kernel * kernel * channels

    @T.prim_func
    def main(
        image: T.Tensor((batch, height, width, channels), T.float16),
        weight: T.Tensor((kernel, kernel, channels, filters), T.float16),
        output: T.Tensor((batch, rows, columns, filters), T.float16),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            window = T.alloc_shared((block_M, block_K), T.float16)
            weight_shared = T.alloc_shared((block_K, block_N), T.float16)
            out_local = T.alloc_fragment((block_M, block_N), T.float32)
            weight_matrix = T.view(weight, (K, N))
            output_matrix = T.view(output, (M, N))

            T.clear(out_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.im2col(image, window, by, k, kernel, stride, dilation, pad)
                T.copy(weight_matrix[k * block_K, bx * block_N], weight_shared)
                T.gemm(window, weight_shared, out_local)
            T.copy(out_local, output_matrix[by * block_M, bx * block_N])

    return main


@dataclass(frozen=True)
class Problem:
    """A convolution, by the parameters of its kernel."""

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    pad: int = 0

    @property
    def pixels(self):
        """Of the image."""
        return self.batch * self.height * self.width

    @property
    def results(self):
        """Pixels of the output."""
        steps = self.kernel, self.stride, self.dilation, self.pad
        return self.batch * math.prod(outputs(self.height, self.width, *steps))

    @property
    def taps(self):
        """Of a window."""
        return self.kernel**2


def inputs(problem, device="cpu"):
    """Image and weight, normally distributed."""
    torch.manual_seed(0)
    p = problem
    shapes = (p.batch, p.height, p.width, p.channels), (p.kernel, p.kernel, p.channels, p.filters)
    return [torch.randn(shape, device=device, dtype=torch.float16) for shape in shapes]


def relative_error(problem, image, weight, found):
    """||found - wanted|| / ||wanted||, which is computed in float64."""
    x, w = image.double().permute(0, 3, 1, 2), weight.double().permute(3, 2, 0, 1)
    wanted = torch.nn.functional.conv2d(
        x, w, None, problem.stride, problem.pad, problem.dilation
    ).permute(0, 2, 3, 1)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--image", type=int, nargs=4, default=[128, 64, 64, 128] if gpu else [2, 9, 10, 16]
    )
    batch, height, width, channels = image = parser.parse_args().image
    for kernel, stride, dilation, pad in [(3, 1, 1, 1), (3, 2, 1, 1), (1, 1, 1, 0)]:
        sizes = batch, height, width, channels, 128
        problem = Problem(*sizes, kernel, stride, dilation, pad)
        x, weight = inputs(problem, "cuda" if gpu else "cpu")
        error = relative_error(problem, x, weight, convolution(**vars(problem))(x, weight))
        assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
        print(f"{image}, kernel {kernel}, stride {stride}: relative error {error:.1e}")
