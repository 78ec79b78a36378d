"""Convolutions of a few channels: threads gather whole windows, a row of them each."""

import re

import pytest

EXAMPLE = "convolution/convolution_few_channels.py"


@pytest.mark.parametrize(
    ("problem", "tile"),
    [
        # The image's channels, filters, kernel, stride, dilation, pad; 63 pixels of an image.
        pytest.param((3, 48, 3, 1, 1, 1), {"block_N": 64, "columns": 1}, id="one tile"),
        pytest.param((3, 72, 3, 2, 1, 0), {"block_N": 32, "columns": 3}, id="three tiles"),
        pytest.param((5, 40, 5, 1, 2, 2), {"block_N": 16, "columns": 2}, id="behind the last tile"),
        pytest.param((3, 23, 7, 1, 1, 3), {"block_N": 16, "columns": 2}, id="odd filters"),
        pytest.param((1, 16, 1, 1, 1, 0), {"block_N": 16, "columns": 1}, id="one element"),
    ],
)
@pytest.mark.parametrize("block_M", [128, 256])
def test_tiles(example, monkeypatch, device, problem, tile, block_M):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    problem = example.Problem(3, 9, 7, *problem)
    kernel = example.convolution(**vars(problem), block_M=block_M, **tile)
    image, weight = example.inputs(problem, device)
    assert example.relative_error(problem, image, weight, kernel(image, weight)) < 1e-3


def test_a_thread_gathers_a_row(example, monkeypatch):
    """It stores 16 bytes at a time, and finds the place of its window without the element's."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    problem = example.Problem(3, 9, 7, 3, 32, 3)
    source = example.convolution(**vars(problem), block_N=32).get_kernel_source()
    assert "tl::local<half_t, 32> words" in source
    assert re.search(r"tl::store\(window \+ tx \* 32 .* tl::load<half_t, 8>\(words", source)


def test_the_model_chooses(example):
    from tilelang.carver import CUDA

    hopper = CUDA("cuda -arch=sm_90a")
    # A block that has all tiles of filters has nothing beside it that would hide their latency.
    chosen = example.configurations(example.Problem(35, 26, 13, 3, 1968, 3, 1, 1, 1), hopper)[0]
    assert chosen["block_N"] >= 64
    assert chosen["columns"] * chosen["block_N"] <= 512
    for arch in ("cuda -arch=sm_80", "cuda -arch=sm_90a"):
        assert example.configurations(example.Problem(1, 9, 9, 7, 1, 7), CUDA(arch))
