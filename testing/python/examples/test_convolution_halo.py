"""Convolutions whose tile of pixels, and its halo, is loaded once for all taps."""

import pytest
import torch

EXAMPLE = "convolution/convolution_halo.py"


@pytest.mark.parametrize(
    ("kernel", "dilation", "pad"),
    [
        # Tiles that end behind the result; zeros on all sides; a part of the channels is left.
        pytest.param(3, 1, 1, id="padded"),
        pytest.param(2, 3, 0, id="dilated"),
    ],
)
def test_taps_share_a_tile_of_pixels(example, monkeypatch, device, kernel, dilation, pad):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    problem = example.Problem(2, 9, 21, 24, 24, kernel, 1, dilation, pad)
    tile = {"tile": (4, 16), "block_K": 16, "threads": 128}
    program = example.convolution(**vars(problem), **tile)
    assert program.get_kernel_source().count("tma_load<tl::evict_normal>(image_desc") == 1
    x, weight = example.inputs(problem, device)
    assert example.relative_error(problem, x, weight, program(x, weight)) < 1e-3


def test_what_is_refused(example):
    """A place in front of the image that is a constant would count from its end."""
    sizes = {"batch": 1, "height": 4, "width": 40, "channels": 16, "filters": 16, "kernel": 3}
    with pytest.raises(ValueError, match="as high or wide as the result, wanted smaller ones"):
        example.convolution.get_tir(**sizes, pad=1)
    with pytest.raises(ValueError, match="stride is 2, wanted 1"):
        example.convolution.get_tir(**sizes, stride=2)


@pytest.mark.parametrize(
    ("change", "chosen"),
    [
        ({}, True),
        ({"filters": 128}, False),
        ({"stride": 2}, False),
        ({"channels": 804}, False),
        ({"channels": 2048}, False),  # weights of more than a block's shared memory
        ({"height": 3, "pad": 1}, False),
    ],
)
def test_where_it_is_chosen(example, monkeypatch, change, chosen):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    sizes = {"batch": 94, "height": 14, "width": 190, "channels": 80, "filters": 32, "kernel": 3}
    found = example.configurations(
        example.Problem(**{**sizes, "stride": 1, "dilation": 1, "pad": 0, **change})
    )
    assert bool(found) == chosen
    if found:
        assert found[0]["block_K"] == 32
        assert torch.tensor(found[0]["tile"]).prod() in (128, 256)
