"""Writing a program piece by piece: names, sizes, buffers, bodies, what is known of each tile."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tilelang.testing.fuzz.program import (
    Buffer,
    Cast,
    Expr,
    For,
    Kernel,
    Num,
    Op,
    Program,
    Ref,
    Schedule,
    Size,
    Stmt,
    Tensor,
    Tile,
    walk,
)

COMPUTED = (
    *("float16", "bfloat16", "float32", "float64"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
"""Dtypes of arithmetic."""
LIMITS = {
    "float16": 1024, "bfloat16": 128, "float32": 1 << 20, "float64": 1 << 30, "int8": 100,
    "int16": 30000, "int32": 1 << 30, "int64": 1 << 40, "uint8": 200, "uint16": 60000,
    "uint32": 1 << 30, "uint64": 1 << 40, "bool": 1, "float8_e4m3fn": 16, "float8_e5m2": 8,
}  # fmt: skip
"""How large values are allowed to get: integers up to here are exact in every operation."""

BITS = {d: 8 if d.startswith(("bool", "float8")) else int(d.lstrip("bfloatuin")) for d in LIMITS}
"""Of an element."""


LOADED = (
    "float16",
    "float16",
    "float32",
    "float32",
    "bfloat16",
    "int32",
    "int8",
    "uint8",
    "float64",
)
"""Dtypes of inputs."""
MOST_ELEMENTS = 4096
"""Of a tile."""


VARIABLES = ("i", "j", "l")
STORAGE = ("fragment", "fragment", "shared")
"""Names of a parallel loop's variables, and where new tiles are."""


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def is_signed(dtype: str) -> bool:
    return not dtype.startswith("uint")


def add(a: Expr, b: Expr) -> Expr:
    """a + b, without a zero."""
    if a == Num(0):
        return b
    return a if b == Num(0) else Op("add", (a, b))


def mul(a: Expr, b: Expr) -> Expr:
    """a * b."""
    return Op("mul", (a, b))


def clamp(x: Expr, bound: float, dtype: str) -> Expr:
    """x, not beyond an integer bound; not below zero for unsigned dtypes."""
    top = Op("min", (x, Num(int(bound))))
    return Op("max", (top, Num(-int(bound)))) if is_signed(dtype) else top


