import pytest
import torch

from tilelang.utils import dtypes


def test_torch_dtypes():
    assert dtypes.torch_dtype("bfloat16") is torch.bfloat16
    assert dtypes.torch_dtype("tfloat32") is torch.float32
    with pytest.raises(ValueError, match="torch has no dtype for float3"):
        dtypes.torch_dtype("float3")
    with pytest.raises(ValueError, match="torch has no dtype for nn"):
        dtypes.torch_dtype("nn")


def test_integer_ranges():
    assert dtypes.integer_range("int8") == (-128, 127)
    assert dtypes.integer_range("uint32") == (0, 2**32 - 1)
    assert dtypes.integer_range("bool") == (0, 1)


def test_half_bits_round_to_nearest_even():
    assert dtypes.half_bits(1 + 2**-11, "float16") == 0x3C00
    assert dtypes.half_bits(-1.0, "bfloat16") == 0xBF80


def test_bits_of_what_is_no_dtype():
    with pytest.raises(ValueError, match="is not the name of a dtype"):
        dtypes.bits("void")
