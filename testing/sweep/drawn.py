"""Programs that a seed draws, as text: one class of programs a module (`drawn_*.py`).

A program allocates tiles, gives each of them values, runs statements, and copies every tile out.
Each statement means something without the others, so what fails becomes small by leaving
statements away. The reference is the same text with NumPy as ``T`` (`numpy_tiles.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import linecache
import random
import textwrap
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy_tiles
import torch
from operators import poison
from runner import TARGET, Case, Trial

from tilelang.testing import batch
from tilelang.testing.descent import descend
from tilelang.testing.workers import Outcome, Workers

LOW, HIGH = -8, 8
"""Values that tiles begin with; exact in every type."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A parameter: values from low to high, or a poison if low > high. Extents that are names are
    known at the call only."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    low: int = 1
    high: int = 0


@dataclasses.dataclass(frozen=True)
class Step:
    """A line; one that ends with a colon has steps inside."""

    text: str
    body: tuple[Step, ...] = ()


@dataclasses.dataclass(frozen=True)
class Program:
    """The kernel of `steps` over the tensors, for `grid` blocks, or so many along each axis. A
    size's name stands for as many blocks as it says at the call."""

    name: str
    tensors: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    grid: int | str | tuple[int, ...] = 1
    threads: int = 128
    sizes: tuple[tuple[str, int], ...] = ()
    same: tuple[str, ...] = ()
    """Tensors of which a call gives the first one for all."""

    def text(self) -> str:
        """The program as Python."""
        lines = ["import tilelang.language as T", ""]
        lines += [f'{name} = T.dynamic("{name}")' for name, _ in self.sizes]
        parameters = (
            f'    {t.name}: T.Tensor(({", ".join(map(str, t.shape))},), "{t.dtype}"),'
            for t in self.tensors
        )
        lines += ["@T.prim_func", "def main(", *parameters, "):"]
        grid = self.grid if isinstance(self.grid, tuple) else (self.grid,)
        blocks = ", ".join(("bx", "by", "bz")[: len(grid)])
        extents = ", ".join(map(str, grid))
        lines.append(f"    with T.Kernel({extents}, threads={self.threads}) as ({blocks}):")
        return "\n".join([*lines, *_lines(self.steps, " " * 8), ""])

    def arguments(self) -> list[torch.Tensor]:
        """The tensors of a call."""
        generator = torch.Generator().manual_seed(zlib.crc32(self.name.encode()))
        drawn = {tensor.name: self._tensor(tensor, generator) for tensor in self.tensors}
        given = [name for name in self.same if name in drawn]
        return list((drawn | dict.fromkeys(given, drawn[given[0]]) if given else drawn).values())

    def _tensor(self, tensor: Tensor, generator: torch.Generator) -> torch.Tensor:
        shape = [dict(self.sizes).get(str(extent), extent) for extent in tensor.shape]
        if tensor.low > tensor.high:
            return poison(tensor.dtype, *(int(n) for n in shape))
        low = max(tensor.low, 0) if tensor.dtype.startswith(("u", "bool")) else tensor.low
        values = torch.randint(low, tensor.high + 1, [int(n) for n in shape], generator=generator)
        return values.to(getattr(torch, tensor.dtype))

    def wanted(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the tensors hold after the call."""
        sizes = dict(self.sizes)
        grid = sizes[self.grid] if isinstance(self.grid, str) else self.grid
        return numpy_tiles.run(self.text(), grid, sizes, given)

    def define(self) -> Any:
        """The function, traced."""
        text = self.text()
        path = f"drawn_{zlib.crc32(text.encode())}.py"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        names: dict[str, Any] = {}
        exec(compile(text, path, "exec"), names)
        return names["main"]

    def case(self) -> Case:
        """The program as a case of the sweep."""
        wanted = lambda *given: self.wanted(given)  # noqa: E731
        rng = random.Random(self.name)
        schedule = {
            "order": rng.choice(("round_robin", "random", "adversarial")),
            "asynchronous": rng.choice(("late", "early", "random")),
            "seed": rng.randrange(1 << 16),
        }
        # Whole numbers, of which 0 and -0 are one.
        return Case(
            self.name, self.define, tuple(self.arguments()), wanted, 1e-9, schedule=schedule
        )


def _lines(steps: Sequence[Step], indent: str) -> Iterator[str]:
    for step in steps:
        yield indent + step.text
        if step.text.endswith(":"):
            yield from _lines(step.body or (Step("pass"),), indent + "    ")


class Writer:
    """Draws one program: tensors, tiles and steps by name."""

    def __init__(self, seed: str):
        self.rng = random.Random(seed)
        self.tensors: list[Tensor] = []
        self.tiles: dict[str, tuple[str, tuple[int, ...], str]] = {}
        """Scope, shape and dtype of each."""
        self.head: list[Step] = []
        self.steps: list[Step] = []
        self.sizes: list[tuple[str, int]] = []
        self.roots: dict[str, str] = {}
        """Of views, the tile whose memory they name."""
        self.kind = ""
        self._numbers: dict[str, int] = {}

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.rng.choice(choices)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def name(self, prefix: str) -> str:
        number = self._numbers[prefix] = self._numbers.get(prefix, -1) + 1
        return f"{prefix}{number}"

    def input(
        self, shape: tuple[int | str, ...], dtype: str, low: int = LOW, high: int = HIGH
    ) -> str:
        """A tensor with values."""
        self.tensors.append(Tensor(self.name("A"), shape, dtype, low, high))
        return self.tensors[-1].name

    def tile(self, scope: str, shape: tuple[int, ...], dtype: str, grid: int = 1) -> str:
        """A tile that begins with the values of a tensor, or with one number."""
        name = self.name(scope[0].upper())
        self.tiles[name] = scope, shape, dtype
        self.head.append(Step(f'{name} = T.alloc_{scope}({shape}, "{dtype}")'))
        if self.chance(0.8):
            source = self.input((grid, *shape), dtype)
            whole = ", ".join(f"0:{n}" for n in shape)
            self.head.append(Step(f"T.copy({source}[bx, {whole}], {name})"))
        else:
            self.head.append(Step(f"T.fill({name}, {self.rng.randrange(0, HIGH)})"))
        return name

    def aliases(self, one: str, other: str) -> bool:
        """Whether both are names of one memory."""
        return self.roots.get(one, one) == self.roots.get(other, other)

    def program(self, name: str, grid: int, threads: int) -> Program:
        """The program, which copies each of its tiles out."""
        foot = []
        for tile, (_, shape, dtype) in self.tiles.items():
            out = Tensor(self.name("O"), (grid, *shape), dtype)
            self.tensors.append(out)
            whole = ", ".join(f"0:{n}" for n in shape)
            foot.append(Step(f"T.copy({tile}, {out.name}[bx, {whole}])"))
        steps = (*self.head, *self.steps, *foot)
        return Program(name, tuple(self.tensors), steps, grid, threads, tuple(self.sizes))


Draw = Callable[[Writer, str], Program]
CLASSES: dict[str, Draw] = {}


def drawn(function: Draw) -> Draw:
    """Registers how a class of programs is drawn, under the function's name."""
    CLASSES[function.__name__] = function
    return function


def _smaller(program: Program) -> Iterator[Program]:
    """Without some of its statements, the boldest steps first; of fewer blocks and threads."""
    for steps in _fewer(program.steps):
        yield _without_unused(dataclasses.replace(program, steps=steps))
    for threads in (32, 64, 128):
        if threads < program.threads:
            yield dataclasses.replace(program, threads=threads)


def _fewer(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    size = len(steps) // 2
    while size:
        for start in range(0, len(steps), size):
            yield steps[:start] + steps[start + size :]
        size //= 2
    for k, step in enumerate(steps):
        if step.body:
            yield (*steps[:k], *step.body, *steps[k + 1 :])
        for body in _fewer(step.body):
            yield (*steps[:k], dataclasses.replace(step, body=body), *steps[k + 1 :])


def _without_unused(program: Program) -> Program:
    text = "\n".join(_lines(program.steps, ""))
    used = [t for t in program.tensors if f"{t.name}[" in text or f"({t.name}," in text]
    return dataclasses.replace(program, tensors=tuple(used))


def _has_meaning(program: Program) -> bool:
    try:
        program.wanted(program.arguments())
    except (NameError, IndexError, ValueError, SyntaxError):
        return False
    return bool(program.tensors)


def check(programs: list[Program], device: str, target: str) -> list[Outcome | None]:
    """The outcome of each program."""
    return batch.check([Trial(program.case(), target) for program in programs], device)


def made_small(
    program: Program, reason: str, seconds: float, device: str = "emulator", target: str = TARGET
) -> Program:
    """A program of few statements that fails for the same reason."""
    function = functools.partial(check, device=device, target=target)
    with Workers[Program](function, 1) as workers:

        def fails(some: Sequence[Program]) -> list[bool]:
            found = workers.check(some, batch=2)
            return [o.status == "failed" and o.reason == reason for o in found]

        return descend(
            program,
            _smaller,
            lambda p: (len(p.text().splitlines()), p.threads),
            fails,
            seconds,
            _has_meaning,
        )


def listing(program: Program, outcome: str) -> str:
    """The program, and what is wrong."""
    return f"# {program.name}\n{textwrap.indent(outcome.strip(), '# ')}\n{program.text()}"
