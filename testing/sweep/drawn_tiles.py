"""Draws programs of tiles: views of tiles, parts of tiles, loops and branches, types, tables of
indices, and all of these mixed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from drawn import HIGH, LOW, Program, Step, Writer, drawn

SHAPES = ((16, 32), (32, 16), (8, 64), (64, 8), (12, 20), (16, 16), (7, 33), (1, 64), (64,), (48,))
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
FLOATS = ("float32", "float16", "bfloat16", "float64")
THREADS = (32, 64, 128, 128, 256)
Maker = Callable[[Writer, "Scope"], list[Step]]


class Scope:
    """Where a statement stands: the loops around it, by their variables and largest values."""

    def __init__(self, grid: int, loops: dict[str, int] | None = None, depth: int = 0):
        self.grid, self.loops, self.depth = grid, loops or {}, depth

    def inside(self, variable: str = "", most: int = 0) -> Scope:
        loops = {**self.loops, **({variable: most} if variable else {})}
        return Scope(self.grid, loops, self.depth + 1)


def tiles(w: Writer, **wanted: object) -> list[str]:
    """The tiles of a scope, shape, dtype or rank."""
    found = []
    for name, (scope, shape, dtype) in w.tiles.items():
        has = {"scope": scope, "shape": shape, "dtype": dtype, "rank": len(shape)}
        if all(has[key] == value for key, value in wanted.items()):
            found.append(name)
    return found


def start(w: Writer, scope: Scope, room: int) -> str:
    """Where a part begins, from 0 to `room`: known, of the block, of a loop, of a table."""
    ways = ["number"] * 2
    ways += ["block"] if scope.grid - 1 <= room else []
    ways += [v for v, most in scope.loops.items() if most <= room]
    ways += ["table"] if room else []
    way = w.pick(ways)
    if way == "number":
        return str(w.pick((0, room, w.rng.randrange(room + 1))))
    if way == "block":
        return "bx"
    if way == "table":
        dtype = w.pick(("int32", "int32", "int64"))
        return f"{w.input((scope.grid,), dtype, 0, room)}[bx]"
    return str(way)


def part(w: Writer, scope: Scope, name: str, extents: Sequence[int]) -> str:
    """A region of a tile with these extents."""
    ranges = []
    for extent, size in zip(extents, w.tiles[name][1], strict=True):
        at = start(w, scope, size - extent)
        ranges.append(f"{at}:{at} + {extent}" if at != "0" else f"0:{extent}")
    return f"{name}[{', '.join(ranges)}]"


def number(w: Writer, name: str, index: str, dtype: str = "") -> str:
    """An element as int32 or float32; of a tensor with its dtype."""
    dtype = dtype or w.tiles[name][2]
    if dtype in ("int32", "float32"):
        return f"{name}[{index}]"
    return f'T.cast({name}[{index}], "{"float32" if "float" in dtype else "int32"}")'


def fitted(value: str, dtype: str) -> str:
    """A value within what tiles may hold."""
    low = 0 if dtype.startswith(("u", "bool")) else LOW
    return f'T.cast(T.clamp({value}, {low}, {HIGH}), "{dtype}")'


def copy_part(w: Writer, scope: Scope) -> list[Step]:
    """A part of a tile to a part of another one."""
    source, target = w.pick(list(w.tiles)), w.pick(list(w.tiles))
    a, b = w.tiles[source][1], w.tiles[target][1]
    signed = w.tiles[source][2].startswith("uint") or not w.tiles[target][2].startswith("uint")
    if w.aliases(source, target) or len(a) != len(b) or not signed:
        return []
    extents = [w.pick((min(m, n), max(min(m, n) // 2, 1))) for m, n in zip(a, b, strict=True)]
    return [Step(f"T.copy({part(w, scope, source, extents)}, {part(w, scope, target, extents)})")]


def load_part(w: Writer, scope: Scope) -> list[Step]:
    """A part of a tensor to a tile, or to a part of it."""
    target = w.pick(list(w.tiles))
    _, shape, dtype = w.tiles[target]
    source = w.input((*(n + 5 for n in shape[:-1]), 2 * shape[-1] + 8), dtype)
    if w.chance(0.4):
        w.tiles[source] = "global", tuple(int(n) for n in w.tensors[-1].shape), dtype
        extents = [w.pick((n, max(n // 2, 1))) for n in shape]
        at, to = part(w, scope, source, extents), part(w, scope, target, extents)
        del w.tiles[source]
        return [Step(f"T.copy({at}, {to})")]
    at = ", ".join(start(w, scope, 5) for _ in shape)
    return [Step(f"T.copy({source}[{at}], {target})")]


def fill_part(w: Writer, scope: Scope) -> list[Step]:
    """One number for a part of a tile."""
    target = w.pick(list(w.tiles))
    extents = [w.pick((n, max(n // 2, 1), 1)) for n in w.tiles[target][1]]
    return [Step(f"T.fill({part(w, scope, target, extents)}, {w.rng.randrange(HIGH)})")]


def elementwise(w: Writer, scope: Scope) -> list[Step]:
    """Each element of a tile from those at the same place, of rows and columns, of conditions."""
    target = w.pick(list(w.tiles))
    _, shape, dtype = w.tiles[target]
    names = list("ijk"[: len(shape)])
    index = ", ".join(names)
    same = tiles(w, shape=shape)
    values = [number(w, w.pick(same), index) for _ in range(2)] + [number(w, target, index)]
    for axis, extent in enumerate(shape):
        lines = [v for v in tiles(w, shape=(extent,)) if not w.aliases(v, target)]
        values += [number(w, v, names[axis]) for v in lines[:1]]
    values += [names[-1], *scope.loops, "bx"]
    a, b, c = (w.pick(values) for _ in range(3))
    form = w.pick(("{} + {}", "{} - {}", "T.max({}, {})", "T.min({}, {})", "{} * {}", "select"))
    value = form.format(a, b)
    if form == "select":
        condition = w.pick((f"{c} > 0", f"{c} != {a}", f"{c} > 0 and {a} < 4", f"not {a} >= {c}"))
        value = (
            f"T.if_then_else({condition}, {a}, {b})"
            if w.chance(0.5)
            else (f"({a} if {condition} else {b})")
        )
    store = Step(f"{target}[{index}] = {fitted(value, dtype)}")
    if w.chance(0.25):
        store = Step(f"if {w.pick(values)} < {w.rng.randrange(1, 6)}:", (store,))
    loop = f"for {index} in T.Parallel({', '.join(map(str, shape))}):"
    return [Step(loop, (store,))]


def shifted(w: Writer, scope: Scope) -> list[Step]:
    """Each element from another place of another tile: turned, reversed, shifted around."""
    target = w.pick(list(w.tiles))
    _, shape, dtype = w.tiles[target]
    sources = tiles(w, shape=shape) + tiles(w, shape=shape[::-1])
    sources = [s for s in sources if not w.aliases(s, target)]
    if not sources:
        return []
    source = w.pick(sources)
    names = list("ijk"[: len(shape)])
    turned = names if w.tiles[source][1] == shape and w.chance(0.5) else names[::-1]
    sizes = w.tiles[source][1]
    if [dict(zip(names, shape, strict=True))[v] for v in turned] != list(sizes):
        turned = names[::-1] if turned == names else names
    index = [
        w.pick((v, v, f"{n - 1} - {v}", f"({v} + {w.rng.randrange(1, n + 1)}) % {n}"))
        for v, n in zip(turned, sizes, strict=True)
    ]
    value = number(w, source, ", ".join(index))
    loop = f"for {', '.join(names)} in T.Parallel({', '.join(map(str, shape))}):"
    return [Step(loop, (Step(f"{target}[{', '.join(names)}] = {fitted(value, dtype)}"),))]


def reduce(w: Writer, scope: Scope) -> list[Step]:
    """A dimension of a tile, or of a part of it, to a tile of its own."""
    sources = [t for t in w.tiles if w.tiles[t][2] not in ("bool",) and "8_e" not in w.tiles[t][2]]
    sources = [t for t in sources if len(w.tiles[t][1]) == 2 and "uint" not in w.tiles[t][2]]
    if not sources:
        return []
    source = w.pick(sources)
    _, shape, dtype = w.tiles[source]
    dim = w.rng.randrange(2)
    extents = list(shape)
    of = source
    if w.chance(0.5):
        extents = [w.pick((n, max(n // 2, 1))) for n in shape]
        of = part(w, scope, source, extents)
    kind = w.pick(("sum", "max", "min", "absmax", "abssum"))
    wide = {"int8": "int32", "int16": "int32", "float16": "float32", "bfloat16": "float32"}
    result = w.tile("fragment", (extents[1 - dim],), wide.get(dtype, dtype), scope.grid)
    clear = ", clear=False" if kind != "abssum" and w.chance(0.5) else ""
    step = Step(f"T.reduce_{kind}({of}, {result}, dim={dim}{clear})")
    back = Step(f"T.fill({result}, 1)") if scope.loops else None
    i = ("i", "j")[1 - dim]
    bounded = Step(
        f"for {i} in T.Parallel({extents[1 - dim]}):",
        (Step(f"{result}[{i}] = {fitted(number(w, result, i), w.tiles[result][2])}"),),
    )
    return [*([back] if back else []), step, bounded]


def scan(w: Writer, scope: Scope) -> list[Step]:
    """Running maxima along a dimension of a shared tile, or of a part of it."""
    sources = [t for t in tiles(w, scope="shared") if w.tiles[t][2] in ("int32", "float32")]
    if not sources:
        return []
    source = w.pick(sources)
    shape = w.tiles[source][1]
    of = source
    if w.chance(0.5):
        of = part(w, scope, source, [w.pick((n, max(n // 2, 1))) for n in shape])
    reverse = ", reverse=True" if w.chance(0.4) else ""
    return [Step(f"T.cummax({of}, dim={w.rng.randrange(len(shape))}{reverse})")]


def transpose(w: Writer, scope: Scope) -> list[Step]:
    """A shared tile to one of the turned shape."""
    pairs = [
        (a, b)
        for a, b in itertools.permutations(tiles(w, scope="shared", rank=2), 2)
        if w.tiles[a][1] == w.tiles[b][1][::-1]
        and w.tiles[a][2] == w.tiles[b][2]
        and not w.aliases(a, b)
    ]
    return [Step("T.transpose({}, {})".format(*w.pick(pairs)))] if pairs else []


def gather(w: Writer, scope: Scope) -> list[Step]:
    """Rows of a tensor or a tile that a table names, some of them outside of a tensor."""
    target = w.pick(list(w.tiles))
    _, shape, dtype = w.tiles[target]
    table = w.input((shape[0],), w.pick(("int32", "int64")), -2, 9)
    names = list("ijk"[: len(shape)])
    source = w.input((7, *shape[1:]), dtype)
    index = ", ".join([f"{table}[i]", *names[1:]])
    guarded = f"{table}[i] >= 0 and {table}[i] < 7"
    value = f'T.cast({source}[{index}], "{dtype}")'
    step = Step(f"if {guarded}:", (Step(f"{target}[{', '.join(names)}] = {value}"),))
    loop = f"for {', '.join(names)} in T.Parallel({', '.join(map(str, shape))}):"
    return [Step(loop, (step,))]


def scatter(w: Writer, scope: Scope) -> list[Step]:
    """Atomic updates of a tensor's elements that tables name, several of one."""
    sources = [t for t in w.tiles if w.tiles[t][2] in ("int32", "float32")]
    if not sources:
        return []
    source = w.pick(sources)
    _, shape, dtype = w.tiles[source]
    table = w.input((shape[0],), w.pick(("int32", "int64")), 0, 5)
    target = w.input((6, *shape[1:]), dtype)
    names = list("ijk"[: len(shape)])
    kind = w.pick(("add", "max", "min"))
    index = ", ".join([f"{table}[i]", *names[1:]])
    step = Step(f"T.atomic_{kind}({target}[{index}], {source}[{', '.join(names)}])")
    loop = f"for {', '.join(names)} in T.Parallel({', '.join(map(str, shape))}):"
    return [Step(loop, (step,))]