@dataclasses.dataclass
class Known:
    """A tile all elements of which are defined: they are at most `bound`, and not rounded if
    `exact`."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    scope: str
    bound: float
    exact: bool = True
    depth: int = 0
    """How many branches it was made in: outside of them it is not defined."""

    @property
    def rank(self) -> int:
        return len(self.shape)


class Writer:
    """A program under construction; kernels are written one after the other."""

    def __init__(self, seed: str):
        self.seed = seed
        self.rng = random.Random(seed)
        self.sizes: dict[str, Size] = {}
        self.tensors: list[Tensor] = []
        self.written: list[tuple[Tensor, float, bool]] = []
        """Tensors of earlier kernels with all elements written, their bounds and exactness."""
        self.kernels: list[Kernel] = []
        self.counter = 0
        self.start_kernel()

    def start_kernel(self) -> None:
        """Forget what belongs to a kernel."""
        self.buffers: list[Buffer] = []
        self.bodies: list[list[Stmt]] = [[]]
        self.known: list[Known] = []
        self.loops: list[tuple[str, int]] = []
        self.branches = 0
        self.fresh: list[Tensor] = []

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.random() * len(items))]

    def size(self, value: int, prefix: str = "s", dynamic: bool = False) -> Ref:
        """A named number."""
        name = self.name(prefix)
        self.sizes[name] = Size(name, value, dynamic)
        return Ref(name)

    def value(self, expr: Expr) -> int:
        """The number of an expression over sizes."""
        if isinstance(expr, Num):
            return int(expr.value)
        if isinstance(expr, Ref):
            return self.sizes[expr.name].value
        assert isinstance(expr, Op)
        a, b = (self.value(x) for x in expr.args)
        return {"add": a + b, "sub": a - b, "mul": a * b, "ceildiv": -(-a // b)}[expr.name]

    def extents(self, shape: Sequence[Expr]) -> tuple[int, ...]:
        return tuple(self.value(e) for e in shape)

    @property
    def repeats(self) -> int:
        """How often a statement here runs in a block."""
        times = 1
        for _, extent in self.loops:
            times *= extent
        return times

    def emit(self, statement: Stmt) -> None:
        self.bodies[-1].append(statement)

    @contextlib.contextmanager
    def body(self) -> Iterator[list[Stmt]]:
        """Statements that are written to a list of their own."""
        body: list[Stmt] = []
        self.bodies.append(body)
        yield body
        self.bodies.pop()

    def tensor(
        self, shape: Sequence[Expr], dtype: str, low: int = 1, high: int = 0, prefix: str = "A"
    ) -> Tensor:
        """A new parameter; an output without values."""
        tensor = Tensor(self.name(prefix), tuple(shape), dtype, low, high)
        self.tensors.append(tensor)
        self.fresh.append(tensor)
        return tensor

    def input(self, shape: Sequence[Expr], dtype: str, top: int = 4) -> Tensor:
        """A parameter of small integers."""
        top = min(top, LIMITS[dtype] // 4)
        return self.tensor(shape, dtype, -top if is_signed(dtype) else 0, top)

    def buffer(self, scope: str, shape: Sequence[Expr], dtype: str, detail: str = "") -> str:
        """The name of a new buffer."""
        prefix = {"shared": "S", "fragment": "F", "view": "V", "reducer": "R", "local": "L"}
        name = self.name(prefix.get(scope, "v"))
        self.buffers.append(Buffer(name, scope, tuple(shape), dtype, detail))
        return name

    def learn(
        self,
        name: str,
        shape: Sequence[Expr],
        dtype: str,
        scope: str,
        bound: float,
        exact: bool = True,
    ) -> Known:
        """A tile that is defined from here on."""
        known = Known(name, tuple(shape), dtype, scope, bound, exact, self.branches)
        self.known.append(known)
        return known

    def tiles(self, **wanted: Any) -> list[Known]:
        """Known tiles whose attributes are as wanted (one of several in a tuple)."""

        def fits(known: Known) -> bool:
            for key, value in wanted.items():
                found = getattr(known, key)
                if key != "shape" and isinstance(value, tuple):
                    if found not in value:
                        return False
                elif found != value:
                    return False
            return True

        return [k for k in self.known if fits(k)]

    def finish_kernel(self, grid: Sequence[Expr], threads: tuple[int, ...], swizzle: int) -> None:
        body, buffers = tuple(self.bodies[0]), tuple(map(self.annotated, self.buffers))
        self.kernels.append(Kernel(tuple(grid), threads, buffers, body, swizzle))

    def annotated(self, buffer: Buffer) -> Buffer:
        """A shared tile, a few of them with a layout that the program names."""
        if buffer.scope != "shared" or len(buffer.shape) != 2 or not self.chance(0.04):
            return buffer
        rows, columns = self.extents(buffer.shape)
        names = ["linear", "padded"]
        if rows % 8 == 0 and columns * BITS[buffer.dtype] % 1024 == 0:
            names += ["swizzled", "full_bank_swizzled", "half_bank_swizzled"]
        return dataclasses.replace(buffer, detail=self.pick(names))

    def program(self) -> Program:
        sizes, tensors = tuple(self.sizes.values()), tuple(self.tensors)
        kernels, schedule = tuple(self.kernels), draw_schedule(self.rng)
        return settle(Program(self.seed, sizes, tensors, kernels, schedule=schedule))


def draw_schedule(rng: random.Random) -> Schedule:
    """Any of the emulator's ways to run a program."""
    order = rng.choice(("round_robin", "random", "random", "adversarial"))
    moment = rng.choice(("late", "early", "random"))
    return Schedule(order, moment, rng.randrange(1 << 16), rng.choice((1, 1, 2)))


def settle(program: Program, dynamic: bool | None = None) -> Program:
    """The program with those sizes only that it uses, and dynamic only those that a call tells:
    dimensions of tensors. `dynamic` makes all of these so, or none."""
    used = {node.name for node in walk((program.tensors, program.kernels)) if isinstance(node, Ref)}
    told = {e.name for t in program.tensors for e in t.shape if isinstance(e, Ref)}
    told -= {
        n.name
        for k in program.kernels
        for b in k.buffers
        for n in walk(b.shape)
        if isinstance(n, Ref)
    }
    told -= {
        n.name
        for s in walk(program)
        if isinstance(s, For) and s.kind == "unroll"
        for n in walk((s.start, s.stop, s.step))
        if isinstance(n, Ref)
    }
    sizes = tuple(
        dataclasses.replace(
            s, dynamic=s.name in told and (s.dynamic if dynamic is None else dynamic)
        )
        for s in program.sizes
        if s.name in used
    )
    return dataclasses.replace(program, sizes=sizes)


def grow(known: Known, bound: float, exact: bool) -> None:
    """Notes that a tile has been written again."""
    known.bound, known.exact = max(known.bound, bound), known.exact and exact


def casts(known: Known) -> list[str]:
    """Dtypes that a tile can be converted to."""
    return [
        d
        for d in COMPUTED
        if known.bound <= LIMITS[d]
        and (is_signed(d) or not is_signed(known.dtype))
        and (known.exact or is_float(d))
    ]


def whole(known: Known) -> Tile:
    """All of a tile."""
    return Tile(known.name)


def at(name: str, *starts: Expr) -> Tile:
    """The tile that starts at an element."""
    return Tile(name, starts)


def as_dtype(expr: Expr, found: str, wanted: str) -> Expr:
    """The value in a dtype."""
    return expr if found == wanted else Cast(wanted, expr)
