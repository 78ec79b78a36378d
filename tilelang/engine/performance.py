"""What ptxas's report says about the speed of a kernel: `PerformanceWarning`, and when it is given.

Two things matter. ptxas *serialises* the wgmmas of a kernel where it cannot tell accumulators that
are in flight from others: each instruction is awaited by itself. And a thread whose values do not
fit its registers *spills* some to local memory. A load or store of a spilled register takes a place
among the instructions that a warp issues. So the share of those in loops bounds what they cost:
less than `SPILLS` of the instructions is less than a measurement tells. Spills in front of loops
and behind them do not count, nor do arrays of a thread that an index finds. As soon as one loop
multiplies matrices, spills in loops without products do not count: warps that only load have few
registers, and wait anyway. Loops of warps that compute, such as epilogues, are left out with them.

A third thing is what a program asks for: registers that `setmaxnreg` moves between warp groups.
ptxas ignores all of a kernel's where some warps run without one, and says so; the warps that were
to have more spill then, or the kernel is slower without a word.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from tilelang.engine.launch_plan import LaunchPlan
from tilelang.engine.resource_usage import ResourceUsage

SPILLS = 1 / 50
"""The share of a loop's instructions that move spilled registers, from which on they matter."""
_FEW_REGISTERS = ("C7511", "C7512")
"""ptxas has too few registers for wgmmas that run beside each other."""
_IN_FLIGHT = ("C7510", "C7513", "C7514", "C7515")
"""Instructions stand between wgmmas and their wait that use registers of these."""
_IGNORED = "C7507"
"""No register is moved between warp groups."""

_GIVEN: dict[str | tuple[str, type[Warning], int], int] = {}
"""Python's record of warnings that were given: what is compiled again is not told again."""


class PerformanceWarning(UserWarning):
    """ptxas serialises a kernel's matrix products, spills registers in its loops, or ignores what
    the program says of registers, and the compiler has no other choice that avoids it.

    The warning has the place of the kernel, ptxas's numbers and words, and a repair. It is given
    when the binary is made or taken from the cache, once for each kernel.

    Example: ``warnings.simplefilter("error", tilelang.PerformanceWarning)``
    """


def is_serialised(usage: ResourceUsage) -> bool:
    """Whether ptxas awaits each wgmma of the kernel by itself."""
    return any("serialized" in advisory.text for advisory in usage.advisories)


def spills_matter(usage: ResourceUsage) -> bool:
    """Whether `SPILLS` or more of the instructions in the kernel's loops move spilled registers."""
    return usage.spills_in_loops > SPILLS * usage.instructions_in_loops


def is_troubled(usage: Mapping[str, ResourceUsage]) -> bool:
    """Whether one of the kernels is serialised or spills in a way that matters."""
    return any(is_serialised(of) or spills_matter(of) for of in usage.values())


def keeps_registers(usage: ResourceUsage) -> bool:
    """Whether ptxas ignores the kernel's `setmaxnreg`."""
    return any(advisory.code == _IGNORED for advisory in usage.advisories)


def facts(usage: ResourceUsage) -> list[str]:
    """ptxas's advisories and where spills are, a line each; none of a kernel without them."""
    lines = [f"ptxas {advisory.code}: {advisory.text}" for advisory in usage.advisories]
    if usage.spill_stores + usage.spill_loads and usage.instructions_in_loops:
        lines.append(
            f"spilled: {usage.spill_stores} bytes stored, {usage.spill_loads} loaded, "
            f"{usage.spills_in_loops} of {usage.instructions_in_loops} instructions in loops"
        )
    return lines


def repair(usage: ResourceUsage) -> str:
    """What to change in the program, by the kind of trouble."""
    codes = {advisory.code for advisory in usage.advisories}
    if _IGNORED in codes:
        return (
            "give all warps of the block to roles, and let each begin with T.set_max_nreg, also "
            "those that keep their number"
        )
    if codes.intersection(_IN_FLIGHT) and not codes.intersection(_FEW_REGISTERS):
        # A loop of one stage may get two (DeepenPipelines).
        return (
            "let the loop of n statements have order=range(n) and stage=[0] * n: no product then "
            "runs beside the next step"
        )
    # Beyond 256 threads each has fewer registers.
    return (
        "where 128 threads compute, let 256 share the tiles (threads= of T.Kernel), else make a "
        "tile half as large"
    )


def warn(plan: LaunchPlan, usage: Mapping[str, ResourceUsage]) -> None:
    """Gives a `PerformanceWarning` for each kernel that is in trouble, at the program's place."""
    for kernel in plan.kernels:
        of = usage[kernel.name]
        if not is_troubled({kernel.name: of}) and not keeps_registers(of):
            continue
        said = "; ".join(facts(of))
        wanted = (
            "registers moved as the program says"
            if keeps_registers(of)
            else "products that run beside each other and no spills in loops"
        )
        file, _, line = plan.location.rpartition(":")
        warnings.warn_explicit(
            f"kernel {kernel.name}, {of.registers} registers of each thread: found {said}, wanted "
            f"{wanted}; {repair(of)}",
            PerformanceWarning,
            file or plan.name,
            int(line) if line.isdigit() else 0,
            registry=_GIVEN,
        )
