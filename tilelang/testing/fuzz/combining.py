"""Random statements that combine elements: reductions, scans, reducers, atomic operations."""

from __future__ import annotations

from tilelang.testing.fuzz.program import (
    Accumulate,
    Atomic,
    AtomicTile,
    Expr,
    Fill,
    FinishReducer,
    Load,
    Num,
    Op,
    Parallel,
    Reduce,
    Ref,
    Scan,
    StartReducer,
    Store,
    Tile,
)
from tilelang.testing.fuzz.writer import (
    COMPUTED,
    LIMITS,
    STORAGE,
    VARIABLES,
    Writer,
    as_dtype,
    at,
    casts,
    grow,
    is_float,
    whole,
)


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
    dtypes = [known.dtype] if kind.startswith("bit") else casts(known)
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
        grow(target, target.bound + bound * w.repeats, known.exact)
        return True
    name = w.buffer(w.pick(STORAGE), shape, dtype)
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
    dtypes = [d for d in casts(known) if bound <= LIMITS[d]]
    if not dtypes:
        return False
    reverse = w.chance(0.4)
    if w.chance(0.3) and known.dtype in dtypes and (kind == "cummax" or not w.loops):
        w.emit(Scan(kind, whole(known), None, dim, reverse))
        grow(known, bound, known.exact)
        return True
    dtype = known.dtype if known.dtype in dtypes and w.chance(0.7) else w.pick(dtypes)
    name = w.buffer(w.pick(STORAGE), known.shape, dtype)
    w.emit(Scan(kind, whole(known), Tile(name), dim, reverse))
    w.learn(name, known.shape, dtype, w.buffers[-1].scope, bound, known.exact)
    return True


def reducer(w: Writer) -> bool:
    """A value that all threads accumulate."""
    tiles = [k for k in w.known if k.scope in ("shared", "fragment") and k.rank <= 2]
    tiles = [k for k in tiles if k.exact and k.dtype in COMPUTED]
    if not tiles:
        return False
    known = w.pick(tiles)
    variables = VARIABLES[: known.rank]
    refs = tuple(Ref(v) for v in variables)
    count = 1
    for extent in w.extents(known.shape):
        count *= extent
    op = w.pick(("sum", "max", "min"))
    bound = known.bound * (count if op == "sum" else 1) + 1
    dtypes = [d for d in casts(known) if bound <= LIMITS[d]]
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
    out = w.buffer(w.pick(STORAGE), shape, dtype)
    w.emit(FinishReducer(name, Tile(out)))
    w.learn(out, shape, dtype, w.buffers[-1].scope, bound)
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
    dtypes = [d for d in casts(known) if bound <= LIMITS[d] and d in _ATOMIC]
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
    variables = VARIABLES[: known.rank]
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