def branch(w: Writer, scope: Scope) -> list[Step]:
    """Statements under a condition of the block, of a loop, of a tensor."""
    table = w.input((scope.grid,), "int32", -3, 3)
    values = ["bx", f"{table}[bx]", *scope.loops]
    a, b = w.pick(values), w.pick(values)
    condition = w.pick((f"{a} > {b}", f"{a} == 1", f"{a} % 2 == 0", f"{a} < 2 or {b} > 0"))
    steps = [Step(f"if {condition}:", some(w, scope.inside(), 2))]
    if w.chance(0.4):
        steps.append(Step("else:", some(w, scope.inside(), 2)))
    return steps


def loop(w: Writer, scope: Scope) -> list[Step]:
    """A loop of any kind and direction."""
    variable = w.name("k")
    kind = w.pick(("serial", "serial", "unroll", "pipelined", "pipelined", "down", "step", "table"))
    head, most = f"T.serial({w.rng.randrange(1, 4)})", 3
    if kind == "unroll":
        head = "T.unroll(2)"
    elif kind == "pipelined":
        head = f"T.Pipelined({w.rng.randrange(1, 6)}, num_stages={w.rng.randrange(4)})"
        most = 4
    elif kind == "down":
        head, most = f"T.serial({w.rng.randrange(1, 5)}, -1, {w.pick((-1, -2))})", 4
    elif kind == "step":
        head, most = f"T.serial(0, {w.rng.randrange(1, 6)}, {w.pick((2, 3))})", 5
    elif kind == "table":
        table = w.input((scope.grid,), w.pick(("int32", "int64")), 0, 4)
        head, most = f"T.serial({table}[bx])", 3
        if w.chance(0.5):
            head = f"T.Pipelined({table}[bx], num_stages={w.rng.randrange(4)})"
    body = some(w, scope.inside(variable, most), 3)
    if w.chance(0.15):
        jump = Step(
            f"if {variable} == {w.rng.randrange(3)}:", (Step(w.pick(("break", "continue"))),)
        )
        at = w.rng.randrange(len(body) + 1)
        body = (*body[:at], jump, *body[at:])
    return [Step(f"for {variable} in {head}:", body)]


