"""A Python DSL for GPU tile kernels, compiled through stock TVM.

A kernel is written with `tilelang.language` under ``@T.prim_func``, compiled by `tilelang.compile`
or ``@tilelang.jit``, and called with torch tensors.

The compiler, and TVM with it, is loaded when the first of these names is used: `tilelang.runtime`,
which calls kernels that were exported, needs neither.
"""

# ruff: noqa: F403, F405  the names of `__all__` are those of `_names`

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

# torch goes first: it loads the C++ and CUDA runtimes that everything after it shares.
import torch as _  # the name `torch` here is that of our module

from tilelang._paths import library
from tilelang._tvm_import import make_import_cheap
from tilelang.utils.log import setup_logging

if TYPE_CHECKING:
    from tilelang._names import *

__all__ = [
    "DataType",
    "Fragment",
    "JITImpl",
    "JITKernel",
    "Layout",
    "PassConfigKey",
    "PerformanceWarning",
    "Profiler",
    "TensorSupplyType",
    "autotune",
    "autotuner",
    "cache",
    "carver",
    "cdiv",
    "clear_cache",
    "compile",
    "contrib",
    "disable_cache",
    "distributed",
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

_SUBMODULES = frozenset(
    [
        "autotuner",
        "backend",
        "cache",
        "carver",
        "contrib",
        "cuda",
        "distributed",
        "emulator",
        "engine",
        "hip",
        "intrinsics",
        "language",
        "layout",
        "macros",
        "math",
        "profiler",
        "rocm",
        "runtime",
        "testing",
        "tileop",
        "tools",
        "torch",  # not in `__all__`, which would hide torch itself
        "transform",
        "utils",
    ]
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _SUBMODULES:
        return import_module(f"tilelang.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tilelang import _names

    value = globals()[name] = getattr(_names, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version
    from pathlib import Path

    try:
        return version("tilelang")
    except PackageNotFoundError:
        return (Path(__file__).parents[1] / "VERSION").read_text().strip()


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # The import system binds a submodule to its name, which here is that of something in it.
        if name not in ("compile", "env", "jit") or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
library()  # says now that the package is not built, before something of it is missed
make_import_cheap()
setup_logging()
