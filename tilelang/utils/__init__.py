"""Targets, dtypes, logging, generated inputs and the comparison of tensors."""

from tilelang.utils import device as device
from tilelang.utils import target as target
from tilelang.utils.tensor import TensorSupplyType as TensorSupplyType
from tilelang.utils.tensor import torch_assert_close as torch_assert_close
