"""Draws programs whose tensors end anywhere: products of tiles over pipelined loops, with what
users put around them. Extents are constants or sizes of the call; last tiles reach beyond them."""

from __future__ import annotations

from drawn import HIGH, Program, Step, Tensor, Writer, drawn
from drawn_tiles import fitted

_SUMS = {"int8": "int32", "uint8": "int32"}


class _Product:
    """What the statements of one program have in common."""

    def __init__(self, w: Writer):
        self.w = w
        self.dtype = w.pick(("float16", "float16", "bfloat16", "float32", "int8", "float8_e4m3fn"))
        mixed = self.dtype == "float8_e4m3fn" and w.chance(0.5)
        self.right = "float8_e5m2" if mixed else self.dtype
        self.sum = _SUMS.get(self.dtype, "float32")
        self.rows, self.columns = w.pick((16, 32, 64, 64, 128)), w.pick((8, 16, 24, 32, 64, 80))
        self.depth = w.pick((16, 32, 32, 64))
        self.m, tall = self._extent("m", self.rows)
        self.n, wide = self._extent("n", self.columns)
        self.k, self.long = self._extent("k", self.depth)
        self.across = -(-wide // self.columns)
        self.grid = -(-tall // self.rows) * self.across + w.pick((0, 0, 1))
        self.turned_a, self.turned_b = w.chance(0.3), w.chance(0.5)

    def _extent(self, name: str, tile: int) -> tuple[int | str, int]:
        """How a program names an extent, and the extent."""
        extent = self.w.pick((tile, 2 * tile, self.w.rng.randrange(1, 3 * tile)))
        if self.w.chance(0.5):
            self.w.sizes.append((name, extent))
            return name, extent
        return extent, extent

    def operand(self, rows: int | str, columns: int | str, turned: bool, dtype: str) -> str:
        return self.w.input((columns, rows) if turned else (rows, columns), dtype)

    def load(self, source: str, tile: str, at: tuple[str, str], turned: bool) -> list[Step]:
        """The tile of a tensor that begins at some tile's number in both dimensions."""
        _, shape, dtype = self.w.tiles[tile]
        sizes = next(t.shape for t in self.w.tensors if t.name == source)
        at = at[::-1] if turned else at
        starts = [f"{number} * {extent}" for number, extent in zip(at, shape, strict=True)]
        form = self.w.pick(("place", "place", "slices", "loop"))
        if form == "place":
            return [Step(f"T.copy({source}[{', '.join(starts)}], {tile})")]
        if form == "slices":
            ranges = [f"{s}:{s} + {n}" for s, n in zip(starts, shape, strict=True)]
            return [Step(f"T.copy({source}[{', '.join(ranges)}], {tile})")]
        index = [f"{s} + {v}" for s, v in zip(starts, "ij", strict=True)]
        inside = " and ".join(f"{i} < {n}" for i, n in zip(index, sizes, strict=True))
        loop = f"for i, j in T.Parallel({shape[0]}, {shape[1]}):"
        found = Step(f"{tile}[i, j] = {source}[{', '.join(index)}]")
        none = Step(f'{tile}[i, j] = T.cast(0, "{dtype}")')
        return [Step(loop, (Step(f"if {inside}:", (found,)), Step("else:", (none,))))]


def _elementwise(p: _Product, tile: str) -> Step:
    """A tile's elements changed in place."""
    _, shape, dtype = p.w.tiles[tile]
    one = "int32" if dtype == "int8" else "float32"
    value = f'T.cast({tile}[i, j], "{one}")'
    change = p.w.pick(("{} + 1", "{} * 2 - 1", "T.max({}, 0)", "-{}")).format(value)
    loop = f"for i, j in T.Parallel({shape[0]}, {shape[1]}):"
    return Step(loop, (Step(f"{tile}[i, j] = {fitted(change, dtype)}"),))


def _before(p: _Product, left: str) -> tuple[list[Step], str]:
    """What happens to the left operand, and where the product takes it from."""
    w, form = p.w, p.w.pick(("none", "none", "fragment", "in place", "rows", "both"))
    steps: list[Step] = []
    if form == "in place":
        steps = [_elementwise(p, left)]
    elif form in ("fragment", "both") and not p.turned_a:
        name = _tile(w, "fragment", w.tiles[left][1], p.dtype)
        steps = [Step(f"T.copy({left}, {name})")]
        steps += [_elementwise(p, name)] if form == "both" else []
        return steps, name
    elif form == "rows" and p.dtype != "float8_e4m3fn":
        wide = _tile(w, "fragment", w.tiles[left][1], p.sum)
        total = _tile(w, "fragment", (p.rows,), p.sum, 0)
        steps = [
            Step(f"T.copy({left}, {wide})"),
            Step(f"T.reduce_sum({wide}, {total}, dim={int(not p.turned_a)}, clear=False)"),
        ]
        w.roots[total] = "rows"
    return steps, left


def _tile(
    w: Writer, scope: str, shape: tuple[int, ...], dtype: str, start: int | None = None
) -> str:
    name = w.name(scope[0].upper())
    w.tiles[name] = scope, shape, dtype
    w.head.append(Step(f'{name} = T.alloc_{scope}({shape}, "{dtype}")'))
    if start is not None:
        w.head.append(Step(f"T.fill({name}, {start})"))
    return name


def _loop(p: _Product, c: str) -> Step:
    w = p.w
    a = p.operand(p.m, p.k, p.turned_a, p.dtype)
    b = p.operand(p.k, p.n, p.turned_b, p.right)
    shape_a = (p.depth, p.rows) if p.turned_a else (p.rows, p.depth)
    shape_b = (p.columns, p.depth) if p.turned_b else (p.depth, p.columns)
    left, right = _tile(w, "shared", shape_a, p.dtype), _tile(w, "shared", shape_b, p.right)
    loads = p.load(a, left, ("by", "ko"), p.turned_a) + p.load(b, right, ("ko", "bz"), p.turned_b)
    before, taken = _before(p, left)
    policy = w.pick(("Square", "Square", "FullRow", "FullCol"))
    product = Step(
        f"T.gemm({taken}, {right}, {c}, transpose_A={p.turned_a}, transpose_B={p.turned_b}, "
        f"policy=T.GemmWarpPolicy.{policy})"
    )
    if w.chance(0.2):
        other = _tile(w, "fragment", (p.rows, p.columns), p.sum, 1)
        before.append(
            Step(product.text.replace(f", {c},", f", {other},").replace(f"({taken}", f"({left}"))
        )
        w.roots[other] = "sum"
    tiles = f"T.ceildiv({p.k}, {p.depth})"
    steps = w.rng.choice(([*loads, *before, product], [*loads[::-1], *before, product]))
    guard = w.pick(("none", "none", "none", "all", "product", "table"))
    if guard == "all":
        steps = [Step("if (ko + bx) % 3 != 1:", tuple(steps))]
    elif guard == "product":
        steps = [*steps[:-1], Step("if (ko + bx) % 2 == 0:", tuple(steps[-1:]))]
    elif guard == "table":
        table = w.input((-(-p.long // p.depth),), "int32", -1, 1)
        steps = [Step(f"if {table}[ko] >= 0:", tuple(steps))]
    bounds = w.pick((tiles, tiles, f"1, {tiles}", f"{tiles} - 1"))
    if w.chance(0.25):
        return Step(f"for ko in T.serial({bounds}):", tuple(steps))
    return Step(f"for ko in T.Pipelined({bounds}, num_stages={w.rng.randrange(5)}):", tuple(steps))


def _end(p: _Product, c: str) -> list[Step]:
    """The sums, what is added to them, and how they leave."""
    w = p.w
    steps: list[Step] = []
    loop = f"for i, j in T.Parallel({p.rows}, {p.columns}):"
    for name, kind in w.roots.items():
        value = f"{name}[i]" if kind == "rows" else f"{name}[i, j]"
        steps.append(Step(loop, (Step(f"{c}[i, j] += {value}"),)))
    if w.chance(0.4):
        bias = w.input((p.n,), p.sum)
        inside = Step(
            f"if bz * {p.columns} + j < {p.n}:",
            (Step(f"{c}[i, j] += {bias}[bz * {p.columns} + j]"),),
        )
        steps.append(Step(loop, (inside,)))
    out = w.pick((p.sum, p.sum, p.dtype))
    if out != p.sum:
        steps.append(Step(loop, (Step(f"{c}[i, j] = T.clamp({c}[i, j], -8, 8)"),)))
    w.tensors.append(Tensor(w.name("O"), (p.m, p.n), out))
    target = f"{w.tensors[-1].name}[by * {p.rows}, bz * {p.columns}]"
    form = w.pick(("straight", "staged", "wide", "loop"))
    if form == "staged":
        staged = _tile(w, "shared", (p.rows, p.columns), out)
        return [*steps, Step(f"T.copy({c}, {staged})"), Step(f"T.copy({staged}, {target})")]
    if form == "wide":
        staged = _tile(w, "shared", (p.rows, p.columns), p.sum)
        return [*steps, Step(f"T.copy({c}, {staged})"), Step(f"T.copy({staged}, {target})")]
    if form == "loop":
        inside = f"by * {p.rows} + i < {p.m} and bz * {p.columns} + j < {p.n}"
        place = target.replace(", bz", " + i, bz").replace("]", " + j]")
        store = Step(f'{place} = T.cast({c}[i, j], "{out}")')
        return [*steps, Step(loop, (Step(f"if {inside}:", (store,)),))]
    return [*steps, Step(f"T.copy({c}, {target})")]


@drawn
def products(w: Writer, title: str) -> Program:
    """Products over a pipelined loop: partial tiles, guards, operands in registers, sums beside."""
    p = _Product(w)
    c = _tile(w, "fragment", (p.rows, p.columns), p.sum, w.rng.randrange(HIGH))
    body = [_loop(p, c)]
    if w.chance(0.2):
        body = [Step(f"for t in T.serial({w.pick((1, 2))}):", tuple(body))]
    body += _end(p, c)
    w.head = [Step(f"by = bx // {p.across}"), Step(f"bz = bx % {p.across}"), *w.head]
    threads = w.pick((64, 128, 128, 128, 256, 384))
    steps = (*w.head, *body)
    return Program(title, tuple(w.tensors), steps, p.grid, threads, tuple(w.sizes))
