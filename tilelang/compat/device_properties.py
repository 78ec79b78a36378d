"""Properties of a device: the names of `tilelang.carver.arch.driver`.

Without a GPU the device is the emulator: its multiprocessors are the cores of the processor, its
shared memory is that of the chip that kernels are compiled for.
"""

from __future__ import annotations

import os

import torch

_STATIC_SHARED_BYTES = 48 * 1024
"""What a kernel may declare statically on every chip (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability")."""


def get_device_name(device: int = 0) -> str:
    """Name of the CUDA device of this number, such as ``NVIDIA H200``; ``emulator`` without one.

    Example: ``get_device_name()``
    """
    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else "emulator"


def get_num_sms(device: int = 0) -> int:
    """Number of multiprocessors of the CUDA device of this number, such as 132; without one that of
    the processor's cores.

    Example: ``T.Kernel(get_num_sms(), threads=128)``
    """
    if not torch.cuda.is_available():
        return os.cpu_count() or 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def get_shared_memory_per_block(device: int = 0, format: str = "bytes") -> int:
    """Shared memory that a block has without asking for more, in bytes; in units of 1024 of them
    for `format` ``"kb"``, of 1024 of these for ``"mb"``.

    Raises `ValueError` for another `format`.

    Example: ``get_shared_memory_per_block() == 49152``
    """
    found = _STATIC_SHARED_BYTES
    if torch.cuda.is_available():
        found = int(torch.cuda.get_device_properties(device).shared_memory_per_block)
    return _in_units("get_shared_memory_per_block", found, format)


def get_max_dynamic_shared_size_bytes(device: int = 0, format: str = "bytes") -> int:
    """Dynamic shared memory that a block can have at most; `format` and errors are those of
    `get_shared_memory_per_block`.

    Example: ``get_max_dynamic_shared_size_bytes() == 232448`` on an H200
    """
    if torch.cuda.is_available():
        found = int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)
    else:
        # Imported here because tilelang.utils imports this module.
        from tilelang._ffi import get_function
        from tilelang.utils.target import FALLBACK_ARCH

        found = int(
            get_function("target.Describe")("cuda", FALLBACK_ARCH)["shared_bytes_per_block"]
        )
    return _in_units("get_max_dynamic_shared_size_bytes", found, format)


def _in_units(name: str, count: int, format: str) -> int:
    units = {"bytes": 1, "kb": 1024, "mb": 1024**2}
    if format not in units:
        raise ValueError(f"format of {name} is {format!r}, wanted one of {', '.join(units)}")
    return count // units[format]


def get_current_device() -> torch.device:
    """Where kernels run by default: torch's current CUDA device, the processor without one.

    Example: ``torch.zeros(8, device=get_current_device())``
    """
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
