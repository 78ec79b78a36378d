"""What a tile program computes, with numpy: statement by statement, the blocks one after the other.

Written apart from the compiler, from the documentation of the language alone. It is also the judge
of validity: `Invalid` for races between iterations or blocks, indices outside of memory of the
chip, overflows, and reads of what is not defined.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelang.testing.fuzz import loops, tiles, warps
from tilelang.testing.fuzz.memory import Accesses, Storage, hash_integers, reinterpret
from tilelang.testing.fuzz.operations import (
    INTS,
    Values,
    apply,
    cast,
    common_dtype,
    exact,
)
from tilelang.testing.fuzz.program import (
    Accumulate,
    Atomic,
    Bind,
    Buffer,
    Cast,
    Expr,
    For,
    If,
    Invalid,
    Jump,
    Kernel,
    Load,
    Macro,
    Num,
    Op,
    Parallel,
    Persistent,
    Program,
    Ref,
    Stmt,
    Store,
    Tensor,
    Threads,
    Warps,
    While,
    rewrite,
)

_MOST_ITERATIONS = 1 << 16


def interpret(program: Program) -> dict[str, Values]:
    """The tensors after a call, in parameter order, each flat.

    Raises `Invalid` for a program without a meaning.
    """
    machine = Machine(program)
    for kernel in program.kernels:
        machine.run(kernel)
    return {t.name: machine.result(t.name) for t in program.tensors}


def arguments(program: Program) -> dict[str, np.ndarray]:
    """What the tensors hold before a call, as float64 or int64 of their shapes."""
    machine = Machine(program)
    return {t.name: machine.argument(t).reshape(machine.shape(t.shape)) for t in program.tensors}


def _widened(expr: Any) -> Any:
    """An element or a variable without the limits of its dtype."""
    return Cast("int64", expr) if isinstance(expr, Load | Ref) else expr


def _poison(dtype: str) -> float:
    """A value that tells an element that is not written."""
    return 1 if dtype == "bool" else 77


@dataclasses.dataclass
class Frame:
    """Where a statement is: values of variables, one an iteration or thread, and who those are.

    `who` is None outside of T.Parallel and thread code; there the block acts as one.
    """

    variables: dict[str, np.ndarray]
    who: np.ndarray | None = None
    accesses: dict[tuple[int, str], Accesses] = dataclasses.field(default_factory=dict)
    thread: np.ndarray | None = None

    @property
    def count(self) -> int:
        return 1 if self.who is None else len(self.who)

    def where(self, chosen: np.ndarray) -> Frame:
        """The iterations that are chosen."""
        assert self.who is not None
        variables = {
            n: v[chosen] if v.shape == chosen.shape else v for n, v in self.variables.items()
        }
        thread = None if self.thread is None else self.thread[chosen]
        return Frame(variables, self.who[chosen], self.accesses, thread)


class Machine:
    """Memory, and the statements that change it."""

    def __init__(self, program: Program):
        self.program = program
        self.sizes = {s.name: np.array([s.value]) for s in program.sizes}
        self.storages: dict[str, Storage] = {}
        self.buffers: dict[str, Buffer] = {}
        self.threads = 1
        self.block = 0
        self.open: set[str] = set()
        """Reducers between their start and their end."""
        self.part: warps.Part | None = None
        """Which threads run the statements of the block, if not all."""
        for tensor in program.tensors:
            storage = Storage.make(tensor.dtype, self.shape(tensor.shape), is_global=True)
            storage.value[:] = self.argument(tensor)
            storage.defined[:] = tensor.low <= tensor.high
            self.storages[tensor.name] = storage

    def argument(self, tensor: Tensor) -> np.ndarray:
        size = int(np.prod(self.shape(tensor.shape), dtype=np.int64))
        if tensor.low > tensor.high:
            return np.full(size, _poison(tensor.dtype))
        seed = zlib.crc32(f"{self.program.seed} {tensor.name}".encode())
        values = hash_integers(size, seed, tensor.low, tensor.high)
        if tensor.sentinel is not None:
            values[hash_integers(size, seed + 1, 0, 4) == 0] = tensor.sentinel
        return values if tensor.dtype in INTS else values.astype(np.float64)

    def result(self, name: str) -> Values:
        storage = self.storages[name]
        return Values(storage.value, storage.error, storage.dtype)

    def shape(self, extents: Sequence[Expr]) -> tuple[int, ...]:
        return tuple(self.integer(e, Frame(self.sizes)) for e in extents)

    # Kernels and blocks

    def run(self, kernel: Kernel) -> None:
        """All blocks of a launch."""
        grid = self.shape(kernel.grid)
        self.threads = int(np.prod(kernel.threads))
        if any(extent < 1 for extent in grid):
            raise Invalid("an empty grid")
        for storage in self.storages.values():
            storage.accesses = Accesses(len(storage.value))
            storage.order_free = None
        tensors = dict(self.storages)
        for number, block in enumerate(itertools.product(*(range(n) for n in grid))):
            self.block = number
            self.buffers = {b.name: b for b in kernel.buffers}
            self.storages = dict(tensors)
            self.open = set()
            for buffer in kernel.buffers:
                if buffer.scope != "view":
                    shape = self.shape(buffer.shape)
                    if buffer.scope in ("local", "var"):
                        shape = (self.threads, *(shape or (1,)))
                    self.storages[buffer.name] = Storage.make(buffer.dtype, shape)
            variables = dict(self.sizes)
            for axis, index in zip("xyz", block, strict=False):
                variables[f"b{axis}"] = np.array([index])
            loops.outermost(self, kernel.body, Frame(variables))
        self.storages = tensors

    def root(self, name: str) -> Storage:
        """The memory that a buffer or view is a name of."""
        while name in self.buffers and self.buffers[name].scope == "view":
            name = self.buffers[name].detail
        if name not in self.storages:
            raise Invalid(f"no buffer {name}")
        return self.storages[name]

    # Elements

    def read(self, name: str, indices: list[np.ndarray], frame: Frame) -> Values:
        """The elements at `indices`, one array a dimension."""
        if name in self.open:
            raise Invalid("a read of a reducer that is not finished")
        storage = self.named(name)
        where, inside = storage.place(indices)
        self.note(name, where[inside], inside, frame, "read")
        return storage.load(where, inside)

    def write(self, name: str, indices: list[np.ndarray], values: Values, frame: Frame) -> None:
        """Stores values of the buffer's dtype; what is outside of a tensor is dropped."""
        storage, root = self.named(name), self.root(name)
        where, inside = storage.place(indices)
        self.note(name, where[inside], inside, frame, "write")
        kept = Values(
            np.broadcast_to(values.value, where.shape)[inside],
            np.broadcast_to(values.error, where.shape)[inside],
            values.dtype,
        )
        storage.store(where[inside], kept)
        if storage.dtype != root.dtype:
            changed = reinterpret(storage, root.dtype, root.shape)
            root.value[:], root.error[:] = changed.value, changed.error

    def named(self, name: str) -> Storage:
        """Memory under a buffer's shape and dtype: itself, or a copy if the dtype is another."""
        root = self.root(name)
        buffer = self.buffers.get(name)
        if buffer is None or buffer.scope != "view":
            return root
        shape = self.shape(buffer.shape)
        if buffer.dtype != root.dtype:
            if root.is_global:
                raise Invalid("a view of a tensor under another dtype")
            return reinterpret(root, buffer.dtype, shape)
        if int(np.prod(shape, dtype=np.int64)) != len(root.value):
            raise Invalid("a view of another size")
        return dataclasses.replace(root, shape=shape)

    def root_dtype(self, name: str) -> str:
        """The dtype under which `name` stands for its memory."""
        buffer = self.buffers.get(name)
        return self.root(name).dtype if buffer is None else buffer.dtype

    def note(
        self, name: str, where: np.ndarray, inside: np.ndarray, frame: Frame, access: str
    ) -> None:
        """Notes who touches the elements: blocks in tensors, iterations in all memory."""
        root, dtype = self.root(name), self.root_dtype(name)
        bits = dtype != root.dtype
        warps.note(self, name, where, access)
        if root.is_global:
            getattr(root.accesses, access)(where, np.full(len(where), self.block))
        if frame.who is None:
            return
        if any(key == id(root) and view != (dtype if bits else "") for key, view in frame.accesses):
            raise Invalid("two dtypes of one memory in a loop of the block's threads")
        who = np.broadcast_to(frame.who, inside.shape)[inside]
        key = (id(root), dtype if bits else "")
        if key not in frame.accesses:
            frame.accesses[key] = Accesses(8 * len(root.value))
        getattr(frame.accesses[key], access)(where, who)

    # Expressions

    def integer(self, expr: Expr, frame: Frame) -> int:
        """An integer that is the same for the whole block."""
        values = exact(self.evaluate(expr, frame))
        if not np.all(values == values.flat[0]) or values.dtype != np.int64:
            raise Invalid("a bound that is no integer of the block")
        return int(values.flat[0])

    def evaluate(self, expr: Expr, frame: Frame) -> Values:
        """The values of an expression, one an iteration (or one for all)."""
        if isinstance(expr, Num):
            is_int = isinstance(expr.value, int)
            return Values(np.array([expr.value]), 0.0, "int32" if is_int else "float32", weak=True)
        if isinstance(expr, Ref):
            return self.reference(expr.name, frame)
        if isinstance(expr, Load):
            return self.read(expr.buffer, self.indices(expr.buffer, expr.indices, frame), frame)
        if isinstance(expr, Cast):
            return cast(expr.dtype, self.evaluate(expr.value, frame))
        if expr.name == "select":
            return self.select(expr, frame)
        if expr.name == "warp_sum":
            return warps.total(self, expr, frame)
        return apply(expr.name, [self.evaluate(a, frame) for a in expr.args])

    def reference(self, name: str, frame: Frame) -> Values:
        if name in frame.variables:
            return Values(frame.variables[name], 0.0, "int32")
        if name not in self.storages:
            raise Invalid(f"no name {name}")
        return self.read(name, self.indices(name, (), frame), frame)

    def indices(self, name: str, indices: Sequence[Expr], frame: Frame) -> list[np.ndarray]:
        """Indices of elements; memory of a thread has the thread's number in front."""
        # Indices of tensors are mathematical integers; what is outside of the tensor is no element.
        if name in self.storages and self.storages[name].is_global:
            indices = [rewrite(i, _widened) for i in indices]
        found = [exact(self.evaluate(i, frame)) for i in indices]
        if any(f.dtype != np.int64 for f in found):
            raise Invalid("an index that is no integer")
        buffer = self.buffers.get(name)
        if buffer is not None and buffer.scope in ("local", "var"):
            if buffer.scope == "var":
                found = [np.array([0])]
            if frame.thread is None:
                self.check_same(buffer)
            found.insert(0, np.array([0]) if frame.thread is None else frame.thread)
        count = frame.count
        return [np.broadcast_to(f, (count,)) for f in found]

    def check_same(self, buffer: Buffer) -> None:
        """Where the block acts as one, a scalar of each thread has to be the same in all."""
        values = self.storages[buffer.name].value
        if buffer.scope == "local" or not np.all(values == values[0]):
            raise Invalid("memory of a thread outside of thread code")

    def select(self, expr: Op, frame: Frame) -> Values:
        condition, *branches = expr.args
        chosen = np.broadcast_to(exact(self.evaluate(condition, frame)) != 0, (frame.count,))
        if frame.who is None or chosen.all() or not chosen.any():
            return self.evaluate(branches[0 if chosen[0] else 1], frame)
        sides = [
            self.evaluate(branch, frame.where(side))
            for branch, side in zip(branches, (chosen, ~chosen), strict=True)
        ]
        dtype = common_dtype(sides)
        value = np.zeros(frame.count, np.float64 if dtype not in INTS else np.int64)
        error = np.zeros(frame.count)
        for side, values in zip((chosen, ~chosen), sides, strict=True):
            fitted = cast(dtype, values)
            value[side], error[side] = fitted.value, fitted.error
        return Values(value, error if error.any() else 0.0, dtype)

    # Statements

    def body(self, statements: Sequence[Stmt], frame: Frame) -> None:
        for statement in statements:
            self.execute(statement, frame)

    def execute(self, statement: Stmt, frame: Frame) -> None:
        """One statement of the block, or of all iterations of `frame`."""
        if isinstance(statement, For | While | Jump | Persistent):
            loops.execute(self, statement, frame)
        elif isinstance(statement, Warps):
            warps.execute(self, statement, frame)
        elif isinstance(statement, Macro):
            self.body(statement.body, frame)
        elif isinstance(statement, Bind):
            if frame.who is not None:
                raise Invalid("a name that iterations give to values of their own")
            value = np.array([self.integer(statement.value, frame)])
            frame.variables = {**frame.variables, statement.name: value}
        elif isinstance(statement, If):
            self.branch(statement, frame)
        elif isinstance(statement, Store):
            self.store(statement, frame)
        elif isinstance(statement, Atomic | Accumulate):
            tiles.update(self, statement, frame)
        elif frame.who is not None:
            raise Invalid("a tile operator in a loop of the block's threads")
        elif isinstance(statement, Parallel):
            extents = [self.integer(e, frame) for e in statement.extents]
            self.iterate(statement.variables, extents, statement.body, frame, threads=False)
        elif isinstance(statement, Threads):
            self.iterate((statement.variable,), [self.threads], statement.body, frame, threads=True)
        else:
            tiles.execute(self, statement, frame)

    def iterate(
        self,
        variables: Sequence[str],
        extents: list[int],
        body: Sequence[Stmt],
        frame: Frame,
        threads: bool,
    ) -> None:
        count = int(np.prod(extents, dtype=np.int64))
        if not 1 <= count <= _MOST_ITERATIONS:
            raise Invalid("an empty or very long parallel loop")
        places = np.unravel_index(np.arange(count), extents)
        inner = {n: p.astype(np.int64) for n, p in zip(variables, places, strict=True)}
        who = np.arange(count)
        self.body(body, Frame(frame.variables | inner, who, thread=who if threads else None))

    def branch(self, statement: If, frame: Frame) -> None:
        chosen = np.broadcast_to(exact(self.evaluate(statement.condition, frame)) != 0, frame.count)
        if frame.who is None:
            self.body(statement.then if chosen[0] else statement.otherwise, frame)
            return
        for body, side in ((statement.then, chosen), (statement.otherwise, ~chosen)):
            if side.any():
                self.body(body, frame.where(side))

    def store(self, statement: Store, frame: Frame) -> None:
        name = statement.buffer
        buffer = self.buffers.get(name)
        value = cast(self.root_dtype(name), self.evaluate(statement.value, frame))
        if buffer is not None and buffer.scope == "var" and frame.thread is None:
            if frame.who is not None:
                raise Invalid("a scalar of a thread in T.Parallel")
            # Every thread stores the same value to its own memory.
            self.write(name, [np.arange(self.threads), np.zeros(self.threads, int)], value, frame)
            return
        self.write(name, self.indices(name, statement.indices, frame), value, frame)
