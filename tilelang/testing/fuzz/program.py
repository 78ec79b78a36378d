"""Tile programs as values: the grammar that generation, interpretation, printing and shrinking
share.

Shapes, starts and loop bounds are expressions over named sizes, so that one number makes a program
larger or smaller, and a size becomes dynamic by its flag. The value of a program's `repr` is the
program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias


@dataclasses.dataclass(frozen=True)
class Num:
    """A number written in the program; it takes the dtype of what it is combined with."""

    value: int | float


@dataclasses.dataclass(frozen=True)
class Ref:
    """A size, a block's index, a loop's variable, or a scalar variable (scope ``var``)."""

    name: str


@dataclasses.dataclass(frozen=True)
class Load:
    """An element of a buffer."""

    buffer: str
    indices: tuple[Expr, ...]


@dataclasses.dataclass(frozen=True)
class Op:
    """An operation (a row of `operations.OPERATIONS`) on operands of one dtype."""

    name: str
    args: tuple[Expr, ...]


@dataclasses.dataclass(frozen=True)
class Cast:
    """A value in another dtype."""

    dtype: str
    value: Expr


Expr: TypeAlias = Num | Ref | Load | Op | Cast


@dataclasses.dataclass(frozen=True)
class Tile:
    """A whole buffer (no starts), a region, or (no extents) the tile at an element, of the size of
    the statement's other operand."""

    buffer: str
    starts: tuple[Expr, ...] | None = None
    extents: tuple[Expr, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Copy:
    """``T.copy``; options are keywords."""

    src: Tile
    dst: Tile
    options: tuple[tuple[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class Fill:
    """``T.fill``, ``T.clear`` for 0."""

    dst: Tile
    value: Num


@dataclasses.dataclass(frozen=True)
class Gemm:
    """``T.gemm``; policy is a name of ``T.GemmWarpPolicy``."""

    a: Tile
    b: Tile
    c: Tile
    transpose_a: bool = False
    transpose_b: bool = False
    policy: str = "Square"
    clear: Expr | None = None


@dataclasses.dataclass(frozen=True)
class Reduce:
    """``T.reduce_<kind>``."""

    kind: str
    src: Tile
    dst: Tile
    dim: int
    clear: bool = True


@dataclasses.dataclass(frozen=True)
class Scan:
    """``T.cumsum`` or ``T.cummax``, in place without dst."""

    kind: str
    src: Tile
    dst: Tile | None
    dim: int
    reverse: bool = False


@dataclasses.dataclass(frozen=True)
class Transpose:
    """``T.transpose``."""

    src: Tile
    dst: Tile


@dataclasses.dataclass(frozen=True)
class AtomicTile:
    """``T.atomic_<kind>`` of a tile."""

    kind: str
    dst: Tile
    value: Tile | Num


@dataclasses.dataclass(frozen=True)
class Atomic:
    """``T.atomic_<kind>`` of an element, in a parallel loop or by each thread."""

    kind: str
    buffer: str
    indices: tuple[Expr, ...]
    value: Expr


@dataclasses.dataclass(frozen=True)
class Store:
    """``buffer[indices] = value``; no indices for a scalar variable."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr


@dataclasses.dataclass(frozen=True)
class Accumulate:
    """``T.reducer_update``."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr


@dataclasses.dataclass(frozen=True)
class StartReducer:
    """``T.reducer_init``."""

    buffer: str
    value: Num | None = None


@dataclasses.dataclass(frozen=True)
class FinishReducer:
    """``T.finalize_reducer``."""

    buffer: str
    dst: Tile | None = None


@dataclasses.dataclass(frozen=True)
class Parallel:
    """``T.Parallel``."""

    variables: tuple[str, ...]
    extents: tuple[Expr, ...]
    body: tuple[Stmt, ...]


@dataclasses.dataclass(frozen=True)
class Threads:
    """Statements that each thread runs; the variable is its index in the block."""

    variable: str
    body: tuple[Stmt, ...]


@dataclasses.dataclass(frozen=True)
class Warps:
    """Statements that the threads from `first` up to `stop` run, whole warps, as if they were the
    block; the other threads run `otherwise`. The variable is the thread's index. Where
    `groups` is not 0, it counts the block's warp groups, by which the threads are named."""

    variable: str
    first: int
    stop: int
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()
    groups: int = 0


@dataclasses.dataclass(frozen=True)
class Bind:
    """``name = value``: an integer of the block under a name, which may have had another value."""

    name: str
    value: Expr


@dataclasses.dataclass(frozen=True)
class Macro:
    """A call of the macro `name`, whose body these statements are."""

    name: str
    body: tuple[Stmt, ...]


@dataclasses.dataclass(frozen=True)
class For:
    """A loop of one kind: serial, unroll or pipelined (with stages), from start up to stop, or down
    to it with a negative step."""

    kind: str
    variable: str
    stop: Expr
    body: tuple[Stmt, ...]
    stages: int = 0
    start: Expr = Num(0)
    step: Expr = Num(1)


@dataclasses.dataclass(frozen=True)
class While:
    """A loop with a condition."""

    condition: Expr
    body: tuple[Stmt, ...]


@dataclasses.dataclass(frozen=True)
class Jump:
    """``break`` or ``continue`` of the innermost loop."""

    kind: str


@dataclasses.dataclass(frozen=True)
class Persistent:
    """``T.Persistent``: the tiles of a domain that the block of an index works on."""

    variables: tuple[str, ...]
    domain: tuple[Expr, ...]
    wave: Expr
    index: Expr
    group: int
    body: tuple[Stmt, ...]


@dataclasses.dataclass(frozen=True)
class If:
    """A condition of the block, of an iteration or of a thread."""

    condition: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


Stmt: TypeAlias = (
    Copy
    | Fill
    | Gemm
    | Reduce
    | Scan
    | Transpose
    | AtomicTile
    | Atomic
    | Store
    | Accumulate
    | StartReducer
    | FinishReducer
    | Parallel
    | Threads
    | Warps
    | Bind
    | Macro
    | For
    | While
    | Jump
    | Persistent
    | If
)


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A buffer of a kernel: scope shared (`detail` is the layout it is annotated with, if any),
    fragment, local (of each thread), var (a scalar) or reducer (`detail` is its operation), or view
    (`detail` is the buffer that it is another name of)."""

    name: str
    scope: str
    shape: tuple[Expr, ...]
    dtype: str
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A launch. Blocks have the indices bx, by and bz, as many as the grid has extents."""

    grid: tuple[Expr, ...]
    threads: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    swizzle: int = 0


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A parameter. It starts with integers from low to high, a few of them replaced by `sentinel`,
    or with a poison if low > high."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    low: int = 1
    high: int = 0
    sentinel: int | None = None


@dataclasses.dataclass(frozen=True)
class Size:
    """A number of the program; a dynamic one is known at the call only."""

    name: str
    value: int
    dynamic: bool = False


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How the emulator runs the program: the arguments of `tilelang.emulator.schedule`."""

    order: str = "round_robin"
    asynchronous: str = "late"
    seed: int = 0
    workers: int = 1


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of tensors, its kernels in launch order, the chip it is compiled for, and how it
    is run."""

    seed: str
    sizes: tuple[Size, ...]
    tensors: tuple[Tensor, ...]
    kernels: tuple[Kernel, ...]
    arch: str = "sm_90a"
    schedule: Schedule = Schedule()


class Invalid(Exception):
    """The program has no meaning: an index, a race, an overflow, something read before written."""


BODIES = ("body", "then", "otherwise")
"""Fields of statements that are statements."""


def children(node: Any) -> tuple[Any, ...]:
    """The values directly inside of a node, or of a tuple of them."""
    if isinstance(node, tuple):
        return node
    return tuple(vars(node).values()) if dataclasses.is_dataclass(node) else ()


def walk(node: Any) -> Iterator[Any]:
    """The node and everything inside of it, outermost first."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def rewrite(node: Any, change: Callable[[Any], Any]) -> Any:
    """The node with `change` applied to each node inside of it and then to itself."""
    parts = children(node)
    if not parts:
        return node
    changed = tuple(rewrite(part, change) for part in parts)
    is_same = all(new is old for new, old in zip(changed, parts, strict=True))
    if isinstance(node, tuple):
        return node if is_same else changed
    return change(node if is_same else type(node)(*changed))


def replace_at(node: Any, old: Any, new: Any) -> Any:
    """The node with the very object `old` inside of it replaced."""
    if node is old:
        return new
    parts = children(node)
    changed = tuple(replace_at(part, old, new) for part in parts)
    if all(a is b for a, b in zip(changed, parts, strict=True)):
        return node
    return changed if isinstance(node, tuple) else type(node)(*changed)
