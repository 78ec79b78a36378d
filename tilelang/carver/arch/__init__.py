"""Chips, where users look for them: properties of devices (`driver`, which are those of
`tilelang.compat.device_properties`) and speeds (`cuda`)."""

from tilelang.carver.arch import driver as driver
from tilelang.carver.arch.cuda import CUDA as CUDA
from tilelang.carver.arch.cuda import auto_infer_current_arch as auto_infer_current_arch
