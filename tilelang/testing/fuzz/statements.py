"""Random statements: each function adds one to the program, or returns False where none fits."""

from __future__ import annotations

from collections.abc import Callable

from tilelang.testing.fuzz import combining, corners
from tilelang.testing.fuzz.expressions import Expressions
from tilelang.testing.fuzz.program import (
    Copy,
    Expr,
    Fill,
    If,
    Load,
    Num,
    Op,
    Parallel,
    Ref,
    Stmt,
    Store,
    Threads,
    Tile,
    Transpose,
)
from tilelang.testing.fuzz.writer import (
    COMPUTED,
    LIMITS,
    STORAGE,
    VARIABLES,
    Known,
    Writer,
    as_dtype,
    casts,
    clamp,
    grow,
    is_signed,
    whole,
)


def elementwise(w: Writer) -> bool:
    """A parallel loop that computes a new tile, or changes a known one."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment", "view") and k.rank <= 3]
    tiles = [k for k in tiles if k.dtype in COMPUTED]
    if not tiles:
        return False
    model = w.pick(tiles)
    is_new = w.chance(0.6)
    dtype = w.pick(COMPUTED) if is_new and w.chance(0.3) else model.dtype
    variables = VARIABLES[: model.rank]
    refs = tuple(Ref(v) for v in variables)
    source = Expressions(w, variables, model.shape, dtype)
    if w.chance(0.06):
        return _condition(w, source)
    value = source.value(w.pick((1, 2, 2, 3)))
    if is_new:
        name = w.buffer(w.pick(STORAGE), model.shape, dtype)
        w.emit(Parallel(variables, model.shape, (Store(name, refs, value.expr),)))
        w.learn(name, model.shape, dtype, w.buffers[-1].scope, value.bound, value.exact)
        return True
    w.emit(Parallel(variables, model.shape, _change(w, model, refs, source)))
    return True


def _condition(w: Writer, source: Expressions) -> bool:
    """A new tile of bools."""
    name = w.buffer(w.pick(STORAGE), source.shape, "bool")
    refs = tuple(Ref(v) for v in source.variables)
    store = Store(name, refs, source.condition(2))
    w.emit(Parallel(source.variables, source.shape, (store,)))
    w.learn(name, source.shape, "bool", w.buffers[-1].scope, 1)
    return True


def _change(
    w: Writer, known: Known, refs: tuple[Expr, ...], source: Expressions
) -> tuple[Stmt, ...]:
    """Statements of a loop that change the element of its iteration."""
    value = source.value(2)
    here = Load(known.name, refs)
    if known.bound + value.bound * w.repeats <= LIMITS[known.dtype] and w.chance(0.5):
        expr: Expr = Op("add", (here, value.expr))
        bound = known.bound + value.bound * w.repeats
    else:
        bound = max(known.bound, 3)
        expr = clamp(value.expr, bound, known.dtype) if value.bound > bound else value.expr
    store: Stmt = Store(known.name, refs, expr)
    grow(known, bound, value.exact)
    if w.chance(0.35):
        other: tuple[Stmt, ...] = ()
        if w.chance(0.4):
            small = source.leaf(True)
            limited = clamp(small.expr, bound, known.dtype)
            other = (Store(known.name, refs, limited),)
        return (If(source.condition(1), (store,), other),)
    return (store,)


def copy(w: Writer) -> bool:
    """A known tile in another memory or dtype."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment", "view")]
    if not tiles:
        return False
    known = w.pick(tiles)
    dtypes = casts(known)
    if is_signed(known.dtype) and known.exact:
        dtypes += [d for d in ("float8_e4m3fn", "float8_e5m2") if known.bound <= LIMITS[d]]
    dtype = w.pick(dtypes) if dtypes and w.chance(0.5) else known.dtype
    name = w.buffer(w.pick(("fragment", "shared")), known.shape, dtype)
    options = ((("coalesced_width", 2),)) if w.chance(0.05) else ()
    w.emit(Copy(whole(known), Tile(name), options))
    w.learn(name, known.shape, dtype, w.buffers[-1].scope, known.bound, known.exact)
    return True


