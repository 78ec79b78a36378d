"""What configurations are run on: tensors that the user gives, or generated ones, and what the
reference makes of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilelang.autotuner.session import Workload, copies
from tilelang.engine.param import KernelParam
from tilelang.utils.log import logger
from tilelang.utils.tensor import TensorSupplyType, get_tensor_supply

_captured = threading.local()


@contextlib.contextmanager
def set_autotune_inputs(*tensors: Any) -> Iterator[None]:
    """Functions under `tilelang.autotune` that are called in a ``with`` statement, in this thread,
    are tuned on these tensors: the kernel's inputs in order, or one sequence of them.

    They are not changed.

    Example: ``with set_autotune_inputs(a, b): kernel = matmul(1024, 1024, 1024)``
    """
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        tensors = tuple(tensors[0])
    stack = _captured.__dict__.setdefault("stack", [])
    stack.append(tensors)
    try:
        yield
    finally:
        stack.pop()


def captured_inputs() -> tuple[Any, ...] | None:
    """The tensors of the innermost `set_autotune_inputs`."""
    stack = _captured.__dict__.get("stack")
    return stack[-1] if stack else None


@dataclass
class ProfileArgs:
    """How configurations are checked and timed; `AutoTuner.set_profile_args` says of each."""

    warmup: int = 25
    rep: int = 100
    timeout: float = 100
    supply_type: TensorSupplyType = TensorSupplyType.Auto
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Any] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[..., Any] | None = None
    cache_input_tensors: bool = False
    backend: str = "event"

    @property
    def checks(self) -> bool:
        """Whether results are compared."""
        return self.ref_prog is not None and not self.skip_check


@dataclass
class Prepared:
    """A workload, and the reference's outputs for a check by hand."""

    workload: Workload
    expected: list[torch.Tensor]
    inputs: list[Any]


def prepare(
    params: Sequence[KernelParam],
    profile: ProfileArgs,
    given: Sequence[Any] | None,
    device: str,
    emulated: bool,
) -> Prepared:
    """The workload for a kernel whose inputs are `params`.

    `given` are the tensors that the user passes, else `supply_prog` makes them, else they are
    generated. Raises `ValueError` where that is not possible, or where there are not as many as
    the kernel has inputs; what `supply_prog` and `ref_prog` raise.
    """
    if given is not None:
        if profile.supply_prog is not None:
            logger.warning("autotune: the tensors of set_autotune_inputs win over supply_prog")
        inputs = list(given)
    elif profile.supply_prog is not None:
        inputs = list(profile.supply_prog(list(params)))
    else:
        inputs = _generated(params, profile, device)
    if len(inputs) != len(params):
        raise ValueError(
            f"autotune: found {len(inputs)} inputs, wanted {len(params)}, one for each parameter "
            "of the kernel that is no output"
        )
    workload = Workload(
        [_on_cpu(value) for value in inputs],
        rtol=profile.rtol,
        atol=profile.atol,
        max_mismatched_ratio=profile.max_mismatched_ratio,
        shared=profile.cache_input_tensors,
        # A kernel of usual sizes takes the emulator minutes.
        runs=not (emulated and profile.skip_check),
    )
    expected: list[torch.Tensor] = []
    if profile.checks:
        assert profile.ref_prog is not None
        own = copies(inputs)
        result = profile.ref_prog(*own)
        expected = [] if result is None else [result] if torch.is_tensor(result) else list(result)
        workload.changed = tuple(
            i
            for i, (now, old) in enumerate(zip(own, inputs, strict=True))
            if isinstance(old, torch.Tensor) and not _equal(now, old)
        )
        expected = [*expected, *(own[i] for i in workload.changed)]
        workload.returns = profile.manual_check_prog is not None
        if not workload.returns:
            workload.expected = [_on_cpu(tensor) for tensor in expected]
    return Prepared(workload, expected, inputs)


def _generated(params: Sequence[KernelParam], profile: ProfileArgs, device: str) -> list[Any]:
    supply = get_tensor_supply(profile.supply_type, device)
    try:
        return [supply(param) for param in params]
    except ValueError as error:
        raise ValueError(
            f"autotune: {str(error).partition(': pass ')[0]}. Give the inputs by supply_prog, or "
            "by `with set_autotune_inputs(...)`."
        ) from error


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same bits: as a number, NaN differs from itself."""
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)))


def _on_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value
