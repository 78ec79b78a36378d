"""Random statements: each function adds one to the program, or returns False where none fits."""

from __future__ import annotations

from collections.abc import Callable

from tilelang.testing.fuzz.expressions import Expressions
from tilelang.testing.fuzz.program import (
    Accumulate,
    Atomic,
    AtomicTile,
    Copy,
    Expr,
    Fill,
    FinishReducer,
    If,
    Load,
    Num,
    Op,
    Parallel,
    Reduce,
    Ref,
    Scan,
    StartReducer,
    Stmt,
    Store,
    Threads,
    Tile,
    Transpose,
)
from tilelang.testing.fuzz.writer import (
    COMPUTED,
    LIMITS,
    Known,
    Writer,
    as_dtype,
    at,
    clamp,
    is_float,
    is_signed,
    whole,
)

_VARIABLES = ("i", "j", "l")
_STORAGE = ("fragment", "fragment", "shared")


def grow(w: Writer, known: Known, bound: float, exact: bool) -> None:
    """Notes that a tile has been written again."""
    known.bound, known.exact = max(known.bound, bound), known.exact and exact


def _casts(w: Writer, known: Known) -> list[str]:
    """Dtypes that a tile can be converted to."""
    return [
        d
        for d in COMPUTED
        if known.bound <= LIMITS[d]
        and (is_signed(d) or not is_signed(known.dtype))
        and (known.exact or is_float(d))
    ]


def elementwise(w: Writer) -> bool:
    """A parallel loop that computes a new tile, or changes a known one."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment", "view") and k.rank <= 3]
    tiles = [k for k in tiles if k.dtype in COMPUTED]
    if not tiles:
        return False
    model = w.pick(tiles)
    is_new = w.chance(0.6)
    dtype = w.pick(COMPUTED) if is_new and w.chance(0.3) else model.dtype
    variables = _VARIABLES[: model.rank]
    refs = tuple(Ref(v) for v in variables)
    source = Expressions(w, variables, model.shape, dtype)
    if w.chance(0.06):
        return _condition(w, source)
    value = source.value(w.pick((1, 2, 2, 3)))
    if is_new:
        name = w.buffer(w.pick(_STORAGE), model.shape, dtype)
        w.emit(Parallel(variables, model.shape, (Store(name, refs, value.expr),)))
        w.learn(name, model.shape, dtype, w.buffers[-1].scope, value.bound, value.exact)
        return True
    w.emit(Parallel(variables, model.shape, _change(w, model, refs, source)))
    return True


def _condition(w: Writer, source: Expressions) -> bool:
    """A new tile of bools."""
    name = w.buffer(w.pick(_STORAGE), source.shape, "bool")
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
    grow(w, known, bound, value.exact)
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
    dtypes = _casts(w, known)
    if is_signed(known.dtype) and known.exact:
        dtypes += [d for d in ("float8_e4m3fn", "float8_e5m2") if known.bound <= LIMITS[d]]
    dtype = w.pick(dtypes) if dtypes and w.chance(0.5) else known.dtype
    name = w.buffer(w.pick(("fragment", "shared")), known.shape, dtype)
    options = ((("coalesced_width", 2),)) if w.chance(0.05) else ()
    w.emit(Copy(whole(known), Tile(name), options))
    w.learn(name, known.shape, dtype, w.buffers[-1].scope, known.bound, known.exact)
    return True


def slices(w: Writer) -> bool:
    """A part of a shared tile in a tile of its own, or the other way round."""
    tiles = [k for k in w.tiles(scope="shared") if max(w.extents(k.shape)) > 1]
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
    name = w.buffer(w.pick(_STORAGE), extents, known.dtype)
    scope = w.buffers[-1].scope
    w.emit(Copy(part, Tile(name)))
    w.learn(name, extents, known.dtype, scope, known.bound, known.exact)
    return True


def fill(w: Writer) -> bool:
    """A known tile, or a part of a shared one, set to a number."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment")]
    if not tiles:
        return False
    known = w.pick(tiles)
    value = w.pick((0, 0, 1, 3, -2))
    if value < 0 and not is_signed(known.dtype):
        value = 1
    tile = whole(known)
    if known.scope == "shared" and w.chance(0.7):
        extents = w.extents(known.shape)
        starts = tuple(Num(w.rng.randrange(e)) for e in extents)
        ends = (w.rng.randrange(e - int(s.value)) + 1 for s, e in zip(starts, extents, strict=True))
        tile = Tile(known.name, starts, tuple(Num(e) for e in ends))
    w.emit(Fill(tile, Num(value)))
    grow(w, known, abs(value), True)
    return True


