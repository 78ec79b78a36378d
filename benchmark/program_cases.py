"""What a line of the table of `programs.py` is, and what makes one."""

import functools
import importlib.util
import inspect
import pathlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import tilelang

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "testing" / "python" / "programs"
TARGET = "cuda -arch=sm_90a"
HALF, FLOAT = 2, 4


@dataclass
class Case:
    """A call of a program's kernels on inputs of a size.

    `ours` makes the results, `reference` makes the same in float64, and `baseline` those of torch's
    functions, where torch has them: as many of the results as it makes, in the same order.
    """

    ours: Callable[[], Sequence[torch.Tensor]]
    reference: Callable[[], Sequence[torch.Tensor]]
    baseline: Callable[[], Sequence[torch.Tensor]] | None = None


@dataclass
class Program:
    """A line of the table.

    `parts` are functions that compile a kernel for sizes, which most leave to the call, and
    `sources` what its author wrote. `case` takes the kernels, a device and sizes: those of `small`
    are checked against the reference, and those of `full` are timed. `work` gives FLOP and bytes of
    the full sizes, each byte of a tensor in global memory counted once. `bound` is the largest
    relative error of a result.
    """

    name: str
    sources: Sequence[Callable[..., Any]]
    parts: Sequence[Callable[..., Any]]
    case: Callable[..., Case]
    small: dict[str, int]
    full: dict[str, int]
    work: Callable[..., tuple[float, float]]
    bound: float = 5e-3

    @property
    def lines(self) -> int:
        """Lines that are not blank."""
        texts = "\n".join(inspect.getsource(getattr(s, "func", s)) for s in self.sources)
        return sum(bool(line.strip()) for line in texts.splitlines())

    @property
    def size(self) -> str:
        """The sizes that are timed, as text."""
        return " ".join(f"{name}={value}" for name, value in self.full.items())

    def kernels(self, sizes: dict[str, int]) -> list[Any]:
        """The kernels, compiled for sizes."""
        return [part(**sizes) for part in self.parts]


@functools.cache
def module(name: str) -> Any:
    """A module of testing/python/programs."""
    spec = importlib.util.spec_from_file_location(f"program_{name}", PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    # What inspect asks for the source of a macro.
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def compiled(
    program: Callable[..., Any], *args: Any, fast_math: bool = False, **options: Any
) -> Callable[..., Any]:
    """What compiles a PrimFunc that `program` makes for all sizes."""
    # What a program says itself holds, unless it is said here.
    configs = {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True} if fast_math else {}
    return lambda **_: tilelang.compile(
        program(*args, **options), target=TARGET, pass_configs=configs
    )


def add_block() -> Any:
    """The macro that the attention programs share."""
    return module("conftest").add_block


def normal(*shape: int, device: str, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Normally distributed numbers."""
    return torch.randn(shape, device=device).to(dtype)


def nothing(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A result that is not there yet."""
    return torch.full(shape, torch.nan, device=device, dtype=dtype)
