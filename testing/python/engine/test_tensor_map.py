"""What a tensor map is refused for, and how many bytes a copy moves."""

import pytest

from tilelang.emulator.tensor_map import BYTES, encode_tensor_map
from tilelang.engine.tensor_map import Im2col, TensorMap


def describe(**changes):
    fields = {
        "name": "A",
        "dtype": "float16",
        "shape": (64, 256),
        "strides": (64,),
        "box": (64, 128),
        "swizzle": 128,
    }
    return TensorMap(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": (2,) * 6, "strides": (16,) * 5}, "found 6 extents and 5 strides"),
        ({"strides": ()}, "found 2 extents and 0 strides"),
        ({"dtype": "int4"}, "found dtype int4, wanted elements of 1, 2, 4 or 8 bytes"),
        ({"shape": (64, 0)}, r"found shape \(64, 0\), wanted extents from 1 to 2\^32"),
        ({"strides": (65,)}, "strides of 130 bytes.* Pad the rows to a multiple of 8 elements"),
        ({"box": (64, 257)}, r"found box \(64, 257\), wanted 2 extents from 1 to 256"),
        ({"box": (64,)}, "wanted 2 extents"),
        ({"box": (4, 8), "swizzle": 0}, "rows of 8 bytes, wanted a multiple of 16"),
        ({"box": (128, 8)}, "rows of 256 bytes and a swizzle of 128.* inner extent of 64"),
        ({"box": (32, 8)}, "rows of 64 bytes and a swizzle of 128"),
        ({"swizzle": 16}, "found swizzle 16"),
        ({"l2_promotion": 32}, "found L2 promotion 32"),
        ({"element_strides": (1, 9)}, r"found element strides \(1, 9\)"),
        ({"oob_fill": "nan", "dtype": "int16"}, "found fill 'nan' of int16"),
        ({"im2col": Im2col((), (), 64, 8)}, "found im2col of 2 dimensions"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(ValueError, match=f"tensor map of `A`: .*{message}"):
        describe(**changes)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Im2col((-129, 0), (0, 0), 64, 8), "wanted 2 places from -128 to 127"),
        (Im2col((0,), (0,), 64, 8), "wanted 2 places"),
        (Im2col((0, 0), (0, 0), 64, 1025), "found 64 channels of 1025 pixels"),
    ],
)
def test_refusals_of_im2col(columns, message):
    shape, strides = (64, 8, 8, 2), (64, 512, 4096)
    with pytest.raises(ValueError, match=message):
        TensorMap("A", "float16", shape, strides, swizzle=128, im2col=columns)


def test_bytes_of_a_box():
    assert describe().box_bytes == 64 * 128 * 2
    assert describe(element_strides=(1, 3)).box_bytes == 64 * 43 * 2
    columns = Im2col((0, 0), (0, 0), 32, 100)
    shape, strides = (64, 8, 8, 2), (64, 512, 4096)
    assert TensorMap("A", "float32", shape, strides, im2col=columns).box_bytes == 32 * 100 * 4


def test_a_window_that_does_not_fit_is_refused():
    columns = Im2col((-1, 0), (-2, -7), 32, 100)
    shape, strides = (64, 8, 8, 2), (64, 512, 4096)
    TensorMap("A", "float32", shape, strides, im2col=columns)
    with pytest.raises(ValueError, match="wanted a window that fits into the padded image"):
        TensorMap("A", "float32", (64, 8, 7, 2), strides, im2col=columns)


def test_address():
    assert len(encode_tensor_map(describe(), 1 << 20)) == BYTES
    with pytest.raises(ValueError, match="its data 8 bytes past a multiple of 16"):
        encode_tensor_map(describe(), (1 << 20) + 8)
