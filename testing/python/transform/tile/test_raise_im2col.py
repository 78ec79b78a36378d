"""Loops that gather windows of an image become T.im2col, where they are that."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def convolution(
    image=(4, 13, 11, 64),
    kernel=3,
    stride=1,
    dilation=1,
    pad=1,
    tile=(64, 32),
    form="",
    filters=16,
    threads=128,
):
    """A convolution whose windows a loop gathers; `form`: what is different about the loop."""
    batch, height, width, channels = image
    high = kernel + 1 if form == "taller windows" else kernel
    rows = (height + 2 * pad - dilation * (high - 1) - 1) // stride + 1
    columns = (width + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    M, K = batch * rows * columns, high * kernel * channels
    steps = -(-K // tile[1]) + (form in ("more columns", "guarded columns"))
    shift = 1 if form == "another row" else 0
    least = 1 if form == "fewer pixels" else 0
    otherwise = 1 if form == "ones outside" else 0

    @T.prim_func
    def main(
        A: T.Tensor(image, "float16"),
        W: T.Tensor((K, filters), "float16"),
        C: T.Tensor((M, filters), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, tile[0]), threads=threads) as by:
            S = T.alloc_shared(tile, "float16")
            B = T.alloc_shared((tile[1], filters), "float16")
            F = T.alloc_fragment((tile[0], filters), "float32")
            if form == "safe value":
                T.annotate_safe_value({A: 2})
            T.clear(F)
            for k in T.Pipelined(steps, num_stages=2):
                for i, j in T.Parallel(*tile):
                    row, column = by * tile[0] + i, k * tile[1] + j
                    first = row // columns % rows
                    if form == "another order":
                        first = row % (rows * columns) // columns
                    tap = column // (kernel * channels)
                    y = first * stride + tap * dilation - pad + shift
                    x = row % columns * stride + column // channels % kernel * dilation - pad
                    inside = y >= 0 and x >= least and y < height and x < width
                    if form == "another order":
                        inside = 0 <= x <= width - 1 and y > -1 and height > y
                    if form == "guarded rows":
                        inside = inside and row < M
                    if form == "guarded columns":
                        inside = inside and column < K
                    if form == "no upper edge":
                        inside = y >= 0 and x >= 0 and x < width
                    S[i, j] = T.if_then_else(
                        inside, A[row // (rows * columns), y, x, column % channels], otherwise
                    )
                T.copy(W[k * tile[1], 0], B)
                T.gemm(S, B, F)
            if form == "written":
                A[0, 0, 0, 0] = 1
            T.copy(F, C[by * tile[0], 0])

    return main


def raised(tile_passes, function, arch="sm_90a"):
    """The operands of T.im2col behind its tiles."""
    text = tile_passes(function, "RaiseIm2col", arch=arch)["main"].script()
    return re.findall(r"T\.tl\.im2col\(.*\], (.*), 0\)", text)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, "bx, k, 3, 1, 1, 1"),
        ({"form": "another order", "stride": 2}, "bx, k, 3, 2, 1, 1"),
        ({"form": "guarded rows", "dilation": 2, "pad": 2}, "bx, k, 3, 1, 2, 2"),
        ({"form": "guarded columns", "kernel": 5, "pad": 0}, "bx, k, 5, 1, 1, 0"),
        ({"kernel": 1, "pad": 0, "stride": 2}, "bx, k, 1, 2, 1, 0"),
    ],
)
def test_loops_that_are_the_operator(tile_passes, options, found):
    assert raised(tile_passes, convolution(**options)) == [found]


@pytest.mark.parametrize(
    "form",
    [
        "taller windows",
        "more columns",
        "another row",
        "fewer pixels",
        "no upper edge",
        "ones outside",
        "safe value",
        "written",
    ],
)
def test_other_loops_stay(tile_passes, form):
    assert raised(tile_passes, convolution(form=form)) == []


def test_what_tma_does_not_load_stays(tile_passes):
    assert raised(tile_passes, convolution((2, 9, 7, 36), tile=(64, 36))) == []
    assert raised(tile_passes, convolution((2, 9, 7, 64), tile=(64, 48))) == []
    assert raised(tile_passes, convolution(), arch="sm_80") == []


def test_blocks_and_steps_of_windows_become_larger():
    kernel = tilelang.compile(
        convolution((64, 56, 56, 128), tile=(128, 32), filters=128),
        target=HOPPER,
        execution_backend="emulate",
    )
    text = kernel.explain()
    assert "the loop gathers windows, as T.im2col does" in text
    assert "2 steps along K are one" in text
    assert "2 neighbouring blocks are one" in text
    assert "T.gemm 256x128x64" in text


@pytest.mark.parametrize(
    "options",
    [{}, {"form": "another order", "stride": 2}, {"form": "guarded columns"}],
)
def test_it_computes_the_same(options):
    shape = (2, 9, 7, 64)
    kernel = tilelang.compile(
        convolution(shape, **options), target=HOPPER, execution_backend="emulate"
    )
    assert "tma_load_im2col" in kernel.get_kernel_source()
    image, weight = (torch.randint(-3, 4, size).half() for size in (shape, (3, 3, 64, 16)))
    wanted = torch.nn.functional.conv2d(
        image.double().permute(0, 3, 1, 2),
        weight.double().permute(3, 2, 0, 1),
        stride=options.get("stride", 1),
        padding=1,
    )
    wanted = wanted.permute(0, 2, 3, 1).reshape(-1, 16)
    found = torch.full(wanted.shape, torch.nan)
    kernel(image, weight.reshape(-1, 16), found)
    assert torch.equal(found.double(), wanted)
