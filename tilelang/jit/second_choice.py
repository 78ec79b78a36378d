"""What the compiler tries where ptxas serialises or spills what it has made of a program.

Whether blocks take tile after tile, how many of them share the registers of a multiprocessor,
whether warps are producers, whether a loop that is known to run is tested in front, how many
threads a block has, where the program does not depend on it, and whether addresses live through a
loop is decided before anybody knows registers, which only ptxas counts. Where its report is bad
(`tilelang.engine.performance`), the program is compiled with one of these decided otherwise, and
kept that way if neither matters then.

Addresses are tried where fewer instructions in loops move spilled registers, `FEW_SPILLS`, and kept
if there are less then. Fences between proxies wait for what is spilled, and beside large tiles
little L1 is left for it, so few spilled addresses may take much more than their share of the
instructions.

A decision that the user has made, or that the program does not depend on, gives the same source
text, which is not compiled. The cache keeps reports and programs, so a program that is found there
takes the same way without compiling. For the emulator nothing is compiled, and it runs the first
choice, until somebody asks for registers, machine code or an explanation, which are those of what a
GPU would run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilelang.engine.performance import is_serialised, is_troubled
from tilelang.engine.resource_usage import ResourceUsage

ADDRESSES = "tl.second_choice.addresses_anew"
FEW_SPILLS = 1 / 400
"""The share of the instructions in loops that move spilled registers, from which on new addresses,
which are more instructions, are worth it: with 1 in 84 they took 13 % from a kernel's time, with 1
in 300 3 %, with 1 in 570 they added 3 %."""
CHOICES = {
    "tl.second_choice.one_tile": "a block for each tile",
    "tl.second_choice.fewer_blocks": "more registers and fewer blocks on a multiprocessor",
    "tl.second_choice.loops_run": "no test in front of loops that are known to run",
    "tl.second_choice.more_threads": "twice as many threads",
    "tl.second_choice.without_roles": "no warps that only load",
    ADDRESSES: "addresses computed anew in each iteration",
}
"""Keys that passes read, and what they stand for. Decisions that no kernel was better without have
none here (docs/measurements.md)."""

Lowered = TypeVar("Lowered")


@dataclass(frozen=True)
class Tried(Generic[Lowered]):
    """A program that was compiled: `name` is of `CHOICES`, empty for the first."""

    name: str
    lowered: Lowered
    usage: Mapping[str, ResourceUsage]

    @property
    def line(self) -> str:
        """What ptxas said of it, in words."""
        spilled = sum(of.spill_stores for of in self.usage.values())
        registers = max(of.registers for of in self.usage.values())
        serialised = any(map(is_serialised, self.usage.values()))
        return f"{self.name or 'first choice'}: {registers} registers, {spilled} bytes spilled" + (
            ", products serialised" if serialised else ""
        )


def choose(
    first: Lowered,
    lower: Callable[[str], Lowered],
    source: Callable[[Lowered], str],
    usage: Callable[[Lowered], Mapping[str, ResourceUsage]],
) -> tuple[int, list[Tried[Lowered]]]:
    """The number of the program that is kept, and those that were compiled, `first` in front.

    `lower` gives the program with one of the keys of `CHOICES`.
    """
    tried = [Tried("", first, usage(first))]
    found = tried[0].usage
    spills = any(map(_spill_some, found.values()))
    keys = list(CHOICES) if is_troubled(found) else [ADDRESSES] if spills else []
    for key in keys:
        other = lower(key)
        if any(source(other) == source(one.lowered) for one in tried):
            continue
        tried.append(Tried(CHOICES[key], other, usage(other)))
        if _is_better(key, tried[-1].usage, found):
            return len(tried) - 1, tried
    return 0, tried


def _spill_some(usage: ResourceUsage) -> bool:
    return usage.spills_in_loops > FEW_SPILLS * usage.instructions_in_loops


def _spills(usage: Mapping[str, ResourceUsage]) -> int:
    return sum(of.spills_in_loops for of in usage.values())


def _is_better(
    key: str, found: Mapping[str, ResourceUsage], first: Mapping[str, ResourceUsage]
) -> bool:
    """Whether `found`, with the choice `key`, is kept instead of `first`."""
    if key != ADDRESSES or any(map(is_serialised, first.values())):
        return not is_troubled(found)
    return not any(map(is_serialised, found.values())) and _spills(found) < _spills(first)


def choices_text(number: int, tried: Sequence[Tried[Any]]) -> list[str]:
    """What was compiled, a line each, with a mark at the `number` that is kept; nothing where the
    first was good."""
    if len(tried) == 1:
        return []
    lines = [f"  {one.line}" + (", kept" if i == number else "") for i, one in enumerate(tried)]
    return ["choices of the compiler that were compiled:", *lines]
