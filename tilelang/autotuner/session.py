"""What the process does that runs configurations: it holds the inputs and the loaded kernels, and
checks and times what it is told to. `tilelang.autotuner.bench` starts it, and another one where it
is lost."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from tilelang.autotuner.candidate import Candidate
from tilelang.engine.launch_plan import LaunchPlan
from tilelang.engine.symbols import evaluate
from tilelang.utils.tensor import torch_assert_close

NANOSECONDS_A_STATEMENT = 1.0
"""What the emulator's time counts: statements of all threads, one after the other."""


class WrongResult(AssertionError):
    """A configuration computes something else than the reference."""


class DeviceLost(RuntimeError):
    """The device runs nothing more for this process."""


@dataclass
class Workload:
    """What all configurations with the same parameters are run on, on the CPU.

    Attributes:
        inputs: in the order of the launch plan's inputs.
        expected: the reference's outputs, then the inputs that it has changed; None: no reference.
        changed: which inputs these are.
        rtol, atol, max_mismatched_ratio: as of `torch_assert_close`.
        shared: whether all configurations run on the same tensors as the ones before have left
            them; else they find the inputs as they were.
        returns: whether outputs are sent back, for a check by hand.
        runs: whether a configuration has to run where it is not timed, as in the emulator.
    """

    inputs: list[Any]
    expected: list[torch.Tensor] | None = None
    changed: tuple[int, ...] = ()
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    shared: bool = False
    returns: bool = False
    runs: bool = True

    def to_bytes(self) -> bytes:
        """Its form between processes: tensors keep their strides."""
        file = io.BytesIO()
        torch.save(vars(self), file)
        return file.getvalue()

    @staticmethod
    def of_bytes(text: bytes) -> Workload:
        """The inverse of `to_bytes`."""
        return Workload(**torch.load(io.BytesIO(text), weights_only=True))


class Device(Protocol):
    """Where configurations run."""

    name: str
    """torch's name for it."""

    def load(self, candidate: Candidate) -> Callable[..., Any]:
        """What runs the candidate on tensors of the device."""

    def wait(self) -> None:
        """Waits until what was started has ended. Raises where it has failed."""

    def milliseconds(
        self, candidate: Candidate, call: Callable[[], Any], inputs: Sequence[Any], runs: int
    ) -> float:
        """The time of a call: the median of some `runs`."""


class GPU:
    """The CUDA device of a number; times as `tilelang.profiler.do_bench`."""

    def __init__(self, number: int = 0, backend: str = "event"):
        torch.cuda.set_device(number)
        self.name = f"cuda:{number}"
        self._backend = backend

    def load(self, candidate: Candidate) -> Callable[..., Any]:
        """See `Device`."""
        from tilelang.runtime.adapter import cuda_adapter

        return cuda_adapter(LaunchPlan.from_json(candidate.lowered.plan), candidate.cubin)

    def wait(self) -> None:
        """See `Device`."""
        torch.cuda.synchronize()

    def milliseconds(
        self, candidate: Candidate, call: Callable[[], Any], inputs: Sequence[Any], runs: int
    ) -> float:
        """See `Device`."""
        from tilelang.profiler import do_bench

        found = do_bench(
            call, _n_warmup=1, _n_repeat=runs, backend=self._backend, return_mode="median"
        )
        assert isinstance(found, float)
        return found


class Emulator:
    """The emulator. Its time is that of a machine which executes one statement of one thread after
    the other: a property of the program and the sizes, the same each time."""

    name = "cpu"

    def __init__(self, number: int = 0, backend: str = "event"):
        pass

    def load(self, candidate: Candidate) -> Callable[..., Any]:
        """See `Device`."""
        from tilelang.emulator.compiler import build_emulated
        from tilelang.runtime.adapter import emulated_adapter, fitted

        lowered = candidate.lowered
        assert lowered.emulated_source is not None
        plan = LaunchPlan.from_json(lowered.plan)
        module = build_emulated(
            lowered.emulated_source,
            lowered.kernel_names,
            checks=lowered.checks,
            warp_threads=plan.warp_threads,
        )
        plan = fitted(plan, module.parameter_bytes)
        return emulated_adapter(plan, module.address, module.explain)

    def wait(self) -> None:
        """See `Device`."""

    def milliseconds(
        self, candidate: Candidate, call: Callable[[], Any], inputs: Sequence[Any], runs: int
    ) -> float:
        """See `Device`."""
        assert candidate.lowered.statements is not None
        plan = LaunchPlan.from_json(candidate.lowered.plan)
        values = plan.symbol_values(inputs)
        total = 0
        for launch, statements in zip(plan.kernels, candidate.lowered.statements, strict=True):
            for extent in (*launch.grid, *launch.block):
                statements *= evaluate(extent, values)
            total += statements
        return total * NANOSECONDS_A_STATEMENT / 1e6


