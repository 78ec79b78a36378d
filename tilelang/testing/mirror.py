"""Repeats on the GPU what a test run does in the emulator, and compares: ``pytest --mirror``.

Tests that ask for the emulator do so for its checks or its schedules. A GPU must compute that too.
So it also runs forms of generated code (`tilelang.testing.forms`) that no other test runs there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tilelang.emulator.checks import CHECKS
from tilelang.jit.kernel import JITKernel
from tilelang.runtime.adapter import cuda_adapter, positional
from tilelang.runtime.adapter.cython._adapter import Launcher
from tilelang.testing.gpu import DeviceLost, GuardedCall
from tilelang.utils.target import arch_of, compiled_for, kind_of

_TOLERANCE = 1e-2
"""Of floating-point results, relative to the largest one: functions such as exp are approximate and
sums have another order. A wrong index is further off."""


_is_paused = False


@contextmanager
def paused() -> Iterator[None]:
    """Meanwhile calls are not repeated."""
    global _is_paused
    before, _is_paused = _is_paused, True
    try:
        yield
    finally:
        _is_paused = before


class Differs(AssertionError):
    """The GPU does not compute what the emulator computes."""


def watch(record: Callable[[JITKernel], None] = lambda kernel: None) -> None:
    """From now on each call of an emulated kernel is repeated on torch's current GPU, on copies of
    the arguments, where that GPU runs the kernel and its checks have passed; `record` is told.

    A call then also raises `Differs`, and `DeviceLost` where the GPU runs nothing more for this
    process; later calls are not repeated then.
    """
    kernels: Any = importlib.import_module("tilelang.jit.kernel").JITKernel
    call = kernels.__call__
    lost = False

    def call_twice(self: JITKernel, *given: Any, **named: Any) -> Any:
        nonlocal lost
        arch = None if lost or _is_paused else _arch(self)
        if arch is None or _overlap([*given, *named.values()]):
            return call(self, *given, **named)
        values = positional(self.launch_plan, given, named) if named else given
        copies = [_copy(value) for value in values]
        result = call(self, *values)
        try:
            found = _on_gpu(self, arch, copies)
        except DeviceLost:
            lost = True
            raise
        _compare(self, [*values, *_results(result)], [*copies, *found])
        record(self)
        return result

    kernels.__call__ = call_twice


def _arch(kernel: JITKernel) -> str | None:
    """The architecture to compile for; None where the kernel has no place on this GPU."""
    if kernel.execution_backend != "emulate" or kind_of(kernel.target) != "cuda":
        return None
    if kernel.launch_plan.team:
        return None  # of several ranks, which wait for each other
    if kernel.checks != frozenset(CHECKS) or not torch.cuda.is_available():
        return None  # without a check a program may be wrong on purpose
    return compiled_for(arch_of(kernel.target), torch.cuda.get_device_capability())


def _on_gpu(kernel: JITKernel, arch: str, arguments: Sequence[Any]) -> list[torch.Tensor]:
    """Runs the kernel, in the variant that the arguments want; what it returns."""

    def launcher(variant: JITKernel) -> Launcher:
        cubin = variant.compile_for(arch).cubin
        others = variant.other_variant
        return cuda_adapter(variant.launch_plan, cubin, lambda number: launcher(others(number)))

    launch = launcher(kernel)
    results: list[torch.Tensor] = []
    GuardedCall(arguments).run(lambda *given: results.extend(_results(launch(*given))))
    return [tensor.cpu() for tensor in results]


def _results(result: Any) -> list[torch.Tensor]:
    if result is None:
        return []
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _overlap(values: list[Any]) -> bool:
    storages = [v.untyped_storage().data_ptr() for v in values if isinstance(v, torch.Tensor)]
    return len(set(storages)) < len(storages)


def _copy(value: Any) -> Any:
    """A tensor of the same strides with memory of its own."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = value.untyped_storage().clone()
    empty = torch.empty(0, dtype=value.dtype, device=value.device)
    return empty.set_(storage, value.storage_offset(), value.shape, value.stride())


def _compare(kernel: JITKernel, wanted: list[Any], found: list[Any]) -> None:
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if not isinstance(one, torch.Tensor) or _is_close(one, other):
            continue
        differs = int((one.double() != other.double()).sum())
        raise Differs(
            f"{kernel.launch_plan.where()}: {differs} of {one.numel()} elements of tensor {number} "
            f"differ on the GPU: emulated {one.flatten()[:8].tolist()} .., there "
            f"{other.flatten()[:8].tolist()} .."
        )


def _is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.dtype.is_floating_point:
        return torch.equal(one, other)
    x, y = one.double(), other.double()
    finite = x.isfinite()
    if not torch.equal(x[~finite].nan_to_num(0.5), y[~finite].nan_to_num(0.5)):
        return False
    bound = _TOLERANCE * max(1.0, float(x[finite].abs().max()) if finite.any() else 0.0)
    return bool(((x[finite] - y[finite]).abs() <= bound).all())
