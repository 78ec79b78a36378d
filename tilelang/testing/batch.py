"""Many small kernels at once: each lowered by itself, all compiled as one library, each then run in
the emulator or on the GPU and compared.

The device headers are most of what a compiler reads for a small kernel; together two dozen kernels
take as long as three alone.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import tvm

from tilelang.emulator.compiler import EmulatedModule, build_emulated
from tilelang.engine.lower import lower
from tilelang.engine.param import CompiledArtifact
from tilelang.runtime.adapter import emulated_adapter
from tilelang.testing.gpu import DeviceLost, GuardedCall
from tilelang.testing.workers import Outcome

DEVICES = ("emulator", "cuda")
BATCHES_OF_A_PROCESS = {"emulator": 40, "cuda": 400}
"""Libraries stay loaded in the process that runs them; those of a GPU are small."""

REFUSALS = (ValueError, TypeError, NotImplementedError, IndexError, AssertionError)
"""What a program that has no kernel is documented to raise."""


def refusal(error: Exception) -> str | None:
    """Why the compiler refuses a program, without places and numbers, so that equal reasons are
    equal texts; None for what is not a documented refusal (another class, or no place in a file).
    """
    text = str(error)
    if not isinstance(error, REFUSALS) or ".py:" not in text or "bug in tilelang" in text:
        return None
    line = re.sub(r"^\S+\.py:\d+: ", "", text.split("\n")[0])
    return re.sub(r"\d+", "N", line)[:160]


def failure(error: Exception) -> Outcome:
    """The outcome of an exception: a documented refusal or a defect."""
    reason = refusal(error)
    if reason is not None:
        return Outcome("refused", reason, str(error))
    return Outcome("failed", _reason(error), str(error))


def _reason(error: Exception) -> str:
    line = re.sub(r"\S+\.py:\d+: |0x[0-9a-f]+|\d+", "", str(error).split("\n")[0])
    return f"{type(error).__name__}: {line[:120]}"


def lower_one(
    func: tvm.tirx.PrimFunc, index: int, target: str = "cuda -arch=sm_90a"
) -> CompiledArtifact:
    """The lowered function under a name that is its own among `index`."""
    return lower(func.with_attr("global_symbol", f"case{index}"), target=target)


_PRODUCTS = re.compile(r"^#define TL_WGMMA_PRODUCTS\(.*?\) (.*)$", re.MULTILINE)


def merged_source(artifacts: Sequence[CompiledArtifact]) -> str:
    """The source of several programs as one: the definition of the products of warp groups that any
    of them has, each include once, then the kernels."""
    products: dict[str, None] = {}
    includes: dict[str, None] = {}
    bodies: list[str] = []
    for artifact in artifacts:
        for line in artifact.kernel_source.splitlines():
            if found := _PRODUCTS.match(line):
                products.update(dict.fromkeys(re.findall(r"\w+\([^)]*\)", found[1])))
            elif line.startswith("#include"):
                includes[line] = None
            else:
                bodies.append(line)
    head = " ".join(["#define TL_WGMMA_PRODUCTS(shared, registers, sparse)", *products])
    return "\n".join([*([head] if products else []), *includes, *bodies, ""])


class Batch:
    """Kernels of several lowered functions in one library, which stays loaded.

    Args:
        artifacts: the functions.
        device: ``"emulator"``, or ``"cuda"`` for torch's current GPU, for whose architecture the
            source is compiled, whatever older one it was lowered for.

    Example: ``Batch([lower_one(f, k) for k, f in enumerate(functions)]).run(0, [a, b])``

    Raises `RuntimeError` where the sources do not compile.
    """

    def __init__(self, artifacts: Sequence[CompiledArtifact], device: str = "emulator"):
        self._plans = [artifact.launch_plan for artifact in artifacts]
        names = [kernel.name for plan in self._plans for kernel in plan.kernels]
        source = merged_source(artifacts)
        build: Callable[[str, list[str]], Callable[[int, Sequence[torch.Tensor]], None]]
        build = self._for_cuda if device == "cuda" else self._for_emulator
        self._run = build(source, names)

    def _for_emulator(
        self, source: str, names: list[str]
    ) -> Callable[[int, Sequence[torch.Tensor]], None]:
        with tempfile.TemporaryDirectory() as cache:
            plans = self._plans
            (warp_threads,) = {plan.warp_threads for plan in plans}
            module: EmulatedModule = build_emulated(
                source, names, Path(cache), warp_threads=warp_threads
            )
        return lambda number, given: emulated_adapter(plans[number], module.address)(*given)

    def _for_cuda(
        self, source: str, names: list[str]
    ) -> Callable[[int, Sequence[torch.Tensor]], None]:
        from tilelang.cuda.nvrtc import compile_cubin
        from tilelang.runtime.adapter import cuda_adapter
        from tilelang.runtime.adapter.cuda_module import CudaLibrary
        from tilelang.utils.target import cuda_arch

        library = CudaLibrary(compile_cubin(source, cuda_arch(), names).cubin)
        plans = self._plans
        return lambda number, given: GuardedCall(given).run(cuda_adapter(plans[number], library))

    def run(self, number: int, arguments: Sequence[torch.Tensor]) -> None:
        """Calls the function `number` on CPU tensors; raises what the kernel reports.

        On the GPU it runs on copies between guard bytes. Raises `AssertionError` where it has
        written outside of its tensors, `DeviceLost` where nothing can run on the GPU any more.
        """
        self._run(number, arguments)


class Trial(Protocol):
    """A program with its arguments and what has to come out."""

    def lower(self, index: int, device: str) -> CompiledArtifact | None:
        """The lowered program by `lower_one`; None where the device has no such architecture."""

    def arguments(self) -> list[torch.Tensor]:
        """The tensors of a call, on the CPU."""

    def launch(self, batch: Batch, position: int, arguments: list[torch.Tensor]) -> None:
        """Runs the program number `position` of `batch`."""

    def difference(self, arguments: list[torch.Tensor]) -> str:
        """What is wrong with the tensors after the call, an empty text if nothing is."""


Record = Callable[[CompiledArtifact, str], None]
"""Is told of a program that was ``printed``, and of one that ran: ``emulator`` or ``cuda``."""


def check(
    trials: Sequence[Trial],
    device: str = "emulator",
    record: Record = lambda artifact, where: None,
) -> list[Outcome | None]:
    """The outcome of each trial. Their kernels are compiled as one library, those for warps of
    another number of lanes as another. Where the GPU is lost,
    None for those that have not been run; this process is of no more use then."""
    outcomes: list[Outcome | None] = [None] * len(trials)
    lowered: list[tuple[int, CompiledArtifact]] = []
    for number, trial in enumerate(trials):
        try:
            artifact = trial.lower(number, device)
        except Exception as error:  # noqa: BLE001 (what it means is the outcome)
            outcomes[number] = failure(error)
            continue
        if artifact is None:
            outcomes[number] = Outcome("skipped", "the GPU has no such architecture")
        else:
            record(artifact, "printed")
            lowered.append((number, artifact))
    by_lanes: dict[int, list[tuple[int, CompiledArtifact]]] = {}
    for one in lowered:
        by_lanes.setdefault(one[1].launch_plan.warp_threads, []).append(one)
    for number, artifact, built in (x for part in by_lanes.values() for x in _built(part, device)):
        if isinstance(built, Outcome):
            outcomes[number] = built
            continue
        batch, position = built
        outcomes[number], alive = _run(trials[number], batch, position)
        if not alive:
            break
        record(artifact, device)
    return outcomes


_Built = tuple[int, CompiledArtifact, "tuple[Batch, int] | Outcome"]


def _built(lowered: list[tuple[int, CompiledArtifact]], device: str) -> list[_Built]:
    """The programs with their places in a batch; where one does not compile, each in its own."""
    if not lowered:
        return []
    try:
        batch = Batch([artifact for _, artifact in lowered], device)
    except RuntimeError as error:
        if len(lowered) > 1:
            return [built for one in lowered for built in _built([one], device)]
        line = next((x for x in str(error).split("\n") if "error:" in x), str(error))
        reason = re.sub(r"^.*error: |\d+", "", line.split("\n")[0])[:120]
        return [(*lowered[0], Outcome("failed", f"does not compile: {reason}", str(error)))]
    return [(*one, (batch, position)) for position, one in enumerate(lowered)]


def _run(trial: Any, batch: Batch, position: int) -> tuple[Outcome, bool]:
    """The outcome, and whether this process can run others."""
    try:
        given = trial.arguments()
        trial.launch(batch, position, given)
        wrong = trial.difference(given)
    except Exception as error:  # noqa: BLE001 (what it means is the outcome)
        return Outcome("failed", _reason(error), str(error)), not isinstance(error, DeviceLost)
    return (Outcome("failed", "wrong result", wrong) if wrong else Outcome("equal")), True
