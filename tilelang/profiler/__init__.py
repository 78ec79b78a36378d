"""Checks and times a kernel on generated inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tilelang.profiler.bench import do_bench as do_bench
from tilelang.profiler.roofline import Roofline as Roofline
from tilelang.profiler.roofline import roofline as roofline
from tilelang.profiler.turns import CallTime as CallTime
from tilelang.profiler.turns import Turns as Turns
from tilelang.profiler.turns import compare as compare
from tilelang.profiler.turns import time_call as time_call
from tilelang.utils.tensor import TensorSupplyType, get_tensor_supply, torch_assert_close

__all__ = [
    "CallTime",
    "Profiler",
    "Roofline",
    "TensorSupplyType",
    "Turns",
    "compare",
    "do_bench",
    "get_tensor_supply",
    "roofline",
    "time_call",
    "torch_assert_close",
]

if TYPE_CHECKING:
    from tilelang.engine.param import KernelParam
    from tilelang.runtime.adapter.cython._adapter import Launcher


@dataclass
class Profiler:
    """Runs a kernel on inputs generated from its parameters; `JITKernel.get_profiler` makes one.

    `result_idx` are the parameters that the kernel returns. Inputs come as `supply_type` says;
    symbolic dimensions and scalar parameters need `input_tensors`, else `ValueError`.

    Example: ``kernel.get_profiler().do_bench()``
    """

    params: list[KernelParam]
    result_idx: list[int]
    supply_type: TensorSupplyType
    adapter: Launcher

    def _get_inputs(
        self, with_output: bool = False, sizes: Mapping[str, int] | None = None
    ) -> list[torch.Tensor]:
        supply = get_tensor_supply(self.supply_type, self.adapter.device)
        return [
            supply(param, sizes)
            for index, param in enumerate(self.params)
            if with_output or index not in self.result_idx
        ]

    def _outputs(self, result: Any) -> list[torch.Tensor]:
        if result is None:
            return []
        return [result] if isinstance(result, torch.Tensor) else list(result)

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """Runs the kernel, or `func`, once; returns its result."""
        return (func or self.adapter)(*self._get_inputs())

    def assert_allclose(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Asserts that the kernel's outputs are close to those of `reference_program` on the same
        inputs.

        The reference returns a tensor, or a sequence of them. Raises `AssertionError` as
        `torch_assert_close` does, and where the number of outputs differs.

        Example: ``kernel.get_profiler().assert_allclose(lambda a, b: a @ b)``
        """

        def check(expected: list[torch.Tensor], found: list[torch.Tensor]) -> None:
            assert len(expected) == len(found), (
                f"the reference returned {len(expected)} outputs, the kernel {len(found)}"
            )
            for reference, output in zip(expected, found, strict=True):
                torch_assert_close(
                    output,
                    reference,
                    rtol=rtol,
                    atol=atol,
                    max_mismatched_ratio=max_mismatched_ratio,
                    base_name="kernel",
                    ref_name="reference",
                )

        self.manual_assert_close(reference_program, input_tensors, check)

    def manual_assert_close(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        manual_check_prog: Callable[[list[torch.Tensor], list[torch.Tensor]], Any] | None = None,
    ) -> None:
        """Calls ``manual_check_prog(reference outputs, kernel outputs)``, lists of tensors; it
        raises what it finds.

        Raises `ValueError` where `manual_check_prog` is not given.
        """
        if manual_check_prog is None:
            raise ValueError(
                "expected manual_check_prog, a function of the two lists of outputs, got None"
            )
        inputs = self._get_inputs() if input_tensors is None else input_tensors
        expected = self._outputs(reference_program(*inputs))
        manual_check_prog(expected, self._outputs(self.adapter(*inputs)))

    def assert_consistent(self, repeat: int = 10) -> None:
        """Asserts that `repeat` runs on the same inputs give the same outputs, bit for bit."""
        inputs = self._get_inputs()
        first = self._outputs(self.adapter(*inputs))
        for run in range(1, repeat):
            for index, output in enumerate(self._outputs(self.adapter(*inputs))):
                assert torch.equal(_bytes(first[index]), _bytes(output)), (
                    f"output {index} of run {run} differs from that of the first run on the same "
                    "inputs"
                )

    def do_bench(
        self,
        func: Callable[..., Any] | None = None,
        warmup: float = 25,
        rep: float = 100,
        n_warmup: int = 0,
        n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None,
        backend: str = "event",
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        dynamic_symbolic_constraints: Mapping[str, int] | None = None,
        device: str | torch.device | int | None = None,
        early_stop_baseline: float | None = None,
    ) -> float | list[float]:
        """The time of the kernel, or of ``func(*inputs)``, in milliseconds; see
        `tilelang.profiler.do_bench`.

        `dynamic_symbolic_constraints` gives a size to each symbolic dimension, by name. An emulated
        kernel is timed by the wall clock.
        """
        called = func or self.adapter
        inputs = input_tensors
        if inputs is None:
            inputs = self._get_inputs(sizes=dynamic_symbolic_constraints)
        return do_bench(
            lambda: called(*inputs),
            warmup=warmup,
            rep=rep,
            _n_warmup=n_warmup,
            _n_repeat=n_repeat,
            quantiles=quantiles,
            backend=backend,
            return_mode=return_mode,
            device=self.adapter.device if device is None else device,
            early_stop_baseline=early_stop_baseline,
        )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of `tensor`: as a number, NaN differs from itself."""
    return tensor.reshape(-1).view(torch.uint8)
