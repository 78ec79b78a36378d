"""The dtypes of launch plan parameters: in torch, in DLPack, and the ranges of integers."""

from __future__ import annotations

import re
from functools import cache

import torch

DataType = tuple[int, int, int]
"""DLPack's type code, bits and lanes."""

# DLPack 1.3, DLDataTypeCode.
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_FLOAT8_CODES = range(7, 15)

_CODES = {
    "int": _INT,
    "uint": _UINT,
    "float": _FLOAT,
    "bfloat": _BFLOAT,
}

_FLOAT4 = 17

_TORCH_NAMES = {
    "tfloat32": "float32",
    "handle": "int64",
    # Without a suffix it is the format of NVIDIA's chips.
    "float8_e4m3": "float8_e4m3fn",
    "int4": "int8",
    "uint4": "uint8",
    "float4_e2m1fn": "float4_e2m1fn_x2" if hasattr(torch, "float4_e2m1fn_x2") else "int8",
}

_HALF_BYTES = ("int4", "uint4", "float4_e2m1fn")


def torch_dtype(dtype: str) -> torch.dtype:
    """The torch dtype that a parameter of `dtype` has. Raises `ValueError` where torch has none.

    Example: ``torch_dtype("float16") is torch.float16``
    """
    found = getattr(torch, _TORCH_NAMES.get(dtype, dtype), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(
            f"torch has no dtype for {dtype}; use one of torch's dtypes, such as float16 or int8"
        )
    return found


def bits(dtype: str) -> int:
    """Bits of one element, such as 16 for bfloat16 and 1 for bool."""
    if dtype == "bool":
        return 1
    match = re.match(r"[a-z]+(\d+)", dtype)
    if match is None:
        raise ValueError(f"{dtype!r} is not the name of a dtype")
    return int(match[1])


def packing(dtype: str) -> int:
    """Elements of a kernel's tensor that one element of the torch tensor holds, in its last
    dimension: 2 for the dtypes of 4 bits (the first in the low half of a byte), else 1."""
    return 2 if dtype in _HALF_BYTES else 1


def elements(dtype: str, stored: int) -> int:
    """How many elements of `dtype` a row of a torch tensor has whose extent, or stride, is
    `stored`: twice as many of 4 bits, four in three bytes of 6 bits (`tilelang.utils.float6`).

    Example: ``elements("float6_e2m3fn", 96) == 128``
    """
    return stored * 4 // 3 if dtype.startswith("float6_") else stored * packing(dtype)


def accepted_types(dtype: str) -> list[DataType]:
    """What a tensor passed for a parameter of `dtype` may have; empty where no tensor can be
    passed.

    The formats of 8-bit floating point are accepted for each other, and bool for 8-bit integers and
    back, since such tensors are often stored in the other dtype.
    """
    if dtype == "bool":
        return [(_BOOL, 8, 1), (_UINT, 8, 1), (_INT, 8, 1)]
    if dtype in ("int8", "uint8"):
        return [(_CODES[dtype[:-1]], 8, 1), (_BOOL, 8, 1)]
    if dtype.startswith("float8_"):
        return [(code, 8, 1) for code in _FLOAT8_CODES]
    if dtype == "tfloat32":
        return [(_FLOAT, 32, 1)]
    if dtype in _HALF_BYTES:
        return [(_INT, 8, 1), (_UINT, 8, 1)] + ([(_FLOAT4, 4, 2)] if "float" in dtype else [])
    match = re.fullmatch(r"([a-z]+)(16|32|64)", dtype)
    if match is None or match[1] not in _CODES:
        return []
    return [(_CODES[match[1]], int(match[2]), 1)]


def data_type(dtype: torch.dtype) -> DataType | None:
    """What DLPack calls a torch dtype, None where it has no name for it, as of complex numbers.

    Example: ``data_type(torch.float16) == (2, 16, 1)``
    """
    name = str(dtype).removeprefix("torch.")
    if name.startswith("float8_"):
        return _FLOAT8_CODES[0], 8, 1
    found = accepted_types({"float4_e2m1fn_x2": "float4_e2m1fn"}.get(name, name))
    return found[-1 if name == "float4_e2m1fn_x2" else 0] if found else None


@cache
def integer_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype; ``handle`` is an address."""
    if dtype == "handle":
        return 0, 2**64 - 1
    if dtype.startswith("int"):
        return -(2 ** (bits(dtype) - 1)), 2 ** (bits(dtype) - 1) - 1
    return 0, 2 ** bits(dtype) - 1


def half_bits(value: float, dtype: str) -> int:
    """`value` rounded to the 16 bits of float16 or bfloat16."""
    return int(torch.tensor(value, dtype=torch_dtype(dtype)).view(torch.int16)) & 0xFFFF