def slices(w: Writer) -> bool:
    """A part of a tile in a tile of its own."""
    scopes = ("shared", "fragment") if w.chance(0.4) else ("shared",)
    tiles = [k for k in w.tiles(scope=scopes) if max(w.extents(k.shape)) > 1]
    if not tiles:
        return False
    known = w.pick(tiles)
    starts, shape = [], []
    for extent in w.extents(known.shape):
        start = w.rng.randrange(extent) if w.chance(0.6) else 0
        starts.append(start)
        shape.append(w.rng.randrange(extent - start) + 1 if w.chance(0.6) else extent - start)
    if all(e == 1 for e in shape):
        return False
    extents: tuple[Expr, ...] = tuple(w.size(e) for e in shape)
    part = Tile(known.name, tuple(Num(s) for s in starts), extents)
    if known.rank > 1 and shape[0] == 1:
        extents = extents[1:]
    name = w.buffer(w.pick(STORAGE), extents, known.dtype)
    scope = w.buffers[-1].scope
    w.emit(Copy(part, Tile(name)))
    w.learn(name, extents, known.dtype, scope, known.bound, known.exact)
    return True


def fill(w: Writer) -> bool:
    """A known tile, or a part of one, set to a number."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment")]
    if not tiles:
        return False
    known = w.pick(tiles)
    value = w.pick((0, 0, 1, 3, -2))
    if value < 0 and not is_signed(known.dtype):
        value = 1
    tile = whole(known)
    if w.chance(0.7 if known.scope == "shared" else 0.3):
        extents = w.extents(known.shape)
        starts = tuple(Num(w.rng.randrange(e)) for e in extents)
        ends = (w.rng.randrange(e - int(s.value)) + 1 for s, e in zip(starts, extents, strict=True))
        tile = Tile(known.name, starts, tuple(Num(e) for e in ends))
    w.emit(Fill(tile, Num(value)))
    grow(known, abs(value), True)
    return True


def transpose(w: Writer) -> bool:
    """A transposed tile."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment") and k.rank == 2]
    if not tiles:
        return False
    known = w.pick(tiles)
    name = w.buffer("shared" if w.chance(0.8) else "fragment", known.shape[::-1], known.dtype)
    scope = w.buffers[-1].scope
    w.emit(Transpose(whole(known), Tile(name)))
    w.learn(name, known.shape[::-1], known.dtype, scope, known.bound, known.exact)
    return True


