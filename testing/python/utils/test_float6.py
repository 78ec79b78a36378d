"""6-bit floats as bytes: the values, roundings and places of OCP Microscaling, by ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest
import torch

from tilelang.utils import float6

DTYPES = ["float6_e2m3fn", "float6_e3m2fn"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_roundings(dtype):
    values, numpy = float6.values(dtype), getattr(ml_dtypes, dtype)
    assert np.array_equal(values, np.arange(64, dtype=np.uint8).view(numpy).astype(np.float32))
    middles = (values[:31] + values[1:32]) / 2
    x = torch.cat([torch.randn(400) * 4, middles, -middles, torch.tensor([99.0, -0.0])])
    packed = float6.pack(x, dtype)
    assert (packed.shape, packed.dtype) == ((x.numel() * 3 // 4,), torch.uint8)
    wanted = x.numpy().astype(numpy).astype(np.float32)
    # As bits: -0 is another code than 0.
    found = float6.unpack(packed, dtype).numpy()
    assert np.array_equal(found.view(np.int32), wanted.view(np.int32))


def test_an_element_is_six_bits_of_its_row():
    codes = torch.randint(0, 64, (3, 2, 32))
    packed = float6.pack_codes(codes)
    assert torch.equal(float6.unpack_codes(packed).long(), codes)
    for row, bytes_of_row in zip(codes.view(6, 32), packed.view(6, 24), strict=True):
        bits = int.from_bytes(bytes(bytes_of_row.tolist()), "little")
        assert [bits >> 6 * e & 63 for e in range(32)] == row.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: float6.pack(torch.ones(6), DTYPES[0]), r"shape \(6,\), wanted rows of a mult"),
        (lambda: float6.pack(torch.full((4,), torch.nan), DTYPES[0]), "found NaN"),
        (lambda: float6.values("float8_e4m3fn"), "dtype float8_e4m3fn, wanted float6_e2m3fn or"),
        (lambda: float6.unpack_codes(torch.zeros(4, dtype=torch.uint8)), r"\(4,\) of torch.uint8"),
        (lambda: float6.unpack_codes(torch.zeros(3)), r"\(3,\) of torch.float32"),
    ],
)
def test_others_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
