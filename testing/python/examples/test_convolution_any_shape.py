"""Convolutions of any number of channels and filters are loaded by TMA, however blocks share K."""

import re

import pytest

EXAMPLE = "convolution/convolution_any_shape.py"
TILE = {"block_M": 64, "block_N": 32, "block_K": 32, "stages": 3, "threads": 128}


@pytest.mark.parametrize(
    ("problem", "tile"),
    [
        # The image's channels, filters, kernel, stride, dilation, pad; 63 pixels of an image.
        pytest.param((40, 32, 3, 1, 1, 1), {}, id="channels behind the last"),
        pytest.param((40, 80, 3, 1, 1, 1), {"group": 2, "panel": 1}, id="two taps a step"),
        pytest.param((16, 16, 5, 1, 1, 2), {"block_K": 16, "group": 4}, id="four narrow taps"),
        pytest.param((48, 96, 3, 2, 1, 0), {"block_K": 48, "block_N": 96}, id="48 channels"),
        # Of the last share, five steps are behind the end.
        pytest.param((72, 40, 3, 1, 1, 1), {"split": 8}, id="split K"),
        pytest.param((17, 23, 3, 1, 2, 2), {}, id="odd channels and filters"),
        pytest.param((40, 128, 1, 1, 1, 0), {"block_N": 128, "parts": 2}, id="a product"),
        pytest.param((20, 23, 1, 1, 1, 0), {"split": 2}, id="an odd product"),
    ],
)
def test_tiles(example, monkeypatch, device, problem, tile):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    problem = example.Problem(2, 9, 7, *problem)
    kernel = example.convolution(**vars(problem), **{**TILE, **tile})
    source = kernel.get_kernel_source()
    assert source.count("tl::tma_load") == 2 * tile.get("group", 1)
    assert ("tma_load_im2col" in source) == (problem.kernel > 1)
    image, weight = example.inputs(problem, device)
    assert example.relative_error(problem, image, weight, kernel(image, weight)) < 1e-3


def test_the_taps_of_a_part_of_the_channels_follow_each_other(example, monkeypatch):
    """They read most of its pixels again, which are in L2 then."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    problem = example.Problem(2, 9, 7, 96, 32, 3)
    source = example.convolution(**vars(problem), **TILE).get_kernel_source()
    assert re.search(r"tma_load_im2col<.*, k / 9 \* 32, .*, k % 9 / 3\)", source)


def test_the_model_chooses(example):
    from tilelang.carver import CUDA

    hopper = CUDA("cuda -arch=sm_90a")
    # 272 channels are two tiles of 128 and a rest, or four of 64 and as much of it.
    chosen = example.configurations(example.Problem(11, 29, 20, 272, 32, 3), hopper)
    assert chosen[0]["block_N"] == 32
    # TMA loads 48 channels in three boxes of 32 bytes a pixel, and 64 in one.
    chosen = example.configurations(example.Problem(96, 163, 8, 48, 830, 5, 2, 1, 2), hopper)
    assert chosen[0]["block_K"] == 64
    # Few tiles share their steps.
    chosen = example.configurations(example.Problem(2, 16, 21, 1824, 138, 5, 1, 1, 2), hopper)
    assert chosen[0]["split"] > 1
    # Rows of whole sectors of L2 are not copied, and neither are those of whole 16 bytes that taps
    # load a few times.
    assert [example.wide_row(channels, 3, 1) for channels in (9, 24, 48, 72)] == [32, 32, 48, 96]
    assert [example.wide_row(channels, 3, 2) for channels in (9, 24, 48, 72)] == [32, 24, 48, 72]
    assert example.copies(hopper, example.Problem(1, 9, 9, 64, 64, 3)) == 0
    assert example.copies(hopper, example.Problem(1, 9, 9, 65, 64, 3)) > 0
    for arch in ("cuda -arch=sm_80", "cuda -arch=sm_90a"):
        assert example.configurations(example.Problem(1, 3, 3, 1, 1, 1), CUDA(arch))