def view(w: Writer) -> bool:
    """A tile's elements under another shape."""
    tiles = w.tiles(scope=("shared", "fragment"))
    if not tiles:
        return False
    known = w.pick(tiles)
    extents = w.extents(known.shape)
    count = 1
    for extent in extents:
        count *= extent
    divisors = [d for d in range(2, min(count, 65)) if count % d == 0]
    if not divisors or w.chance(0.3):
        shape: tuple[Expr, ...] = (Num(count),)
    else:
        first = w.pick(divisors)
        shape = (Num(first), Num(count // first))
    name = w.buffer("view", shape, known.dtype, known.name)
    # Under its own name it may change later, which is why only the alias is known from here on.
    w.known.remove(known)
    w.known.append(Known(name, shape, known.dtype, "view", known.bound, known.exact, known.depth))
    return True


def scalar(w: Writer) -> bool:
    """A variable that the block sets or counts with."""
    variables = w.tiles(scope="var")
    if variables and w.chance(0.6):
        known = w.pick(variables)
        value = Expressions(w, (), (), known.dtype).leaf(True)
        step = clamp(value.expr, 2, known.dtype)
        w.emit(Store(known.name, (), Op("add", (Ref(known.name), step))))
        grow(known, known.bound + 2 * w.repeats, True)
        return True
    dtype = w.pick(("int32", "int32", "float32", "float16", "int8"))
    name = w.buffer("var", (), dtype)
    w.emit(Store(name, (), Num(w.pick((0, 1, 2)))))
    w.learn(name, (), dtype, "var", 2)
    return True


def bits(w: Writer) -> bool:
    """A tile's bits under another dtype."""
    widths = {"float32": "uint32", "int32": "uint32", "float16": "uint16", "int8": "uint8"}
    narrow = {"float32": "uint8", "int32": "int16", "float64": "int32", "uint32": "uint8"}
    table = w.pick((widths, widths, narrow))
    tiles = [k for k in w.tiles(scope=("shared", "fragment"), depth=0) if k.dtype in table]
    tiles = [k for k in tiles if k.exact and k.rank <= 2]
    if not tiles or w.loops:
        return False
    known = w.pick(tiles)
    dtype = table[known.dtype]
    times = {"float32": 4, "int32": 4, "uint32": 4, "float16": 2, "int8": 1, "float64": 8}
    size = {"uint32": 4, "uint16": 2, "uint8": 1, "int16": 2, "int32": 4}
    last: Expr = Op("mul", (known.shape[-1], Num(times[known.dtype] // size[dtype])))
    last = known.shape[-1] if table is widths else last
    shape = (*known.shape[:-1], last)
    view_name = w.buffer("view", shape, dtype, known.name)
    name = w.buffer(w.pick(STORAGE), shape, dtype)
    scope = w.buffers[-1].scope
    w.emit(Copy(Tile(view_name), Tile(name)))
    out = w.learn(name, shape, dtype, scope, float(2 ** (8 * size[dtype])))
    out.bound = min(out.bound, 2.0**40)
    return True


def threads(w: Writer, count: int) -> bool:
    """Statements of each thread: memory of its own, elements of shared tiles, its output."""
    tiles = [k for k in w.tiles(scope="shared", dtype=("float32", "int32", "float16")) if k.exact]
    tx = Ref(w.name("t"))
    length, most = w.pick((1, 4, 5)), 25
    dtype = w.pick(("float32", "int32", "float16", "bfloat16", "int8", "int16", "uint8"))
    local = w.buffer("local", (Num(length),), dtype)
    body: list[Stmt] = []
    for step in range(length):
        value: Expr = as_dtype(Op("mod", (Op("add", (tx, Num(step))), Num(5))), "int32", dtype)
        fitting = [k for k in tiles if k.rank == 1]
        if fitting and w.chance(0.5):
            known = w.pick(fitting)
            element = Load(known.name, (Op("mod", (tx, known.shape[0])),))
            value = as_dtype(clamp(element, 4, known.dtype), known.dtype, dtype)
        body.append(Store(local, (Num(step),), value))
    last: Expr = Load(local, (Num(0),))
    if w.chance(0.4):
        # A register whose number depends on the thread.
        last = Load(local, (Op("mod", (tx, Num(length))),))
    for step in range(1, length):
        last = Op(w.pick(("add", "max")), (last, Load(local, (Num(step),))))
    if dtype in ("float32", "int32", "float16") and w.chance(0.4):
        sums = Op("warp_sum", (as_dtype(Op("mod", (tx, Num(3))), "int32", dtype),))
        last = Op("max", (last, sums))
        most = 64
    limit = w.rng.randrange(count) + 1
    name = w.buffer("shared", (Num(count),), dtype)
    stores: tuple[Stmt, ...] = (Store(name, (tx,), last),)
    if w.chance(0.5):
        zero: tuple[Stmt, ...] = (Store(name, (tx,), Num(0)),)
        stores = (If(Op("lt", (tx, Num(limit))), stores, zero),)
    w.emit(Threads(tx.name, (*body, *stores)))
    w.learn(name, (Num(count),), dtype, "shared", most)
    return True


SIMPLE: tuple[tuple[Callable[[Writer], bool], int], ...] = (
    (elementwise, 10),
    (copy, 4),
    (slices, 2),
    (fill, 2),
    (combining.reduce, 6),
    (combining.scan, 2),
    (transpose, 1),
    (view, 1),
    (combining.reducer, 1),
    (combining.atomics, 2),
    (scalar, 2),
    (combining.normalise, 1),
    (bits, 1),
    (corners.far, 1),
    (corners.rebind, 1),
    (corners.unused, 1),
)
"""Statements of one operator, and how often each is tried."""
