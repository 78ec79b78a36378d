"""Draws programs of tiles of three dimensions beside their planes and lines: tensors whose extents
the call gives, planes at any place, loops over three indices in any order."""

from __future__ import annotations

import itertools

from drawn import HIGH, Program, Step, Writer, drawn
from drawn_tiles import (
    COMMON,
    Maker,
    Scope,
    branch,
    fitted,
    loop,
    number,
    part,
    register,
    repeat,
    scan,
    some,
    start,
    tiles,
)

_CUBES = ((4, 5, 16), (2, 8, 32), (3, 16, 8), (1, 16, 16), (4, 1, 33), (8, 8, 8), (2, 3, 64))
_WIDE = {"int8": "int32", "int16": "int32", "float16": "float32", "bfloat16": "float32"}


def _extents(w: Writer, sizes: tuple[int, ...], slack: int) -> tuple[int | str, ...]:
    """Extents around these, some of them sizes of the call."""
    found: list[int | str] = []
    for size in sizes:
        extent = max(1, size + w.rng.randrange(-slack, slack + 1))
        if w.chance(0.6):
            name = w.name("n")
            w.sizes.append((name, extent))
            found.append(name)
        else:
            found.append(extent)
    return tuple(found)


def ragged_load(w: Writer, scope: Scope) -> list[Step]:
    """A tile from a tensor that ends within it, or begins before it."""
    target = w.pick(list(w.tiles))
    _, shape, dtype = w.tiles[target]
    source = w.input(_extents(w, shape, 6), dtype)
    at = [start(w, scope, 3) for _ in shape]
    if w.chance(0.3):
        at[w.rng.randrange(len(at))] = f"{w.input((scope.grid,), 'int32', -4, 4)}[bx]"
    if w.chance(0.5):
        return [Step(f"T.copy({source}[{', '.join(at)}], {target})")]
    ranges = [f"{a}:{a} + {n}" for a, n in zip(at, shape, strict=True)]
    return [Step(f"T.copy({source}[{', '.join(ranges)}], {target})")]


def guarded(w: Writer, scope: Scope) -> list[Step]:
    """Elements of a tensor with sizes of the call, its dimensions in any order, each under a guard
    or as a branch of a selection that is not taken outside."""
    target = w.pick(list(w.tiles))
    _, shape, dtype = w.tiles[target]
    names = list("ijk"[: len(shape)])
    order = w.rng.sample(range(len(shape)), len(shape))
    extents = _extents(w, tuple(shape[d] for d in order), 5)
    source = w.input(extents, dtype)
    index = [names[d] for d in order]
    if w.chance(0.5):
        at = w.rng.randrange(len(index))
        index[at] = f"{index[at]} - {start(w, scope, 3)}"
    inside = " and ".join(
        f"{i} < {n}" + (f" and {i} >= 0" if "-" in i else "")
        for i, n in zip(index, extents, strict=True)
    )
    value, place = number(w, source, index := ", ".join(index), dtype), ", ".join(names)
    if w.chance(0.5):
        other = w.pick((number(w, target, place), w.rng.randrange(HIGH)))
        value = f"T.if_then_else({inside}, {value}, {other})"
        steps = (Step(f"{target}[{place}] = {fitted(value, dtype)}"),)
    else:
        steps = (Step(f"if {inside}:", (Step(f"{target}[{place}] = {fitted(value, dtype)}"),)),)
    return [Step(_parallel(w, shape, names), steps)]


def _parallel(w: Writer, shape: tuple[int, ...], names: list[str]) -> str:
    """A loop over all elements, whose indices stand in any order."""
    order = w.rng.sample(range(len(shape)), len(shape)) if w.chance(0.3) else range(len(shape))
    variables = ", ".join(names[d] for d in order)
    return f"for {variables} in T.Parallel({', '.join(str(shape[d]) for d in order)}):"


