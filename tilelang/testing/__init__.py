"""For test files: a main, seeds, and marks that skip a test where it cannot run; for what is
compared between commits: `process_func` and `regression`."""

from __future__ import annotations

import importlib.util
import inspect
import operator
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from tilelang.testing.perf.cases import process_func as process_func
from tilelang.testing.perf.cases import regression as regression
from tilelang.utils.tensor import torch_assert_close as torch_assert_close

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "eq": operator.eq,
}


def main() -> None:
    """Runs pytest on the file that calls it, with the command line's arguments, and exits with its
    status.
    """
    import pytest

    path = inspect.stack()[1].filename
    sys.exit(pytest.main([path, *sys.argv[1:]]))


def set_random_seed(seed: int = 42) -> None:
    """Seeds Python's, numpy's and torch's generators, those of GPUs included."""
    import numpy

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def _skip_unless(condition: bool, reason: str) -> Any:
    import pytest

    return pytest.mark.skipif(not condition, reason=reason)


def requires_cuda(test: Callable[..., Any]) -> Any:
    """Skips `test` where torch finds no CUDA device."""
    return _skip_unless(torch.cuda.is_available(), "needs a CUDA device")(test)


def requires_package(name: str) -> Any:
    """A mark that skips a test where the package `name` is not installed."""
    return _skip_unless(importlib.util.find_spec(name) is not None, f"needs the package {name}")


def requires_cuda_compute_version(major: int, minor: int = 0, mode: str = "ge") -> Any:
    """A mark that skips a test unless the GPU's compute capability compares to ``(major, minor)``
    as `mode` says.

    `mode` is one of ge, gt, le, lt, eq, else `ValueError`.
    """
    if mode not in _COMPARISONS:
        raise ValueError(f"mode {mode!r}: expected one of {', '.join(_COMPARISONS)}")
    met = torch.cuda.is_available() and _COMPARISONS[mode](
        torch.cuda.get_device_capability(), (major, minor)
    )
    return _skip_unless(met, f"needs a CUDA device of compute capability {mode} {major}.{minor}")


def requires_cuda_compute_version_ge(major: int, minor: int = 0) -> Any:
    """`requires_cuda_compute_version` with ge."""
    return requires_cuda_compute_version(major, minor, "ge")


def requires_cuda_compute_version_gt(major: int, minor: int = 0) -> Any:
    """`requires_cuda_compute_version` with gt."""
    return requires_cuda_compute_version(major, minor, "gt")


def requires_cuda_compute_version_le(major: int, minor: int = 0) -> Any:
    """`requires_cuda_compute_version` with le."""
    return requires_cuda_compute_version(major, minor, "le")


def requires_cuda_compute_version_lt(major: int, minor: int = 0) -> Any:
    """`requires_cuda_compute_version` with lt."""
    return requires_cuda_compute_version(major, minor, "lt")


def requires_cuda_compute_version_eq(major: int, minor: int = 0) -> Any:
    """`requires_cuda_compute_version` with eq."""
    return requires_cuda_compute_version(major, minor, "eq")


_NO_OTHER_TARGET = "needs a target that tilelang has no kernels for: {}"


def _skip(target: str, test: Callable[..., Any]) -> Any:
    return _skip_unless(False, _NO_OTHER_TARGET.format(target))(test)


def requires_rocm(test: Callable[..., Any]) -> Any:
    """Skips `test`: there are no kernels for AMD GPUs."""
    return _skip("rocm", test)


def requires_cdna(test: Callable[..., Any]) -> Any:
    """Skips `test`: there are no kernels for AMD GPUs."""
    return _skip("rocm", test)


def requires_gfx950(test: Callable[..., Any]) -> Any:
    """Skips `test`: there are no kernels for AMD GPUs."""
    return _skip("rocm", test)


def requires_metal(test: Callable[..., Any]) -> Any:
    """Skips `test`: there are no kernels for Apple's GPUs."""
    return _skip("metal", test)


def requires_llvm(test: Callable[..., Any]) -> Any:
    """Skips `test`: there are no kernels by LLVM."""
    return _skip("llvm", test)


def requires_cuda_or_cdna(test: Callable[..., Any]) -> Any:
    """Skips `test` where torch finds no CUDA device (`requires_cuda`)."""
    return requires_cuda(test)
