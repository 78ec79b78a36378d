"""Makes a program that fails smaller: the smallest one found that fails for the same reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilelang.testing.descent import descend
from tilelang.testing.fuzz.interpret import interpret
from tilelang.testing.fuzz.program import (
    BODIES,
    Buffer,
    Cast,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Invalid,
    Load,
    Macro,
    Num,
    Op,
    Parallel,
    Persistent,
    Program,
    Ref,
    Schedule,
    Store,
    Tensor,
    Tile,
    Warps,
    While,
    children,
    replace_at,
    rewrite,
    walk,
)
from tilelang.testing.fuzz.writer import settle


def shrink(
    program: Program, fails: Callable[[Sequence[Program]], Sequence[bool]], seconds: float
) -> Program:
    """A program that `fails`, as small as is found in about `seconds`.

    `fails` tells of each of several programs whether it fails as the first one does.
    """
    return descend(program, _smaller, measure, fails, seconds, _has_meaning)


def measure(program: Program) -> tuple[int, int, int]:
    """How large a program is: nodes, numbers, what is not the plainest choice."""
    nodes = list(walk(program.kernels))
    numbers = sum(s.value + s.dynamic for s in program.sizes)
    numbers += sum(sum(k.threads) for k in program.kernels)
    numbers += sum(int(abs(n.value)) for n in nodes if isinstance(n, Num))
    plain = ("float32", "int32", "fragment", "serial", "Square", True, 0)
    odd = sum(1 for n in nodes if isinstance(n, str | bool | int) and n not in plain)
    odd += program.schedule != Schedule()
    return len(nodes) + 3 * len(program.tensors), numbers, odd


def _smaller(program: Program) -> Iterator[Program]:
    """Smaller programs, each once, the boldest steps first."""
    seen = {program}
    size = measure(program)
    for make in (_statements, _sizes, _structure, _expressions, _choices):
        for candidate in make(program):
            candidate = _tidy(candidate)
            if candidate not in seen and measure(candidate) < size:
                yield candidate
                seen.add(candidate)


def _has_meaning(program: Program) -> bool:
    try:
        interpret(program)
    except Invalid:
        return False
    return True


def _tidy(program: Program) -> Program:
    """Without buffers, tensors and sizes that nothing uses."""
    while True:
        used = {n.buffer for n in walk(program.kernels) if hasattr(n, "buffer")}
        used |= {n.name for n in walk(program.kernels) if isinstance(n, Ref)}
        used |= {n.detail for n in walk(program.kernels) if isinstance(n, Buffer)}
        tensors = tuple(t for t in program.tensors if t.name in used)
        kernels = tuple(
            dataclasses.replace(k, buffers=tuple(b for b in k.buffers if b.name in used))
            for k in program.kernels
        )
        tidy = settle(dataclasses.replace(program, tensors=tensors, kernels=kernels))
        if tidy == program:
            return tidy
        program = tidy


def _bodies(program: Program) -> Iterator[tuple[Any, str, tuple[Any, ...]]]:
    for node in walk(program.kernels):
        for name in BODIES:
            if dataclasses.is_dataclass(node) and isinstance(getattr(node, name, None), tuple):
                yield node, name, getattr(node, name)


def _with_body(program: Program, owner: Any, name: str, body: tuple[Any, ...]) -> Program:
    return replace_at(program, owner, dataclasses.replace(owner, **{name: body}))


def _statements(program: Program) -> Iterator[Program]:
    """Without kernels and statements: many at once, then one by one; bodies without their loop."""
    for kernel in program.kernels:
        if len(program.kernels) > 1:
            rest = tuple(k for k in program.kernels if k is not kernel)
            yield dataclasses.replace(program, kernels=rest)
    for owner, name, body in _bodies(program):
        length = len(body)
        while length >= 1:
            for start in reversed(range(0, len(body), length)):
                yield _with_body(program, owner, name, body[:start] + body[start + length :])
            length //= 2
    for owner, name, body in _bodies(program):
        for position, statement in enumerate(body):
            for inner in (*_unwrapped(statement), *_filled(statement)):
                changed = body[:position] + inner + body[position + 1 :]
                yield _with_body(program, owner, name, changed)


def _filled(statement: Any) -> Iterator[tuple[Any, ...]]:
    """A fill of what the statement writes."""
    target = getattr(statement, "c", None) or getattr(statement, "dst", None)
    if isinstance(statement, Parallel):
        stores = [s for s in statement.body if isinstance(s, Store)]
        target = Tile(stores[0].buffer) if stores else None
    if isinstance(target, Tile):
        yield (Fill(target, Num(1)),)


def _unwrapped(statement: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(statement, If):
        yield statement.then
        yield statement.otherwise
    elif isinstance(statement, For):
        yield _without(statement.body, Ref(statement.variable))
    elif isinstance(statement, While | Macro):
        yield statement.body
    elif isinstance(statement, Warps):
        yield statement.then
        yield statement.otherwise
    elif isinstance(statement, Persistent):
        body: Any = statement.body
        for variable in statement.variables:
            body = _without(body, Ref(variable))
        yield body


def _without(node: Any, variable: Ref) -> Any:
    """The node with 0 for a variable."""
    return rewrite(node, lambda inner: Num(0) if inner == variable else inner)


def _sizes(program: Program) -> Iterator[Program]:
    """With smaller numbers."""
    for number, size in enumerate(program.sizes):
        for value in dict.fromkeys((1, 2, 4, 16, 32, size.value // 2, size.value - 1)):
            if 1 <= value < size.value:
                changed = (*program.sizes[:number], dataclasses.replace(size, value=value))
                yield dataclasses.replace(program, sizes=changed + program.sizes[number + 1 :])
    for kernel in program.kernels:
        for threads in ((32,), (64,), (128,)):
            if threads < kernel.threads:
                yield replace_at(program, kernel, dataclasses.replace(kernel, threads=threads))


def _structure(program: Program) -> Iterator[Program]:
    """With one size instead of two, one block, plain loops."""
    for kernel in program.kernels:
        for axis, extent in zip("xyz", kernel.grid, strict=False):
            block = Ref(f"b{axis}")
            if extent != Num(1):
                grid = tuple(Num(1) if e is extent else e for e in kernel.grid)
                one = dataclasses.replace(kernel, grid=grid)
                yield replace_at(program, kernel, _without(one, block))
    for node in walk(program.kernels):
        if isinstance(node, For):
            changes: list[dict[str, Any]] = [{"stop": Num(1)}, {"kind": "serial", "stages": 0}]
            changes += [{"stages": 2}, {"start": Num(0)}, {"step": Num(1)}]
            for change in changes:
                yield replace_at(program, node, dataclasses.replace(node, **change))


def _expressions(program: Program) -> Iterator[Program]:
    """With an operand instead of an operation, a number instead of an element."""
    for node in walk(program.kernels):
        if isinstance(node, Op | Cast):
            for child in children(node):
                for part in child if isinstance(child, tuple) else (child,):
                    if dataclasses.is_dataclass(part):
                        yield replace_at(program, node, part)
        if isinstance(node, Op | Cast | Load):
            yield replace_at(program, node, Num(0))
            yield replace_at(program, node, Num(1))


def _choices(program: Program) -> Iterator[Program]:
    """With plainer dtypes, memories, options, and the plainest schedule."""
    yield dataclasses.replace(program, schedule=Schedule())
    dtypes = {b.dtype for b in walk(program) if isinstance(b, Buffer | Tensor)}
    for dtype in sorted(dtypes):
        for plain in ("float32", "int32"):
            if dtype not in ("float32", "int32"):
                yield _with_dtype(program, dtype, plain)
    for node in walk(program.kernels):
        if isinstance(node, Buffer) and node.scope == "shared":
            if node.detail:
                yield replace_at(program, node, dataclasses.replace(node, detail=""))
            yield replace_at(program, node, dataclasses.replace(node, scope="fragment", detail=""))
        if isinstance(node, Gemm):
            for change in ({"policy": "Square"}, {"clear": None}):
                yield replace_at(program, node, dataclasses.replace(node, **change))
        if isinstance(node, Copy) and node.options:
            yield replace_at(program, node, dataclasses.replace(node, options=()))
    for kernel in program.kernels:
        if kernel.swizzle:
            yield replace_at(program, kernel, dataclasses.replace(kernel, swizzle=0))


def _with_dtype(program: Program, old: str, new: str) -> Program:
    def change(node: Any) -> Any:
        is_old = isinstance(node, Buffer | Tensor | Cast) and node.dtype == old
        return dataclasses.replace(node, dtype=new) if is_old else node

    return rewrite(program, change)
