"""Random tile programs, each determined by its seed on any machine."""

from __future__ import annotations

import itertools

from tilelang.testing.fuzz import statements
from tilelang.testing.fuzz.interpret import interpret
from tilelang.testing.fuzz.program import (
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Invalid,
    Jump,
    Load,
    Num,
    Op,
    Parallel,
    Persistent,
    Program,
    Ref,
    Store,
    Tile,
    While,
)
from tilelang.testing.fuzz.writer import LIMITS, Known, Writer, add, at, mul, whole

_EXTENTS = (1, 3, 4, 7, 8, 15, 16, 16, 17, 24, 31, 32, 32, 33, 48, 60, 63, 64, 64, 65, 96, 100, 128)
_THREADS = ((32,), (64,), (128,), (128,), (128,), (256,), (96,), (160,), (48,), (100,), (16, 8))
_LOADED = (
    "float16",
    "float16",
    "float32",
    "float32",
    "bfloat16",
    "int32",
    "int8",
    "uint8",
    "float64",
)
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
_MOST_ELEMENTS = 4096


def generate(seed: int, number: int) -> Program:
    """The program number `number` of a seed; `interpret` accepts it.

    Example: ``print(emit(generate(0, 17)))``
    """
    for attempt in itertools.count():
        writer = Writer(f"{seed}/{number}/{attempt}")
        _Generator(writer).function()
        program = writer.program()
        try:
            interpret(program)
        except Invalid:
            continue
        return program
    raise AssertionError


def second(bounds: dict[str, Expr]) -> Expr:
    """The value of a loop's variable in its second iteration."""
    return add(bounds.get("start", Num(0)), bounds.get("step", Num(1)))