DEVICES: dict[str, Callable[[int, str], Device]] = {"cuda": GPU, "emulator": Emulator}


class Session:
    """Kernels and inputs on a device.

    Example::

        session = Session(Emulator())
        session.add_workload("a", Workload([a, b]).to_bytes())
        session.admit(0, candidate, "a")
        session.time(0, 20)
    """

    def __init__(self, device: Device):
        self._device = device
        self._workloads: dict[str, tuple[Workload, list[Any]]] = {}
        self._loaded: dict[int, tuple[Candidate, Callable[[], Any], list[Any]]] = {}

    def add_workload(self, name: str, text: bytes) -> None:
        """Brings inputs to the device."""
        found = Workload.of_bytes(text)
        found = replace(found, inputs=self._placed(found.inputs))
        self._workloads[name] = found, copies(found.inputs)

    def _placed(self, values: Sequence[Any]) -> list[Any]:
        name = self._device.name
        return [v.to(name) if isinstance(v, torch.Tensor) else v for v in values]

    def load(self, number: int, candidate: Candidate, workload: str) -> None:
        """Makes a candidate ready to be timed. Raises what the device raises."""
        call, inputs = self._device.load(candidate), self._workloads[workload][1]
        self._loaded[number] = candidate, lambda: call(*inputs), inputs

    def admit(self, number: int, candidate: Candidate, workload: str) -> list[torch.Tensor] | None:
        """Loads a candidate, runs it once and checks it. Returns what it computes, on the CPU,
        where that is checked by hand.

        Raises `WrongResult`, `DeviceLost` where nothing more runs here, and what the call raises.
        """
        self.load(number, candidate, workload)
        found, inputs = self._workloads[workload]
        if not found.runs:
            return None
        if not found.shared:
            _restore(inputs, found.inputs)
        try:
            result = self._loaded[number][1]()
            self._device.wait()
        except Exception as error:
            self._forget(number)
            raise error
        outputs = [] if result is None else [result] if torch.is_tensor(result) else list(result)
        computed = [*outputs, *(inputs[i] for i in found.changed)]
        if found.returns:
            return [tensor.cpu() for tensor in computed]
        if found.expected is not None:
            try:
                self._check(found, computed)
            except AssertionError as error:
                self._loaded.pop(number)
                raise WrongResult(str(error)) from error
        return None

    @staticmethod
    def _check(workload: Workload, computed: Sequence[torch.Tensor]) -> None:
        expected = workload.expected or []
        assert len(expected) == len(computed), (
            f"the reference returned {len(expected) - len(workload.changed)} outputs, the kernel "
            f"{len(computed) - len(workload.changed)}"
        )
        for reference, tensor in zip(expected, computed, strict=True):
            torch_assert_close(
                tensor,
                reference,
                rtol=workload.rtol,
                atol=workload.atol,
                max_mismatched_ratio=workload.max_mismatched_ratio,
                check_device=False,
                base_name="kernel",
                ref_name="reference",
            )

    def _forget(self, number: int) -> None:
        """Lets go of a candidate that has failed. Raises `DeviceLost` where it has taken the device
        with it: after an illegal access every later call fails."""
        self._loaded.pop(number, None)
        try:
            self._device.wait()
        except Exception as error:
            raise DeviceLost(f"{type(error).__name__}: {error}") from error

    def time(self, number: int, runs: int) -> float:
        """Milliseconds of a call of a loaded candidate."""
        candidate, call, inputs = self._loaded[number]
        try:
            return self._device.milliseconds(candidate, call, inputs, runs)
        except Exception as error:
            self._forget(number)
            raise error


def copies(values: Sequence[Any]) -> list[Any]:
    """The same values, tensors as copies."""
    return [v.clone() if isinstance(v, torch.Tensor) else v for v in values]


def _restore(values: Sequence[Any], former: Sequence[Any]) -> None:
    for value, old in zip(values, former, strict=True):
        if isinstance(value, torch.Tensor):
            value.copy_(old)


# What the other process calls.

_session: Session | None = None


def open_session(device: str, number: int, backend: str) -> None:
    """Begins a session on one of `DEVICES`, or on one that ``module:name`` makes."""
    global _session
    _session = Session(_device_maker(device)(number, backend))


def _device_maker(name: str) -> Callable[[int, str], Device]:
    if ":" not in name:
        return DEVICES[name]
    import importlib

    module, _, attribute = name.partition(":")
    found: Callable[[int, str], Device] = getattr(importlib.import_module(module), attribute)
    return found


def in_session(method: str, *arguments: Any) -> Any:
    """Calls a method of the session."""
    return getattr(_session, method)(*arguments)