def ragged_store(w: Writer, scope: Scope) -> list[Step]:
    """A tile to a tensor that ends within it: by a copy, by elements in any order, by atomics on
    places of several blocks."""
    source = w.pick(list(w.tiles))
    _, shape, dtype = w.tiles[source]
    names = list("ijk"[: len(shape)])
    form = w.pick(("copy", "elements", "atomic"))
    order = list(range(len(shape)))
    if form == "elements":
        w.rng.shuffle(order)
    extents = _extents(w, tuple(shape[d] for d in order), 5)
    block = form != "atomic"
    if form == "atomic" and dtype not in ("int32", "float32"):
        return []
    whole = (scope.grid, *extents) if block else extents
    out = w.input(whole, dtype)
    if form == "atomic":
        at = ", ".join(start(w, scope, 3) for _ in shape)
        return [Step(f"T.atomic_add({out}[{at}], {source})")]
    if form == "copy":
        at = ", ".join(start(w, scope, 3) for _ in shape)
        return [Step(f"T.copy({source}, {out}[bx, {at}])")]
    index = [names[d] for d in order]
    inside = " and ".join(f"{i} < {n}" for i, n in zip(index, extents, strict=True))
    store = Step(f"{out}[bx, {', '.join(index)}] = {source}[{', '.join(names)}]")
    return [Step(_parallel(w, shape, names), (Step(f"if {inside}:", (store,)),))]


def plane(w: Writer, scope: Scope) -> list[Step]:
    """A plane or a line of a tile to a tile of fewer dimensions, or back."""
    pairs = [
        (a, b, d)
        for a, b in itertools.permutations(w.tiles, 2)
        for d in range(len(w.tiles[a][1]))
        if w.tiles[a][1][:d] + w.tiles[a][1][d + 1 :] == w.tiles[b][1]
    ]
    if not pairs:
        return []
    of, whole, dim = w.pick(pairs)
    sizes = w.tiles[of][1]
    index = [f"0:{n}" for n in sizes]
    index[dim] = start(w, scope, sizes[dim] - 1)
    index[dim] = w.pick((index[dim], f"{index[dim]}:{index[dim]} + 1"))
    sides = [f"{of}[{', '.join(index)}]", whole]
    back = w.chance(0.5)
    return [Step("T.copy({}, {})".format(*(sides[::-1] if back else sides)))]


def combined(w: Writer, scope: Scope) -> list[Step]:
    """Each element of a tile from tiles of some of its dimensions, in loops of any order."""
    target = w.pick([t for t in w.tiles if len(w.tiles[t][1]) > 1])
    _, shape, dtype = w.tiles[target]
    names = list("ijk"[: len(shape)])
    values = [number(w, target, ", ".join(names)), names[-1], "bx", *scope.loops]
    for count in (1, 2, 3):
        for dims in itertools.combinations(range(len(shape)), count):
            found = tiles(w, shape=tuple(shape[d] for d in dims))
            found = [t for t in found if t != target]
            values += [number(w, w.pick(found), ", ".join(names[d] for d in dims))] if found else []
    a, b, c = (w.pick(values) for _ in range(3))
    value = w.pick(("{} + {}", "{} - {}", "T.max({}, {})", "{} * {}")).format(a, b)
    if w.chance(0.3):
        value = f"T.if_then_else({c} > 1, {value}, {c})"
    store = Step(f"{target}[{', '.join(names)}] = {fitted(value, dtype)}")
    return [Step(_parallel(w, shape, names), (store,))]


