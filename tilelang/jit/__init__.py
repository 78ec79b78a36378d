"""Compilation of kernels at run time, and their calls."""

from tilelang.jit.compile import compile as compile
from tilelang.jit.compile import par_compile as par_compile
from tilelang.jit.impl import JITImpl as JITImpl
from tilelang.jit.impl import jit as jit
from tilelang.jit.impl import lazy_jit as lazy_jit
from tilelang.jit.kernel import JITKernel as JITKernel
