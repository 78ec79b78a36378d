"""A configuration on its way to be timed, as plain data: other processes, and other machines, take
it without the user's code and without a program of TVM's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilelang.autotuner.processes import call_apart

if TYPE_CHECKING:
    import tvm
    from tvm.target import Target


@dataclass(frozen=True)
class Lowered:
    """A configuration that has been lowered.

    Attributes:
        plan: its launch plan, as JSON.
        source: CUDA C++.
        arch: such as ``sm_90a``.
        kernel_names: the kernels of the source.
        options, fast_math, location: as of `compile_cubin`.
        emulated_source: what the emulator builds; None for a GPU.
        checks: the emulator's checks.
        statements: for each kernel, how many statements one of its threads executes; None for a
            GPU.
    """

    plan: str
    source: str
    arch: str
    kernel_names: tuple[str, ...]
    options: tuple[str, ...]
    fast_math: bool
    location: str
    emulated_source: str | None = None
    checks: tuple[str, ...] = ()
    statements: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Candidate:
    """A configuration that can be run.

    Attributes:
        lowered: what it was made from.
        cubin: the binary.
        registers: of a thread, the most of all kernels.
        spills: bytes of spill stores and loads of a thread, the most of all kernels.
        shared: bytes of shared memory of a block, the most of all kernels; what depends on sizes
            that are not known counts as 0.
    """

    lowered: Lowered
    cubin: bytes
    registers: int
    spills: int
    shared: int


def lower(
    program: tvm.tirx.PrimFunc,
    target: Target,
    out_idx: int | Sequence[int] | None,
    pass_configs: Mapping[Any, Any],
    compile_flags: str | Sequence[str] | None,
    emulated: bool,
) -> Lowered:
    """Lowers a traced program. Raises what `tilelang.compile` raises of it."""
    from tilelang.emulator.checks import resolve_checks
    from tilelang.jit.compile import compile
    from tilelang.testing.perf.costs import statements_executed
    from tilelang.utils.target import arch_of

    # The emulator's backend compiles nothing before it is asked; the source is the same for all.
    kernel = compile(
        program,
        out_idx=out_idx,
        execution_backend="emulate",
        target=target,
        pass_configs=pass_configs,
        compile_flags=compile_flags,
    )
    # The process that times has one variant: of sizes that nothing is assumed of.
    kernel = kernel.for_any_sizes
    plan = dataclasses.replace(kernel.launch_plan, others=())
    keywords = kernel._compiler_keywords
    statements = None
    if emulated:
        functions = kernel.artifact.device_mod.functions.items()
        bodies = {name.name_hint: function.body for name, function in functions}
        statements = tuple(statements_executed(bodies[launch.name]) for launch in plan.kernels)
    return Lowered(
        plan=plan.to_json(),
        source=kernel.kernel_source,
        arch=arch_of(kernel.target),
        kernel_names=tuple(launch.name for launch in plan.kernels),
        options=tuple(keywords["options"]),
        fast_math=keywords["fast_math"],
        location=keywords["location"],
        emulated_source=kernel.emulated_source if emulated else None,
        checks=tuple(sorted(resolve_checks(None))) if emulated else (),
        statements=statements,
    )


def build(lowered: Lowered) -> Candidate:
    """Compiles what was lowered, for the emulator, too, which keeps it. Raises `RuntimeError` where
    it does not compile."""
    from tilelang.cache.cubins import cached_binary
    from tilelang.emulator.compiler import build_emulated
    from tilelang.engine.launch_plan import LaunchPlan

    compiled = cached_binary(
        lowered.source,
        lowered.arch,
        lowered.kernel_names,
        lowered.options,
        lowered.fast_math,
        lowered.location,
    )
    plan = LaunchPlan.from_json(lowered.plan)
    if lowered.emulated_source is not None:
        build_emulated(
            lowered.emulated_source,
            lowered.kernel_names,
            checks=lowered.checks,
            warp_threads=plan.warp_threads,
        )
    usage = compiled.resource_usage
    shared = (
        usage[k.name].static_shared + (k.shared_bytes if isinstance(k.shared_bytes, int) else 0)
        for k in plan.kernels
    )
    return Candidate(
        lowered,
        compiled.cubin,
        registers=max(u.registers for u in usage.values()),
        spills=max(u.spill_stores + u.spill_loads for u in usage.values()),
        shared=max(shared),
    )


def build_apart(lowered: Lowered, seconds: float | None) -> Candidate:
    """`build` in another process, which may crash or take too long: NVRTC compiles one program of a
    process at a time, whatever its threads. The task that a tuner gives to executors."""
    return call_apart(build, lowered, seconds=seconds)