def folded(w: Writer, scope: Scope) -> list[Step]:
    """A dimension of a tile, or of a part of it, reduced."""
    sources = [t for t in w.tiles if len(w.tiles[t][1]) > 1]
    source = w.pick(sources)
    _, shape, dtype = w.tiles[source]
    dim, extents, of = w.rng.randrange(len(shape)), list(shape), source
    if w.chance(0.5):
        extents = [w.pick((n, n, max(n // 2, 1))) for n in shape]
        of = part(w, scope, source, extents)
    kept = w.chance(0.2)
    rest = tuple(1 if d == dim else n for d, n in enumerate(extents) if kept or d != dim)
    result = w.tile(w.pick(("fragment", "shared")), rest, _WIDE.get(dtype, dtype), scope.grid)
    clear = ", clear=False" if w.chance(0.4) else ""
    kind = w.pick(("sum", "max", "min", "absmax"))
    names = list("ijk"[: len(rest)])
    place = f"{result}[{', '.join(names)}]"
    bounded = Step(f"{place} = {fitted(place, w.tiles[result][2])}")
    steps = [Step(f"T.fill({result}, 1)")] if scope.loops else []
    return [
        *steps,
        Step(f"T.reduce_{kind}({of}, {result}, dim={w.pick((dim, dim - len(shape)))}{clear})"),
        Step(_parallel(w, rest, names), (bounded,)),
    ]


def sums(w: Writer, scope: Scope) -> list[Step]:
    """Running sums along a dimension of a tile, or of a part of it, to it or to another one."""
    sources = [t for t in tiles(w, scope="shared") if w.tiles[t][2] in ("int32", "float32")]
    if not sources:
        return []
    source = w.pick(sources)
    _, shape, dtype = w.tiles[source]
    names = list("ijk"[: len(shape)])
    dim = w.rng.randrange(len(shape))
    reverse = ", reverse=True" if w.chance(0.4) else ""
    of, target = source, source
    others = [t for t in tiles(w, scope="shared", shape=shape, dtype=dtype) if t != source]
    if others and w.chance(0.4):
        target = w.pick(others)
        of = f"{source}, {target}"
    elif w.chance(0.5):
        of = part(w, scope, source, [w.pick((n, max(n // 2, 1))) for n in shape])
    place = f"{target}[{', '.join(names)}]"
    bounded = Step(_parallel(w, shape, names), (Step(f"{place} = {fitted(place, dtype)}"),))
    return [Step(f"T.cumsum({of}, dim={dim}{reverse})"), bounded]


def planes_product(w: Writer, scope: Scope) -> list[Step]:
    """A product of parts of shared tiles at places of loops and tables, in a loop of its own."""
    m, n, k = w.pick((16, 32, 64)), w.pick((8, 16, 32)), w.pick((16, 32))
    count, dtype = w.rng.randrange(1, 4), w.pick(("float16", "bfloat16", "int8"))
    total = "int32" if dtype == "int8" else "float32"
    turned_a, turned_b, form = w.chance(0.3), w.chance(0.5), w.pick(("plane", "beside"))

    def operand(rows: int, depth: int, turned: bool) -> tuple[str, str]:
        """A tile that has `count` operands, and the one at a place."""
        across = w.chance(0.5)
        sizes = [rows * (1 if across else count), depth * (count if across else 1)]
        scale, axis = (depth, 1) if across else (rows, 0)
        if form == "plane":
            sizes, axis = [rows, depth], -1
        shape = tuple(sizes[::-1] if turned else sizes)
        shape = (count, *shape) if form == "plane" else shape
        at = w.pick(
            ("q", "q", f"{count - 1} - q", f"{w.input((count,), 'int32', 0, count - 1)}[q]")
        )
        index = [f"0:{rows}", f"0:{depth}"]
        if axis >= 0:
            index[axis] = f"({at}) * {scale}:({at}) * {scale} + {scale}"
        index = index[::-1] if turned else index
        tile = w.tile("shared", shape, dtype, scope.grid)
        return tile, ", ".join([at, *index] if form == "plane" else index)

    a, at_a = operand(m, k, turned_a)
    b, at_b = operand(n, k, not turned_b)
    c = w.tile("fragment", (m, n), total, scope.grid)
    call = f"T.gemm({a}[{at_a}], {b}[{at_b}], {c}, transpose_A={turned_a}, transpose_B={turned_b})"
    kind = w.pick((f"T.serial({count})", f"T.unroll({count})"))
    bounded = Step(f"{c}[i, j] = {fitted(f'{c}[i, j]', total)}")
    return [
        Step(f"for q in {kind}:", (Step(call),)),
        Step(f"for i, j in T.Parallel({m}, {n}):", (bounded,)),
    ]


_MAKERS: tuple[Maker, ...] = (
    *COMMON,
    *(ragged_load, guarded, ragged_store, plane, plane, combined, combined, folded, folded),
    *(sums, scan, loop, loop, branch, repeat, planes_product),
)
register("cubes", _MAKERS)


@drawn
def cubes(w: Writer, title: str) -> Program:
    """Tiles of three dimensions, their planes and lines, tensors with sizes of the call."""
    w.kind = "cubes"
    grid, shape = w.pick((1, 2, 3)), w.pick(_CUBES)
    dims = w.rng.choice(((0, 1), (1, 2), (0, 2)))
    shapes = [shape, w.pick((shape, shape[::-1], w.pick(_CUBES)))]
    shapes += [tuple(shape[d] for d in dims), (shape[w.rng.randrange(3)],)]
    for some_shape in shapes:
        scope = w.pick(("shared", "shared", "fragment"))
        w.tile(scope, some_shape, w.pick(("float32", "int32", "float16", "int8", "bfloat16")), grid)
    w.steps += some(w, Scope(grid), 5)
    return w.program(title, grid, w.pick((32, 64, 96, 128, 128, 256)))
