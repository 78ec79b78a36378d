"""Targets, dtypes, logging, generated inputs and the comparison of tensors."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilelang.utils import device as device
from tilelang.utils.tensor import TensorSupplyType as TensorSupplyType
from tilelang.utils.tensor import torch_assert_close as torch_assert_close

if TYPE_CHECKING:
    from tilelang.utils import target as target


def __getattr__(name: str) -> Any:
    """``target`` loads TVM, which `tilelang.runtime` does without."""
    if name == "target":
        return import_module("tilelang.utils.target")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
