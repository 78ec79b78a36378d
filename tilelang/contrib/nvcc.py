"""Compute capabilities, where users look for them (`tilelang.compat.nvcc`)."""

from tilelang.compat.nvcc import get_cuda_version as get_cuda_version
from tilelang.compat.nvcc import get_target_compute_version as get_target_compute_version
from tilelang.compat.nvcc import have_bf16 as have_bf16
from tilelang.compat.nvcc import have_fp8 as have_fp8
from tilelang.compat.nvcc import have_fp16 as have_fp16
from tilelang.compat.nvcc import have_int8 as have_int8
from tilelang.compat.nvcc import have_tensorcore as have_tensorcore
from tilelang.compat.nvcc import have_tma as have_tma
from tilelang.compat.nvcc import is_hopper as is_hopper
from tilelang.compat.nvcc import parse_compute_version as parse_compute_version
