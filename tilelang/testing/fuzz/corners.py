"""Random statements around which compilers err: some of the threads, far indices, divisors of any
sign, tensors that a block writes and reads, lengths of the run, names and macros bound again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelang.testing.fuzz.program import (
    Bind,
    Copy,
    Expr,
    Fill,
    Load,
    Macro,
    Num,
    Op,
    Parallel,
    Ref,
    Stmt,
    Store,
    Tensor,
    Tile,
    Warps,
    walk,
)
from tilelang.testing.fuzz.warps import GROUP, WARP
from tilelang.testing.fuzz.writer import STORAGE, Known, Writer, add, mul, whole

if TYPE_CHECKING:
    from tilelang.testing.fuzz.generate import Generator

_SENTINELS = (2**25, 2**30, 2**31 - 1, -(2**31), -(2**25) - 1)
"""Indices that mean no element, the products of which with an extent are beyond 32 bits."""


def warps(g: Generator, depth: int) -> None:
    """Tile operators of whole warps. What they leave in shared memory is known to all."""
    w, count = g.w, g.threads[0]
    if len(g.threads) > 1 or count % WARP or count < 2 * WARP or w.branches:
        return
    whole_groups = count % GROUP == 0 and count >= 2 * GROUP
    groups = count // GROUP if whole_groups and w.chance(0.6) else 0
    unit = GROUP if groups else WARP
    cut = unit * w.rng.randrange(1, count // unit)
    first, stop = w.pick(((0, cut), (cut, count)))
    if count >= 4 * unit and w.chance(0.2):
        first, stop = unit, count - unit
    bodies = [_side(g, depth)]
    if w.chance(0.3) and (first == 0 or stop == count):
        bodies.append(_side(g, depth))
    if bodies[0]:
        otherwise = bodies[1] if len(bodies) > 1 else ()
        w.emit(Warps(w.name("t"), first, stop, bodies[0], otherwise, groups))


def _side(g: Generator, depth: int) -> tuple[Stmt, ...]:
    """What one set of threads does."""
    w = g.w
    known = list(w.known)
    w.known = [k for k in known if k.scope == "shared"]
    w.branches += 1
    with w.body() as body:
        for _ in range(w.pick((1, 1, 2, 3))):
            g.statement(depth + 2)
        made = [k for k in w.known if k.scope in ("shared", "fragment") and k not in known]
        made = [k for k in made if k.depth == w.branches]
        if made and body:
            result = w.pick(made)
            name = w.buffer("shared", result.shape, result.dtype)
            w.emit(Copy(whole(result), Tile(name)))
    w.branches -= 1
    w.known = known
    if made and body:
        w.learn(name, result.shape, result.dtype, "shared", result.bound, result.exact)
    return tuple(body)


def macro(g: Generator, depth: int) -> None:
    """Statements that are the body of a macro."""
    w = g.w
    known = list(w.known)
    w.known = [k for k in known if k.scope != "var"]
    before = len(w.buffers)
    with w.body() as body:
        for _ in range(w.pick((1, 2))):
            g.statement(depth + 2)
    w.known += [k for k in known if k.scope == "var"]
    variables = {b.name for b in w.buffers[before:] if b.scope == "var"}
    inside = list(walk(tuple(body)))
    if any(isinstance(n, Macro) or getattr(n, "buffer", None) in variables for n in inside):
        # A macro has values of scalars, not their places.
        w.bodies[-1] += body
    elif body:
        w.emit(Macro(w.name("step"), tuple(body)))


def unused(w: Writer) -> bool:
    """A buffer that nothing uses."""
    scope = w.pick(("fragment", "fragment", "shared", "local"))
    w.buffer(scope, (Num(w.pick((1, 8, 64))),), w.pick(("float32", "float16", "int8")))
    return True


def rebind(w: Writer) -> bool:
    """A tile's rows from where a name says, whose value has changed."""
    tiles = [k for k in w.tiles(scope="shared") if k.rank <= 2]
    if not tiles:
        return False
    known = w.pick(tiles)
    name = w.name("n")
    w.emit(Bind(name, Num(w.pick((0, 1, 3)))))
    for _ in range(w.pick((0, 1, 1, 2))):
        change = w.pick((Num(1), *(Ref(v) for v, _ in w.loops if v.startswith(("k", "p")))))
        w.emit(Bind(name, add(Ref(name), change)))
    variables = ("i", "j")[: known.rank]
    refs = tuple(Ref(v) for v in variables)
    row = Op("mod", (Op("add", (refs[0], Ref(name))), known.shape[0]))
    _new(w, known, variables, refs, Load(known.name, (row, *refs[1:])))
    return True