class _Generator:
    def __init__(self, writer: Writer):
        self.w = writer
        self.dynamic = writer.chance(0.2)

    def function(self) -> None:
        for _ in range(2 if self.w.chance(0.12) else 1):
            self.kernel()
            self.w.start_kernel()

    def kernel(self) -> None:
        w = self.w
        self.m, self.n = self.tile_extents()
        self.threads = w.pick(_THREADS)
        blocks = w.pick(("one", "one", "rows", "columns", "both"))
        self.M, self.grid_y = self.problem(self.m, blocks in ("rows", "both"), "M")
        self.N, self.grid_x = self.problem(self.n, blocks in ("columns", "both"), "N")
        self.by, self.bx = Num(0), Num(0)  # type: Expr, Expr
        grid: tuple[Expr, ...] = ()
        if blocks == "rows":
            grid, self.by = (self.grid_y,), Ref("bx")
        elif blocks == "columns":
            grid, self.bx = (self.grid_x,), Ref("bx")
        elif blocks == "both":
            grid, self.by, self.bx = (self.grid_x, self.grid_y), Ref("by"), Ref("bx")
        elif w.chance(0.5):
            grid = (Num(1),)
        if blocks == "both" and w.chance(0.25):
            grid = self.persistent()
        else:
            self.tile()
        swizzle = w.pick((2, 4)) if len(grid) == 2 and w.chance(0.15) else 0
        w.finish_kernel(grid, self.threads, swizzle)

    def tile(self) -> None:
        """What a block does with the tile at (by, bx)."""
        w = self.w
        self.origin = [
            Num(0) if b == Num(0) else mul(b, e) for b, e in ((self.by, self.m), (self.bx, self.n))
        ]
        for _ in range(w.pick((1, 1, 2, 3))):
            self.load()
        for _ in range(w.pick((1, 2, 3, 4, 6))):
            self.statement(0)
        self.store_results()

    def persistent(self) -> tuple[Expr, ...]:
        """A few blocks that share all tiles; their grid."""
        w = self.w
        wave = Num(w.pick((1, 2, 3, 5)))
        domain = (self.grid_y, self.grid_x)
        variables = (w.name("p"), w.name("p"))
        self.by, self.bx = Ref(variables[0]), Ref(variables[1])
        with w.body() as body:
            w.loops += [(v, w.value(e)) for v, e in zip(variables, domain, strict=True)]
            self.tile()
            del w.loops[-2:]
        group = w.pick((1, 2, 8))
        w.emit(Persistent(variables, domain, wave, Ref("bx"), group, tuple(body)))
        return (wave,)

    def tile_extents(self) -> tuple[Ref, Ref]:
        w = self.w
        while True:
            m, n = w.pick(_EXTENTS), w.pick(_EXTENTS)
            if m * n <= _MOST_ELEMENTS:
                return w.size(m, "m"), w.size(n, "n")

    def problem(self, tile: Ref, many: bool, prefix: str) -> tuple[Ref, Expr]:
        """The extent of the tensors along a tile's dimension, and the number of blocks."""
        w = self.w
        extent = w.value(tile)
        total = extent * w.pick((2, 3)) if many else extent
        if w.chance(0.5):
            total = max(total - w.rng.randrange(extent), 1)
        size = w.size(total, prefix, self.dynamic and w.chance(0.6))
        return size, Op("ceildiv", (size, tile))

    # Tensors

    def load(self) -> None:
        """A tile, or a row or column of one, from a tensor."""
        w = self.w
        kind = w.pick(("tile", "tile", "tile", "rows", "columns"))
        shape, sizes, origin = {
            "tile": ((self.m, self.n), (self.M, self.N), self.origin),
            "rows": ((self.m,), (self.M,), self.origin[:1]),
            "columns": ((self.n,), (self.N,), self.origin[1:]),
        }[kind]
        earlier = [t for t in w.written if t[0].shape == sizes]
        if earlier and w.chance(0.7):
            tensor, bound, exact = w.pick(earlier)
        else:
            tensor, bound, exact = w.input(sizes, w.pick(_LOADED)), 4, True
        dtype = tensor.dtype
        if w.chance(0.15) and exact:
            wider = [d for d in ("float32", "int32") if bound <= LIMITS[d] and dtype != "float64"]
            dtype = w.pick([dtype, *wider])
        scope = w.pick(("shared", "fragment"))
        name = w.buffer(scope, shape, dtype)
        self.fetch(tensor.name, sizes, origin, name, shape)
        w.learn(name, shape, dtype, scope, bound, exact)

    def fetch(
        self,
        tensor: str,
        sizes: tuple[Expr, ...],
        origin: list[Expr],
        name: str,
        shape: tuple[Expr, ...],
    ) -> None:
        """Fill a tile from where `origin` is in a tensor, in one of three ways."""
        w = self.w
        way = w.pick(("element", "element", "region", "loop"))
        if way == "element":
            w.emit(Copy(at(tensor, *origin), Tile(name)))
        elif way == "region":
            w.emit(Copy(Tile(tensor, tuple(origin), shape), Tile(name)))
        else:
            variables = ("i", "j")[: len(shape)]
            refs = tuple(Ref(v) for v in variables)
            where = tuple(add(o, r) for o, r in zip(origin, refs, strict=True))
            w.emit(Parallel(variables, shape, (Store(name, refs, Load(tensor, where)),)))

    def store_results(self) -> None:
        """Every tile that is known, up to a few, goes to a tensor of its own."""
        w = self.w
        tiles = [k for k in w.known if k.scope != "var"]
        w.rng.shuffle(tiles)
        for known in tiles[: w.pick((1, 2, 3, 4))]:
            self.store(known)

    def store(self, known: Known) -> None:
        w = self.w
        if known.shape == (self.m, self.n):
            shape, start = (self.M, self.N), tuple(self.origin)
        else:
            # Each block has its own place.
            shape = (self.grid_y, self.grid_x, *known.shape)  # type: ignore[assignment]
            start = (self.by, self.bx, *(Num(0) for _ in known.shape))
        tensor = w.tensor(shape, known.dtype, prefix="Out")
        way = w.pick(("element", "region", "loop"))
        if way == "loop" and known.rank <= 2:
            variables = ("i", "j")[: known.rank]
            refs = tuple(Ref(v) for v in variables)
            own = start[len(start) - known.rank :]
            where = (
                *start[: len(start) - known.rank],
                *(add(o, r) for o, r in zip(own, refs, strict=True)),
            )
            w.emit(
                Parallel(
                    variables, known.shape, (Store(tensor.name, where, Load(known.name, refs)),)
                )
            )
        elif way == "region":
            ones = tuple(Num(1) for _ in range(len(shape) - known.rank))
            w.emit(Copy(whole(known), Tile(tensor.name, start, (*ones, *known.shape))))
        else:
            w.emit(Copy(whole(known), at(tensor.name, *start)))
        if known.shape == (self.m, self.n):
            w.written.append((tensor, known.bound, known.exact))

    # Statements

    def statement(self, depth: int) -> None:
        w = self.w
        kinds = ["simple"] * 10 + ["gemm"] * 2
        if depth < 2:
            kinds += ["loop"] * 2 + ["branch"]
        if not w.loops and not w.branches and len(self.threads) == 1:
            kinds += ["threads"]
        kind = w.pick(kinds)
        if kind == "simple":
            self.simple()
        elif kind == "gemm":
            if not (w.chance(0.4) and self.chain()):
                self.gemm()
        elif kind == "loop":
            self.loop(depth)
        elif kind == "threads":
            statements.threads(w, self.threads[0])
        else:
            self.branch(depth)

    def simple(self) -> None:
        choices = [f for f, weight in statements.SIMPLE for _ in range(weight)]
        for _ in range(4):
            if self.w.pick(choices)(self.w):
                return

    def loop(self, depth: int) -> None:
        """A loop of any kind, most of them over chunks of a tensor."""
        w = self.w
        kind = w.pick(("serial", "serial", "while", "unroll", "pipelined", "pipelined"))
        extent = w.pick((1, 2, 3, 4))
        stages = w.pick((0, 1, 2, 2, 3, 4)) if kind == "pipelined" else 0
        before = list(w.known)
        width = w.value(self.n) * extent - (
            w.rng.randrange(w.value(self.n)) if w.chance(0.3) else 0
        )
        total = w.size(width, "W", self.dynamic and kind != "unroll" and w.chance(0.4))
        self.accumulator()
        variable = w.buffer("var", (), "int32") if kind == "while" else w.name("k")
        bounds, place = self.span(kind, variable, total, self.n)
        with w.body() as body:
            w.loops.append((variable, extent))
            if kind == "pipelined" or w.chance(0.4):
                self.load_chunk(place, variable, total)
            for _ in range(w.pick((1, 2, 3))):
                self.statement(depth + 1)
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
        self, kind: str, variable: str, total: Expr, width: Expr
    ) -> tuple[dict[str, Expr], Expr]:
        """The bounds of a loop over the chunks of `total`, and where an iteration's chunk is."""
        w, k, count = self.w, Ref(variable), Op("ceildiv", (total, width))
        forms = ["plain"] * 4
        forms += ["shifted"] if kind != "while" else []
        forms += ["steps"] if kind in ("serial", "unroll") else []
        forms += ["down"] if kind == "serial" else []
        form = w.pick(forms)
        if form == "steps":
            return {"stop": total, "step": width}, k
        if form == "shifted":
            start = Num(w.pick((1, 2, 5)))
            return {"start": start, "stop": add(count, start)}, mul(Op("sub", (k, start)), width)
        if form == "down":
            last = Op("sub", (count, Num(1)))
            return {"start": last, "stop": Num(-1), "step": Num(-1)}, mul(k, width)
        return {"stop": count}, mul(k, width)

    def accumulator(self) -> None:
        """A tile that the loop can add to."""
        w = self.w
        if w.chance(0.6):
            dtype = w.pick(("float32", "float32", "int32", "float16"))
            name = w.buffer("fragment", (self.m, self.n), dtype)
            w.emit(Fill(Tile(name), Num(0)))
            w.learn(name, (self.m, self.n), dtype, "fragment", 0)

    def load_chunk(self, place: Expr, variable: str, total: Expr) -> None:
        """The chunk of an iteration, along rows of a tensor."""
        w = self.w
        dtype = w.pick(_LOADED)
        tensor = w.input((self.M, total), dtype)
        name = w.buffer(w.pick(("shared", "shared", "shared", "fragment")), (self.m, self.n), dtype)
        origin = [self.origin[0], place]
        scope = w.buffers[-1].scope
        if scope == "shared" and w.chance(0.25):
            self.fetch_some(tensor.name, origin, name, variable)
        else:
            self.fetch(tensor.name, tensor.shape, origin, name, (self.m, self.n))
        w.learn(name, (self.m, self.n), dtype, scope, 4)

    def fetch_some(self, tensor: str, origin: list[Expr], name: str, variable: str) -> None:
        """Fill a tile in front of the loop, and in some iterations or in part in the loop."""
        w = self.w
        w.bodies[-2].append(Fill(Tile(name), Num(w.pick((0, 2)))))
        if w.chance(0.5):
            rows = Num(w.rng.randrange(w.value(self.m)) + 1)
            part = Tile(tensor, tuple(origin), (rows, self.n))
            w.emit(Copy(part, Tile(name, (Num(0), Num(0)), (rows, self.n))))
        else:
            even = Op("eq", (Op("mod", (Ref(variable), Num(2))), Num(w.pick((0, 1)))))
            w.emit(If(even, (Copy(at(tensor, *origin), Tile(name)),)))

    def branch(self, depth: int) -> None:
        """Statements that some blocks or iterations do; what they define stays inside."""
        w = self.w
        names = [name for name, _ in w.loops]
        names += [b.name for b in (self.bx, self.by) if isinstance(b, Ref)]
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
                    self.statement(depth + 1)
            w.branches -= 1
            w.known = known
            bodies.append(tuple(body))
        if bodies[0]:
            w.emit(If(condition, bodies[0], bodies[1] if len(bodies) > 1 else ()))

    def chain(self) -> bool:
        """The product of a known tile and a tensor's, as attention's second one is."""
        w = self.w
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
        if bound > LIMITS[accum] or w.value(rows) * w.value(columns) > _MOST_ELEMENTS:
            return False
        shape = (columns, depth) if other else (depth, columns)
        tensor = w.input(shape, dtype)
        b = w.buffer("shared", shape, dtype)
        self.fetch(tensor.name, shape, [Num(0), Num(0)], b, shape)
        if w.chance(0.2):
            fragment = w.buffer("fragment", shape, dtype)
            w.emit(Copy(Tile(b), Tile(fragment)))
            b = fragment
        c = w.buffer("fragment", (rows, columns), accum)
        policy = w.pick(("Square", "FullRow", "FullCol"))
        w.emit(Gemm(Tile(name), Tile(b), Tile(c), transposed, other, policy, Num(1)))
        w.learn(c, (rows, columns), accum, "fragment", bound)
        return True

    def gemm(self) -> None:
        """A matrix product, over several chunks of K in a pipeline, or of what is known."""
        w = self.w
        dtype, accum = w.pick(_PRODUCTS)
        k_value = w.pick((8, 16, 16, 32, 32, 64, 20, 7, 24, 33))
        while (w.value(self.m) + w.value(self.n)) * k_value > 3 * _MOST_ELEMENTS:
            k_value //= 2
        k = w.size(k_value, "k")
        depth = k_value * w.pick((1, 2, 3, 5))
        depth -= w.rng.randrange(k_value) if w.chance(0.3) else 0
        total = w.size(depth, "K", self.dynamic and w.chance(0.5))
        bound = 16.0 * w.value(total) * w.repeats
        top = 4
        if bound > LIMITS[accum]:
            bound, top = bound / 16, 1
        if bound > LIMITS[accum]:
            return
        trans = (w.chance(0.3), w.chance(0.4))
        a_tile = (k, self.m) if trans[0] else (self.m, k)
        b_tile = (self.n, k) if trans[1] else (k, self.n)
        a = w.input((total, self.M) if trans[0] else (self.M, total), dtype, top)
        b = w.input((self.N, total) if trans[1] else (total, self.N), dtype, top)
        a_buffer, b_buffer = w.buffer("shared", a_tile, dtype), w.buffer("shared", b_tile, dtype)
        operands = [a_buffer, b_buffer]
        moved = []
        for side, (tile, chance) in enumerate(((a_tile, 0.25), (b_tile, 0.12))):
            if w.chance(chance):
                fragment = w.buffer("fragment", tile, dtype)
                moved.append(Copy(Tile(operands[side]), Tile(fragment)))
                operands[side] = fragment
        c = w.buffer("fragment", (self.m, self.n), accum)
        variable = w.name("k")
        kind = w.pick(("pipelined", "pipelined", "pipelined", "serial"))
        stages = w.pick((0, 1, 2, 3, 4)) if kind == "pipelined" else 0
        bounds, step = self.span(kind, variable, total, k)
        first: Expr | None = None
        if w.chance(0.3):
            first = Op("eq", (Ref(variable), bounds.get("start", Num(0))))
        else:
            w.emit(Fill(Tile(c), Num(w.pick((0, 0, 1)))))
        with w.body() as body:
            row, column = self.origin
            a_origin = [step, row] if trans[0] else [row, step]
            b_origin = [column, step] if trans[1] else [step, column]
            self.fetch(a.name, a.shape, a_origin, a_buffer, a_tile)
            self.fetch(b.name, b.shape, b_origin, b_buffer, b_tile)
            for copy in moved:
                w.emit(copy)
            policy = w.pick(("Square", "Square", "FullRow", "FullCol"))
            w.emit(Gemm(Tile(operands[0]), Tile(operands[1]), Tile(c), *trans, policy, first))
        w.emit(For(kind, variable, body=tuple(body), stages=stages, **bounds))
        w.learn(c, (self.m, self.n), accum, "fragment", bound + 1)