def reduce(w: Writer) -> bool:
    """A tile combined along a dimension."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment")]
    tiles = [k for k in tiles if k.dtype in (*COMPUTED, "bool")]
    if not tiles:
        return False
    known = w.pick(tiles)
    dim = w.rng.randrange(known.rank)
    kinds = ["sum", "max", "min", "abssum", "absmax", "max", "sum"]
    if not is_float(known.dtype):
        kinds += ["bitand", "bitor", "bitxor"]
    kind = w.pick(kinds[-3:] if known.dtype == "bool" else kinds)
    extent = w.value(known.shape[dim])
    bound = known.bound * (extent if "sum" in kind else 2)
    if known.dtype == "bool":
        bound = 1
    dtypes = [known.dtype] if kind.startswith("bit") else _casts(w, known)
    dtypes = [d for d in dtypes if bound <= LIMITS[d]]
    if not dtypes:
        return False
    dtype = known.dtype if known.dtype in dtypes and w.chance(0.8) else w.pick(dtypes)
    shape = known.shape[:dim] + known.shape[dim + 1 :]
    if not shape or w.chance(0.15):
        shape = (*known.shape[:dim], Num(1), *known.shape[dim + 1 :])
    axis = dim - known.rank if w.chance(0.2) else dim
    targets = w.tiles(shape=shape, dtype=dtype, scope=("shared", "fragment"))
    targets = [
        t for t in targets if t is not known and t.bound + bound * w.repeats <= LIMITS[dtype]
    ]
    if targets and w.chance(0.5) and kind != "abssum":
        target = w.pick(targets)
        w.emit(Reduce(kind, whole(known), whole(target), axis, clear=False))
        grow(w, target, target.bound + bound * w.repeats, known.exact)
        return True
    name = w.buffer(w.pick(_STORAGE), shape, dtype)
    w.emit(Reduce(kind, whole(known), Tile(name), axis))
    w.learn(name, shape, dtype, w.buffers[-1].scope, bound, known.exact)
    return True


def scan(w: Writer) -> bool:
    """Running sums or maxima."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment") and k.dtype in COMPUTED]
    if not tiles:
        return False
    known = w.pick(tiles)
    dim = w.rng.randrange(known.rank)
    kind = w.pick(("cumsum", "cummax"))
    bound = known.bound * (w.value(known.shape[dim]) if kind == "cumsum" else 1)
    dtypes = [d for d in _casts(w, known) if bound <= LIMITS[d]]
    if not dtypes:
        return False
    reverse = w.chance(0.4)
    if w.chance(0.3) and known.dtype in dtypes and (kind == "cummax" or not w.loops):
        w.emit(Scan(kind, whole(known), None, dim, reverse))
        grow(w, known, bound, known.exact)
        return True
    dtype = known.dtype if known.dtype in dtypes and w.chance(0.7) else w.pick(dtypes)
    name = w.buffer(w.pick(_STORAGE), known.shape, dtype)
    w.emit(Scan(kind, whole(known), Tile(name), dim, reverse))
    w.learn(name, known.shape, dtype, w.buffers[-1].scope, bound, known.exact)
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


def reducer(w: Writer) -> bool:
    """A value that all threads accumulate."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment") and k.rank <= 2]
    tiles = [k for k in tiles if k.exact and k.dtype in COMPUTED]
    if not tiles:
        return False
    known = w.pick(tiles)
    variables = _VARIABLES[: known.rank]
    refs = tuple(Ref(v) for v in variables)
    count = 1
    for extent in w.extents(known.shape):
        count *= extent
    op = w.pick(("sum", "max", "min"))
    bound = known.bound * (count if op == "sum" else 1) + 1
    dtypes = [d for d in _casts(w, known) if bound <= LIMITS[d]]
    if not dtypes:
        return False
    dtype = w.pick(dtypes)
    shape, where = ((Num(1),), (Num(0),))
    if known.rank == 2 and w.value(known.shape[0]) <= 16 and w.chance(0.5):
        shape, where = (known.shape[0],), (refs[0],)  # type: ignore[assignment]
    name = w.buffer("reducer", shape, dtype, op)
    w.emit(StartReducer(name, None if op == "sum" and w.chance(0.5) else Num(1)))
    element = as_dtype(Load(known.name, refs), known.dtype, dtype)
    w.emit(Parallel(variables, known.shape, (Accumulate(name, where, element),)))
    out = w.buffer(w.pick(_STORAGE), shape, dtype)
    w.emit(FinishReducer(name, Tile(out)))
    w.learn(out, shape, dtype, w.buffers[-1].scope, bound)
    return True


_ATOMIC = ("float16", "bfloat16", "float32", "float64", "int32", "uint32", "int64", "uint64")


def atomics(w: Writer) -> bool:
    """Elements added to those of a tensor or of a shared tile, in any order."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment") and k.exact]
    tiles = [k for k in tiles if k.dtype in COMPUTED and k.rank <= 2]
    if not tiles:
        return False
    known = w.pick(tiles)
    op = w.pick(("add", "add", "max", "min", "or"))
    count = 1
    for extent in w.extents(known.shape):
        count *= extent
    bound = 16 * known.bound * w.repeats * (count if op == "add" else 1)
    dtypes = [d for d in _casts(w, known) if bound <= LIMITS[d] and d in _ATOMIC]
    if op == "or":
        dtypes = [d for d in dtypes if not is_float(d)]
    if not dtypes:
        return False
    dtype = w.pick(dtypes)
    if w.chance(0.4):
        target = w.input(known.shape, dtype)
        start = tuple(Num(0) for _ in known.shape)
        tile = at(target.name, *start) if w.chance(0.5) else Tile(target.name)
        w.emit(AtomicTile(op, tile, whole(known)))
        return True
    variables = _VARIABLES[: known.rank]
    refs = tuple(Ref(v) for v in variables)
    bins = w.size(w.pick((1, 3, 8)))
    where: Expr = Op("mod", (refs[-1], bins))
    value = as_dtype(Load(known.name, refs), known.dtype, dtype)
    if w.chance(0.5):
        name = w.input((bins,), dtype).name
        w.emit(Parallel(variables, known.shape, (Atomic(op, name, (where,), value),)))
        return True
    name = w.buffer("shared", (bins,), dtype)
    w.emit(Fill(Tile(name), Num(0)))
    w.emit(Parallel(variables, known.shape, (Atomic(op, name, (where,), value),)))
    w.learn(name, (bins,), dtype, "shared", bound)
    return True


