"""What a line of the table of `plain.py` is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from program_cases import normal, nothing

import tilelang
import tilelang.language as T

FAST_MATH = {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True}
BFLOAT16 = torch.bfloat16

__all__ = ["BFLOAT16", "FAST_MATH", "Plain", "Problem", "normal", "nothing"]


@dataclass(frozen=True)
class Problem:
    """What a program computes, and torch's call for it.

    `inputs` makes ours on a device, and `others` makes torch's of them. The result of `call` is
    ours to be, in `dtype` if that is given. `reference` makes the same of ours in float64, all of
    it or what `part` takes of a result; without one it is `call` of torch's inputs in float64.
    `flops` are counted at the speed of a product of 16-bit floats, to which `rate` is that of the
    types of this one. `bound` is the largest relative error.
    """

    inputs: Callable[[str], list[torch.Tensor]]
    call: Callable[..., torch.Tensor]
    flops: float = 0.0
    bound: float = 5e-3
    rate: float = 1.0
    others: Callable[..., list[torch.Tensor]] = lambda *inputs: list(inputs)
    reference: Callable[..., torch.Tensor] | None = None
    part: Callable[[torch.Tensor], torch.Tensor] = lambda result: result
    dtype: torch.dtype | None = None

    def wanted(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        """The part of the result that is compared, in float64."""
        if self.reference:
            return self.reference(*inputs)
        doubles = (x.double() if x.is_floating_point() else x for x in self.others(*inputs))
        return self.part(self.call(*doubles))


@dataclass(frozen=True)
class Plain:
    """A program as its author wrote it, with its tiles, stages and threads, and what it computes.

    `program` makes a PrimFunc of `options`; its last parameter is the result, to which it adds if
    `adds` says so.
    """

    name: str
    problem: Problem
    program: Callable[..., Any]
    options: Mapping[str, Any]
    adds: bool = False
    pass_configs: Mapping[Any, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """The PrimFunc."""
        return self.program(**self.options)

    def call(self, kernel: Callable[..., Any], inputs: list[Any], result: torch.Tensor) -> None:
        """Run a kernel of the program."""
        if self.adds:
            result.zero_()
        kernel(*inputs, result)


def named(
    what: str, tile: tuple[int, ...], stages: int | None, threads: int, more: str = ""
) -> str:
    """A name with tile, stages (None: a serial loop) and threads."""
    loop = "serial" if stages is None else f"s{stages}"
    return f"{what} {'x'.join(map(str, tile))} {loop} t{threads}{' ' * bool(more)}{more}"


def steps(count: Any, stages: int | None) -> Any:
    """A loop over so many steps: a pipeline of `stages`, or a serial loop where that is None."""
    return T.serial(count) if stages is None else T.Pipelined(count, num_stages=stages)
