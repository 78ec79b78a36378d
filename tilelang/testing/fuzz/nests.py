"""Random loops and conditions of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelang.testing.fuzz.program import (
    Cast,
    Copy,
    Expr,
    Fill,
    For,
    If,
    Jump,
    Num,
    Op,
    Ref,
    Store,
    Tile,
    While,
)
from tilelang.testing.fuzz.writer import LOADED, add, mul

if TYPE_CHECKING:
    from tilelang.testing.fuzz.generate import Generator


def second(bounds: dict[str, Expr]) -> Expr:
    """The value of a loop's variable in its second iteration."""
    return add(bounds.get("start", Num(0)), bounds.get("step", Num(1)))


def loop(g: Generator, depth: int) -> None:
    """A loop of any kind, most of them over chunks of a tensor."""
    w = g.w
    kind = w.pick(("serial", "serial", "while", "unroll", "pipelined", "pipelined"))
    extent = w.pick((1, 2, 3, 4))
    stages = w.pick((0, 1, 2, 2, 3, 4)) if kind == "pipelined" else 0
    before = list(w.known)
    width = w.value(g.n) * extent - (w.rng.randrange(w.value(g.n)) if w.chance(0.3) else 0)
    total = w.size(width, "W", g.dynamic and kind != "unroll" and w.chance(0.4))
    accumulator(g)
    variable = w.buffer("var", (), "int32") if kind == "while" else w.name("k")
    bounds, place = span(g, kind, variable, total, g.n)
    with w.body() as body:
        w.loops.append((variable, extent))
        if kind == "pipelined" or w.chance(0.4):
            load_chunk(g, place, variable, total)
        for _ in range(w.pick((1, 2, 3))):
            g.statement(depth + 1)
        w.loops.pop()
    if not body:
        w.known = before
        return
    if kind in ("serial", "while") and w.chance(0.2):
        jump = Jump("break" if kind == "while" else w.pick(("break", "continue")))
        later = Op("eq", (Ref(variable), second(bounds)))
        body.insert(w.rng.randrange(len(body) + 1), If(later, (jump,)))
    if kind == "while":
        w.emit(Store(variable, (), Num(0)))
        body.append(Store(variable, (), Op("add", (Ref(variable), Num(1)))))
        w.emit(While(Op("lt", (Ref(variable), bounds["stop"])), tuple(body)))
    else:
        w.emit(For(kind, variable, body=tuple(body), stages=stages, **bounds))


def span(
    g: Generator, kind: str, variable: str, total: Expr, width: Expr
) -> tuple[dict[str, Expr], Expr]:
    """The bounds of a loop over the chunks of `total`, and where an iteration's chunk is."""
    w, k, count = g.w, Ref(variable), Op("ceildiv", (total, width))
    forms = ["plain"] * 4
    forms += ["shifted"] if kind != "while" else []
    forms += ["steps"] if kind in ("serial", "unroll") else []
    forms += ["down"] if kind == "serial" else []
    form = w.pick(forms)
    if form == "steps":
        return {"stop": _narrow(g, total), "step": width}, k
    if form == "shifted":
        start = Num(w.pick((1, 2, 5)))
        return {"start": start, "stop": add(count, start)}, mul(Op("sub", (k, start)), width)
    if form == "down":
        last = _narrow(g, Op("sub", (count, Num(1))))
        return {"start": last, "stop": Num(-1), "step": Num(-1)}, mul(k, width)
    return {"stop": count}, mul(k, width)


def _narrow(g: Generator, bound: Expr) -> Expr:
    """A bound in some type of integers; of less than 32 bits, so that the variable is an int32."""
    return Cast(g.w.pick(("int16", "uint16")), bound) if g.w.chance(0.3) else bound


def accumulator(g: Generator) -> None:
    """A tile that the loop can add to."""
    w = g.w
    if w.chance(0.6):
        dtype = w.pick(("float32", "float32", "int32", "float16", "bfloat16", "int16"))
        name = w.buffer("fragment", (g.m, g.n), dtype)
        w.emit(Fill(Tile(name), Num(0)))
        w.learn(name, (g.m, g.n), dtype, "fragment", 0)


def load_chunk(g: Generator, place: Expr, variable: str, total: Expr) -> None:
    """The chunk of an iteration, along rows of a tensor."""
    w = g.w
    dtype = w.pick(LOADED)
    tensor = g.input((g.M, total), dtype)
    name = w.buffer(w.pick(("shared", "shared", "shared", "fragment")), (g.m, g.n), dtype)
    origin = [g.origin[0], place]
    scope = w.buffers[-1].scope
    if scope == "shared" and w.chance(0.25):
        fetch_some(g, tensor.name, origin, name, variable)
    else:
        g.fetch(tensor.name, origin, name, (g.m, g.n))
    w.learn(name, (g.m, g.n), dtype, scope, 4)


def fetch_some(g: Generator, tensor: str, origin: list[Expr], name: str, variable: str) -> None:
    """Fill a tile in front of the loop, and in some iterations or in part in the loop."""
    w = g.w
    w.bodies[-2].append(Fill(Tile(name), Num(w.pick((0, 2)))))
    if w.chance(0.5):
        rows = Num(w.rng.randrange(w.value(g.m)) + 1)
        w.emit(Copy(g.part(tensor, origin, (rows, g.n)), Tile(name, (Num(0), Num(0)), (rows, g.n))))
    else:
        even = Op("eq", (Op("mod", (Ref(variable), Num(2))), Num(w.pick((0, 1)))))
        w.emit(If(even, (Copy(g.part(tensor, origin, (g.m, g.n)), Tile(name)),)))


def branch(g: Generator, depth: int) -> None:
    """Statements that some blocks or iterations do; what they define stays inside."""
    w = g.w
    names = [name for name, _ in w.loops]
    names += [b.name for b in (g.bx, g.by) if isinstance(b, Ref)]
    names += [k.name for k in w.tiles(scope="var", dtype="int32")]
    if not names:
        return
    condition = Op("eq", (Op("mod", (Ref(w.pick(names)), Num(2))), Num(w.pick((0, 1)))))
    bodies = []
    for _ in range(2 if w.chance(0.4) else 1):
        known = list(w.known)
        w.branches += 1
        with w.body() as body:
            for _ in range(w.pick((1, 2))):
                g.statement(depth + 1)
        w.branches -= 1
        w.known = known
        bodies.append(tuple(body))
    if bodies[0]:
        w.emit(If(condition, bodies[0], bodies[1] if len(bodies) > 1 else ()))