def scalar(w: Writer) -> bool:
    """A variable that the block sets or counts with."""
    variables = w.tiles(scope="var")
    if variables and w.chance(0.6):
        known = w.pick(variables)
        value = Expressions(w, (), (), known.dtype).leaf(True)
        step = clamp(value.expr, 2, known.dtype)
        w.emit(Store(known.name, (), Op("add", (Ref(known.name), step))))
        grow(w, known, known.bound + 2 * w.repeats, True)
        return True
    dtype = w.pick(("int32", "int32", "float32"))
    name = w.buffer("var", (), dtype)
    w.emit(Store(name, (), Num(w.pick((0, 1, 2)))))
    w.learn(name, (), dtype, "var", 2)
    return True


def normalise(w: Writer) -> bool:
    """The rows of a tile as probabilities: what attention does with its scores."""
    tiles = w.tiles(dtype=("float32", "float64"), scope=("fragment", "shared"), rank=2)
    if not tiles:
        return False
    known = w.pick(tiles)
    rows = known.shape[:1]
    row, column = Ref("i"), Ref("j")
    top, total = (w.buffer("fragment", rows, known.dtype) for _ in range(2))
    tile = w.buffer("fragment", known.shape, known.dtype)
    w.emit(Reduce("max", whole(known), Tile(top), 1))
    less = Op("sub", (Load(known.name, (row, column)), Load(top, (row,))))
    power = Op("exp2", (Op("max", (less, Num(-8))),))
    w.emit(Parallel(("i", "j"), known.shape, (Store(tile, (row, column), power),)))
    w.emit(Reduce("sum", Tile(tile), Tile(total), 1))
    part = Op("div", (Load(tile, (row, column)), Load(total, (row,))))
    w.emit(Parallel(("i", "j"), known.shape, (Store(tile, (row, column), part),)))
    w.learn(top, rows, known.dtype, "fragment", known.bound, known.exact)
    w.learn(tile, known.shape, known.dtype, "fragment", 1, False)
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
    name = w.buffer(w.pick(_STORAGE), shape, dtype)
    scope = w.buffers[-1].scope
    w.emit(Copy(Tile(view_name), Tile(name)))
    out = w.learn(name, shape, dtype, scope, float(2 ** (8 * size[dtype])))
    out.bound = min(out.bound, 2.0**40)
    return True


def threads(w: Writer, count: int) -> bool:
    """Statements of each thread: memory of its own, elements of shared tiles, its output."""
    tiles = [k for k in w.tiles(scope="shared", dtype=("float32", "int32", "float16")) if k.exact]
    tx = Ref(w.name("t"))
    length = w.pick((1, 4, 5))
    dtype = w.pick(("float32", "int32"))
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
    for step in range(1, length):
        last = Op(w.pick(("add", "max")), (last, Load(local, (Num(step),))))
    limit = w.rng.randrange(count) + 1
    name = w.buffer("shared", (Num(count),), dtype)
    stores: tuple[Stmt, ...] = (Store(name, (tx,), last),)
    if w.chance(0.5):
        zero: tuple[Stmt, ...] = (Store(name, (tx,), Num(0)),)
        stores = (If(Op("lt", (tx, Num(limit))), stores, zero),)
    w.emit(Threads(tx.name, (*body, *stores)))
    w.learn(name, (Num(count),), dtype, "shared", 25)
    return True


SIMPLE: tuple[tuple[Callable[[Writer], bool], int], ...] = (
    (elementwise, 10),
    (copy, 4),
    (slices, 2),
    (fill, 2),
    (reduce, 6),
    (scan, 2),
    (transpose, 1),
    (view, 1),
    (reducer, 1),
    (atomics, 2),
    (scalar, 2),
    (normalise, 1),
    (bits, 1),
)
"""Statements of one operator, and how often each is tried."""
