"""The 8-bit floats that the device of this torch build computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelang.language.dtypes import dtype

if TYPE_CHECKING:
    import torch

_FORMATS = ("e4m3", "e5m2")


def determine_torch_fp8_type(fp8_format: str = "e4m3") -> torch.dtype:
    """Return torch's dtype of the format ``e4m3`` or ``e5m2``.

    Raises
    ------
    ValueError
        For another format.

    Example
    -------
    ``determine_torch_fp8_type("e5m2") is torch.float8_e5m2`` on NVIDIA's GPUs
    """
    if fp8_format not in _FORMATS:
        raise ValueError(f"fp8_format is {fp8_format!r}, wanted one of {', '.join(_FORMATS)}")
    found: torch.dtype = dtype(f"float8_{fp8_format}").as_torch()
    return found


def determine_fp8_type(fp8_format: str = "e4m3") -> str:
    """Return the name of the dtype, such as ``float8_e4m3fn`` (see ``determine_torch_fp8_type``).

    Example
    -------
    ``T.alloc_shared((128, 64), determine_fp8_type())``
    """
    return str(determine_torch_fp8_type(fp8_format)).removeprefix("torch.")
