"""Programs that compute the same as another one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

from tilelang.testing.fuzz.program import (
    Atomic,
    Buffer,
    Expr,
    For,
    Gemm,
    Jump,
    Kernel,
    Load,
    Num,
    Op,
    Program,
    Store,
    Threads,
    Tile,
    Warps,
    rewrite,
    walk,
)
from tilelang.testing.fuzz.writer import add, draw_schedule, settle


def _stages(program: Program, rng: random.Random) -> Program:
    """Other numbers of pipeline stages: none if there were some."""
    number = rng.choice((0, 2, 3))

    def change(node: Any) -> Any:
        if isinstance(node, For) and node.kind == "pipelined":
            return dataclasses.replace(node, stages=0 if node.stages else number)
        return node

    return rewrite(program, change)


def _threads(program: Program, rng: random.Random) -> Program:
    """Twice or half as many threads, where the program does not say what each of them does."""
    twice = rng.random() < 0.5

    def change(node: Any) -> Any:
        if not isinstance(node, Kernel) or any(isinstance(n, Threads | Warps) for n in walk(node)):
            return node
        count = node.threads[0] * 2 if twice or node.threads[0] <= 32 else node.threads[0] // 2
        return dataclasses.replace(node, threads=(min(count, 512), *node.threads[1:]))

    return rewrite(program, change)


def _dynamic(program: Program, rng: random.Random) -> Program:
    """Static where extents of tensors were dynamic, else the other way round."""
    del rng
    return settle(program, not any(size.dynamic for size in program.sizes))


def _arch(program: Program, rng: random.Random) -> Program:
    """Another chip."""
    del rng
    return dataclasses.replace(program, arch="sm_80" if program.arch == "sm_90a" else "sm_90a")


def _vendor(program: Program, rng: random.Random) -> Program:
    """A chip of AMD, where the program does not say what the lanes of a warp of 32 do."""
    for node in walk(program):
        if isinstance(node, Warps) or (isinstance(node, Op) and node.name == "warp_sum"):
            return program
    return dataclasses.replace(program, arch=rng.choice(("gfx90a", "gfx942", "gfx950")))


def _schedule(program: Program, rng: random.Random) -> Program:
    """Threads and asynchronous copies in another order."""
    return dataclasses.replace(program, schedule=draw_schedule(rng))


def _unrolled(program: Program, rng: random.Random) -> Program:
    """Serial loops unrolled and unrolled ones serial."""
    del rng
    other = {"serial": "unroll", "unroll": "serial"}

    def change(node: Any) -> Any:
        if isinstance(node, For) and node.kind in other:
            # Jumps and steps down are those of serial loops.
            is_plain = node.step != Num(-1) and not any(isinstance(n, Jump) for n in walk(node))
            return dataclasses.replace(node, kind=other[node.kind]) if is_plain else node
        return node

    return settle(rewrite(program, change))


def _shared(program: Program, rng: random.Random) -> Program:
    """Fragments in shared memory, but for what has to be one: results of products."""
    products = {n.c.buffer for n in walk(program) if isinstance(n, Gemm)}
    share = rng.choice((0.4, 1.0))

    def change(node: Any) -> Any:
        if isinstance(node, Buffer) and node.scope == "fragment" and node.name not in products:
            return dataclasses.replace(node, scope="shared" if rng.random() < share else node.scope)
        return node

    return rewrite(program, change)


def _slices(program: Program, rng: random.Random) -> Program:
    """Shared tiles as parts of larger ones."""
    viewed = {n.detail for n in walk(program) if isinstance(n, Buffer)}
    padded: dict[str, Buffer] = {}
    for kernel in program.kernels:
        for buffer in kernel.buffers:
            if buffer.scope == "shared" and buffer.name not in viewed and rng.random() < 0.6:
                padded[buffer.name] = buffer
    offset: Expr = Num(rng.choice((1, 2, 8)))

    def change(node: Any) -> Any:
        if isinstance(node, Buffer) and node.name in padded:
            larger = tuple(Op("add", (e, Op("add", (offset, Num(3))))) for e in node.shape)
            return dataclasses.replace(node, shape=larger)
        if not isinstance(node, Load | Store | Atomic | Tile) or node.buffer not in padded:
            return node
        shape = padded[node.buffer].shape
        if not isinstance(node, Tile):
            moved = tuple(add(i, offset) for i in node.indices)
            return dataclasses.replace(node, indices=moved)
        starts = node.starts or tuple(Num(0) for _ in shape)
        extents = shape if node.starts is None else node.extents
        return Tile(node.buffer, tuple(add(s, offset) for s in starts), extents)

    return rewrite(program, change)


TWINS: dict[str, Callable[[Program, random.Random], Program]] = {
    "stages": _stages,
    "threads": _threads,
    "dynamic": _dynamic,
    "arch": _arch,
    "vendor": _vendor,
    "schedule": _schedule,
    "unrolled": _unrolled,
    "shared": _shared,
    "slices": _slices,
}
"""What a twin differs in."""


def twins(program: Program, count: int, without: Sequence[str] = ()) -> list[tuple[str, Program]]:
    """Up to `count` programs that differ from `program` and compute the same, with their names,
    which are not of `without`."""
    rng = random.Random(f"{program.seed} twins")
    names = list(TWINS)
    rng.shuffle(names)
    found: list[tuple[str, Program]] = []
    for name in names:
        twin = TWINS[name](program, rng)
        if len(found) < count and twin != program and name not in without:
            found.append((name, twin))
    return found
