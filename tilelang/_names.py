"""The names of the package: `tilelang.X` of `tilelang.__all__`, with the compiler behind them.

`tilelang.__getattr__` imports this when the first of them is asked for.
"""

import tvm as tvm

from tilelang import autotuner as autotuner
from tilelang import cache as cache
from tilelang import carver as carver
from tilelang import contrib as contrib
from tilelang import distributed as distributed
from tilelang import engine as engine
from tilelang import intrinsics as intrinsics
from tilelang import language as language
from tilelang import layout as layout
from tilelang import math as math
from tilelang import profiler as profiler
from tilelang import testing as testing
from tilelang import tools as tools
from tilelang import torch as torch
from tilelang import transform as transform
from tilelang import utils as utils
from tilelang.autotuner import autotune as autotune
from tilelang.cache import clear_cache as clear_cache
from tilelang.cache import disable_cache as disable_cache
from tilelang.cache import enable_cache as enable_cache
from tilelang.cache import is_cache_enabled as is_cache_enabled
from tilelang.engine.callback import register_c_postproc as register_c_postproc
from tilelang.engine.callback import register_cuda_postproc as register_cuda_postproc
from tilelang.engine.callback import register_hip_postproc as register_hip_postproc
from tilelang.engine.lower import lower as lower
from tilelang.engine.performance import PerformanceWarning as PerformanceWarning
from tilelang.env import env as env
from tilelang.jit import JITImpl as JITImpl
from tilelang.jit import JITKernel as JITKernel
from tilelang.jit import compile as compile
from tilelang.jit import jit as jit
from tilelang.jit import lazy_jit as lazy_jit
from tilelang.jit import par_compile as par_compile
from tilelang.language import dtypes as dtypes
from tilelang.layout import Fragment as Fragment
from tilelang.layout import Layout as Layout
from tilelang.math import cdiv as cdiv
from tilelang.math import next_power_of_2 as next_power_of_2
from tilelang.profiler import Profiler as Profiler
from tilelang.transform import PassConfigKey as PassConfigKey
from tilelang.utils.log import set_log_level as set_log_level
from tilelang.utils.tensor import TensorSupplyType as TensorSupplyType

DataType = dtypes.dtype
