"""Running hand-written kernels on numpy arrays in the emulator."""

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilelang.emulator.compiler import build_emulated

Run = Callable[..., None]
_KERNEL = re.compile(r"__global__ void (?:__launch_bounds__\(\w+\) )?(\w+)\(")


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

    ``cluster=(2, 1, 1)`` and ``cooperative=True`` go to the launch.
    """

    def launch(
        source: str,
        kernel: str,
        args: list[Any],
        grid: int | tuple[int, ...] = 1,
        block: int | tuple[int, ...] = 32,
        shared: int = 0,
        **how: Any,
    ) -> None:
        module = build_emulated(source, _KERNEL.findall(source))
        values = [_argument(arg) for arg in args]
        module.launch(kernel, _triple(grid), _triple(block), shared, values, **how)

    return launch
