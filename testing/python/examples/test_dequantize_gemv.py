"""A row times weights of 4 bits, by threads."""

import pytest

EXAMPLE = "quantization/dequantize_gemv.py"


@pytest.mark.parametrize(
    ("form", "N", "K", "options"),
    [
        # Rows behind the last one, and K that ends in a pair, a word, a pack and a step.
        ("int4", 17, 2, {}),
        ("mxfp4", 1, 130, {}),
        ("mxfp4", 40, 2050, {"warps": 2, "ahead": 1}),
        ("int4", 33, 1026, {"warps": 1, "ahead": 3}),
        ("int4", 24, 700, {"group": 96}),
    ],
)
def test_a_row_is_right(example, device, form, N, K, options):
    bound = 1e-3 if form == "int4" else 8e-3
    assert example.relative_error(form, N, K, device=device, **options) < bound


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"group": 48}, "found groups of 48, wanted a multiple of 32"),
        ({"group": -32}, "found groups of -32, wanted a multiple of 32"),
        ({"warps": 0}, "found 0 warps and 2 steps ahead, wanted 1 or more"),
    ],
)
def test_what_does_not_fit_is_refused(example, options, wanted):
    with pytest.raises(ValueError, match=wanted):
        example.matvec.get_tir("int4", 24, 700, **options)