def repeat(w: Writer, scope: Scope) -> list[Step]:
    """A loop with a condition on a variable."""
    variable = w.name("n")
    table = w.input((scope.grid,), "int32", 0, 4)
    body = (*some(w, scope.inside(), 2), Step(f"{variable} = {variable} + {w.pick((1, 2))}"))
    condition = w.pick((f"{variable} < {table}[bx]", f"{variable} < 3 and {table}[bx] > 1"))
    return [Step(f'{variable} = T.alloc_var("int32", init=0)'), Step(f"while {condition}:", body)]


def product(w: Writer, scope: Scope) -> list[Step]:
    """A product of shared tiles of 16-bit floats, added to a fragment of its own."""
    shared = [t for t in tiles(w, scope="shared", rank=2) if w.tiles[t][2] == "float16"]
    for a, b in itertools.product(shared, shared):
        for p, q in itertools.product((False, True), (False, True)):
            (m, k), (depth, n) = w.tiles[a][1], w.tiles[b][1]
            (m, k) = (k, m) if p else (m, k)
            (depth, n) = (n, depth) if q else (depth, n)
            if k == depth and w.chance(0.5):
                result = w.tile("fragment", (m, n), "float32", scope.grid)
                form = f"transpose_A={p}, transpose_B={q}"
                bounded = f"{result}[i, j] = {fitted(f'{result}[i, j]', 'float32')}"
                return [
                    Step(f"T.gemm({a}, {b}, {result}, {form})"),
                    Step(f"for i, j in T.Parallel({m}, {n}):", (Step(bounded),)),
                ]
    return []


