"""Random matrix products: over chunks of K, and of tiles that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelang.testing.fuzz.nests import span
from tilelang.testing.fuzz.program import (
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    Num,
    Op,
    Ref,
    Tile,
)
from tilelang.testing.fuzz.writer import LIMITS, MOST_ELEMENTS, whole

if TYPE_CHECKING:
    from tilelang.testing.fuzz.generate import Generator

_PRODUCTS = (
    ("float16", "float32"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float16", "float16"),
    ("float32", "float32"),
    ("int8", "int32"),
    ("float64", "float64"),
    ("float8_e4m3fn", "float32"),
    ("float8_e5m2", "float32"),
)


def chain(g: Generator) -> bool:
    """The product of a known tile and a tensor's, as attention's second one is."""
    w = g.w
    kinds = dict(_PRODUCTS)
    tiles = [k for k in w.known if k.scope in ("shared", "fragment") and k.rank == 2]
    tiles = [k for k in tiles if k.exact and k.bound <= 64]
    if not tiles:
        return False
    known = w.pick(tiles)
    name, dtype = known.name, known.dtype
    if dtype not in kinds:
        dtype = w.pick(("float16", "bfloat16", "float32"))
        name = w.buffer(w.pick(("fragment", "shared")), known.shape, dtype)
        w.emit(Copy(whole(known), Tile(name)))
    transposed, other = w.chance(0.2), w.chance(0.4)
    rows, depth = known.shape[::-1] if transposed else known.shape
    columns = w.size(w.pick((8, 16, 16, 32, 64, 17, 3)), "p")
    accum = kinds[dtype]
    bound = 4 * known.bound * w.value(depth) * w.repeats
    if bound > LIMITS[accum] or w.value(rows) * w.value(columns) > MOST_ELEMENTS:
        return False
    shape = (columns, depth) if other else (depth, columns)
    tensor = g.input(shape, dtype)
    b = w.buffer("shared", shape, dtype)
    g.fetch(tensor.name, [Num(0), Num(0)], b, shape)
    if w.chance(0.2):
        fragment = w.buffer("fragment", shape, dtype)
        w.emit(Copy(Tile(b), Tile(fragment)))
        b = fragment
    c = w.buffer("fragment", (rows, columns), accum)
    policy = w.pick(("Square", "FullRow", "FullCol"))
    w.emit(Gemm(Tile(name), Tile(b), Tile(c), transposed, other, policy, Num(1)))
    w.learn(c, (rows, columns), accum, "fragment", bound)
    return True


def gemm(g: Generator) -> None:
    """A matrix product, over several chunks of K in a pipeline, or of what is known."""
    w = g.w
    dtype, accum = w.pick(_PRODUCTS)
    steps = (16, 32, 32, 64) if g.for_engines else (8, 16, 16, 32, 32, 64, 20, 7, 24, 33)
    k_value = w.pick(steps)
    while (w.value(g.m) + w.value(g.n)) * k_value > 3 * MOST_ELEMENTS:
        k_value //= 2
    k = w.size(k_value, "k")
    depth = k_value * w.pick((1, 2, 3, 5))
    depth -= w.rng.randrange(k_value) if w.chance(0.3) else 0
    if g.for_engines:
        depth = -(-depth // 16) * 16
    total = w.size(depth, "K", g.dynamic and not g.for_engines and w.chance(0.5))
    bound = 16.0 * w.value(total) * w.repeats
    top = 4
    if bound > LIMITS[accum]:
        bound, top = bound / 16, 1
    if bound > LIMITS[accum]:
        return
    trans = (w.chance(0.3), w.chance(0.4))
    a_tile = (k, g.m) if trans[0] else (g.m, k)
    b_tile = (g.n, k) if trans[1] else (k, g.n)
    a = g.input((total, g.M) if trans[0] else (g.M, total), dtype, top)
    b = g.input((g.N, total) if trans[1] else (total, g.N), dtype, top)
    a_buffer, b_buffer = w.buffer("shared", a_tile, dtype), w.buffer("shared", b_tile, dtype)
    operands = [a_buffer, b_buffer]
    moved = []
    for side, (tile, chance) in enumerate(((a_tile, 0.25), (b_tile, 0.12))):
        if w.chance(chance):
            fragment = w.buffer("fragment", tile, dtype)
            moved.append(Copy(Tile(operands[side]), Tile(fragment)))
            operands[side] = fragment
    c = w.buffer("fragment", (g.m, g.n), accum)
    variable = w.name("k")
    kind = w.pick(("pipelined", "pipelined", "pipelined", "serial"))
    stages = w.pick((0, 1, 2, 3, 4)) if kind == "pipelined" else 0
    bounds, step = span(g, kind, variable, total, k)
    first: Expr | None = None
    if w.chance(0.3):
        first = Op("eq", (Ref(variable), bounds.get("start", Num(0))))
    else:
        w.emit(Fill(Tile(c), Num(w.pick((0, 0, 1)))))
    with w.body() as body:
        row, column = g.origin
        a_origin = [step, row] if trans[0] else [row, step]
        b_origin = [column, step] if trans[1] else [step, column]
        g.fetch(a.name, a_origin, a_buffer, a_tile)
        g.fetch(b.name, b_origin, b_buffer, b_tile)
        for copy in moved:
            w.emit(copy)
        policy = w.pick(("Square", "Square", "FullRow", "FullCol"))
        w.emit(Gemm(Tile(operands[0]), Tile(operands[1]), Tile(c), *trans, policy, first))
    w.emit(For(kind, variable, body=tuple(body), stages=stages, **bounds))
    w.learn(c, (g.m, g.n), accum, "fragment", bound + 1)