def _new(
    w: Writer, like: Known, variables: tuple[str, ...], refs: tuple[Expr, ...], value: Expr
) -> None:
    """A tile of the shape, dtype and bound of another one."""
    name = w.buffer(w.pick(STORAGE), like.shape, like.dtype)
    scope = w.buffers[-1].scope
    w.emit(Parallel(variables, like.shape, (Store(name, refs, value),)))
    w.learn(name, like.shape, like.dtype, scope, like.bound, like.exact)


def far(w: Writer) -> bool:
    """Rows of a tensor that a table names, among them such that are none."""
    rows, columns = w.size(w.pick((4, 16, 33)), "m"), w.size(w.pick((1, 8, 32)), "n")
    table = _table(w, rows)
    entry = Load(table.name, (Ref("i"),))
    dtype = w.pick(("float32", "float16", "int8", "int32"))
    tensor = w.input((mul(Num(8), columns),), dtype)
    form = w.pick(("product", "product", "quotient", "remainder"))
    odd = Op("add", (mul(entry, Num(2)), Num(1)))
    if form == "product":
        row: Expr = mul(entry, columns)
    elif form == "quotient":
        row = Op("floordiv", (mul(Ref("i"), columns), odd))
    else:
        row = Op("mod", (mul(Ref("i"), columns), odd))
    name = w.buffer(w.pick(STORAGE), (rows, columns), dtype)
    scope = w.buffers[-1].scope
    value = Load(tensor.name, (add(row, Ref("j")),))
    w.emit(Parallel(("i", "j"), (rows, columns), (Store(name, (Ref("i"), Ref("j")), value),)))
    w.learn(name, (rows, columns), dtype, scope, 4)
    return True


def _table(w: Writer, rows: Expr) -> Tensor:
    table = w.tensor((rows,), "int32", -3, 7)
    w.tensors.remove(table)
    sentinel = w.pick((None, *_SENTINELS))
    table = Tensor(table.name, table.shape, "int32", -3, 7, sentinel)
    w.tensors.append(table)
    return table


def scratch(g: Generator) -> None:
    """A tile that goes through a tensor and comes back transposed, in rows or as it was."""
    w = g.w
    tiles = [k for k in w.known if k.scope in ("shared", "fragment") and k.rank == 2]
    if not tiles:
        return
    known = w.pick(tiles)
    place = (g.by, g.bx)
    tensor = w.tensor((g.grid_y, g.grid_x, *known.shape), known.dtype, prefix="W")
    start = (*place, Num(0), Num(0))
    w.emit(Copy(whole(known), Tile(tensor.name, start, (Num(1), Num(1), *known.shape))))
    if w.chance(0.4):
        name = w.buffer(w.pick(STORAGE), known.shape, known.dtype)
        w.emit(Copy(Tile(tensor.name, start, (Num(1), Num(1), *known.shape)), Tile(name)))
        w.learn(name, known.shape, known.dtype, w.buffers[-1].scope, known.bound, known.exact)
        return
    i, j = Ref("i"), Ref("j")
    turned = Known("", known.shape[::-1], known.dtype, "", known.bound, known.exact)
    _new(w, turned, ("i", "j"), (i, j), Load(tensor.name, (*place, j, i)))


def length(g: Generator) -> None:
    """A tile of which a length of the run is fetched or set."""
    w = g.w
    most = w.pick((7, 16, 64, 100, 128))
    n = w.size(w.rng.randrange(most) + 1, "n", dynamic=not g.for_engines)
    dtype = w.pick(("float32", "float16", "int8", "int32"))
    tensor = w.input((n,), dtype)
    name = w.buffer("shared", (Num(most),), dtype)
    w.emit(Fill(Tile(name), Num(w.pick((0, 1)))))
    part = Tile(name, (Num(0),), (n,))
    way = w.pick(("copy", "loop", "fill"))
    if way == "copy":
        w.emit(Copy(Tile(tensor.name, (Num(0),), (n,)), part))
    elif way == "loop":
        i = (Ref("i"),)
        w.emit(Parallel(("i",), (n,), (Store(name, i, Load(tensor.name, i)),)))
    else:
        w.emit(Fill(part, Num(3)))
    w.learn(name, (Num(most),), dtype, "shared", 4)
