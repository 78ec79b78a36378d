"""Running hand-written kernels on numpy arrays in the emulator."""

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilelang.emulator.checks import Checks
from tilelang.emulator.compiler import build_emulated
from tilelang.emulator.tensor_map import BYTES, encode_tensor_map
from tilelang.engine.tensor_map import TensorMap

Run = Callable[..., None]
MapOf = Callable[..., Any]
_KERNEL = re.compile(r"__global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(")


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_int(value) if isinstance(value, int) else value


def _triple(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else size
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


@pytest.fixture
def run() -> Run:
    """``run(source, "kernel", [array, 3], grid=1, block=32, shared=0)``; builds a source once.

    ``cluster=(2, 1, 1)`` and ``cooperative=True`` go to the launch, `checks` and `warp_threads` to
    the build.
    """

    def launch(
        source: str,
        kernel: str,
        args: list[Any],
        grid: int | tuple[int, ...] = 1,
        block: int | tuple[int, ...] = 32,
        shared: int = 0,
        checks: Checks | None = None,
        warp_threads: int = 32,
        **how: Any,
    ) -> None:
        names = _KERNEL.findall(source)
        module = build_emulated(source, names, checks=checks, warp_threads=warp_threads)
        values = [_argument(arg) for arg in args]
        how["arrays"] = [arg if isinstance(arg, np.ndarray) else None for arg in args]
        module.launch(kernel, _triple(grid), _triple(block), shared, values, **how)

    return launch


@pytest.fixture
def map_of() -> MapOf:
    """``map_of(array, box=(64, 8), swizzle=128)``: an argument; the box is innermost first."""

    def encode(array: np.ndarray, dtype: str | None = None, **keywords: Any) -> Any:
        strides = tuple(stride // array.itemsize for stride in array.strides[-2::-1])
        described = TensorMap(
            "x", dtype or str(array.dtype), array.shape[::-1], strides, **keywords
        )
        memory = ctypes.create_string_buffer(BYTES + 64)
        aligned = (ctypes.c_char * BYTES).from_buffer(memory, -ctypes.addressof(memory) % 64)
        aligned.raw = encode_tensor_map(described, array.ctypes.data)
        return aligned

    return encode


@pytest.fixture
def aligned() -> Callable[..., np.ndarray]:
    """``aligned(array)``: a copy whose data is at a multiple of 16 bytes."""

    def copy(array: np.ndarray) -> np.ndarray:
        memory = np.zeros(array.nbytes + 16, np.uint8)
        start = -memory.ctypes.data % 16
        result = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        result[...] = array
        return result

    return copy
