"""A Python DSL for GPU tile kernels, compiled through stock TVM.

A kernel is written with `tilelang.language` under ``@T.prim_func``, compiled by `tilelang.compile`
or ``@tilelang.jit``, and called with torch tensors.
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# torch goes first: it loads the C++ and CUDA runtimes that everything after it shares.
import torch
import tvm

from tilelang import (
    _ffi,
    cache,
    carver,
    contrib,
    engine,
    intrinsics,
    language,
    layout,
    math,
    profiler,
    testing,
    tools,
    transform,
    utils,
)
from tilelang.cache import clear_cache, disable_cache, enable_cache, is_cache_enabled
from tilelang.engine.callback import (
    register_c_postproc,
    register_cuda_postproc,
    register_hip_postproc,
)
from tilelang.engine.lower import lower
from tilelang.env import env
from tilelang.jit import JITImpl, JITKernel, compile, jit, lazy_jit, par_compile
from tilelang.language import dtypes
from tilelang.language.dtypes import dtype as DataType
from tilelang.layout import Fragment, Layout
from tilelang.math import cdiv, next_power_of_2
from tilelang.profiler import Profiler
from tilelang.transform import PassConfigKey
from tilelang.utils.log import set_log_level, setup_logging
from tilelang.utils.tensor import TensorSupplyType

try:
    __version__ = version("tilelang")
except PackageNotFoundError:
    __version__ = (Path(__file__).parents[1] / "VERSION").read_text().strip()

setup_logging()

__all__ = [
    "DataType",
    "Fragment",
    "JITImpl",
    "JITKernel",
    "Layout",
    "PassConfigKey",
    "Profiler",
    "TensorSupplyType",
    "cache",
    "carver",
    "cdiv",
    "clear_cache",
    "compile",
    "contrib",
    "disable_cache",
    "dtypes",
    "enable_cache",
    "engine",
    "env",
    "intrinsics",
    "is_cache_enabled",
    "jit",
    "language",
    "layout",
    "lazy_jit",
    "lower",
    "math",
    "next_power_of_2",
    "par_compile",
    "profiler",
    "register_c_postproc",
    "register_cuda_postproc",
    "register_hip_postproc",
    "set_log_level",
    "testing",
    "tools",
    "transform",
    "tvm",
    "utils",
]
