"""What launchers have in common, as a type: the name of `tilelang.jit.adapter.base`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tilelang.runtime.adapter.cython._adapter import Launcher


class BaseKernelAdapter(ABC):
    """What calls a compiled kernel on tensors. The launchers of tilelang are instances.

    Example: ``isinstance(kernel.adapter, BaseKernelAdapter)``
    """

    @abstractmethod
    def __call__(self, *args: Any) -> Any:
        """Run the kernel on its arguments and return its outputs."""


BaseKernelAdapter.register(Launcher)