def view(w: Writer) -> None:
    """Another name of a tile, of another shape or whole type."""
    root = w.pick(list(w.tiles))
    scope, shape, dtype = w.tiles[root]
    bits = {"8": 8, "6": 16, "2": 32, "4": 64}[dtype[-1]] if dtype in WHOLE else 0
    others = [d for d in WHOLE if bits and d != dtype and w.chance(0.5)]
    other = w.pick(others) if others else dtype
    width = {"8": 8, "6": 16, "2": 32, "4": 64}[other[-1]] if other in WHOLE else bits
    count = math.prod(shape) * (bits or 1) // (width or 1)
    if count * (width or 1) != math.prod(shape) * (bits or 1):
        return
    columns = w.pick([n for n in range(1, 65) if count % n == 0][-4:])
    new = w.pick(((count,), (count // columns, columns)))
    name = w.name("V")
    call = f"T.reshape({root}, {new})" if other == dtype else f'T.view({root}, {new}, "{other}")'
    w.head.append(Step(f"{name} = {call}"))
    w.tiles[name] = scope, new, other
    w.roots[name] = w.roots.get(root, root)


COMMON: tuple[Maker, ...] = (copy_part, load_part, elementwise, elementwise, fill_part)
PARTS: tuple[Maker, ...] = (*COMMON, copy_part, reduce, scan, transpose, shifted)
FLOW: tuple[Maker, ...] = (*COMMON, loop, loop, branch, repeat, shifted, reduce)
TABLES: tuple[Maker, ...] = (*COMMON, gather, scatter, loop, branch, shifted)
ALL: tuple[Maker, ...] = (*COMMON, *PARTS, *FLOW, *TABLES, product, product)
_OF: dict[str, tuple[Maker, ...]] = {
    "views": PARTS,
    "parts": PARTS,
    "flow": FLOW,
    "tables": TABLES,
    "types": COMMON,
    "mixed": ALL,
}


def register(kind: str, makers: tuple[Maker, ...]) -> None:
    """The statements of a class of another module."""
    _OF[kind] = makers


def some(w: Writer, scope: Scope, most: int) -> tuple[Step, ...]:
    """A few statements of the class."""
    found: list[Step] = []
    wanted = w.rng.randrange(1, most + 1)
    nested = (loop, branch, repeat)
    for _ in range(20):
        if wanted == 0:
            break
        maker = w.pick(_OF[w.kind])
        if maker in nested and scope.depth >= 2:
            continue
        steps = maker(w, scope)
        found += steps
        wanted -= bool(steps)
    return tuple(found)


def _program(w: Writer, title: str, kind: str, dtypes: Sequence[str], count: int) -> Program:
    w.kind = kind
    grid = w.pick((1, 1, 2, 3))
    shapes = [w.pick(SHAPES) for _ in range(2)]
    shapes += [shapes[0][::-1], shapes[0], (shapes[0][0],)]
    for _ in range(w.rng.randrange(2, 4)):
        w.tile(w.pick(("shared", "shared", "fragment")), w.pick(shapes), w.pick(dtypes), grid)
    for _ in range(w.rng.randrange(1, 4) if kind == "views" or w.chance(0.15) else 0):
        view(w)
    w.steps += some(w, Scope(grid), count)
    return w.program(title, grid, w.pick(THREADS))


@drawn
def views(w: Writer, title: str) -> Program:
    """Tiles under several names, shapes and whole types."""
    return _program(w, title, "views", (*WHOLE, "float32", "float16"), 4)


@drawn
def parts(w: Writer, title: str) -> Program:
    """Parts of tiles, whose places are known, of a loop or of a table."""
    return _program(w, title, "parts", ("float32", "int32", "float16", "int8"), 5)


@drawn
def flow(w: Writer, title: str) -> Program:
    """Loops, pipelines, branches and conditions in each other."""
    return _program(w, title, "flow", ("float32", "int32", "float16"), 4)


@drawn
def tables(w: Writer, title: str) -> Program:
    """Rows and elements that tables of 32 and 64 bits name."""
    return _program(w, title, "tables", ("float32", "int32", "float16", "int8"), 4)


@drawn
def types(w: Writer, title: str) -> Program:
    """Tiles of all types in each other's statements."""
    dtypes = (*WHOLE, *FLOATS, "float8_e4m3fn", "float8_e5m2", "bool")
    return _program(w, title, "types", dtypes, 5)


@drawn
def mixed(w: Writer, title: str) -> Program:
    """All of these."""
    return _program(w, title, "mixed", ("float32", "int32", "float16", "float16", "int8"), 6)
